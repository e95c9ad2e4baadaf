"""Readers of data movement: reshapes cost nothing, and transposes become views.

For other operators, running them on LiteRT shows which element of a result is a copy of which.
"""

from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from byoc.frontend.tflite.elementwise import same_quantisation
from byoc.frontend.tflite.unit import (
    KeptOnCpuError,
    Reader,
    TensorView,
    UnitContext,
    permute_axes,
    reshape_view,
)
from byoc.operators.forms import Positions
from byoc.operators.movement import movement_attributes
from byoc.operators.pieces import NOTHING

LARGEST = 1 << 24
"""Size limit of an operand whose movement is traced: three bytes identify an element."""


def reshape(unit: UnitContext) -> None:
    """Read RESHAPE, SQUEEZE or EXPAND_DIMS: the same elements in the same order."""
    if unit.is_given(1):
        unit.parameter(1, "parameter")
    view = unit.view(0)
    unit.node("Reshape", [unit.value(0, view)], reshape_view(view, unit.result().shape))


def transpose(unit: UnitContext) -> None:
    """Read TRANSPOSE as a view: elements stay in place and the result's axes are renumbered."""
    order = unit.parameter(1, "permutation")
    view = unit.axes_view(0)
    assert view.axes is not None
    from_axis = [int(axis) % len(view.shape) for axis in order.reshape(-1)]
    lies = permute_axes(unit.result().shape, [from_axis.index(axis) for axis in view.axes])
    unit.node("Identity", [unit.value(0, view)], lies)


def concatenation(unit: UnitContext) -> None:
    """Read CONCATENATION along an axis of operands with one scale."""
    positions = range(len(unit.operator.inputs))
    if unit.options.fusedActivationFunction:
        raise KeptOnCpuError("it has an activation")
    if not all(same_quantisation(unit.tensor(position), unit.result()) for position in positions):
        raise KeptOnCpuError("its operands and its result have different scales")
    view = unit.find_common_view(positions)
    assert view.axes is not None
    names = [
        unit.value(position, permute_axes(unit.shape(position), view.axes))
        for position in positions
    ]
    result = permute_axes(unit.result().shape, view.axes)
    unit.node("Concat", names, result, {"axis": result.axis(unit.options.axis)})


def pack(unit: UnitContext) -> None:
    """Read PACK: concatenate operands along a new axis."""
    result = unit.free_view()
    assert result.axes is not None
    axis = unit.options.axis % len(result.shape)
    names = []
    for position in range(len(unit.operator.inputs)):
        if not same_quantisation(unit.tensor(position), unit.result()):
            raise KeptOnCpuError("its operands and its result have different scales")
        shape = unit.shape(position)
        factors = (*shape[:axis], 1, *shape[axis:])
        lies = tuple(factors[number] for number in result.axes)
        names.append(unit.value(position, TensorView(shape, factors, result.axes, lies, None)))
    unit.node("Concat", names, result, {"axis": result.axis(axis)})


def read_movement(op_type: str, unit: UnitContext, operand: int = 0) -> None:
    """Read an operator that only copies elements of one operand, such as a slice.

    Its parameters are constant, and it fills with one number.
    """
    source = unit.tensor(operand)
    for position, number in enumerate(unit.operator.inputs):
        if position != operand and number >= 0:
            unit.parameter(position, "parameter")
    count = prod(source.shape)
    if count >= LARGEST:
        raise KeptOnCpuError(
            f"its operand has {count:,} elements; data movement is worked out for less than "
            f"{LARGEST:,}"
        )
    if not all(
        same_quantisation(source, unit.result(n)) for n in range(len(unit.operator.outputs))
    ):
        raise KeptOnCpuError("its operand and its result have different scales")
    view = unit.axes_view(operand)
    assert view.axes is not None
    place = np.empty(count, np.int64)
    place[view.arrange(np.arange(count)).reshape(-1)] = np.arange(count)
    for number, (index, fill) in enumerate(_trace_elements(unit, operand, count)):
        shape = unit.result(number).shape
        lies = (
            permute_axes(shape, view.axes)
            if len(shape) == len(view.shape)
            else unit.free_view(number)
        )
        lying = lies.arrange(np.where(index == NOTHING, NOTHING, place[index]).reshape(shape))
        numbers = None if fill is None else _real(unit, number, fill)
        attributes = movement_attributes(Positions(lying.astype(np.int64), numbers), count)
        unit.node(op_type, [unit.value(operand, view)], lies, attributes, index=number)


def _real(unit: UnitContext, number: int, stored: int) -> float:
    quantization = unit.result(number).quantization
    assert quantization is not None
    return (stored - int(quantization.zero_point)) * float(quantization.scale)


def _trace_elements(
    unit: UnitContext, operand: int, count: int
) -> list[tuple[NDArray[np.int64], int | None]]:
    """Return the source index of each element that an operator copies, for every result.

    The fill value of other elements is returned too.
    The operator runs on the elements' positions, a byte at a time, and on the inverted first byte.
    An element that is the same in both runs is not a copy.
    """
    source = unit.tensor(operand)
    alone = unit.alone(operand)
    positions = np.arange(count).reshape(source.shape)
    bytes_of = [positions & 255, positions >> 8 & 255, positions >> 16, ~positions & 255]
    runs = [alone(part.astype(np.uint8).view(source.dtype)) for part in bytes_of]
    found: list[tuple[NDArray[np.int64], int | None]] = []
    for low, middle, high, inverted in zip(*runs, strict=True):
        first, second, third = (
            part.view(np.uint8).astype(np.int64) for part in (low, middle, high)
        )
        index = np.where(low == inverted, NOTHING, first | second << 8 | third << 16)
        fills = low[low == inverted]
        found.append((index, int(fills.flat[0]) if fills.size else None))
    return found


READERS: dict[str, Reader] = {
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), reshape),
    **dict.fromkeys(
        ("SLICE", "STRIDED_SLICE", "SPLIT_V", "UNPACK", "BATCH_TO_SPACE_ND"),
        partial(read_movement, "Slice"),
    ),
    **dict.fromkeys(
        ("PAD", "PADV2", "MIRROR_PAD", "SPACE_TO_BATCH_ND"), partial(read_movement, "Pad")
    ),
    "SPLIT": partial(read_movement, "Slice", operand=1),
    "GATHER": partial(read_movement, "Gather"),
    "GATHER_ND": partial(read_movement, "GatherND"),
    "TILE": partial(read_movement, "Tile"),
    "BROADCAST_TO": partial(read_movement, "Expand"),
    "REVERSE_V2": partial(read_movement, "ReverseSequence"),
    "SPACE_TO_DEPTH": partial(read_movement, "SpaceToDepth"),
    "DEPTH_TO_SPACE": partial(read_movement, "DepthToSpace"),
    "RESIZE_NEAREST_NEIGHBOR": partial(read_movement, "Resize"),
    "TRANSPOSE": transpose,
    "CONCATENATION": concatenation,
    "PACK": pack,
}
