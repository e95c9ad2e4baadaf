"""Estimated cycles of a layer under a tiling: the instructions' own cycle formulas against the bytes moved.

An estimate that ranks tilings, not a promise: the compiler never reads a Timing. It assumes the default one: a bus of 8
bytes a cycle, on which a burst of at most 64 bytes takes 7 slots at least, and transfers one after another in each of
LD and ST, with 108 cycles beside the slots of each (docs/machine.md, sections 2, 5 and 6).
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
BURST_GAP = 7
"""Slots of the bus that a burst takes at least."""
TRANSFER_OVERHEAD = 108
"""Set-up, latency and drain of one transfer: LD and ST have one at a time."""
COMMAND_OVERHEAD = 16
"""Fill and drain of one compute command."""
TILE_OVERHEAD, FIRST_OVERHEAD, TILE_SHARE = 110, 30, 4000
"""What one tile more must gain, less in a region's first layer: cycles in which units wait for one another, and a part
of so many of what the layer takes, for the time that it takes to compile and to simulate."""
HIDDEN = 0.8
"""Share of the first load of constants that earlier layers hide, as far as they compute as long as this one."""
TRAFFIC = 0.2
"""Price of a bus cycle even where computation hides it: layers before and after want the bus too."""


class Shape(NamedTuple):
    """What a tile shape costs in any order and with any slots: counts, aligned bytes, bus cycles.

    ``chunks`` tiles of ``depth`` input channels add up to one result, in ``sums_bytes``; depth 0: all at once.
    Those of inputs are one a streamed operand; ``input_tiles`` is how many different tiles it has. Bus cycles are those
    of the first tile, and, ``_all``, of all different ones together; ``last_cycles`` those of the last result.
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
    input_all: tuple[int, ...]
    constant_cycles: int
    constant_all: int
    table_cycles: int
    output_all: int
    last_cycles: int
    compute: int

    @property
    def tiles(self) -> int:
        """All tiles."""
        return self.parts * self.bands * self.chunks


class _Cut(NamedTuple):
    """The different pieces of a layer's channels, rows and input channels in a tile shape, each (size, how many)."""

    channels: tuple[tuple[int, int], ...]
    rows: tuple[tuple[int, int], ...]
    depth: tuple[tuple[int, int], ...]


