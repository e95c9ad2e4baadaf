"""Functions of one quantised value: relu, leaky relu, absolute."""

from typing import Literal

import numpy as np

from isa.errors import InputError
from isa.numerics.requantising import (
    INT8_HIGH,
    INT8_LOW,
    Float32Array,
    Int8Array,
    IntegerArray,
    check_scale,
    multiply_by_quantised_multiplier,
    rint_to_int64,
    saturate_int8,
)

Function = Literal["relu", "leaky_relu", "absolute"]


def unary(
    x: IntegerArray,
    function: Function,
    scales: tuple[float, float],
    zero_points: tuple[int, int],
    alpha: float = 0.0,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Apply relu, leaky relu or absolute value to int8 values in float32 steps.

    Returns ``clip(rint(float32(g(float32((x - zx) * sx)) / sy)) + zy, low, high)``.

    The result has the shape of ``x``. g is ``relu`` max(v, 0), ``leaky_relu`` v if v >= 0 else
    float32(alpha * v), or ``absolute`` |v|, all in float32. ``scales`` and ``zero_points`` are
    those of the input and the result. Source: QLinearLeakyRelu, and Relu or Abs between
    DequantizeLinear and QuantizeLinear, of ONNX Runtime, measured bit for bit. The zero point is
    added after rounding, so the shift from uint8 to int8 is exact. Raises InputError for a bad
    scale or function.
    """
    value = (x.astype(np.int64) - zero_points[0]).astype(np.float32) * check_scale(
        scales[0], "input scale"
    )
    result = _apply(value, function, np.float32(alpha)) / check_scale(scales[1], "output scale")
    return saturate_int8(rint_to_int64(result) + zero_points[1], low, high)


def _apply(value: Float32Array, function: Function, alpha: np.float32) -> Float32Array:
    if function == "relu":
        return np.maximum(value, np.float32(0))
    if function == "leaky_relu":
        return np.where(value >= 0, value, alpha * value)
    if function == "absolute":
        return np.abs(value)
    raise InputError(f"function '{function}' is unknown; use 'relu', 'leaky_relu' or 'absolute'")


def unary_fixed(
    x: IntegerArray,
    function: Function,
    positive: tuple[int, int],
    negative: tuple[int, int],
    input_zero: int,
    output_zero: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Apply relu, leaky relu or absolute value to int8 values with integers only.

    Returns ``clip(M(g(x - zx)) + zy, low, high)``.

    M is MultiplyByQuantizedMultiplier. ``positive`` is the (multiplier, shift) of sx / sy.
    ``negative`` is that of sx * alpha / sy, which only ``leaky_relu`` uses, for values below the
    zero point; ``relu`` gives them zy. The sign of a negative multiplier is applied after rounding.
    Both factors are a `rounded_multiplier`. Source: LiteRT's QuantizeLeakyRelu, ReluX and Abs.
    """
    centred = x.astype(np.int64) - input_zero
    if function == "absolute":
        result = multiply_by_quantised_multiplier(np.abs(centred), *positive)
    elif function == "relu":
        result = multiply_by_quantised_multiplier(np.maximum(centred, 0), *positive)
    elif function == "leaky_relu":
        above = multiply_by_quantised_multiplier(np.maximum(centred, 0), *positive)
        multiplier, shift = negative
        below = multiply_by_quantised_multiplier(np.minimum(centred, 0), abs(multiplier), shift)
        result = above + (-below if multiplier < 0 else below)
    else:
        raise InputError(
            f"function '{function}' is unknown; use 'relu', 'leaky_relu' or 'absolute'"
        )
    return saturate_int8(result + output_zero, low, high)
