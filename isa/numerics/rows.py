"""Softmax, layer normalisation and root-mean-square normalisation of quantised rows.

Softmax uses a table of exponentials. ONNX Runtime normalises in float32 between DequantizeLinear
and QuantizeLinear, and sums in a processor-dependent order. The rule here is therefore a definition
of this project: integer sums, then float32 steps that IEEE 754 alone determines.
"""

import math

import numpy as np
from numpy.typing import NDArray

from isa.errors import InputError
from isa.numerics.requantising import (
    Float32Array,
    Int8Array,
    IntegerArray,
    check_scale,
    multiply_high_doubled,
    quantise_multiplier,
    rint_to_int64,
    rounding_divide_by_power_of_two,
    saturate_int8,
)

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
RESERVED = 5.0
"""Room that ONNX Runtime leaves above the largest sum of exponentials, as a natural logarithm."""
FRACTION_BITS = 16
GAIN_BITS = 15
"""Fraction bits of normalised values and of the gains that multiply them, with integers only."""
SCALED_BITS = 26
SUM_INTEGER_BITS = 12
STEP_BITS = 16
RESULT_BITS = 8
"""Integer softmax: fraction bits of exponents, integer bits of sums, fraction bits of steps,
bits of 1.
"""


def softmax_table(scale: float, count: int) -> Float32Array:
    """Return the float32 table of exponentials for the softmax of int8 rows.

    Entry i of (256,) is exp((i - 255) * scale) times a common factor.

    The factor brings the sum of ``count`` entries near the largest float32.

    Source: QlinearBuildLookupTableUint32 of ONNX Runtime 1.31, which computes with float32
    exponentials despite its name. Raises InputError for a bad scale.
    """
    step = float(check_scale(scale, "input scale"))
    room = np.float32(LARGEST_FLOAT32) / np.float32(count)
    shift = max(0.0, float(np.float32(math.log(float(room)))) - RESERVED) / step
    return np.array([math.exp((index - 255 + shift) * step) for index in range(256)]).astype(
        np.float32
    )


def softmax_factor(output_scale: float) -> np.float32:
    """Return float32 floor(1 / scale), the number of steps into which ONNX Runtime divides 1."""
    return np.float32(np.floor(np.float32(1) / check_scale(output_scale, "output scale")))


def softmax(x: IntegerArray, table: Float32Array, factor: np.float32, zero_point: int) -> Int8Array:
    """Return the int8 softmax along axis 1 of quantised rows, by ONNX Runtime's rule.

    ``x`` has stored int8 values of shape (rows, count, length).

    In float32: ``v = table[255 + x - max(x)]``; ``s``, the sum of v in order; ``clip(rint(float32(v
    * factor) / s) + zero_point)``. Source: QLinearSoftmax of ONNX Runtime 1.31, which it uses for
    Softmax along any axis. 0 of 61,065,852 outputs differ (int8 and uint8, opsets 11, 13, 17, 1 to
    3,000 elements per row, any zero points), except for rows whose ``v * factor`` exceeds float32.
    Version 1.32 rounds otherwise, by one step in 1 of 1,643,760 outputs of random rows, and in 112
    of 173,175 of rows with several equal maxima.

    Raises:
        InputError: a row's sum or largest numerator is not a positive finite number.
    """
    wide = x.astype(np.int64)
    value = table[255 + wide - wide.max(axis=1, keepdims=True)]
    with np.errstate(all="ignore"):
        total = np.add.accumulate(value, axis=1, dtype=np.float32)[:, -1:]
        numerator: Float32Array = value * np.float32(factor)
        if not (np.isfinite(numerator).all() and np.isfinite(total).all() and (total > 0).all()):
            raise InputError(
                "the exponentials of a row, or their sum, are no positive finite numbers"
            )
        quotient = numerator / total
    return saturate_int8(rint_to_int64(quotient) + zero_point)


