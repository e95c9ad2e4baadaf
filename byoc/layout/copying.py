"""Layouts that consumers prefer, layouts that are assigned, and the copies between them.

An operation reads an operand in place if its bytes have the required layout there, and otherwise a
copy. Results are written in place under the same condition, and otherwise to a tensor of their own
that is then copied. A movement copies only the bytes that its tensors do not share.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import compress
from math import prod
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.layout.boundary import boundary_layouts, default_layout
from byoc.operators.copies import copies, fills, get_filled_byte
from byoc.operators.gather import MAX_PIECES_PER_MOVE, Int64, find_moved_pieces
from byoc.operators.movement import Alias
from byoc.operators.operator import Operator
from byoc.operators.packing import find_packed_pieces
from byoc.operators.pieces import NOTHING, REMEMBERED_MAPS, Dim, Piece, find_pieces, merge_dims
from byoc.operators.records import Operand
from isa.layout import Layout


@dataclass(frozen=True)
class RegionTensors:
    """Shapes, sizes, preferred layouts and uses of a region's tensors.

    Attributes:
        atom: channels stored together, one byte each.
        fits: whether an operation has a tiling in the scratchpad.
        shapes: shapes of the model's tensors by name.
        elements: number of elements of every tensor.
        preferred: the layout that the first consumer needs, directly or after element-wise
            operations.
        results: region outputs, and tensors used only to compute region outputs element by element.
        read: tensors with consumers in the region.
    """

    atom: int
    fits: Callable[[Operator], bool]
    shapes: Mapping[str, tuple[int, ...]]
    elements: Mapping[str, int]
    preferred: Mapping[str, Layout]
    results: frozenset[str]
    read: frozenset[str]

    def dense(self, elements: int) -> Layout:
        """Return the layout of ``elements`` consecutive elements at a single position."""
        return Layout(elements, 1, self.atom)

    def default(self, name: str) -> Layout:
        """Return the layout of a tensor for which no operation needs a particular layout."""
        return default_layout(self.shapes.get(name, (self.elements[name],)), self.atom)

    def is_whole(self, operand: Operand) -> bool:
        """Return whether an operand is a whole tensor."""
        return not operand.offset and operand.elements == self.elements[operand.value]

    def is_order_kept(self, operation: Operator) -> bool:
        """Return whether an operation copies a whole tensor with its elements in the same order."""
        operands = *operation.inputs, operation.output
        return bool(operation.slices) and len(operands) == 2 and all(map(self.is_whole, operands))

    def extend(self, operand: Operand, layout: Layout) -> Layout | None:
        """Return the layout of a tensor as images of ``operand``, which has ``layout``.

        Return None if an image would be incomplete.
        """
        images, rest = divmod(self.elements[operand.value], max(operand.elements, 1))
        if rest or not operand.elements or operand.offset % operand.elements:
            return None
        return layout._replace(images=layout.images * images, begin=0).canonical


def describe_tensors(
    operations: Sequence[Operator],
    shapes: Mapping[str, tuple[int, ...]],
    boundary: Iterable[str],
    atom: int,
    fits: Callable[[Operator], bool],
) -> RegionTensors:
    """Collect the shapes, sizes, preferred layouts and uses of a region's tensors.

    Arguments as for :func:`byoc.layout.assign.assign_layouts`.
    """
    elements: dict[str, int] = {}
    for operation in operations:
        for operand in (*operation.inputs, operation.output):
            most = max(elements.get(operand.value, 0), operand.offset + operand.elements)
            elements[operand.value] = (
                prod(shapes[operand.value]) if operand.value in shapes else most
            )
    results, read = _find_results(operations, boundary)
    region = RegionTensors(atom, fits, shapes, elements, {}, results, read)
    return replace(region, preferred=_find_preferences(operations, region))


def _find_results(
    operations: Sequence[Operator], boundary: Iterable[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Find the tensors that only lead to region outputs, and the tensors with consumers."""
    results = {*boundary}
    read = set[str]()
    for operation in reversed(operations):
        names = {operand.value for operand in operation.inputs}
        if operation.elementwise and operation.output.value in results and not names & read:
            results |= names
        else:
            results -= names
        read |= names
    return frozenset(results), frozenset(read)


