"""Estimated cycles of a layer under a tiling: the instructions' own cycle formulas against the bytes moved.

An estimate that ranks tilings, not a promise: the compiler knows nothing of latencies and bandwidths. It assumes a bus
of 8 bytes a cycle on which a row of a strided transfer wastes one cycle.
"""

from __future__ import annotations

from typing import NamedTuple

from byoc.emit_compute import layer_settings, tile_registers
from byoc.layer import Layer
from byoc.tile import Span, band_rows, make_tile
from byoc.tiling import Resident, Tiling, counts, slot_counts
from isa.arch import Arch
from isa.instruction import Command, Unit, ceil_div
from isa.registers import RESET

BUS_BYTES = 8
TILE_OVERHEAD = 150
"""What one tile more must gain: fill, drain, latency, command words - and the time that it takes to simulate."""
COMMAND_OVERHEAD = 24
"""Fill, drain and issue of one compute command."""
EXPOSED = 0.5
"""Share of the first load and the last store of a layer that nothing hides."""
TRAFFIC = 0.1
"""Price of a bus cycle even where computation hides it: layers before and after want the bus too."""


class Traffic(NamedTuple):
    """Bus cycles of a layer: all of them, and those of its first loads and last store."""

    total: int
    edge: int


class LayerCost:
    """Estimates for one layer; remembers the cycles of tile shapes."""

    def __init__(self, layer: Layer, arch: Arch) -> None:
        self._layer = layer
        self._arch = arch
        self._settings = layer_settings(layer, arch)
        self._cycles: dict[tuple[int, int], int] = {}

    def estimate(self, tiling: Tiling, resident: Resident) -> float:
        """Estimated cycles, the overhead of tiles included."""
        layer = self._layer
        parts, bands = counts(layer, tiling)
        commands = bands * (layer.nest.channels if layer.family == "emulated" else parts)
        compute = self._compute(tiling) + commands * COMMAND_OVERHEAD
        traffic = _traffic(layer, tiling, resident)
        hidden = max(compute, traffic.total)
        return hidden + EXPOSED * traffic.edge + TRAFFIC * traffic.total + TILE_OVERHEAD * parts * bands

    def _compute(self, tiling: Tiling) -> int:
        nest = self._layer.nest
        total = 0
        for channels, many in pieces(nest.channels, tiling.channels):
            for rows, often in pieces(nest.rows, tiling.rows):
                total += many * often * self._tile_cycles(channels, rows)
        return total

    def _tile_cycles(self, channels: int, rows: int) -> int:
        if self._layer.family == "emulated":
            return channels * self._single(1, rows)
        return self._single(channels, rows)

    def _single(self, channels: int, rows: int) -> int:
        key = channels, rows
        if key not in self._cycles:
            self._cycles[key] = self._instruction_cycles(channels, rows)
        return self._cycles[key]

    def _instruction_cycles(self, channels: int, rows: int) -> int:
        layer = self._layer
        if layer.instruction is None:
            return 0
        tile = make_tile(layer.nest, Span(0, channels), Span(0, rows))
        registers = {**RESET, **self._settings.registers, **tile_registers(layer, tile)}
        if layer.family == "emulated":
            registers["EX_INPUT_CHANNELS"] = 1
        fields = self._settings.fields
        command = Command(0, layer.instruction, Unit.EX, False, False, False, False, fields, registers)
        return layer.instruction.cycles(command, self._arch)


def pieces(size: int, step: int) -> tuple[tuple[int, int], ...]:
    """The different pieces of ``size`` cut in steps, each (size, how many)."""
    whole, rest = divmod(size, step)
    return tuple(piece for piece in ((step, whole), (rest, 1)) if piece[0] and piece[1])


def _traffic(layer: Layer, tiling: Tiling, resident: Resident) -> Traffic:
    parts, bands = counts(layer, tiling)
    slots = slot_counts(layer, tiling)
    total = edge = 0
    if layer.has_constants:
        one = layer.constant_bytes(tiling.channels) // BUS_BYTES + 1
        again = bands if slots.constants < parts and not tiling.channels_outer else 1
        total += one * parts * again
        edge += one
    streams = resident.inputs.count(False)
    if streams:
        one = _input_cycles(layer, tiling)
        times = bands * parts if layer.nest.grouped else bands
        if not layer.nest.grouped and tiling.channels_outer and slots.input < bands:
            times *= parts
        total += one * times * streams
        edge += one * streams
    if not resident.output:
        one = _output_cycles(layer, tiling)
        total += one * parts * bands
        edge += one
    return Traffic(total, edge)


def _input_cycles(layer: Layer, tiling: Tiling) -> int:
    """Bus cycles of the input of one tile."""
    nest = layer.nest
    nbytes = layer.input_tile_bytes(tiling.channels, tiling.rows)
    if nest.matrix:
        strided_rows = nest.rows if nest.grouped and tiling.channels < nest.channels else 1
    elif tiling.rows == nest.rows:
        strided_rows = 1
    else:
        strided_rows = nbytes // (band_rows(nest, tiling.rows) * nest.input_columns * layer.input_bytes)
    return nbytes // BUS_BYTES + strided_rows


def _output_cycles(layer: Layer, tiling: Tiling) -> int:
    """Bus cycles of the output of one tile."""
    nest = layer.nest
    nbytes = layer.output_tile_bytes(tiling.channels, tiling.rows)
    if nest.matrix:
        strided_rows = tiling.rows if tiling.channels < nest.channels else 1
    else:
        strided_rows = tiling.channels if tiling.rows < nest.rows else 1
    return ceil_div(nbytes, BUS_BYTES) + strided_rows
