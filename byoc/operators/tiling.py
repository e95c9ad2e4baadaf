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


def aligned(nbytes: int, alignment: int) -> int:
    """``nbytes`` rounded up to a multiple of ``alignment``."""
    return -(-nbytes // alignment) * alignment


class Buffers(NamedTuple):
    """The tile buffers of a tile shape: bytes of one of each kind, aligned, and how many different tiles there are.

    Those of inputs are one a streamed operand, whatever is resident; ``sums`` are there once. 0 bytes: there are none.
    """

    inputs: tuple[int, ...]
    constants: int
    tables: int
    output: int
    sums: int
    input_tiles: tuple[int, ...]
    constant_tiles: int
    table_tiles: int
    output_tiles: int

    def taken(self, slots: Slots, resident: Resident, *, constants: bool) -> int:
        """Bytes of all with so many slots, never more than there are tiles; ``constants``: those are loaded."""
        total = self.sums + min(slots.constants, self.table_tiles) * self.tables
        for nbytes, count, near in zip(self.inputs, self.input_tiles, resident.inputs, strict=False):
            if not near:
                total += min(slots.input, count) * nbytes
        if constants:
            total += min(slots.constants, self.constant_tiles) * self.constants
        if not resident.output:
            total += (1 + resident.beside) * min(slots.output, self.output_tiles) * self.output
        return total


def buffers_of(geometry: Geometry, tiling: Tiling, alignment: int) -> Buffers:
    """The tile buffers of a tiling, whatever slots it has, each rounded up to ``alignment``."""
    channels, rows, depth = tiling.channels, tiling.rows, tiling.depth
    (parts, bands), chunks, inputs = counts(geometry, tiling), chunk_count(geometry, tiling), range(geometry.inputs)
    return Buffers(
        inputs=tuple([aligned(geometry.input_tile_bytes(channels, rows, index, depth), alignment) for index in inputs]),
        constants=aligned(geometry.constant_bytes(channels, depth), alignment) if geometry.has_constants else 0,
        tables=aligned(geometry.table_bytes(channels), alignment),
        output=0 if geometry.in_place else aligned(geometry.output_tile_bytes(channels, rows), alignment),
        sums=aligned(geometry.sums_bytes(channels, rows), alignment) if depth else 0,
        input_tiles=tuple([geometry.input_tiles(index, parts, bands) * chunks for index in inputs]),
        constant_tiles=parts * chunks,
        table_tiles=parts if geometry.tables == "each" else 1,
        output_tiles=parts * bands,
    )


def working_set(geometry: Geometry, tiling: Tiling, resident: Resident, alignment: int) -> int:
    """Bytes of all tile buffers, each rounded up to ``alignment``. Residents are not counted."""
    found = buffers_of(geometry, tiling, alignment)
    return found.taken(tiling.slots, resident, constants=loads_constants(geometry, resident))


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