def _find_preferences(operations: Sequence[Operator], region: RegionTensors) -> dict[str, Layout]:
    """Return the layouts that consumers need, found from the last consumer to the first."""
    preferred: dict[str, Layout] = {}
    for operation in reversed(operations):
        passed = preferred.get(operation.output.value)
        if passed is not None and (operation.elementwise or region.is_order_kept(operation)):
            alike = (
                one.value
                for one in operation.inputs
                if region.elements[one.value] == passed.elements
            )
            preferred.update(dict.fromkeys(alike, passed))
        for operand in operation.inputs:
            if operand.assigned is not None and operand.value not in operation.constant_operands:
                whole = region.extend(operand, operand.assigned)
                if whole is not None:
                    preferred[operand.value] = whole
    return preferred


Moved = tuple[Piece, ...]
"""Pieces of elements: their numbers in a source and in the result."""


class CopyKey(NamedTuple):
    """Key of a copy: elements of a tensor, and the layout that they have in the copy.

    With ``padded``, zeros follow the last channel.
    """

    value: str
    offset: int
    layout: Layout
    padded: bool = True


@dataclass(frozen=True)
class Assignment:
    """Layouts and operations assigned so far in a region.

    :func:`byoc.layout.assign.assign_layouts` owns it and only adds to it.

    Attributes:
        region: facts about the region's tensors.
        layouts: layout of each tensor.
        operations: operations with layouts, including copies.
        copies: names of tensors that hold elements of another tensor in another layout.
        padded: tensors whose padding is written.
    """

    region: RegionTensors
    layouts: dict[str, Layout] = field(default_factory=dict)
    operations: list[Operator] = field(default_factory=list)
    copies: dict[CopyKey, str] = field(default_factory=dict)
    padded: set[str] = field(default_factory=set)

    def add_tensor(self, key: CopyKey) -> str:
        """Add a tensor with the elements and layout of ``key`` and return its name."""
        name = self.copies[key] = f"{key.value}~{len(self.copies)}"
        self.layouts[name] = key.layout._replace(begin=0)
        return name


def slice_layout(layout: Layout, offset: int, required: Layout) -> Layout | None:
    """Return the layout of a tensor's slice at element ``offset``, if it is ``required``.

    ``layout`` is that of the tensor. Return None if the slice has another layout than ``required``.
    """
    if layout.atom != required.atom:
        return None
    image, rest = divmod(offset, layout.channels * layout.positions)
    if required._replace(begin=0).canonical == layout._replace(begin=0).canonical and not offset:
        return required._replace(begin=layout.begin)
    same = required._replace(images=0, begin=0) == layout._replace(images=0, begin=0)
    if same and not rest and image + required.images <= layout.images:
        return required._replace(begin=layout.count_bytes_before(offset))
    if (
        layout.by_row
        or required.by_row
        or layout.positions != required.positions
        or rest % layout.positions
    ):
        return None
    first = rest // layout.positions
    ends = required.channels % required.atom == 0 or first + required.channels == layout.channels
    inside = required.images == 1 and first + required.channels <= layout.channels
    fits = inside and ends and first % required.atom == 0
    return required._replace(begin=layout.count_bytes_before(offset)) if fits else None


def read_operand(
    state: Assignment, consumer: Operator, operand: Operand, required: Layout
) -> Operand:
    """Return an operand in the layout that its consumer needs, copied if necessary.

    An operand that has this layout is read in place.
    """
    if operand.value in consumer.constant_operands:
        return replace(operand, assigned=required)
    found = slice_layout(state.layouts[operand.value], operand.offset, required)
    if found is not None:
        return replace(operand, assigned=found)
    key = CopyKey(operand.value, operand.offset, required)
    if key not in state.copies:
        piece = Piece(operand.offset, 0, (Dim(operand.elements, 1, 1),))
        copy_elements(state, consumer, state.add_tensor(key), {operand.value: (piece,)})
    return replace(operand, value=state.copies[key], offset=0, assigned=required._replace(begin=0))


