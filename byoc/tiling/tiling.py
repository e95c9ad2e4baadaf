"""Tilings: how an operation is cut into tiles, in which order they run, and the scratchpad memory that this takes."""

from __future__ import annotations

from typing import NamedTuple

from byoc.layers.layer import Layer
from byoc.layers.nest import make_tile, split
from byoc.tile import Tile
from isa.instruction import ceil_div


class Slots(NamedTuple):
    """Copies of each tile buffer: 1 single, 2 double-buffered, more where every tile keeps its own."""

    input: int = 1
    constants: int = 1
    output: int = 1


class Resident(NamedTuple):
    """Which operands live in the scratchpad as whole tensors and need no tile buffers."""

    inputs: tuple[bool, ...]
    output: bool = False


class Tiling(NamedTuple):
    """``channels`` by ``rows`` of the output a tile; the outer loop runs over channels or over rows."""

    channels: int
    rows: int
    channels_outer: bool = False
    slots: Slots = Slots()


def streamed(layer: Layer) -> Resident:
    """All operands come and go through system memory."""
    return Resident((False,) * len(layer.operation.inputs))


def tiles(layer: Layer, tiling: Tiling) -> tuple[Tile, ...]:
    """The tiles in order of execution."""
    nest = layer.nest
    channels, rows = split(nest.channels, tiling.channels), split(nest.rows, tiling.rows)
    if tiling.channels_outer:
        return tuple(make_tile(nest, part, band) for part in channels for band in rows)
    return tuple(make_tile(nest, part, band) for band in rows for part in channels)


def counts(layer: Layer, tiling: Tiling) -> tuple[int, int]:
    """Channel tiles and row bands."""
    return ceil_div(layer.nest.channels, tiling.channels), ceil_div(layer.nest.rows, tiling.rows)


def slot_counts(layer: Layer, tiling: Tiling) -> Slots:
    """The slots that are really needed: never more than there are different tiles of the operand."""
    parts, bands = counts(layer, tiling)
    inputs = parts * bands if layer.nest.grouped else bands
    wanted = tiling.slots
    return Slots(min(wanted.input, inputs), min(wanted.constants, parts), min(wanted.output, parts * bands))


def aligned(nbytes: int, alignment: int) -> int:
    """``nbytes`` rounded up to a multiple of ``alignment``."""
    return -(-nbytes // alignment) * alignment


def working_set(layer: Layer, tiling: Tiling, resident: Resident, alignment: int) -> int:
    """Bytes of all tile buffers, each rounded up to ``alignment``. Residents are not counted."""
    slots = slot_counts(layer, tiling)
    total = 0
    wanted = layer.input_tile_bytes(tiling.channels, tiling.rows)
    total += slots.input * aligned(wanted, alignment) * resident.inputs.count(False)
    if layer.has_constants:
        total += slots.constants * aligned(layer.constant_bytes(tiling.channels), alignment)
    if not resident.output and not layer.in_place:
        total += slots.output * aligned(layer.output_tile_bytes(tiling.channels, tiling.rows), alignment)
    return total
