"""Readers of pools, reductions, bilinear resizing, softmax and index searches."""

from functools import partial

import numpy as np

from byoc.frontend.tflite.elementwise import same_quantisation
from byoc.frontend.tflite.products import window
from byoc.frontend.tflite.unit import KeptOnCpuError, Reader, UnitContext, permute_axes, planes
from byoc.operators import domain
from byoc.operators.interpolation import INTERPOLATION
from isa.numerics import resize_coordinates


def pool(op_type: str, unit: UnitContext) -> None:
    """Read AVERAGE_POOL_2D, which excludes padding, or MAX_POOL_2D; both keep the scale."""
    options = unit.options
    activation = unit.activation()
    if op_type == "MaxPool" and activation:
        raise KeptOnCpuError("its activation cuts the maximum off")
    if not same_quantisation(unit.tensor(0), unit.result()):
        raise KeptOnCpuError(
            "its operand and its result have different scales, which LiteRT leaves out of account"
        )
    kernel = (options.filterHeight, options.filterWidth)
    strides = (options.strideH, options.strideW)
    if min(*kernel, *strides) < 1 or len(unit.shape(0)) != 4:
        raise KeptOnCpuError(f"its window is {kernel} with strides {strides}")
    counts = {"count_include_pad": False, "ceil_mode": False} if op_type == "AveragePool" else {}
    attributes = {**window(unit, kernel, strides, (1, 1)), **counts, **activation}
    unit.node(
        op_type, [unit.value(0, planes(unit.shape(0)))], planes(unit.result().shape), attributes
    )


def reduction(op_type: str, unit: UnitContext) -> None:
    """Read MEAN, SUM, REDUCE_MAX or REDUCE_MIN along constant axes."""
    axes = unit.parameter(1, "axes", "are")
    view = unit.axes_view(0)
    assert view.axes is not None
    rank = len(view.shape)
    reduced = {int(axis) % rank for axis in axes.reshape(-1)} if rank else set()
    if not reduced:
        raise KeptOnCpuError("it reduces no axis")
    if op_type == "ReduceSum" and unit.tensor(0).dtype == "int8":
        raise KeptOnCpuError("LiteRT's reference kernel of SUM takes the bytes of int8 for uint8")
    if op_type in ("ReduceMax", "ReduceMin") and not same_quantisation(
        unit.tensor(0), unit.result()
    ):
        raise KeptOnCpuError(
            "its operand and its result have different scales, which LiteRT leaves out of account"
        )
    left = [axis for axis in view.axes if axis not in reduced]
    order = view.axes if unit.options.keepDims else tuple(sorted(left).index(axis) for axis in left)
    lies = permute_axes(unit.result().shape, order)
    attributes = {"axes": tuple(sorted(view.axes.index(axis) for axis in reduced))}
    unit.node(op_type, [unit.value(0, view)], lies, attributes)


def resize(unit: UnitContext) -> None:
    """Read RESIZE_BILINEAR of images.

    Each result is interpolated between four elements of the operand.
    """
    options = unit.options
    unit.parameter(1, "sizes", "are")
    if not same_quantisation(unit.tensor(0), unit.result()):
        raise KeptOnCpuError(
            "its operand and its result have different scales, which LiteRT leaves out of account"
        )
    source = unit.shape(0)
    result = unit.result().shape
    rows, columns = (
        tuple(
            resize_coordinates(
                source[axis], result[axis], options.alignCorners, options.halfPixelCenters
            )
        )
        for axis in (1, 2)
    )
    places = {"rows": tuple(map(float, rows)), "columns": tuple(map(float, columns))}
    unit.node(INTERPOLATION, [unit.value(0, planes(source))], planes(result), places)


def softmax(unit: UnitContext) -> None:
    """Read SOFTMAX along the last axis."""
    beta = float(unit.options.beta)
    if not 0 < beta < np.inf:
        raise KeptOnCpuError(f"its beta is {beta:g}")
    view = unit.axes_view(0)
    unit.node("Softmax", [unit.value(0, view)], view, {"axes": (view.axis(-1),), "beta": beta})


def search(op_type: str, unit: UnitContext) -> None:
    """Read ARG_MAX or ARG_MIN, which return the first of equal elements."""
    axis = unit.parameter(1, "axis")
    view = unit.axes_view(0)
    assert view.axes is not None
    reduced = int(axis.reshape(-1)[0]) % len(view.shape)
    left = [number for number in view.axes if number != reduced]
    lies = permute_axes(unit.result().shape, tuple(sorted(left).index(number) for number in left))
    attributes = {"axes": (view.axes.index(reduced),), "last": 0}
    unit.node(op_type, [unit.value(0, view)], lies, attributes, dtype=domain.INDEX)


READERS: dict[str, Reader] = {
    "AVERAGE_POOL_2D": partial(pool, "AveragePool"),
    "MAX_POOL_2D": partial(pool, "MaxPool"),
    "MEAN": partial(reduction, "ReduceMean"),
    "SUM": partial(reduction, "ReduceSum"),
    "REDUCE_MAX": partial(reduction, "ReduceMax"),
    "REDUCE_MIN": partial(reduction, "ReduceMin"),
    "RESIZE_BILINEAR": resize,
    "SOFTMAX": softmax,
    "ARG_MAX": partial(search, "ArgMax"),
    "ARG_MIN": partial(search, "ArgMin"),
}