def write_result(state: Assignment, operation: Operator, required: Layout) -> None:
    """Add an operation whose result has layout ``required``.

    Copy the result if its tensor has another layout.
    """
    result = operation.output
    region = state.region
    name = result.value
    if name not in state.layouts:
        preferred = (
            None if required.by_row or region.is_whole(result) else region.preferred.get(name)
        )
        state.layouts[name] = preferred or region.extend(result, required) or region.default(name)
    found = slice_layout(state.layouts[name], result.offset, required)
    if found is not None and not operation.omits_padding:
        state.operations.append(replace(operation, output=replace(result, assigned=found)))
        return
    own = state.add_tensor(
        CopyKey(name, result.offset, required, padded=not operation.omits_padding)
    )
    written = replace(result, value=own, offset=0, assigned=required._replace(begin=0))
    state.operations.append(replace(operation, output=written))
    piece = Piece(0, result.offset, (Dim(result.elements, 1, 1),))
    copy_elements(state, operation, name, {own: (piece,)})


def copy_elements(
    state: Assignment, operation: Operator, target: str, moved: Mapping[str, Moved]
) -> None:
    """Add operations that copy elements of tensors to ``target``, for ``operation``.

    ``moved`` has the elements by name of the source.
    """
    add_copies(state, operation, target, find_copies(state, target, moved))


def find_copies(
    state: Assignment, target: str, moved: Mapping[str, Moved]
) -> dict[str, tuple[Piece, ...]]:
    """Return, by source tensor, the pieces of bytes to copy from it to ``target``.

    The bytes follow from the layouts of both tensors.
    """
    layout = state.layouts[target]
    shape = state.region.shapes.get(target, ())
    return {
        source: _find_stored_pieces(pieces, state.layouts[source], layout, shape)
        for source, pieces in moved.items()
    }


@lru_cache(maxsize=REMEMBERED_MAPS)
def _find_stored_pieces(
    moved: Moved, source: Layout, target: Layout, shape: tuple[int, ...]
) -> tuple[Piece, ...]:
    """Return the pieces of bytes that hold ``moved`` elements; ``shape`` is the result's."""
    return find_packed_pieces(_map_bytes(moved, source, target), target, shape)


@lru_cache(maxsize=REMEMBERED_MAPS)
def count_breaks(moved: Moved, source: Layout, target: Layout) -> int:
    """Return how often the next byte of a copy does not follow the last one on both sides."""
    index = _map_bytes(moved, source, target)
    targets = np.flatnonzero(index != NOTHING)
    return int(np.count_nonzero(np.diff(index[targets]) != np.diff(targets)))


def _map_bytes(moved: Moved, source: Layout, target: Layout) -> Int64:
    """Return the byte of a source for each byte of a result, or NOTHING.

    ``moved`` are pieces of elements, ``source`` and ``target`` the layouts of both tensors.
    """
    places = zip(*[piece.positions() for piece in moved], strict=True)
    sources, targets = [one[0] if len(one) == 1 else np.concatenate(one) for one in places]
    index = np.full(prod(target.stored), NOTHING, np.int64)
    index[target.places(targets)] = source.places(sources)
    return index


def add_copies(
    state: Assignment,
    operation: Operator,
    target: str,
    pieces: Mapping[str, tuple[Piece, ...]],
    constants: Mapping[str, NDArray[np.int8]] = MappingProxyType({}),
) -> None:
    """Add the copies of ``pieces``, by name of the source, and the padding of ``target``."""
    for source, found in pieces.items():
        own = {source: constants[source]} if source in constants else {}
        made = copies(operation.name, operation.onnx_nodes, source, target, found)
        state.operations.extend(
            [replace(one, constant_operands=own) for one in made] if own else made
        )
    if pieces:
        _add_padding(state, operation, target)


