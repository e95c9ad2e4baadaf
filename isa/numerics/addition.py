"""Addition, subtraction, multiplication and division of two quantised tensors.

The rules are ONNX Runtime's (QLinearAdd, QLinearMul; Sub and Div in float between DequantizeLinear
and QuantizeLinear), and TensorFlow Lite's with integers only.
"""

from dataclasses import dataclass

import numpy as np

from isa.errors import InputError
from isa.numerics.requantising import (
    INT8_HIGH,
    INT8_LOW,
    INT32_HIGH,
    Float32Array,
    Int8Array,
    IntegerArray,
    ScaleLike,
    check_scale,
    multiply_add_once_rounded,
    multiply_by_quantised_multiplier,
    quantise_multiplier,
    rint_to_int64,
    saturate_int8,
)


def add_constants(
    scale_a: float, zero_a: int, scale_b: float, zero_b: int, scale_y: float, zero_y: int
) -> tuple[np.float32, np.float32, np.float32]:
    """Return the float32 constants (ratio_a, ratio_b, constant) of `add`.

    The zero points are the ORIGINAL ones (0..255 of a uint8 model). ratio_a = sa / sy, ratio_b = sb
    / sy, constant = zy - fma(ratio_a, za, ratio_b * zb), each step float32. Source: QLinearAdd of
    ONNX Runtime (MlasQLinearAdd), measured bit for bit.

    Raises:
        InputError: a scale is bad, or the ratios are so large that float32 overflows.
    """
    with np.errstate(over="ignore"):
        ratio_a = np.float32(
            check_scale(scale_a, "scale of a") / check_scale(scale_y, "scale of y")
        )
        ratio_b = np.float32(
            check_scale(scale_b, "scale of b") / check_scale(scale_y, "scale of y")
        )
        product_b = ratio_b * np.float32(zero_b)
    if max(ratio_a, ratio_b) > 2.0**100:
        raise InputError(
            f"scales {scale_a} and {scale_b} over {scale_y} leave float32; quantise "
            "the tensor again"
        )
    constant = np.float32(zero_y) - multiply_add_once_rounded(
        np.asarray(zero_a), ratio_a, product_b
    )
    return ratio_a, ratio_b, np.float32(constant)


def add(
    a: IntegerArray,
    b: IntegerArray,
    ratio_a: np.float32,
    ratio_b: np.float32,
    constant: np.float32,
    offset: int = 0,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Add two quantised tensors as ONNX Runtime does, with float32 constants.

    Returns int8 ``clip(rint(fma(a', ra, fma(b', rb, k))) - offset, low, high)``.

    a' = a + offset and b' = b + offset. The textbook formula is wrong on ties. ONNX Runtime uses a
    true FMA here on every CPU with AVX2.

    Args:
        a: stored int8 values; they broadcast against b.
        b: stored int8 values.
        ratio_a: ra of `add_constants`.
        ratio_b: rb of `add_constants`.
        constant: k of `add_constants`.
        offset: 0, or 128 if the ONNX tensors are uint8.
        low: lower limit of the stored result.
        high: upper limit of the stored result.
    """
    inner: Float32Array = multiply_add_once_rounded(b.astype(np.int64) + offset, ratio_b, constant)
    total = multiply_add_once_rounded(a.astype(np.int64) + offset, ratio_a, inner)
    return saturate_int8(rint_to_int64(total) - offset, low, high)


# TensorFlow Lite's headroom for int8: |x - zero| < 2**8, so the operands stay below 2**28
LEFT_SHIFT = 20


@dataclass(frozen=True)
class AddFixedConstants:
    """Integer constants of `add_fixed`, the addition of quantised tensors with integers only.

    Each operand and the result have a 31-bit multiplier and a shift.
    """

    multiplier_a: int
    shift_a: int
    multiplier_b: int
    shift_b: int
    multiplier_y: int
    shift_y: int


def add_fixed_constants(scale_a: float, scale_b: float, scale_y: float) -> AddFixedConstants:
    """Return the constants of `add_fixed` for three scales.

    They are sa/t, sb/t and t/(2**20 * sy) with t = 2 * max(sa, sb), in float64. Source:
    ``kernels/add.cc`` and ``sub.cc`` of LiteRT, whose addition aborts the process if the last
    factor is 1 or more. Raises InputError for a bad scale.
    """
    a, b, y = _check_scales(scale_a, scale_b, scale_y)
    twice_largest = 2.0 * max(a, b)
    return _pair_constants(a, b, twice_largest, twice_largest / (2.0**LEFT_SHIFT * y))


def _check_scales(*scales: float) -> tuple[float, ...]:
    return tuple(
        float(check_scale(scale, f"scale of {name}"))
        for scale, name in zip(scales, "aby", strict=True)
    )


def _pair_constants(a: float, b: float, unit: float, result: float) -> AddFixedConstants:
    return AddFixedConstants(
        *quantise_multiplier(a / unit), *quantise_multiplier(b / unit), *quantise_multiplier(result)
    )


SQUARED_SHIFT = 7
"""TensorFlow Lite's headroom in bits for the squared difference of two int8 tensors."""


