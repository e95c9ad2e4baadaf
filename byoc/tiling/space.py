"""The space of a layer's tilings: every legal size of tile, loop order and useful number of buffers.

The search looks at few of them; what tries all, or draws some, asks here. From coarse to fine, in one order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from byoc.estimate.constants import FLAT_BAND, FULL_CHOICE, MOST_OUTPUTS
from byoc.operators.nest import allowed_channels
from byoc.operators.operator import Geometry
from byoc.operators.tiling import (
    Resident,
    Slots,
    Tiling,
    chunk_count,
    counts,
    loads_constants,
    streamed,
    streams,
    working_set,
)
from isa.arch import Arch


def tilings(geometry: Geometry, arch: Arch, resident: Resident, budget: int) -> Iterator[Tiling]:
    """Every legal tiling whose tile buffers take at most ``budget`` bytes: the complete space, shape by shape.

    Thousands for a small layer, more than anybody tries for a large one: take :func:`shapes`, draw some, and ask
    :func:`buffered` for those.
    """
    for shape in shapes(geometry, resident):
        yield from buffered(geometry, arch, resident, budget, shape)


def smallest_tiling(geometry: Geometry, arch: Arch) -> Tiling:
    """The smallest working set there is with everything streamed.

    One output channel and one output row where rows can be cut, of one input channel where that and its sums are less.
    """
    channels, resident = allowed_channels(geometry.nest, 1), streamed(geometry)
    whole = Tiling(channels, 1 if may_cut_rows(geometry, channels) else geometry.nest.rows)
    cuts = geometry.nest.input_channels > 1 and may_cut_depth(geometry, resident)
    tilings = (whole, whole._replace(depth=1)) if cuts else (whole,)
    return min(tilings, key=lambda tiling: working_set(geometry, tiling, resident, arch.alignment))


def shapes(geometry: Geometry, resident: Resident) -> Iterator[Tiling]:
    """Every legal tile shape, as the tiling with one buffer each: by depth, then by channels, then by rows."""
    for depth, channels in product(depths(geometry, resident), channel_tiles(geometry, resident)):
        for rows in row_bands(geometry, channels):
            yield Tiling(channels, rows, depth=depth)


def buffered(geometry: Geometry, arch: Arch, resident: Resident, budget: int, shape: Tiling) -> Iterator[Tiling]:
    """The tilings of one shape that fit: either loop order where there are two, and all useful numbers of buffers."""
    if working_set(geometry, shape, resident, arch.alignment) > budget:
        return
    parts, bands = counts(geometry, shape)
    operands, chunks = streams(geometry, resident), chunk_count(geometry, shape)
    different = max((geometry.input_tiles(index, parts, bands) for index in operands), default=0) * chunks
    constants = parts * chunks if loads_constants(geometry, resident) or geometry.tables == "each" else 0
    outputs = 0 if resident.output or geometry.in_place else min(parts * bands, MOST_OUTPUTS)
    orders = (False, True) if parts > 1 and bands > 1 else (False,)
    for inputs, kept in product(useful(different, chunks), useful(constants, chunks)):
        for output in useful(outputs):
            tiling = shape._replace(slots=Slots(inputs, kept, output))
            if working_set(geometry, tiling, resident, arch.alignment) > budget:
                break
            yield from (tiling._replace(channels_outer=outer) for outer in orders)


def useful(different: int, chunks: int = 1) -> tuple[int, ...]:
    """Numbers of buffers worth trying for ``different`` tiles, of which ``chunks`` come again and again; from 1 up.

    Up to :data:`FULL_CHOICE` all of them; of more powers of two, and what keeps every tile.
    """
    powers = (1 << exponent for exponent in range(different.bit_length()))
    return tuple(sorted({1, *(n for n in (*range(FULL_CHOICE + 1), *powers, chunks, different) if 1 < n <= different)}))


def channel_tiles(geometry: Geometry, resident: Resident) -> tuple[int, ...]:
    """Every legal channel tile, from large to small."""
    nest = geometry.nest
    return tuple(
        size
        for size in range(nest.channels, 0, -1)
        if allowed_channels(nest, size) == size and lies_dense(geometry, size, resident)
    )


def row_bands(geometry: Geometry, channels: int) -> tuple[int, ...]:
    """Every legal band of so many channels, from high to low; those of flat layers in steps of :data:`FLAT_BAND`."""
    rows = geometry.nest.rows
    if not may_cut_rows(geometry, channels):
        return (rows,)
    if is_flat(geometry):
        return (rows, *range((rows - 1) // FLAT_BAND * FLAT_BAND, 0, -FLAT_BAND))
    return tuple(range(rows, 0, -1))


def depths(geometry: Geometry, resident: Resident) -> tuple[int, ...]:
    """Every legal number of input channels a tile, 0, all at once, first, then from many to few."""
    inputs = geometry.nest.input_channels
    return (0, *(range(inputs - 1, 0, -1) if may_cut_depth(geometry, resident) else ()))


def is_flat(geometry: Geometry) -> bool:
    """Whether rows are single elements."""
    nest = geometry.nest
    return not nest.matrix and nest.columns == nest.channels == 1


def may_cut_rows(geometry: Geometry, channels: int) -> bool:
    """Whether bands of rows are possible. Where channels cannot lie apart: of one channel, or of a matrix."""
    nest = geometry.nest
    return nest.splits_rows and not (geometry.operator.whole_planes and channels > 1 and not nest.matrix)


def may_cut_depth(geometry: Geometry, resident: Resident) -> bool:
    """Whether several commands can add up sums. Some columns of a matrix that lies there as a whole are not dense."""
    nest = geometry.nest
    return geometry.splits_depth and not (nest.matrix and nest.rows > 1 and any(resident.inputs))


def lies_dense(geometry: Geometry, channels: int, resident: Resident) -> bool:
    """Whether operands and result lie as the instruction wants: columns of a resident matrix do not lie dense."""
    nest = geometry.nest
    if channels == nest.channels:
        return True
    if geometry.second == "columns" and any(resident.inputs[geometry.inputs :]) and nest.input_channels > 1:
        return False
    reads_columns = nest.grouped and any(resident.inputs)
    return not (nest.matrix and nest.rows > 1 and (resident.output or reads_columns))
