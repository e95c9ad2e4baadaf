"""Readers of element-wise operators: sums and products of two tensors, clamps, changes of scale."""

from collections.abc import Sequence
from functools import partial

from byoc.frontend.tflite.file import TFLiteTensor
from byoc.frontend.tflite.unit import (
    ACTIVATIONS,
    KeptOnCpuError,
    Reader,
    TensorView,
    UnitContext,
    limits,
)
from byoc.operators.activation import REQUANTISE
from byoc.operators.arithmetic import SQUARED_DIFFERENCE


def operands(unit: UnitContext, positions: Sequence[int] = (0, 1)) -> tuple[list[str], TensorView]:
    """Bring broadcasting operands into one layout; return their names and the result's view."""
    shape = unit.result().shape
    computed = [position for position in positions if unit.tensor(position).data is None]
    views = [unit.view(position) for position in computed]
    first = views[0]
    if (
        len(computed) == len(positions)
        and first.shape == shape
        and all(view == first for view in views)
    ):
        return [unit.value(position, first) for position in positions], first
    full = [position for position in computed if len(unit.shape(position)) == len(shape)]
    axes = unit.find_common_view(full).axes if full else tuple(range(len(shape)))
    assert axes is not None
    names = [unit.value(position, broadcast(unit.shape(position), axes)) for position in positions]
    return names, broadcast(shape, axes)


def broadcast(shape: tuple[int, ...], axes: tuple[int, ...]) -> TensorView:
    """Return the view of a tensor extended by leading axes of size 1, in the order ``axes``."""
    factors = (*(1,) * (len(axes) - len(shape)), *shape)
    return TensorView(
        shape,
        factors,
        axes,
        tuple(factors[axis] for axis in axes),
        axes if factors == shape else None,
    )


def arithmetic(op_type: str, unit: UnitContext) -> None:
    """Read ADD, SUB, MUL or SQUARED_DIFFERENCE, whose two operands are rescaled."""
    activation = unit.activation()
    names, view = operands(unit)
    unit.node(op_type, names, view, activation)


def extreme(op_type: str, unit: UnitContext) -> None:
    """Read MINIMUM or MAXIMUM; LiteRT compares stored integers and ignores their scales."""
    if not same_quantisation(unit.tensor(0), unit.result()) or not same_quantisation(
        unit.tensor(1), unit.result()
    ):
        raise KeptOnCpuError(
            "its operands and its result have different scales, which LiteRT leaves out of account"
        )
    names, view = operands(unit)
    unit.node(op_type, names, view)


def same_quantisation(one: TFLiteTensor, other: TFLiteTensor) -> bool:
    """Return True if two tensors have the same element type and quantisation."""
    if one.quantization is None or other.quantization is None:
        return False
    return one.dtype == other.dtype and one.quantization.same_as(other.quantization)


def clamp(number: int, unit: UnitContext) -> None:
    """Read RELU and its variants as a change of scale with limits.

    ``number`` is the variant's number as a fused activation.
    """
    found = limits(unit.result(), ACTIVATIONS[number])
    view = unit.view(0)
    kind, bounds = ("Relu", {}) if number == 1 else ("Clip", {"bounds": found["activation"][1:]})
    rule = {key: value for key, value in found.items() if key == "numerics"}
    unit.node(kind, [unit.value(0, view)], view, {**bounds, **rule})


def rescale(unit: UnitContext) -> None:
    """Read a TensorFlow Lite QUANTIZE operator with integer input.

    It is a change of scale, or a conversion between uint8 and int8, which keeps the bytes.
    """
    view = unit.view(0)
    before, after = (_steps(tensor) for tensor in (unit.tensor(0), unit.result()))
    unit.node("Identity" if before == after else REQUANTISE, [unit.value(0, view)], view)


def _steps(tensor: TFLiteTensor) -> tuple[float, int] | None:
    """Return a tensor's scale and zero point as int8; None without a single scale."""
    found = tensor.quantization
    if found is None or not found.per_tensor:
        return None
    return float(found.scale), int(found.zero_point) - 128 * (tensor.dtype == "uint8")


READERS: dict[str, Reader] = {
    "ADD": partial(arithmetic, "Add"),
    "SUB": partial(arithmetic, "Sub"),
    "MUL": partial(arithmetic, "Mul"),
    "SQUARED_DIFFERENCE": partial(arithmetic, SQUARED_DIFFERENCE),
    "MINIMUM": partial(extreme, "Min"),
    "MAXIMUM": partial(extreme, "Max"),
    "RELU": partial(clamp, 1),
    "RELU_N1_TO_1": partial(clamp, 2),
    "RELU6": partial(clamp, 3),
    "QUANTIZE": rescale,
}