class Account(NamedTuple):
    """Cycles of a layer's transfers: LD's and ST's, each command after another, and the bus's slots for both.

    ``first`` are the loads that a first tile waits for, ``last`` the last store. ``apart``: what computing cannot
    overlap with, for an operand has too few buffers.
    """

    loading: int
    storing: int
    slots: int
    first: int
    last: int
    apart: int


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
        self._share = 0.0
        read = () if geometry.instruction is None else geometry.instruction.registers
        plain = {name: RESET[name] for name in read if name in RESET and name not in geometry.operator.numbers}
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
            total += (1 + resident.beside) * min(slots.output, parts * bands) * shape.output_bytes
        return total

    def estimate(self, shape: Shape, tiling: Tiling, resident: Resident) -> float:
        """Estimated cycles of a tiling of this shape, the overhead of tiles included."""
        account = self._account(shape, tiling, resident)
        edge, slots = account.first + account.last, account.slots
        # The last load is followed by its tile's computation, the first store preceded by one: other layers' work.
        one = 0 if resident.follows else shape.compute // shape.tiles
        busy = max(
            shape.compute + account.apart,
            account.loading - account.first + one,
            account.storing - account.last + one,
            slots - edge + one,
        )
        return (
            busy + edge - self._hidden(shape, resident) + TRAFFIC * slots + self.overhead(shape.tiles, resident.follows)
        )

    def least(self, shape: Shape, resident: Resident) -> float:
        """What no tiling of this shape is below, nor any of the same channels and fewer rows: all is loaded once."""
        operands, constants = self._moved(resident)
        slots = shape.constant_all if constants else 0
        edge = TRANSFER_OVERHEAD * (len(operands) + (not resident.output) + resident.beside)
        for index in operands:
            slots += shape.input_all[index]
        if not resident.output:
            slots += shape.output_all * (1 + resident.beside)
        busy = max(shape.compute + edge, slots - self._hidden(shape, resident))
        return busy + TRAFFIC * slots + self.overhead(shape.tiles, resident.follows)

    def _hidden(self, shape: Shape, resident: Resident) -> float:
        """What earlier layers hide of loading the first constants."""
        if not (resident.follows and self._moved(resident)[1]):
            return 0.0
        return HIDDEN * min(shape.constant_cycles + TRANSFER_OVERHEAD, shape.compute)

    def overhead(self, tiles: int, follows: bool = True) -> float:
        """What so many tiles cost beside their work; ``follows`` as in :class:`Resident`."""
        if not self._share:  # the layer in one tile says how long it is
            nest = self._geometry.nest
            whole = self.shape(nest.channels, nest.rows)
            moved = whole.constant_all + sum(whole.input_all) + whole.output_all
            self._share = max(whole.compute, moved) / TILE_SHARE
        return ((TILE_OVERHEAD if follows else FIRST_OVERHEAD) + self._share) * tiles

    def _account(self, shape: Shape, tiling: Tiling, resident: Resident) -> Account:
        """The account of all transfers."""
        parts, bands, chunks, slots = shape.parts, shape.bands, shape.chunks, tiling.slots
        operands, constants = self._moved(resident)
        kept = slots.constants >= (chunks if tiling.channels_outer else parts * chunks)
        again = 1 if kept else bands
        loaded: list[tuple[int, int, int, int]] = []  # the first load, all, how many they are, buffers
        for index in operands:
            often, different = self._input_loads(shape, tiling, index), shape.input_tiles[index] * chunks
            total = shape.input_all[index] * often // different
            loaded.append((shape.input_cycles[index], total, often, slots.input))
        if constants:
            total = shape.constant_all * again
            loaded.append((shape.constant_cycles, total, parts * chunks * again, slots.constants))
        if shape.table_bytes:
            often = parts * again if self._geometry.tables == "each" else 1
            loaded.append((shape.table_cycles, shape.table_cycles * often, often, slots.constants))
        results = parts * bands
        loaded += [(shape.output_all // results, shape.output_all, results, slots.output)] * resident.beside
        moved = loading = first = alone = 0
        for cycles, total, often, buffers in loaded:
            moved += total
            loading += total + TRANSFER_OVERHEAD * often
            first += cycles + TRANSFER_OVERHEAD
            if buffers == 1:
                alone += total - cycles + TRANSFER_OVERHEAD * (often - 1)
        if resident.output:
            return Account(loading, 0, moved, first, 0, alone)
        storing, last = shape.output_all + TRANSFER_OVERHEAD * results, shape.last_cycles + TRANSFER_OVERHEAD
        apart = 0
        if self._geometry.in_place:
            alone += storing - last if slots.input == 1 else 0
        elif slots.output == 1:
            # Only the last of several chunks needs the buffer of the result.
            apart = max(storing - last - shape.compute * (chunks - 1) // chunks, 0)
        return Account(loading, storing, moved + shape.output_all, first, last, max(alone, apart))

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

    def traffic(self, shape: Shape, tiling: Tiling, resident: Resident) -> int:
        """Bus cycles of all that is loaded and stored."""
        return self._account(shape, tiling, resident).slots

    def waits(self, shape: Shape, tiling: Tiling, resident: Resident) -> int:
        """Cycles that moving the bytes takes longer than the computation; below 0: those in which the bus idles."""
        account = self._account(shape, tiling, resident)
        return max(account.slots, account.loading) - shape.compute

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
        parts, bands, inputs = ceil_div(nest.channels, channels), ceil_div(nest.rows, rows), range(geometry.inputs)
        constants = geometry.constant_bytes(channels, depth) if geometry.has_constants else 0
        whole = channels == nest.channels
        cut = _Cut(pieces(nest.channels, channels), pieces(nest.rows, rows), _chunks(nest.input_channels, depth))
        return Shape(
            channels=channels,
            rows=rows,
            depth=depth,
            parts=parts,
            bands=bands,
            chunks=ceil_div(nest.input_channels, depth) if depth else 1,
            input_tiles=tuple([geometry.input_tiles(index, parts, bands) for index in inputs]),
            input_bytes=tuple(
                [aligned(geometry.input_tile_bytes(channels, rows, index, depth), alignment) for index in inputs]
            ),
            constant_bytes=aligned(constants, alignment),
            output_bytes=0 if geometry.in_place else aligned(geometry.output_tile_bytes(channels, rows), alignment),
            table_bytes=aligned(geometry.table_bytes(channels), alignment),
            sums_bytes=aligned(geometry.sums_bytes(channels, rows), alignment) if depth else 0,
            input_cycles=tuple([_input_cycles(geometry, channels, rows, index, depth) for index in inputs]),
            input_all=tuple([self._input_all(cut, index) for index in inputs]),
            constant_cycles=_constant_cycles(geometry, channels, depth, whole) if constants else 0,
            constant_all=self._constants_all(cut, whole) if constants else 0,
            table_cycles=rows_cycles(1, geometry.table_bytes(channels), BURST_BYTES),
            output_all=self._output_all(cut),
            last_cycles=_output_cycles(geometry, (nest.channels - 1) % channels + 1, (nest.rows - 1) % rows + 1),
            compute=self._compute(cut),
        )

    def _constants_all(self, cut: _Cut, whole: bool) -> int:
        """Bus cycles of all constants."""
        geometry = self._geometry
        found = [
            many * frequent * _constant_cycles(geometry, size, deep, whole)
            for size, many in cut.channels
            for deep, frequent in cut.depth
        ]
        return sum(found)

    def _output_all(self, cut: _Cut) -> int:
        """Bus cycles of all results."""
        geometry = self._geometry
        found = [
            many * often * _output_cycles(geometry, size, height)
            for size, many in cut.channels
            for height, often in cut.rows
        ]
        return sum(found)

    def _input_all(self, cut: _Cut, index: int) -> int:
        """Bus cycles of all different tiles of an operand."""
        geometry, repeat = self._geometry, self._geometry.repeat(index)
        parted = geometry.nest.grouped and not repeat.channels
        found = [
            many * often * frequent * _input_cycles(geometry, size, height, index, deep)
            for size, many in (cut.channels if parted else ((cut.channels[0][0], 1),))
            for height, often in (((cut.rows[0][0], 1),) if repeat.rows else cut.rows)
            for deep, frequent in cut.depth
        ]
        return sum(found)

    def _compute(self, cut: _Cut) -> int:
        """Cycles of all tiles together."""
        found = [
            many * often * frequent * self.tile_cycles(size, height, deep)
            for size, many in cut.channels
            for height, often in cut.rows
            for deep, frequent in cut.depth
        ]
        return sum(found)

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


def _chunks(inputs: int, depth: int) -> tuple[tuple[int, int], ...]:
    """The different pieces of the input channels, 0 where they are not cut."""
    return pieces(inputs, depth) if depth else ((0, 1),)


def _constant_cycles(geometry: Geometry, channels: int, depth: int, whole: bool) -> int:
    """Bus cycles of the constants of one tile; ``whole``: it has all columns of a second operand."""
    nbytes, nest = geometry.constant_bytes(channels, depth), geometry.nest
    if geometry.second == "columns" and not whole:
        return _rows_cycles(nbytes, nest.input_channels, gcd(nest.channels, channels) * geometry.input_bytes)
    return rows_cycles(1, nbytes, BURST_BYTES)


def _input_cycles(geometry: Geometry, channels: int, rows: int, index: int, depth: int) -> int:
    """Bus cycles of an input of one tile."""
    nest = geometry.nest
    nbytes = geometry.input_tile_bytes(channels, rows, index, depth)
    if any(geometry.repeat(index)):
        return rows_cycles(1, nbytes, BURST_BYTES)
    if nest.matrix:
        parted = nest.grouped and channels < nest.channels
        return _rows_cycles(nbytes, nest.rows if parted else rows if depth else 1, nest.input_channels)
    column = nest.input_columns * geometry.input_bytes
    if rows == nest.rows:
        return rows_cycles(1, nbytes, BURST_BYTES)
    step = gcd(rows * nest.stride * column, nest.pad_top * column)
    return _rows_cycles(nbytes, nbytes // (band_rows(nest, rows) * column), gcd(nest.input_rows * column, step))


def _output_cycles(geometry: Geometry, channels: int, rows: int) -> int:
    """Bus cycles of the output of one tile."""
    nest = geometry.nest
    nbytes, row = geometry.output_tile_bytes(channels, rows), nest.columns * geometry.output_bytes
    if nest.matrix:
        return _rows_cycles(nbytes, rows if channels < nest.channels else 1, nest.channels * row)
    if rows == nest.rows:
        return _rows_cycles(nbytes, 1, nbytes)
    return _rows_cycles(nbytes, channels, gcd(nest.rows, rows) * row)


def _rows_cycles(nbytes: int, count: int, pitch: int) -> int:
    """Bus cycles of ``nbytes`` in ``count`` rows."""
    return rows_cycles(count, nbytes // count, pitch)


@lru_cache(maxsize=1 << 14)
def rows_cycles(count: int, nbytes: int, pitch: int) -> int:
    """Estimated bus cycles of ``count`` rows of ``nbytes`` that begin anywhere at multiples of ``pitch`` bytes."""
    starts = range(0, BURST_BYTES, gcd(pitch, BURST_BYTES))
    return count * sum(_row_cycles(start, nbytes) for start in starts) // len(starts)


def _row_cycles(start: int, nbytes: int) -> int:
    """Bus cycles of a row from byte ``start`` of a burst on: the beats of its bursts, each at least the gap."""
    if not nbytes:
        return 0
    bursts, rest = divmod(start + nbytes, BURST_BYTES)
    if not bursts:
        return max(ceil_div(rest, BUS_BYTES) - start // BUS_BYTES, BURST_GAP)
    beats = BURST_BYTES // BUS_BYTES
    first, between = max(beats - start // BUS_BYTES, BURST_GAP), (bursts - 1) * max(beats, BURST_GAP)
    return first + between + (max(ceil_div(rest, BUS_BYTES), BURST_GAP) if rest else 0)
