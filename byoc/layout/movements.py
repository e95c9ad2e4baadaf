"""Layouts of tensors that movements write, and copies of the bytes that tensors do not share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import compress
from math import prod

import numpy as np

from byoc.layout.copying import (
    Assignment,
    CopyKey,
    Moved,
    add_copies,
    add_fill,
    copy_elements,
    count_breaks,
    find_copies,
    read_operand,
    slice_layout,
)
from byoc.layout.preferences import RegionTensors
from byoc.operators.copies import copies, get_filled_byte
from byoc.operators.gather import MAX_PIECES_PER_MOVE, find_moved_pieces
from byoc.operators.movement import Alias
from byoc.operators.operator import Operator
from byoc.operators.packing import boundary_layouts
from byoc.operators.pieces import NOTHING, Dim, Piece, find_pieces
from byoc.operators.records import Operand
from isa.layout import Layout

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
    if layout.atom != state.region.atom or state.layouts.setdefault(result.value, layout) != layout:
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
