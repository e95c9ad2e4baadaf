"""Estimated cycles of a layer under a tiling: the instructions' own cycle formulas against the bytes moved.

An estimate that ranks tilings, not a promise: the compiler knows nothing of latencies and bandwidths. It assumes a bus
of 8 bytes a cycle on which rows of a strided transfer waste some.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from byoc.operators.nest import Span, band_rows, make_tile
from byoc.operators.operator import Geometry
from byoc.tiling.tiling import Resident, Tiling, aligned, loads_constants, streams, table_slots
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Command, Instruction, Unit, ceil_div
from isa.registers import RESET

BUS_BYTES = 8
BURST_BYTES = 64
"""Aligned blocks of system memory that are fetched at a time."""
BURST_GAP = 7
"""Bus cycles that even the least part of one takes."""
TILE_OVERHEAD = 600
"""What one tile more must gain: fill, drain, latency, command words - and the time that it takes to simulate."""
COMMAND_OVERHEAD = 24
"""Fill, drain and issue of one compute command."""
EXPOSED = 0.5
"""Share of the first load and the last store of a layer that nothing hides."""
TRAFFIC = 0.1
"""Price of a bus cycle even where computation hides it: layers before and after want the bus too."""


class Shape(NamedTuple):
    """What a tile shape costs in any order and with any slots: counts, aligned bytes, bus cycles of one tile.

    ``chunks`` tiles of ``depth`` input channels add up to one result, in ``sums_bytes``; depth 0: all at once.
    Those of inputs are one a streamed operand; ``input_tiles`` is how many different tiles it has.
    """

    channels: int
    rows: int
    depth: int
    parts: int
    bands: int
    chunks: int
    input_tiles: tuple[int, ...]
    input_bytes: tuple[int, ...]
    constant_bytes: int
    output_bytes: int
    table_bytes: int
    sums_bytes: int
    input_cycles: tuple[int, ...]
    constant_cycles: int
    output_cycles: int
    compute: int


class Traffic(NamedTuple):
    """Bus cycles of a layer: of all transfers, of the first loads and the last store, and of those that computation
    cannot hide, for its operand has one buffer only.
    """

    cycles: int
    edge: int
    alone: int


class Compute(NamedTuple):
    """Compute cycles, without fill and drain, and in how many commands."""

    cycles: int
    commands: int


class _UnknownNumberError(LookupError):
    """A cycle formula reads a register or field whose value no estimate may depend on."""


class _Known(dict[str, int]):
    """Registers or fields of a layer less its numbers: a formula that reads one is an error, not a wrong estimate."""

    def __missing__(self, name: str) -> int:
        raise _UnknownNumberError(name)


class LayerCost:
    """Estimates for one layer; remembers tile shapes."""

    def __init__(self, geometry: Geometry, arch: Arch) -> None:
        self._geometry = geometry
        self._arch = arch
        self._fields = _Known(geometry.fields)
        self._cycles: dict[tuple[int, int, int], int] = {}
        self._shapes: dict[tuple[int, int, int], Shape] = {}
        self._moves: dict[Resident, tuple[tuple[int, ...], bool]] = {}
        plain = {name: value for name, value in RESET.items() if name not in geometry.operator.numbers}
        self._base = {**plain, **dict(geometry.registers)}

    def shape(self, channels: int, rows: int, depth: int = 0) -> Shape:
        """The account of one tile shape."""
        key = channels, rows, depth
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = self._make_shape(channels, rows, depth)
        return found

    def working_set(self, shape: Shape, tiling: Tiling, resident: Resident) -> int:
        """:func:`byoc.tiling.tiling.working_set` of a tiling of this shape."""
        parts, bands, chunks, slots = shape.parts, shape.bands, shape.chunks, tiling.slots
        total = shape.sums_bytes
        operands, constants = self._moved(resident)
        for index in operands:
            total += min(slots.input, shape.input_tiles[index] * chunks) * shape.input_bytes[index]
        if constants:
            total += min(slots.constants, parts * chunks) * shape.constant_bytes
        if shape.table_bytes:
            total += table_slots(self._geometry, min(slots.constants, parts)) * shape.table_bytes
        if not resident.output:
            total += min(slots.output, parts * bands) * shape.output_bytes
        return total

    def estimate(self, shape: Shape, tiling: Tiling, resident: Resident) -> float:
        """Estimated cycles of a tiling of this shape, the overhead of tiles included."""
        traffic, edge, alone = self._traffic(shape, tiling, resident)
        tiles = shape.parts * shape.bands * shape.chunks
        return max(shape.compute + alone, traffic) + EXPOSED * edge + TRAFFIC * traffic + TILE_OVERHEAD * tiles

    def least(self, shape: Shape, resident: Resident) -> float:
        """What no tiling of this shape is below, nor any of the same channels and fewer rows: all is loaded once."""
        tiles = shape.parts * shape.bands * shape.chunks
        operands, constants = self._moved(resident)
        traffic = shape.constant_cycles * shape.parts * shape.chunks if constants else 0
        for index in operands:
            traffic += shape.input_cycles[index] * shape.input_tiles[index] * shape.chunks
        if not resident.output:
            traffic += shape.output_cycles * shape.parts * shape.bands
        return max(shape.compute, traffic) + TRAFFIC * traffic + TILE_OVERHEAD * tiles

    def _traffic(self, shape: Shape, tiling: Tiling, resident: Resident) -> Traffic:
        """The account of all transfers."""
        parts, bands, chunks, slots = shape.parts, shape.bands, shape.chunks, tiling.slots
        kept = slots.constants >= (chunks if tiling.channels_outer else parts * chunks)
        again = 1 if kept else bands
        operands, loaded = self._moved(resident)
        constants = shape.constant_cycles if loaded else 0
        edge, traffic = constants, constants * parts * chunks * again
        alone = traffic - edge if slots.constants == 1 else 0
        if shape.table_bytes:
            traffic += shape.table_bytes // BUS_BYTES * (parts * again if self._geometry.tables == "each" else 1)
        for index in operands:
            cycles, loads = shape.input_cycles[index], self._input_loads(shape, tiling, index)
            traffic += cycles * loads
            edge += cycles
            alone += cycles * (loads - 1) if slots.input == 1 else 0
        if not resident.output:
            traffic += shape.output_cycles * parts * bands
            edge += shape.output_cycles
            alone += shape.output_cycles * (parts * bands - 1) if slots.output == 1 else 0
        return Traffic(traffic, edge, alone)

    def _moved(self, resident: Resident) -> tuple[tuple[int, ...], bool]:
        """Numbers of the operands that are streamed, and whether constants are loaded: asked for every candidate."""
        found = self._moves.get(resident)
        if found is None:
            found = self._moves[resident] = streams(self._geometry, resident), loads_constants(self._geometry, resident)
        return found

    def _input_loads(self, shape: Shape, tiling: Tiling, index: int) -> int:
        """How often a tile of an operand is loaded."""
        parts, bands, chunks, different = shape.parts, shape.bands, shape.chunks, shape.input_tiles[index]
        if self._geometry.nest.grouped or self._geometry.repeats:
            outer = parts if tiling.channels_outer else bands
            return different if different in (1, outer) or different <= tiling.slots.input else parts * bands
        kept = tiling.slots.input >= (bands * chunks if tiling.channels_outer else chunks)
        return bands * chunks * (1 if kept else parts)

    def hungry(self, shape: Shape, tiling: Tiling, resident: Resident) -> bool:
        """Whether the bytes moved take longer than the computation."""
        return self._traffic(shape, tiling, resident).cycles > shape.compute

    def tile_cycles(self, channels: int, rows: int, depth: int = 0) -> int:
        """Compute cycles of one tile, all of its commands."""
        if self._geometry.single:
            return channels * (COMMAND_OVERHEAD + self._command_cycles(1, rows))
        return COMMAND_OVERHEAD + self._command_cycles(channels, rows, depth)

    def least_compute(self) -> Compute:
        """What no tiling of the layer computes in less, nor in fewer commands: its instruction's word."""
        geometry, nest = self._geometry, self._geometry.nest
        instruction = geometry.instruction
        if instruction is None:
            return Compute(0, 0)
        many, channels = (nest.channels, 1) if geometry.single else (1, nest.channels)
        command = self._command(instruction, channels, nest.rows)
        return Compute(many * self._asked(instruction.least_cycles, command), many)

    def _make_shape(self, channels: int, rows: int, depth: int) -> Shape:
        geometry, alignment = self._geometry, self._arch.alignment
        nest = geometry.nest
        constants = geometry.constant_bytes(channels, depth) if geometry.has_constants else 0
        apart = nest.input_channels if geometry.second == "columns" and channels < nest.channels else bool(constants)
        parts, bands, inputs = ceil_div(nest.channels, channels), ceil_div(nest.rows, rows), range(geometry.inputs)
        return Shape(
            channels,
            rows,
            depth,
            parts,
            bands,
            ceil_div(nest.input_channels, depth) if depth else 1,
            tuple(geometry.input_tiles(index, parts, bands) for index in inputs),
            tuple(aligned(geometry.input_tile_bytes(channels, rows, index, depth), alignment) for index in inputs),
            aligned(constants, alignment),
            0 if geometry.in_place else aligned(geometry.output_tile_bytes(channels, rows), alignment),
            aligned(geometry.table_bytes(channels), alignment),
            aligned(geometry.sums_bytes(channels, rows), alignment) if depth else 0,
            tuple(_input_cycles(geometry, channels, rows, index, depth) for index in inputs),
            constants // BUS_BYTES + apart,
            _output_cycles(geometry, channels, rows),
            self._compute(channels, rows, depth),
        )

    def _compute(self, channels: int, rows: int, depth: int) -> int:
        """Cycles of all tiles together."""
        nest = self._geometry.nest
        return sum(
            many * often * frequent * self.tile_cycles(size, height, deep)
            for size, many in pieces(nest.channels, channels)
            for height, often in pieces(nest.rows, rows)
            for deep, frequent in (pieces(nest.input_channels, depth) if depth else ((0, 1),))
        )

    def _command_cycles(self, channels: int, rows: int, depth: int = 0) -> int:
        """Cycles of one compute command, by the instruction's formula: of ``depth`` input channels, 0: of all."""
        geometry = self._geometry
        instruction = geometry.instruction
        if instruction is None:
            return 0
        key = channels, rows, depth
        if key not in self._cycles:
            self._cycles[key] = self._asked(instruction.cycles, self._command(instruction, channels, rows, depth))
        return self._cycles[key]

    def _command(self, instruction: Instruction, channels: int, rows: int, depth: int = 0) -> Command:
        """The command that computes a tile, as far as cycle formulas may know it."""
        geometry = self._geometry
        tile = make_tile(geometry.nest, Span(0, channels), Span(0, rows), Span(0, depth) if depth else None)
        registers = _Known({**self._base, **geometry.operator.tile_registers(geometry, tile)})
        return Command(0, instruction, Unit.EX, False, False, False, False, self._fields, registers)

    def _asked(self, formula: Callable[[Command, Arch], int], command: Command) -> int:
        """What a cycle formula says of a command; raises InputError where it reads a number."""
        try:
            return formula(command, self._arch)
        except _UnknownNumberError as error:
            raise InputError(
                f"the cycle formula of {command.instruction.mnemonic} reads {error.args[0]}, which is among the "
                f"numbers of operator {self._geometry.operator.__name__}; take it off there"
            ) from error