def softmax_table_fixed(scale: float, beta: float = 1.0) -> NDArray[np.uint32]:
    """Return the table of exponentials for softmax with integers only.

    The table is uint32 (256,) with 31 fraction bits.

    Entry i is exp((i - 255) * scale * beta), or 0 below exp(-31). Source: Softmax of LiteRT's
    reference kernels. The distance is scaled to 26 fraction bits (rounded once). gemmlowp's
    exponential is a polynomial of degree four within a quarter, times powers of e. Raises
    InputError for a bad scale.
    """
    real = min(beta * float(check_scale(scale, "input scale")) * 2.0**SCALED_BITS, 2.0**31 - 1)
    multiplier, shift = quantise_multiplier(real)
    radius = math.floor(31.0 * 2**SCALED_BITS / 2.0**shift)
    distance = np.arange(-255, 1)
    near = np.where(distance >= -radius, distance, 0)
    moved = near << max(shift, 0)  # within int32, because it is within the radius
    scaled = rounding_divide_by_power_of_two(_high(moved, multiplier), max(-shift, 0))
    return np.where(distance >= -radius, _exponential(scaled), 0).astype(np.uint32)


def _high(a: IntegerArray, b: IntegerArray | int) -> NDArray[np.int64]:
    """Multiply two fixed-point numbers, one with 31 fraction bits, and round the product."""
    return multiply_high_doubled(a, b)


def _fraction(real: float, bits: int = 31) -> int:
    return math.floor(math.ldexp(real, bits) + 0.5)