def add_fill(state: Assignment, operation: Operator, byte: int) -> None:
    """Add the operations that fill the elements of a result with ``byte`` in its layout."""
    name = operation.output.value
    layout = state.layouts[operation.output.value]
    index = np.full(prod(layout.stored), NOTHING, np.int64)
    targets = Piece(0, operation.output.offset, operation.loops.dims).positions()[1]
    index[layout.places(targets)] = 0
    pieces = find_pieces(index.reshape(layout.stored))
    state.operations.extend(fills(operation.name, operation.onnx_nodes, name, pieces, byte))


def _add_padding(state: Assignment, operation: Operator, name: str) -> None:
    """Fill the padding after the last channel of a tensor that is written byte by byte, once."""
    layout = state.layouts[name]
    if name in state.padded or layout.channels % layout.atom == 0:
        return
    state.padded.add(name)
    whole, rest = divmod(layout.channels, layout.atom)
    first = layout.begin + whole * layout.positions * layout.atom + rest
    dims = (
        Dim(layout.images, 0, layout.image_bytes),
        Dim(layout.positions, 0, layout.atom),
        Dim(layout.atom - rest, 0, 1),
    )
    state.operations.extend(
        fills(operation.name, operation.onnx_nodes, name, (Piece(0, first, merge_dims(dims)),), 0)
    )


BYTES_OF_A_RUN = 4
"""Number of tensor bytes that cost as much as one contiguous run of a movement."""


def add_movements(state: Assignment, group: tuple[Operator, ...]) -> None:
    """Add the movements that write one tensor.

    Choose its layout if it has none.
    """
    first = group[0]
    name = group[0].output.value
    if _keep_layout(state, first):
        return
    if name not in state.layouts:
        layout = state.region.preferred.get(name) or _choose_layout(state, group)
        state.layouts[name] = (
            layout if layout.atom == state.region.atom else state.region.default(name)
        )
    moved = _share_or_fill(state, group)
    constants = {value: data for one in group for value, data in one.constant_operands.items()}
    state.layouts.update(
        {value: state.region.dense(data.size) for value, data in constants.items()}
    )
    pieces = find_copies(state, name, moved)
    if max(map(len, pieces.values()), default=0) > MAX_PIECES_PER_MOVE:
        _move_densely(state, first, moved)
    else:
        add_copies(state, first, name, pieces, constants)


def _keep_layout(state: Assignment, operation: Operator) -> bool:
    """Add an operation that keeps the order of elements with the layout of its source.

    Return False if impossible.
    """
    if (
        not state.region.is_order_kept(operation)
        or operation.inputs[0].value in operation.constant_operands
    ):
        return False
    layout = state.layouts[operation.inputs[0].value]
    result = operation.output
    if layout.atom != state.region.atom and state.region.preferred.get(result.value) != layout:
        return False
    if state.layouts.setdefault(result.value, layout) != layout:
        return False
    operand = replace(operation.inputs[0], assigned=layout)
    state.operations.append(
        replace(operation, inputs=(operand,), output=replace(result, assigned=layout))
    )
    return True


def _choose_layout(state: Assignment, group: tuple[Operator, ...]) -> Layout:
    """Choose the layout of a moved tensor whose consumers need no particular layout.

    The tensor is by row if its source is by row.
    """
    name = group[0].output.value
    region = state.region
    shape = region.shapes.get(name, ())
    if shape and name in region.results:
        return cheapest_layout(state, group, boundary_layouts(shape, region.atom))
    sources = (
        state.layouts[one.value]
        for item in group
        for one in item.inputs
        if one.value in state.layouts
    )
    first = next(sources, None)
    if first is not None and first.by_row and len(shape) > 1:
        return Layout(shape[-1], prod(shape[:-1]), region.atom, by_row=True).canonical
    return region.default(name)


def cheapest_layout(
    state: Assignment, group: tuple[Operator, ...], options: Iterable[Layout]
) -> Layout:
    """Return the layout with the fewest bytes and contiguous runs for movements into a tensor."""
    moved = []
    for operation in group:
        for value, piece in find_moved_pieces(operation):
            if isinstance(value, int):
                continue
            constant = value in operation.constant_operands
            layout = (
                state.region.dense(state.region.elements[value])
                if constant
                else state.layouts[value]
            )
            moved.append((piece, layout))
    return min(options, key=lambda layout: _layout_cost(layout, moved))


