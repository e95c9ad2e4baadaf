"""Tilings: how an operation is cut into tiles, in which order they run, and the scratchpad memory that this takes."""

from __future__ import annotations

from typing import NamedTuple

from byoc.operators.nest import Tile, make_tile, split
from byoc.operators.operator import Geometry
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


def streamed(geometry: Geometry) -> Resident:
    """All operands come and go through system memory."""
    return Resident((False,) * geometry.inputs)


def tiles(geometry: Geometry, tiling: Tiling) -> tuple[Tile, ...]:
    """The tiles in order of execution."""
    nest = geometry.nest
    channels, rows = split(nest.channels, tiling.channels), split(nest.rows, tiling.rows)
    if tiling.channels_outer:
        return tuple(make_tile(nest, part, band) for part in channels for band in rows)
    return tuple(make_tile(nest, part, band) for band in rows for part in channels)


def counts(geometry: Geometry, tiling: Tiling) -> tuple[int, int]:
    """Channel tiles and row bands."""
    return ceil_div(geometry.nest.channels, tiling.channels), ceil_div(geometry.nest.rows, tiling.rows)


def slot_counts(geometry: Geometry, tiling: Tiling) -> Slots:
    """The slots that are really needed: never more than there are different tiles of the operand."""
    parts, bands = counts(geometry, tiling)
    inputs = parts * bands if geometry.nest.grouped else bands
    wanted = tiling.slots
    return Slots(min(wanted.input, inputs), min(wanted.constants, parts), min(wanted.output, parts * bands))


def aligned(nbytes: int, alignment: int) -> int:
    """``nbytes`` rounded up to a multiple of ``alignment``."""
    return -(-nbytes // alignment) * alignment


def working_set(geometry: Geometry, tiling: Tiling, resident: Resident, alignment: int) -> int:
    """Bytes of all tile buffers, each rounded up to ``alignment``. Residents are not counted."""
    slots = slot_counts(geometry, tiling)
    total = 0
    wanted = geometry.input_tile_bytes(tiling.channels, tiling.rows)
    total += slots.input * aligned(wanted, alignment) * resident.inputs.count(False)
    if geometry.has_constants:
        total += slots.constants * aligned(geometry.constant_bytes(tiling.channels), alignment)
    if not resident.output and not geometry.in_place:
        total += slots.output * aligned(geometry.output_tile_bytes(tiling.channels, tiling.rows), alignment)
    return total