def _exponential(x: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return exp(x) with 31 fraction bits, for x from -32 to 0 with 26 fraction bits.

    Source: gemmlowp's exp_on_negative_values.
    """
    quarter = 1 << (SCALED_BITS - 2)
    rest = (x & (quarter - 1)) - quarter
    result = _exponential_of_quarter(rest << (31 - SCALED_BITS))
    quarters = rest - x
    for power in range(-2, 5):
        factor = _fraction(math.exp(-(2.0**power)))
        result = np.where(quarters & (1 << (SCALED_BITS + power)), _high(result, factor), result)
    return np.where(x == 0, 2**31 - 1, result)


def _exponential_of_quarter(x: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return exp(x) for x from -1/4 to 0, all with 31 fraction bits.

    The polynomial is the Taylor polynomial around -1/8.
    """
    middle = _fraction(math.exp(-1 / 8))
    third = _fraction(1 / 3)
    y = x + (1 << 28)
    square = _high(y, y)
    cube = _high(square, y)
    fourth = _high(square, square)
    tail = _high(rounding_divide_by_power_of_two(fourth, 2) + cube, third) + square
    return middle + _high(y + rounding_divide_by_power_of_two(tail, 1), middle)


def _reciprocal(total: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the fixed-point reciprocal of ``total`` by Newton's method.

    The result is (r, b) with ``1 / total ~ r / 2**(31 + b)``.

    r has 31 fraction bits; b is the number of bits of the total. Source: GetReciprocal of LiteRT,
    one_over_one_plus_x_for_x_in_0_1 of gemmlowp.
    """
    bits = np.frexp(total.astype(np.float64))[1].astype(np.int64)
    half = total << (31 - bits)
    value = _fraction(48 / 17, 29) + _high(half, -_fraction(32 / 17, 29))
    for _ in range(3):
        error = (1 << 29) - _high(half, value)
        value = value + (_high(value, error) << 2)
    return np.minimum(value << 1, 2**31 - 1), bits


def softmax_factor_fixed(output_scale: float) -> int:
    """Return the softmax result's steps per 1/256 as a number with 16 fraction bits.

    This is round(2**16 / (256 * scale)).

    LiteRT's softmax has the scale 1/256, for which the factor is 2**16 and changes nothing. The
    rule for other scales is a definition of this project. Raises InputError for a bad scale.
    """
    return round(2.0**STEP_BITS / (256 * float(check_scale(output_scale, "output scale"))))


def softmax_fixed(
    x: IntegerArray, table: NDArray[np.uint32], factor: int, zero_point: int
) -> Int8Array:
    """Return the int8 softmax of quantised rows with integers only, as LiteRT does.

    ``v = table[255 + x - max(x)]``; the sum of v / 2^12, each rounded; its reciprocal by Newton's
    method; their product in steps of ``factor``, rounded half away from zero, plus ``zero_point``.
    ``factor`` comes from `softmax_factor_fixed` with 0 <= factor < 2^24.

    Raises:
        InputError: an entry overflows int32; or a sum does, which needs more than 4,095 elements;
            or a sum is 0.
    """
    wide = x.astype(np.int64)
    value = table.astype(np.int64)[255 + wide - wide.max(axis=1, keepdims=True)]
    total = rounding_divide_by_power_of_two(value, SUM_INTEGER_BITS).sum(axis=1, keepdims=True)
    if not ((total > 0) & (total < 1 << 31)).all() or value.max(initial=0) >= 1 << 31:
        raise InputError(
            "an exponential is above 1, or the sum of those of a row is 0, or 2^12 or more"
        )
    reciprocal, bits = _reciprocal(total)
    quotient = _high(value, reciprocal) * factor
    places = bits + 31 - RESULT_BITS - (32 - SUM_INTEGER_BITS) + STEP_BITS
    half = np.int64(1) << (places - 1)
    return saturate_int8(((quotient + half) >> places) + zero_point)


def normalise(
    x: IntegerArray,
    gain: Float32Array,
    bias: Float32Array,
    epsilon: np.float32,
    centre: int | None,
    zero_point: int,
) -> Int8Array:
    """Return the layer or root-mean-square normalisation of int8 rows.

    ``x`` (rows, n) has stored int8 values; the result is int8 of the same shape.

    With ``centre`` None (layer normalisation) ``d = n*x - Σx`` and ``v = n*Σx² - (Σx)²``, otherwise
    (root mean square) ``d = x - centre`` and ``v = Σd²``, all in int64. Then float32, each step
    rounded: ``clip(rint(d / sqrt(v + epsilon) * gain + bias) + zero_point)``. ``gain`` and ``bias``
    broadcast against (rows, n).

    With gain, bias and epsilon of `normalisation_scales` this is LayerNormalization,
    InstanceNormalization or RMSNormalization. ONNX Runtime's float32 sums round otherwise: 15 of
    5,621,032 outputs of LayerNormalization differ, 16 of 5,842,185 of RMSNormalization, 58 of
    5,409,308 of InstanceNormalization (8 to 1,024 elements per row), all by 1.

    Raises:
        InputError: v + epsilon is not positive, or gain or bias is not finite.
    """
    data, spread = _deviations(x, centre)
    with np.errstate(all="ignore"):
        root = np.sqrt(spread.astype(np.float32) + np.float32(epsilon))
        result: Float32Array = data.astype(np.float32) / root * gain + bias
    if not ((root > 0).all() and np.isfinite(result).all()):
        raise InputError(
            "the variance of a row with epsilon is not positive, or gain or bias is not finite"
        )
    return saturate_int8(rint_to_int64(result) + zero_point)


def normalise_fixed(
    x: IntegerArray,
    gain: NDArray[np.int64],
    bias: NDArray[np.int64],
    epsilon: int,
    centre: int | None,
    zero_point: int,
) -> Int8Array:
    """Normalise quantised rows with integers only, by a definition of this project.

    ``gain`` has 15 and ``bias`` 16 fraction bits, both int32; ``epsilon`` is an integer. ``t = (d *
    2^16) // max(isqrt(v + epsilon), 1)``, ``clip(((t * gain + bias * 2^15 + 2^30) >> 31) +
    zero_point)``. TensorFlow Lite has no such operator.
    """
    data, spread = _deviations(x, centre)
    roots = [max(math.isqrt(int(one) + epsilon), 1) for one in spread.reshape(-1)]
    ratio = (data << FRACTION_BITS) // np.array(roots, np.int64).reshape(spread.shape)
    total = ratio * gain + (bias << GAIN_BITS) + (1 << (FRACTION_BITS + GAIN_BITS - 1))
    return saturate_int8((total >> (FRACTION_BITS + GAIN_BITS)) + zero_point)


def _deviations(x: IntegerArray, centre: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numerators and squared divisors of a row normalisation.

    They are (rows, n) and (rows, 1), without epsilon.
    """
    wide = x.astype(np.int64)
    if centre is not None:
        wide = wide - centre
        return wide, np.square(wide).sum(axis=1, keepdims=True)
    count = wide.shape[1]
    total = wide.sum(axis=1, keepdims=True)
    return count * wide - total, count * np.square(wide).sum(axis=1, keepdims=True) - np.square(
        total
    )


def normalisation_scales(
    gain: NDArray[np.float64],
    bias: NDArray[np.float64],
    scales: tuple[float, float],
    count: int,
    centred: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Convert the gain and bias of a normalisation from real numbers to integers.

    Return them and the factor of epsilon.

    ``scales`` are those of data and result, ``count`` is the number of elements of a row.
    """
    before, after = (float(check_scale(scale, "scale")) for scale in scales)
    power = 2 if centred else 1
    factor = 1.0 if centred else math.sqrt(count)
    return gain * factor / after, bias / after, float(count) ** power / before**2