def pieces(size: int, step: int) -> tuple[tuple[int, int], ...]:
    """The different pieces of ``size`` cut in steps, each (size, how many)."""
    whole, rest = divmod(size, step)
    return ((step, whole), (rest, 1)) if rest else ((step, whole),)


@lru_cache(maxsize=4096)
def rows_cycles(count: int, nbytes: int, pitch: int) -> int:
    """Estimated bus cycles of ``count`` rows of ``nbytes`` that begin anywhere at multiples of ``pitch`` bytes."""
    starts = range(0, BURST_BYTES, gcd(pitch, BURST_BYTES))
    return count * sum(_row_cycles(start, nbytes) for start in starts) // len(starts)


def _row_cycles(start: int, nbytes: int) -> int:
    """Bus cycles of a row from byte ``start`` of a burst on: what beats of its bursts take, each at least the gap."""
    cycles, end = 0, start + nbytes
    while start < end:
        stop = min(end, (start // BURST_BYTES + 1) * BURST_BYTES)
        cycles += max(ceil_div(stop, BUS_BYTES) - start // BUS_BYTES, BURST_GAP)
        start = stop
    return cycles


def _input_cycles(geometry: Geometry, channels: int, rows: int, index: int, depth: int) -> int:
    """Bus cycles of an input of one tile."""
    nest = geometry.nest
    nbytes = geometry.input_tile_bytes(channels, rows, index, depth)
    if any(geometry.repeat(index)):
        strided_rows = 1
    elif nest.matrix:
        parted = nest.grouped and channels < nest.channels
        strided_rows = nest.rows if parted else rows if depth else 1
    elif rows == nest.rows:
        strided_rows = 1
    else:
        strided_rows = nbytes // (band_rows(nest, rows) * nest.input_columns * geometry.input_bytes)
    if strided_rows == 1:
        return nbytes // BUS_BYTES + 1
    pitch = nest.input_channels if nest.matrix else nest.input_columns
    return rows_cycles(strided_rows, nbytes // strided_rows, pitch * geometry.input_bytes)


def _output_cycles(geometry: Geometry, channels: int, rows: int) -> int:
    """Bus cycles of the output of one tile."""
    nest = geometry.nest
    nbytes = geometry.output_tile_bytes(channels, rows)
    strided_rows = (rows if channels < nest.channels else 1) if nest.matrix else channels if rows < nest.rows else 1
    if strided_rows == 1:
        return ceil_div(nbytes, BUS_BYTES) + 1
    pitch = nest.channels if nest.matrix else nest.columns
    return rows_cycles(strided_rows, nbytes // strided_rows, pitch * geometry.output_bytes)