def compute_squared_difference_constants(
    scale_a: float, scale_b: float, scale_y: float
) -> AddFixedConstants:
    """Return the constants of the squared difference of quantised tensors with integers only.

    They are those of `subtract_squared_fixed`: sa/t, sb/t, t**2/(2**14 * sy).

    t = 2 * max(sa, sb), in float64. Source: ``kernels/squared_difference.cc`` of LiteRT, which
    aborts the process if the last factor is 1 or more. Raises InputError for a bad scale.
    """
    a, b, y = _check_scales(scale_a, scale_b, scale_y)
    twice_largest = 2.0 * max(a, b)
    return _pair_constants(
        a, b, twice_largest, twice_largest * twice_largest / (2.0 ** (2 * SQUARED_SHIFT) * y)
    )


def subtract_squared_fixed(
    a: IntegerArray,
    b: IntegerArray,
    constants: AddFixedConstants,
    zero_points: tuple[int, int, int],
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Return the squared difference of two quantised int8 tensors, with integers only.

    The value is ``clip(M_y((M_a((a - za) << 7) - M_b((b - zb) << 7))**2) + zy, low, high)``.

    M_a, M_b and M_y are the quantised multipliers of `compute_squared_difference_constants`; zero
    points are those of the stored int8 tensors. The square of int8 tensors stays below 2**31.
    Source: ``kernels/squared_difference.cc`` of LiteRT.
    """
    scaled_a = multiply_by_quantised_multiplier(
        (a.astype(np.int64) - zero_points[0]) << SQUARED_SHIFT,
        constants.multiplier_a,
        constants.shift_a,
    )
    scaled_b = multiply_by_quantised_multiplier(
        (b.astype(np.int64) - zero_points[1]) << SQUARED_SHIFT,
        constants.multiplier_b,
        constants.shift_b,
    )
    square = np.clip(np.square(scaled_a - scaled_b), 0, INT32_HIGH)
    total = multiply_by_quantised_multiplier(square, constants.multiplier_y, constants.shift_y)
    return saturate_int8(total + zero_points[2], low, high)


def add_fixed(
    a: IntegerArray,
    b: IntegerArray,
    constants: AddFixedConstants,
    zero_points: tuple[int, int, int],
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
    *,
    subtract: bool = False,
) -> Int8Array:
    """Return the int8 sum of two quantised tensors, with integers only.

    The value is ``clip(M_y(M_a((a - za) << 20) + M_b((b - zb) << 20)) + zy, low, high)``.

    M_a, M_b and M_y are the quantised multipliers of `add_fixed_constants`. With ``subtract`` the
    result of M_b is subtracted. a and b are int8 and broadcast; zero points are those of the stored
    int8 tensors, as a shift of all by 128 changes nothing. Source: TensorFlow Lite
    ``reference/integer_ops/add.h``, and ``kernels/sub.cc`` for ``subtract``.
    """
    scaled_a = multiply_by_quantised_multiplier(
        (a.astype(np.int64) - zero_points[0]) << LEFT_SHIFT,
        constants.multiplier_a,
        constants.shift_a,
    )
    scaled_b = multiply_by_quantised_multiplier(
        (b.astype(np.int64) - zero_points[1]) << LEFT_SHIFT,
        constants.multiplier_b,
        constants.shift_b,
    )
    scaled = scaled_a - scaled_b if subtract else scaled_a + scaled_b
    total = multiply_by_quantised_multiplier(scaled, constants.multiplier_y, constants.shift_y)
    return saturate_int8(total + zero_points[2], low, high)


def subtract(
    a: IntegerArray,
    b: IntegerArray,
    scales: tuple[ScaleLike, ScaleLike, ScaleLike],
    zero_points: tuple[int, int, int],
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
    *,
    squared: bool = False,
) -> Int8Array:
    """Return the int8 difference, or its square, of two quantised tensors in float32 steps.

    ``y = clip(rint(float32(float32((a - za) * sa) - float32((b - zb) * sb)) / sy) + zy, low,
    high)``.

    a and b are int8 and broadcast; ``scales`` and ``zero_points`` are those of a, b and the result,
    as stored. Source: Sub between DequantizeLinear and QuantizeLinear, which ONNX Runtime computes
    in float: 0 of 2.8 M results differ, ties included. ``squared`` uses the square of the
    difference, rounded to float32, which is a definition of this project.
    """
    real_a, real_b, scale_y = _reals(a, b, scales, zero_points)
    with np.errstate(over="ignore"):
        difference = np.square(real_a - real_b) if squared else real_a - real_b
        steps = difference / scale_y
    return saturate_int8(rint_to_int64(steps) + zero_points[2], low, high)


def _reals(
    a: IntegerArray,
    b: IntegerArray,
    scales: tuple[ScaleLike, ScaleLike, ScaleLike],
    zero_points: tuple[int, int, int],
) -> tuple[Float32Array, Float32Array, Float32Array]:
    """Return the float32 values of two quantised tensors, and the checked result scale."""
    scale_a, scale_b, scale_y = (
        check_scale(s, f"scale of {n}") for s, n in zip(scales, "aby", strict=True)
    )
    real_a: Float32Array = (a.astype(np.int64) - zero_points[0]).astype(np.float32) * scale_a
    real_b: Float32Array = (b.astype(np.int64) - zero_points[1]).astype(np.float32) * scale_b
    return real_a, real_b, scale_y


def multiply(
    a: IntegerArray,
    b: IntegerArray,
    ratio: ScaleLike,
    zero_points: tuple[int, int, int],
    offset: int = 0,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Return the int8 product of two quantised tensors in float32 steps.

    The value is ``clip(rint(float32(float32(p * ratio) + zy)) - offset, low, high)``.

    p = (a - za) * (b - zb). a and b are int8 and broadcast; za and zb are zero points of the stored
    tensors, zy is the ORIGINAL one (0..255 of a uint8 model, where ``offset`` is 128). ``ratio`` is
    float32(float32(sa * sb) / sy). Source: QLinearMul of ONNX Runtime: 0 of 4.2 M results differ,
    ties included. Adding zy after rounding is wrong on ties; a fused multiply-add is wrong in rare
    cases.
    """
    product = (a.astype(np.int64) - zero_points[0]) * (b.astype(np.int64) - zero_points[1])
    total = product.astype(np.float32) * check_scale(ratio, "ratio") + np.float32(zero_points[2])
    return saturate_int8(rint_to_int64(total) - offset, low, high)


def multiply_fixed(
    a: IntegerArray,
    b: IntegerArray,
    multiplier: int,
    shift: int,
    zero_points: tuple[int, int, int],
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Return the int8 product of two quantised tensors, with integers only.

    The value is ``clip(M((a - za) * (b - zb)) + zy, low, high)``.

    M multiplies by ``sa * sb / sy``, a quantised multiplier. The factor is a `rounded_multiplier`.
    Zero points are those of the stored int8 tensors. Source: LiteRT's
    ``reference/integer_ops/mul.h``, ``kernels/mul.cc``.
    """
    product = (a.astype(np.int64) - zero_points[0]) * (b.astype(np.int64) - zero_points[1])
    return saturate_int8(
        multiply_by_quantised_multiplier(product, multiplier, shift) + zero_points[2], low, high
    )


def divide(
    a: IntegerArray,
    b: IntegerArray,
    scales: tuple[ScaleLike, ScaleLike, ScaleLike],
    zero_points: tuple[int, int, int],
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Return the int8 quotient of two quantised tensors in float32 steps.

    ``y = clip(rint(float32(float32((a - za) * sa) / float32((b - zb) * sb)) / sy) + zy, low,
    high)``.

    a and b are int8 and broadcast; ``scales`` and ``zero_points`` are those of a, b and the result,
    as stored. Division by 0 gives ``high`` or ``low`` by the sign of a; 0 / 0 gives ``low``.
    Source: Div between DequantizeLinear and QuantizeLinear, which ONNX Runtime computes in float: 0
    of 3.9 M results differ, including ties, infinities and 0 / 0.
    """
    real_a, real_b, scale_y = _reals(a, b, scales, zero_points)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotient = np.fmax(real_a / real_b / scale_y, -np.inf)  # fmax replaces NaN by -inf
    return saturate_int8(rint_to_int64(quotient) + zero_points[2], low, high)


def divide_fixed(
    a: IntegerArray,
    b: IntegerArray,
    multiplier: int,
    shift: int,
    zero_points: tuple[int, int, int],
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Return the int8 quotient of two quantised tensors, with integers only.

    The value is ``clip(M(((a - za) << 20) / (b - zb)) + zy, low, high)``.

    The quotient is rounded half away from zero. M is the quantised multiplier of ``sa / (sb * sy *
    2**20)``. Zero points are those of the stored int8 tensors; division by 0 is as in `divide`.
    TensorFlow Lite cannot divide int8 tensors, so this rule is a definition of this project.
    """
    dividend, divisor = np.broadcast_arrays(
        a.astype(np.int64) - zero_points[0], b.astype(np.int64) - zero_points[1]
    )
    size = np.maximum(np.abs(divisor), 1)
    magnitude = ((np.abs(dividend) << (LEFT_SHIFT + 1)) + size) // (2 * size)
    quotient = np.sign(dividend) * np.sign(divisor) * magnitude
    scaled = multiply_by_quantised_multiplier(quotient, multiplier, shift) + zero_points[2]
    return saturate_int8(
        np.where(divisor == 0, np.where(dividend > 0, high, low), scaled), low, high
    )