def compute_storing_cost(
    region: RegionTensors, name: str, layout: Layout, consumers: Iterable[Operator]
) -> float:
    """Return the cost of storing a region input with ``layout`` and moving it from there.

    The movements are those to the results of ``consumers``.
    """
    cost = prod(layout.stored) / BYTES_OF_A_RUN
    for operation in consumers:
        result = operation.output.value
        options: tuple[Layout, ...] = (region.preferred.get(result) or region.default(result),)
        if result in region.results:
            shape = region.shapes.get(result, (region.elements[result],))
            options = boundary_layouts(shape, region.atom)
        moved = [(piece, layout) for value, piece in find_moved_pieces(operation) if value == name]
        cost += min(_layout_cost(option, moved) for option in options)
    return cost


def _layout_cost(layout: Layout, moved: Iterable[tuple[Piece, Layout]]) -> float:
    """Return the cost of a tensor with ``layout``: its bytes and its contiguous runs.

    The runs are those of the ``moved`` elements: pieces with the layout of their source.
    """
    breaks = sum([count_breaks((piece,), source, layout) for piece, source in moved])
    return prod(layout.stored) / BYTES_OF_A_RUN + breaks


def _share_or_fill(state: Assignment, group: tuple[Operator, ...]) -> dict[str, Moved]:
    """Add fill operations of a movement group, and aliases for slices that need no copy.

    Return the elements left to copy.
    """
    moved: dict[str, Moved] = {}
    for operation in group:
        filled = get_filled_byte(operation)
        if filled is not None:
            add_fill(state, operation, filled)
            continue
        apart = [not _share_bytes(state, operation, *both) for both in operation.slices] or [True]
        for value, piece in compress(find_moved_pieces(operation), apart):
            assert isinstance(value, str)
            moved[value] = (*moved.get(value, ()), piece)
    return moved


def _share_bytes(state: Assignment, operation: Operator, source: Operand, target: Operand) -> bool:
    """Alias ``target`` to ``source`` if their layouts permit it; return whether they do."""
    region = state.region
    layout = state.layouts[target.value]
    origin = state.layouts.get(source.value)
    if origin is None or source.value in operation.constant_operands:
        return False
    options = [layout] if target.elements == region.elements[target.value] else []
    options += [origin] if source.elements == region.elements[source.value] else []
    if source.elements % origin.positions == 0:
        options.append(Layout(source.elements // origin.positions, origin.positions, region.atom))
    for option in options:
        if option.elements != source.elements:
            continue
        read = slice_layout(origin, source.offset, option._replace(begin=0))
        written = slice_layout(layout, target.offset, option._replace(begin=0))
        if read is not None and written is not None:
            alias = Alias(
                name=operation.name, kind=operation.kind, onnx_nodes=operation.onnx_nodes,
                inputs=(replace(source, assigned=read),), output=replace(target, assigned=written),
            )  # fmt: skip
            state.operations.append(alias)
            return True
    return False


def _move_densely(state: Assignment, first: Operator, moved: Mapping[str, Moved]) -> None:
    """Unpack the sources of a movement, move densely, and pack the result."""
    name = first.output.value
    region = state.region
    elements = region.elements[name]
    plain = state.add_tensor(CopyKey(name, 0, region.dense(elements)))
    written = list[Piece]()
    for value, elements_moved in moved.items():
        whole = Operand(value, (region.elements[value],))
        source = read_operand(state, first, whole, region.dense(whole.elements)).value
        index = np.full(elements, NOTHING, np.int64)
        for piece in elements_moved:
            sources, targets = piece.positions()
            index[targets] = sources
            dims = tuple([Dim(dim.size, dim.target, dim.target) for dim in piece.dims])
            written.append(Piece(piece.target, piece.target, dims))
        pieces = find_pieces(index.reshape(region.shapes.get(name, index.shape)))
        state.operations.extend(copies(first.name, first.onnx_nodes, source, plain, pieces))
    copy_elements(state, first, name, {plain: tuple(written)})
