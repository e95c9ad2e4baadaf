"""Groups: consecutive layers computed band by band of rows.

Tensors between the layers of a group stay in the scratchpad. This module defines groups and finds
the layers that can be in one. Their operands and results are planes of rows, or they are
element-wise on such planes. All layers must see a buffer as planes of the same size.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from byoc.estimate.bus import MemoryBus
from byoc.operators.layer import OperatorLayer
from byoc.operators.pieces import Dim, plane_dims
from byoc.operators.records import COMBINED, MappingType
from byoc.scheduling.lowering import Buffer, Lowered, TensorStart

UNREAD = sys.maxsize
"""Layer number that stands for no layer."""


@dataclass(frozen=True)
class BandedGroup:
    """Layers ``first`` to ``last``, computed in bands of ``rows`` rows of the last layer's result.

    ``kept``: buffers whose rows stay from band to band as long as a later band needs them. For
    other buffers, each band computes or loads all rows that it reads, again where bands overlap. A
    tensor that the group computes and reads and that has consumers outside is always kept; all its
    rows are computed. ``channels``: output channels per tile, one entry per layer. ``held``:
    whether a layer's constants are loaded once or in every band, one entry per layer. ``slots``:
    number of buffers of each result and of each operand whose rows are not kept; with 2, the next
    band is loaded and the previous one stored during the computation.

    ``rows`` 0 means fusion tile by tile. The second of two layers is element-wise and is computed
    on each tile of the first as soon as that is computed. The first layer is tiled like a layer
    outside groups; all other fields are unused.
    """

    first: int
    last: int
    rows: int
    kept: tuple[str, ...]
    channels: tuple[int, ...]
    held: tuple[bool, ...]
    slots: int = 2

    @property
    def smallest(self) -> bool:
        """True if the group cannot have smaller bands or fewer buffers for an operand.

        An operand's only buffer is then free while no layer reads it.
        """
        return self.rows == self.slots == 1

    @property
    def rides(self) -> bool:
        """True if the last layer is element-wise and fused tile by tile into the first."""
        return not self.rows


@dataclass(frozen=True)
class Slice:
    """Consecutive planes of a buffer: ``planes`` planes from plane number ``first`` on."""

    buffer: str
    first: int
    planes: int

    @property
    def span(self) -> tuple[int, int]:
        """Numbers of the first plane of the slice and of the plane after its last."""
        return self.first, self.first + self.planes

    def has_common_plane(self, other: Slice) -> bool:
        """Return True if both slices share a plane."""
        apart = self.first + self.planes <= other.first or other.first + other.planes <= self.first
        return self.buffer == other.buffer and not apart


@dataclass(frozen=True)
class Planes:
    """Division of a buffer into ``count`` planes of ``rows`` rows of ``row_bytes`` bytes.

    ``makers`` are its producers, ``readers`` its consumers. ``leaves``: the buffer is an output of
    the region. ``enters``: it is an input. ``last_reader`` is -1 without consumers.
    """

    count: int
    rows: int
    row_bytes: int
    makers: tuple[int, ...]
    readers: tuple[int, ...]
    leaves: bool
    enters: bool
    last_reader: int


@dataclass(frozen=True)
class Member:
    """Layer that can be in a group, with the planes that it reads and writes.

    A result row r needs ``extent`` rows of the operand, beginning with row ``r * stride - pad``.
    ``flat``: the layer is element-wise. ``moves``: the layer copies planes in these dimensions.
    ``gathers``: the layer gathers bytes position by position. ``reader``: the first consumer of the
    result. ``limit``: the first later layer that cannot be in a group with this one, because of a
    dependency between them that bands cannot follow.
    """

    reads: tuple[Slice, ...]
    writes: Slice
    stride: int
    pad: int
    extent: int
    flat: bool
    reader: int = UNREAD
    limit: int = UNREAD
    moves: tuple[Dim, ...] | None = None
    gathers: bool = False

    @property
    def undivided(self) -> bool:
        """True if a tile has all planes and computes each row from the same row of its operands."""
        return self.flat or self.gathers or self.moves is not None


@dataclass(frozen=True)
class FusionGraph:
    """Layers of a region that can form groups, and the planes of the region's buffers.

    A layer that cannot be in a group is None.
    """

    members: tuple[Member | None, ...]
    planes: Mapping[str, Planes]


def fusion_graph(layers: Sequence[OperatorLayer], lowered: Lowered) -> FusionGraph:
    """Return the layers of a region that can be in groups."""
    uses = [
        (
            tuple(lowered.place(item) for item in layer.operation.inputs),
            lowered.place(layer.operation.output),
        )
        for layer in layers
    ]
    sizes = _plane_sizes(layers, uses)
    makers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    for index, (sources, target) in enumerate(uses):
        makers.setdefault(target.buffer, []).append(index)
        for name in {place.buffer for place in sources}:
            readers.setdefault(name, []).append(index)
    planes = {
        buffer.name: _planes(
            buffer, size, tuple(makers.get(buffer.name, ())), tuple(readers.get(buffer.name, ()))
        )
        for buffer in lowered.buffers
        if (size := sizes.get(buffer.name)) is not None
    }
    alone = tuple(_member(layer, *use, planes) for layer, use in zip(layers, uses, strict=True))
    types = [layer.geometry.operator.traits.mapping for layer in layers]
    thorough = [layer.operation.rows_read() is None for layer in layers]
    linked = (_link_member(number, alone, planes, types, thorough) for number in range(len(layers)))
    return FusionGraph(tuple(linked), planes)


def _link_member(
    number: int,
    members: Sequence[Member | None],
    planes: Mapping[str, Planes],
    types: Sequence[MappingType],
    thorough: Sequence[bool],
) -> Member | None:
    """Find a layer's first consumer and the first later layer that cannot share its group.

    Return the layer as a :class:`Member` with both as ``reader`` and ``limit``, or None if no group
    can contain it. Bands compute only rows that are read. If no consumer reads all rows, grouping
    is not allowed: every schedule computes the whole result of a layer, and its lower bounds rely
    on it (:mod:`byoc.emission.region`).
    """
    member = members[number]
    if member is None:
        return None
    reader = limit = UNREAD
    made = planes[member.writes.buffer]
    whole = made.leaves or any(thorough[later] for later in made.readers if later > number)
    for later in reversed(made.readers):
        other = members[later]
        if (
            later > number
            and other is not None
            and any(member.writes.has_common_plane(piece) for piece in other.reads)
        ):
            reader = later
            allowed = whole and mapping_allows(types[number], types[later])
            if made.enters or made.makers[-1] >= later or not allowed:
                limit = later
    for piece in member.reads:
        for later in planes[piece.buffer].makers:
            other = members[later]
            if later > number and other is not None and other.writes.has_common_plane(piece):
                limit = min(limit, later)
    return replace(member, reader=reader, limit=limit)


def mapping_allows(first: MappingType, second: MappingType) -> bool:
    """Return True if ``second`` can read the results of ``first`` in bands.

    The table of mapping types or line buffers must allow it. If the table has no combination,
    several results of ``second`` read the same results of ``first``. Those rows are kept or
    recomputed, which the windows of many-to-many operators allow.
    """
    return COMBINED[first, second] is not None or second == "many-to-many"


def _planar(layer: OperatorLayer) -> bool:
    """Return True if the layer can cut planes into bands of rows."""
    geometry = layer.geometry
    nest = layer.nest
    planes = geometry.planes and geometry.inputs == 1 and geometry.second == "alike"
    if (
        geometry.channels.apart
        and nest.rows == nest.columns == nest.input_rows == 1 < nest.input_columns
    ):
        return False  # a product of flattened channels, whose operand has rows for others
    return (
        planes and nest.splits_rows and not nest.matrix and not nest.reads and not geometry.repeats
    )


def _element_wise(layer: OperatorLayer) -> bool:
    geometry = layer.geometry
    return (
        geometry.flat
        and geometry.instruction is not None
        and not geometry.in_place
        and not geometry.repeats
    )


def _is_gather(layer: OperatorLayer) -> bool:
    return layer.geometry.operator.traits.gathers


def _moves(layer: OperatorLayer, nbytes: int) -> tuple[Dim, ...] | None:
    geometry = layer.geometry
    if geometry.operator.traits.mapping != "shuffle" or not geometry.inputs:
        return None
    return plane_dims(geometry.dims, nbytes, layer.operation.output.elements)


_Use = tuple[tuple[TensorStart, ...], TensorStart]
_Size = tuple[int, int]
"""Rows of a plane, bytes of a row."""


def _plane_sizes(layers: Sequence[OperatorLayer], uses: Sequence[_Use]) -> dict[str, _Size | None]:
    """Return the plane size of each buffer, or None for a buffer that layers see in several sizes.

    Layers that cut planes define the sizes; layers that keep planes pass them on to their other
    buffers.
    """
    found: dict[str, _Size | None] = {}

    def see(buffer: str, size: _Size | None) -> None:
        found[buffer] = size if found.get(buffer, size) == size else None

    for layer, (sources, target) in zip(layers, uses, strict=True):
        nest = layer.nest
        geometry = layer.geometry
        if _planar(layer):
            see(sources[0].buffer, (nest.input_rows, nest.input_columns * geometry.input_bytes))
            see(target.buffer, (nest.rows, nest.columns * geometry.output_bytes))
    for order in (range(len(layers)), reversed(range(len(layers)))):
        for index in order:
            sources, target = uses[index]
            if _is_gather(layers[index]):
                own = dict(_list_gathered_planes(layers[index], sources, target))
                if any(found.get(buffer) == size for buffer, size in own.items()):
                    found = {**own, **found}
                continue
            known = [found[place.buffer] for place in (*sources, target) if found.get(place.buffer)]
            if known and (
                _element_wise(layers[index])
                or _moves(layers[index], math.prod(known[0] or ())) is not None
            ):
                for place in (*sources, target):
                    found.setdefault(place.buffer, known[0])
    return found


def _list_gathered_planes(
    layer: OperatorLayer, sources: Sequence[TensorStart], target: TensorStart
) -> Iterator[tuple[str, _Size]]:
    """Yield (buffer, plane size) of each operand and the result of a gathering layer.

    They are those of its operands, then that of its result.
    """
    nest = layer.nest
    yield from ((place.buffer, (nest.input_rows, nest.input_columns)) for place in sources)
    yield target.buffer, (nest.rows, nest.columns)


def _planes(
    buffer: Buffer, size: _Size, makers: tuple[int, ...], readers: tuple[int, ...]
) -> Planes:
    rows, row_bytes = size
    count = -(-buffer.nbytes // (rows * row_bytes))
    last = readers[-1] if readers else -1
    return Planes(
        count,
        rows,
        row_bytes,
        makers,
        readers,
        buffer.role == "output",
        buffer.role == "input",
        last,
    )


def _member(
    layer: OperatorLayer,
    sources: Sequence[TensorStart],
    target: TensorStart,
    planes: Mapping[str, Planes],
) -> Member | None:
    """Return the planes that a layer reads and writes, or None if no group can contain the layer.

    No group can contain it if it is of another kind, or if its operands are not whole planes.
    """
    operation = layer.operation
    nest = layer.nest
    planar = _planar(layer)
    seen = planes.get(target.buffer)
    moves = None if seen is None else _moves(layer, seen.rows * seen.row_bytes)
    bytes_only = all(
        operand.element_bytes == 1 for operand in (*operation.inputs, operation.output)
    )
    gathers = _is_gather(layer)
    able = bytes_only and not operation.constant_operands
    if not able or not (planar or _element_wise(layer) or gathers or moves is not None):
        return None
    operands = zip((*operation.inputs, operation.output), (*sources, target), strict=True)
    slices = [_slice(place, operand.nbytes, planes) for operand, place in operands]
    found = [one for one in slices if one is not None]
    if len(found) < len(slices) or not found[:-1]:
        return None
    sizes = {(planes[one.buffer].rows, planes[one.buffer].row_bytes) for one in found}
    if gathers:
        own = _list_gathered_planes(layer, sources, target)
        alike = all((planes[buffer].rows, planes[buffer].row_bytes) == size for buffer, size in own)
        return Member(tuple(found[:-1]), found[-1], 1, 0, 1, False, gathers=True) if alike else None
    if not planar and len(sizes) > 1:
        return None  # other layers see a buffer as planes of another shape, with other rows
    if not planar and moves is None and any(row_bytes % nest.columns for _, row_bytes in sizes):
        return None  # a row of the planes cuts an atom of the operands in two
    window = (nest.stride, nest.pad_top, nest.extent) if planar else (1, 0, 1)
    return Member(tuple(found[:-1]), found[-1], *window, not planar and moves is None, moves=moves)


def _slice(place: TensorStart, nbytes: int, planes: Mapping[str, Planes]) -> Slice | None:
    """Return the planes of a buffer that ``nbytes`` bytes from ``place`` on occupy.

    The result is None if the bytes are not whole planes.
    """
    seen = planes.get(place.buffer)
    if seen is None:
        return None
    size = seen.rows * seen.row_bytes
    if place.offset % size or nbytes % size:
        return None
    return Slice(place.buffer, place.offset // size, nbytes // size)


def lawful(graph: FusionGraph, first: int, last: int) -> bool:
    """Return True if layers ``first`` to ``last`` can be a group."""
    members = graph.members[first : last + 1]
    if first == last or any(member is None or member.limit <= last for member in members):
        return False
    inside = {
        member.writes.buffer for member in members if member is not None and member.reader <= last
    }
    return all(graph.planes[name].makers[0] >= first for name in inside)


def may_ride(layers: Sequence[OperatorLayer], graph: FusionGraph, last: int) -> bool:
    """Return True if layer ``last`` can be fused into the tiles of the previous layer.

    Layer ``last`` must be the only consumer of the previous layer's result. Tiles of both layers
    are dense in their buffers, so no operand or result of ``last`` can be resident.
    """
    rider = graph.members[last]
    if rider is None or not rider.flat or not last or not lawful(graph, last - 1, last):
        return False
    first, _ = members_of(graph, last - 1, last)
    needs = layers[last].geometry
    made = graph.planes[first.writes.buffer]
    alone = (made.makers, made.readers, made.leaves) == ((last - 1,), (last,), False)
    plain = (
        not needs.has_constants
        and needs.tables == "none"
        and not layers[last - 1].geometry.in_place
    )
    return not first.undivided and alone and plain and rider.reads.count(first.writes) == 1


def list_fused_buffers(graph: FusionGraph, last: int) -> set[str]:
    """Return the operands and the result of a fused element-wise layer.

    They cannot be resident.
    """
    _, rider = members_of(graph, last - 1, last)
    return {piece.buffer for piece in (*rider.reads, rider.writes)}


def members_of(graph: FusionGraph, first: int, last: int) -> tuple[Member, ...]:
    """Return the :class:`Member` of each of the layers ``first`` to ``last`` of a group."""
    return tuple(member for member in graph.members[first : last + 1] if member is not None)


def is_needed_after(planes: Planes, last: int) -> bool:
    """Return True if a buffer computed in a group is needed after the group.

    Layer ``last`` is the last of the group.
    """
    return planes.leaves or planes.last_reader > last


def window_bytes(planes: int, rows: int, of: int, row_bytes: int) -> int:
    """Return the size in bytes of a scratchpad window on ``rows`` rows of ``planes`` planes.

    Each whole plane has ``of`` rows.
    """
    return ((planes - 1) * rows + of) * row_bytes


def band_slots(
    bus: MemoryBus, planes: Planes, count: int, rows: int, step: int, first: int = 0
) -> int:
    """Return the average bus slots of ``rows`` rows of ``count`` planes in one band.

    Bands are ``step`` rows apart. Band 0 begins at row ``first``. If rows are shorter than a beat,
    bands may consist of whole bursts. Otherwise a band may begin at any row.
    """
    size = planes.row_bytes
    pitch = size * math.gcd(first, step, planes.rows) if size < bus.bus_bytes else size
    return bus.rows_slots(count, rows * size, pitch)
