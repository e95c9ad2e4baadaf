"""Assign the layout of every tensor of a region in banked memory and insert copies.

A convolution needs channels of positions, a matrix product needs positions of channels, and a
product per head needs images of them (:class:`isa.layout.Layout`). A tensor keeps its producer's
layout. Movements and element-wise operations write the layout that the next consumer needs. A
consumer that needs another layout reads a copy.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from byoc.layout.boundary import boundary_layouts
from byoc.layout.copying import (
    Assignment,
    RegionTensors,
    add_movements,
    cheapest_layout,
    compute_storing_cost,
    describe_tensors,
    read_operand,
    write_result,
)
from byoc.operators.matmul import to_plane
from byoc.operators.operator import Operator
from byoc.operators.records import Operand
from isa.layout import Layout
from isa.ops.products import NARROW

MIN_PADDING = 4096
"""Minimum padding in bytes of a region output that is stored as a copy in narrower atoms."""


def assign_layouts(
    operations: Iterable[Operator],
    shapes: Mapping[str, tuple[int, ...]],
    boundary: Iterable[str],
    atom: int,
    fits: Callable[[Operator], bool] = lambda _: True,
) -> tuple[tuple[Operator, ...], dict[str, Layout]]:
    """Choose a memory layout for every tensor of a region and insert the copies that it needs.

    A tensor keeps its producer's layout. A consumer that needs another layout reads a copy; the
    copy is made once and shared. Region inputs and outputs get one of
    :func:`byoc.layout.boundary.boundary_layouts`: inputs the layout that their consumers need,
    which may have narrow atoms; outputs their producer's layout or one of few bytes. Movements
    become copies of bytes.

    Args:
        operations: the region's operations in execution order.
        shapes: shapes of the model's tensors by name.
        boundary: names of the region's inputs and outputs.
        atom: channels stored together, one byte each.
        fits: whether an operation has a tiling in the scratchpad.

    Returns:
        The operations including inserted copies, and the layout of each tensor.
    """
    listed = tuple(operations)
    names = tuple(boundary)
    state = Assignment(describe_tensors(listed, shapes, names, atom, fits))
    results = {operation.output.value for operation in listed}
    for name in names:
        if name not in results:
            consumers = [
                one for one in listed if any(operand.value == name for operand in one.inputs)
            ]
            state.layouts[name] = _input_layout(state.region, name, consumers)
    for group in _group_movements(listed):
        name = group[0].output.value
        if name in names and name not in state.layouts:
            state.layouts[name] = _output_layout(state, group)
        _add(state, group)
    return tuple(state.operations), state.layouts


def _group_movements(operations: Iterable[Operator]) -> Iterator[tuple[Operator, ...]]:
    """Yield a region's operations in order, with the movements into one tensor grouped.

    Consecutive movements into one tensor form one group.
    """

    def key(numbered: tuple[int, Operator]) -> tuple[bool, object]:
        number, operation = numbered
        return (True, operation.output.value) if operation.traits.moves else (False, number)

    return (tuple(one for _, one in group) for _, group in groupby(enumerate(operations), key))


def _input_layout(region: RegionTensors, name: str, consumers: Sequence[Operator]) -> Layout:
    """Return the layout of a region input.

    It is dense if all ``consumers`` are movements and padding costs more than contiguous runs save.
    """
    default = region.default(name)
    preferred = region.preferred.get(name)
    allowed = boundary_layouts(region.shapes[name], region.atom)
    dense = region.dense(default.elements)
    if dense in allowed and all(one.traits.moves for one in consumers):
        costs = [compute_storing_cost(region, name, one, consumers) for one in (dense, default)]
        if costs[0] < costs[1]:
            return dense
    if preferred is None or preferred in allowed:
        return preferred or default
    return default._replace(atom=preferred.atom)


def _output_layout(state: Assignment, group: tuple[Operator, ...]) -> Layout:
    """Return the layout of a region output.

    Movements get the cheapest layout. Other results keep their producer's layout if the boundary
    allows it.
    """
    operation = group[0]
    result = group[0].output
    region = state.region
    shape = region.shapes[result.value]
    options = boundary_layouts(shape, region.atom)
    if operation.traits.moves:
        return cheapest_layout(state, group, options)
    required = result.assigned
    if required is None:  # element-wise: the layout of an operand
        wholes = (
            one.value
            for one in operation.inputs
            if one.value in state.layouts and region.is_whole(one)
        )
        required = next((state.layouts[value]._replace(atom=region.atom) for value in wholes), None)
    whole = None if required is None else region.extend(result, required)
    layout = whole if whole in options else options[0]
    narrow = _narrow(layout)
    able = result.assigned is not None and result.value not in region.read
    return narrow if able and narrow in boundary_layouts(shape, narrow.atom) else layout


def _narrow(layout: Layout) -> Layout:
    """Return a layout with smaller atoms for one large plane of few channels.

    Other layouts are returned unchanged.
    """
    atom = max(NARROW, 1 << (layout.channels - 1).bit_length())
    large = layout.images == 1 and layout.positions * (layout.atom - atom) >= MIN_PADDING
    return layout._replace(atom=atom) if atom < layout.atom and large else layout


def _add(state: Assignment, group: tuple[Operator, ...]) -> None:
    """Add an operation, or the movements into one tensor, with assigned layouts."""
    operation = group[0]
    if operation.traits.moves:
        add_movements(state, group)
    elif operation.elementwise:
        _add_elementwise(state, operation)
    else:
        for part in _split_images(state, operation):
            _add_in_required_layouts(state, _read_unflattened(state, part))


def _add_elementwise(state: Assignment, operation: Operator) -> None:
    """Add an element-wise operation, whose operands and result all have the same layout.

    It is the layout that the result must have, or that of most operands.
    """
    region = state.region
    result = operation.output
    operands = [one for one in operation.inputs if one.value not in operation.constant_operands]
    chosen = region.dense(result.elements)
    if all(map(region.is_whole, operands)):
        found = Counter(
            state.layouts[one.value]._replace(begin=0, atom=region.atom) for one in operands
        )
        preferred = region.preferred.get(result.value) or region.default(result.value)
        if found:
            chosen = found.most_common(1)[0][0]
        if region.is_whole(result):
            chosen = preferred if preferred.atom != region.atom or not found else chosen
            chosen = state.layouts.get(result.value, chosen)
    inputs = tuple(read_operand(state, operation, one, chosen) for one in operation.inputs)
    write_result(state, replace(operation, inputs=inputs), chosen)


def _split_images(state: Assignment, operation: Operator) -> tuple[Operator, ...]:
    """Split an operation on a tensor of several images into one operation per image.

    Only an operation that treats all positions of the tensor alike is split.
    """
    source = operation.inputs[0]
    result = operation.output
    layout = state.layouts.get(source.value)
    required = source.assigned
    if not operation.traits.by_position or layout is None or required is None or layout.images == 1:
        return (operation,)
    if (
        not layout.by_row
        or layout.channels != required.channels
        or source.elements != layout.elements
    ):
        return (operation,)
    parts = []
    for number in range(layout.images):
        read, written = (
            _rows_of(operand, number, layout.positions, layout.images)
            for operand in (source, result)
        )
        parts.append(replace(operation, inputs=(read,), output=written))
    return tuple(parts)


def _rows_of(operand: Operand, number: int, rows: int, images: int) -> Operand:
    """Return the part of an operand of shape (elements, rows) that holds image ``number``.

    The operand may also be a result with one element per row.
    """
    assert operand.assigned is not None
    width = operand.shape[0]
    part = operand.assigned
    layout = (
        part._replace(positions=rows)
        if part.positions > 1
        else part._replace(channels=part.channels // images)
    )
    offset = operand.offset + number * width * rows
    return Operand(operand.value, (width, rows), offset, operand.dtype, layout.canonical)


def _add_in_required_layouts(state: Assignment, operation: Operator) -> None:
    """Add an operation whose operands and result have the layouts that it needs."""
    inputs = tuple(
        read_operand(state, operation, operand, operand.layout) for operand in operation.inputs
    )
    write_result(state, replace(operation, inputs=inputs), operation.output.layout)


def _read_unflattened(state: Assignment, operation: Operator) -> Operator:
    """Replace an operation on a flattened plane by one that reads the plane itself.

    The operation stays unchanged if the new one has no tiling.
    """
    source = operation.inputs[0]
    region = state.region
    layout = state.layouts.get(source.value)
    if layout is None or layout.by_row or layout.images > 1 or layout.positions <= 1:
        return operation
    if layout.atom != region.atom or not region.is_whole(source):
        return operation
    window = to_plane(operation, layout)
    return window if window is operation or region.fits(window) else operation
