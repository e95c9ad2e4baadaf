"""Tilings: how an operation is cut into tiles, in which order they run, the scratchpad they take, what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from byoc.choices import Order
from byoc.operators.nest import Tile, make_tile, split
from byoc.operators.operator import Geometry
from isa.arch import Arch
from isa.instruction import ceil_div


class Slots(NamedTuple):
    """Copies of each tile buffer: 1 single, 2 double-buffered, more where every tile keeps its own."""

    input: int = 1
    constants: int = 1
    output: int = 1


class Resident(NamedTuple):
    """Which operands live in the scratchpad as whole tensors and need no tile buffers.

    ``follows``: the layer comes after others, behind whose work the first load of its constants can hide. ``beside``:
    operands as large as the result that are loaded tile by tile for the element-wise layer that rides on this one.
    """

    inputs: tuple[bool, ...]
    output: bool = False
    follows: bool = False
    beside: int = 0


class Tiling(NamedTuple):
    """``channels`` by ``rows`` of the output a tile; the outer loop runs over channels or over rows.

    ``depth`` input channels a tile, whose sums the next tiles add to: the innermost loop; 0: all at once.
    """

    channels: int
    rows: int
    channels_outer: bool = False
    slots: Slots = Slots()
    depth: int = 0


def order_of(tiling: Tiling) -> Order:
    """What the outer loop runs over."""
    return "channels" if tiling.channels_outer else "rows"


def streamed(geometry: Geometry) -> Resident:
    """All operands come and go through system memory."""
    return Resident((False,) * geometry.inputs)


def streams(geometry: Geometry, resident: Resident) -> tuple[int, ...]:
    """Numbers of the operands of which tile buffers hold the bands."""
    return tuple(index for index in range(geometry.inputs) if not resident.inputs[index])


def loads_constants(geometry: Geometry, resident: Resident) -> bool:
    """Whether weights and records, or a second operand in their place, need tile buffers."""
    return geometry.has_constants and not any(resident.inputs[geometry.inputs :])


def table_slots(geometry: Geometry, constants: int) -> int:
    """Buffers of tables beside so many of other constants."""
    return {"none": 0, "one": 1, "each": constants}[geometry.tables]


def tiles(geometry: Geometry, tiling: Tiling) -> tuple[Tile, ...]:
    """The tiles in order of execution."""
    nest = geometry.nest
    channels, rows = split(nest.channels, tiling.channels), split(nest.rows, tiling.rows)
    chunks = split(nest.input_channels, tiling.depth) if tiling.depth else (None,)
    if tiling.channels_outer:
        return tuple(make_tile(nest, part, band, depth) for part in channels for band in rows for depth in chunks)
    return tuple(make_tile(nest, part, band, depth) for band in rows for part in channels for depth in chunks)


def sizes(tile: Tile) -> tuple[int, int, int]:
    """Output channels, rows, and input channels of a tile that has some only, else 0."""
    return tile.output.channels.size, tile.output.rows.size, tile.depth.size if tile.depth else 0


def counts(geometry: Geometry, tiling: Tiling) -> tuple[int, int]:
    """Channel tiles and row bands."""
    return ceil_div(geometry.nest.channels, tiling.channels), ceil_div(geometry.nest.rows, tiling.rows)


def chunk_count(geometry: Geometry, tiling: Tiling) -> int:
    """Tiles that add up to one result."""
    return ceil_div(geometry.nest.input_channels, tiling.depth) if tiling.depth else 1


def tile_count(geometry: Geometry, tiling: Tiling) -> int:
    """All tiles."""
    parts, bands = counts(geometry, tiling)
    return parts * bands * chunk_count(geometry, tiling)


def slot_counts(geometry: Geometry, tiling: Tiling) -> Slots:
    """The slots of constants and results that are really needed: never more than there are different tiles of them."""
    parts, bands = counts(geometry, tiling)
    wanted = tiling.slots
    constants = min(wanted.constants, parts * chunk_count(geometry, tiling))
    return Slots(wanted.input, constants, min(wanted.output, parts * bands))


def input_slots(geometry: Geometry, tiling: Tiling, index: int) -> int:
    """The slots of an operand that are really needed."""
    different = geometry.input_tiles(index, *counts(geometry, tiling)) * chunk_count(geometry, tiling)
    return min(tiling.slots.input, different)


def aligned(nbytes: int, alignment: int) -> int:
    """``nbytes`` rounded up to a multiple of ``alignment``."""
    return -(-nbytes // alignment) * alignment


def working_set(geometry: Geometry, tiling: Tiling, resident: Resident, alignment: int) -> int:
    """Bytes of all tile buffers, each rounded up to ``alignment``. Residents are not counted."""
    slots = slot_counts(geometry, tiling)
    total = 0
    for index in streams(geometry, resident):
        wanted = geometry.input_tile_bytes(tiling.channels, tiling.rows, index, tiling.depth)
        total += input_slots(geometry, tiling, index) * aligned(wanted, alignment)
    if loads_constants(geometry, resident):
        total += slots.constants * aligned(geometry.constant_bytes(tiling.channels, tiling.depth), alignment)
    total += table_slots(geometry, slots.constants) * aligned(geometry.table_bytes(tiling.channels), alignment)
    if not resident.output and not geometry.in_place:
        nbytes = aligned(geometry.output_tile_bytes(tiling.channels, tiling.rows), alignment)
        total += (1 + resident.beside) * slots.output * nbytes
    if tiling.depth:
        total += aligned(geometry.sums_bytes(tiling.channels, tiling.rows), alignment)
    return total


def least_set(geometry: Geometry, tiling: Tiling, resident: Resident, alignment: int) -> int:
    """:func:`working_set` of a tiling with one buffer each, whatever slots it has."""
    channels, rows, depth = tiling.channels, tiling.rows, tiling.depth
    sizes = [geometry.input_tile_bytes(channels, rows, index, depth) for index in streams(geometry, resident)]
    if loads_constants(geometry, resident):
        sizes.append(geometry.constant_bytes(channels, depth))
    if geometry.tables != "none":
        sizes.append(geometry.table_bytes(channels))
    if not resident.output and not geometry.in_place:
        sizes.append(geometry.output_tile_bytes(channels, rows))
    if depth:
        sizes.append(geometry.sums_bytes(channels, rows))
    return sum([aligned(size, alignment) for size in sizes])


@dataclass(frozen=True)
class Shortage:
    """A working set that does not fit in ``capacity`` bytes: what it is made of, (name, bytes) each."""

    buffers: tuple[tuple[str, int], ...]
    capacity: int

    @property
    def needed(self) -> int:
        """Bytes of the working set."""
        return sum(nbytes for _, nbytes in self.buffers)

    @property
    def missing(self) -> int:
        """Bytes by which it does not fit."""
        return self.needed - self.capacity

    def __str__(self) -> str:
        """Every buffer, their sum and the bytes missing."""
        listed = " + ".join(f"{name} {nbytes}" for name, nbytes in self.buffers)
        return f"does not fit in {self.capacity} bytes of SRAM: {listed} = {self.needed} bytes, {self.missing} missing"


def find_shortage(geometry: Geometry, tiling: Tiling, arch: Arch) -> Shortage | None:
    """None where ``tiling`` fits with everything streamed."""
    needed = working_set(geometry, tiling, streamed(geometry), arch.alignment)
    if needed <= arch.sram_bytes:
        return None
    buffers = list(buffer_sizes(geometry, tiling).items())
    padding = needed - sum(nbytes for _, nbytes in buffers)
    if padding:
        buffers.append(("alignment", padding))
    return Shortage(tuple(buffers), arch.sram_bytes)


def buffer_sizes(geometry: Geometry, tiling: Tiling) -> dict[str, int]:
    """Bytes of each tile buffer by a name that says what it holds."""
    nest, channels = geometry.nest, tiling.channels
    unit = "column" if nest.matrix else "channel"
    many = "s" if channels > 1 else ""
    band = "" if tiling.rows == nest.rows else " rows"
    sizes = {}
    whole = "group" if nest.group_inputs > 1 else unit
    source = f"input {whole}{band}" if nest.grouped else f"input{band}"
    for number in range(geometry.inputs):
        nbytes = geometry.input_tile_bytes(channels, tiling.rows, number, tiling.depth)
        sizes[source if number == 0 else f"second {source}"] = nbytes
    if not geometry.in_place:
        kind = " (int32)" if geometry.output_bytes == 4 else ""
        name = f"output {unit}{many}{kind}" if not band else f"output row{kind}"
        sizes[name] = geometry.output_tile_bytes(channels, tiling.rows)
    if geometry.weight_bytes:
        sizes[geometry.operator.constants_name if geometry.second == "alike" else "second input"] = (
            geometry.constant_bytes(channels, tiling.depth) - geometry.weights_offset(channels)
        )
    if geometry.record_bytes:
        sizes["channel record" + many] = channels * geometry.record_bytes
    if geometry.tables != "none":
        sizes["look-up tables"] = geometry.table_bytes(channels)
    if tiling.depth:
        sizes["sums (int32)"] = geometry.sums_bytes(channels, tiling.rows)
    return sizes
