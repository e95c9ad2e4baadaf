"""Integer-only scaling: TensorFlow Lite's 31-bit multiplier and shift, rounded twice.

Source: LiteRT 2.3, its reference kernels: ``kernels/internal/common.cc`` and ``quantization_util.cc``, gemmlowp
``fixedpoint.h``. They differ in how a multiplier comes from scales: in float64 (`real_multiplier`: convolutions,
additions, reductions, a change of quantisation), or in float32 step by step (`rounded_multiplier`: products of two
activations, ReLU and its kin); all were measured.

Where LiteRT's arithmetic leaves int32 (C++ leaves the result undefined; it wraps around there), the left shift here
saturates instead. That is the exact result: multipliers are 2**29 or more, so what saturates is scaled to 2**29 at
least, and is clipped to int8 by its sign, as the exact product would be. The compiler leaves such operators to the CPU.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from isa.errors import InputError
from isa.numerics.floats import Float32Array, ScaleLike, checked_scale
from isa.numerics.integers import (
    INT8_HIGH,
    INT8_LOW,
    INT32_HIGH,
    INT32_LOW,
    Int8Array,
    Int32Array,
    Int64Array,
    IntegerArray,
    saturate_int8,
)

LARGEST_SHIFT = 30


def quantise_multiplier(real: float) -> tuple[int, int]:
    """Return (multiplier, shift) with ``real ~ multiplier * 2**(shift - 31)``, |multiplier| 0 or in 2**30..2**31-1.

    ``real`` is a float64; only the slope of a leaky ReLU can be negative. The fraction is rounded half away from zero;
    a magnitude below 2**-32 becomes (0, 0), one of 2**30 or more the largest there is: either is multiplied by 0, or
    leaves int8. Raises InputError for a non-finite value.
    """
    if not math.isfinite(real):
        raise InputError(f"multiplier {real} is not a finite number; quantise the tensor again")
    if real < 0:
        multiplier, shift = quantise_multiplier(-real)
        return -multiplier, shift
    fraction, shift = math.frexp(real)  # 0.5 <= fraction < 1, or 0
    multiplier = math.floor(fraction * 2**31 + 0.5)  # exact: a 53-bit fraction moved by 31 leaves 22 bits for the half
    if multiplier == 2**31:
        multiplier, shift = 2**30, shift + 1
    if real == 0 or shift < -31:
        return 0, 0
    return (multiplier, shift) if shift <= LARGEST_SHIFT else (2**31 - 1, LARGEST_SHIFT)


def real_multiplier(input_scale: ScaleLike, other_scale: ScaleLike, output_scale: ScaleLike) -> NDArray[np.float64]:
    """Return float64 ``xs * ws / ys``, all widened first; the shape of ``other_scale`` (weights', or 1).

    Source: PopulateConvolutionQuantizationParams of LiteRT. Raises InputError for a bad scale.
    """
    first, other, result = (
        np.asarray(checked_scale(scale, name), np.float64)
        for scale, name in ((input_scale, "input scale"), (other_scale, "weight scale"), (output_scale, "output scale"))
    )
    return np.asarray(first * other / result)


def rounded_multiplier(*factors: ScaleLike, output_scale: ScaleLike) -> Float32Array:
    """Return float32 ``a * b / ys``, each step rounded; ``factors``: one scale, or two, or a scale and a slope.

    Source: the Prepare functions of LiteRT's Mul, Prelu, Relu, LeakyRelu and Abs. Raises InputError for a bad scale.
    """
    with np.errstate(over="ignore", under="ignore"):
        product = checked_scale(factors[0], "input scale")
        for factor in factors[1:]:
            product = product * np.asarray(factor, np.float32)
        return np.asarray(product / checked_scale(output_scale, "output scale"), np.float32)


def product_multiplier(scale_a: ScaleLike, scale_b: ScaleLike, output_scale: ScaleLike) -> float:
    """Return the float32 product of two activations' scales over that of the result, in float64.

    Source: GetQuantizedConvolutionMultipler of LiteRT, for BatchMatMul. Raises InputError for a bad scale.
    """
    with np.errstate(over="ignore", under="ignore"):
        product = checked_scale(scale_a, "scale of a") * checked_scale(scale_b, "scale of b")
    return float(np.float64(product) / np.float64(checked_scale(output_scale, "output scale")))


def activation_steps(bounds: tuple[float, float], scale: ScaleLike) -> tuple[float, float]:
    """Return the limits of a fused activation in steps above the zero point, whole: ``round(float32(bound / scale))``.

    Ties go away from zero: ReLU6 with a scale of 12 ends at 1, where ONNX Runtime and XNNPACK, which round to even, end
    at 0. Infinite ``bounds`` stay so. Source: CalculateActivationRangeQuantized of LiteRT.
    """
    with np.errstate(over="ignore"):
        low, high = np.asarray(bounds, np.float32) / checked_scale(scale, "output scale")
    return _away(low), _away(high)


def _away(steps: np.float32) -> float:
    return float(steps) if np.isinf(steps) else float(round_half_away(np.asarray(steps, np.float64)))


def quantise_multipliers(real: NDArray[np.floating]) -> tuple[Int32Array, Int32Array]:
    """Return int32 (multipliers, shifts), the shape of ``real``: `quantise_multiplier` of each."""
    pairs = np.array([quantise_multiplier(float(one)) for one in real.reshape(-1)], dtype=np.int32).reshape(-1, 2)
    return pairs[:, 0].reshape(real.shape), pairs[:, 1].reshape(real.shape)


def saturating_rounding_doubling_high_multiply(a: IntegerArray, b: IntegerArray | int) -> Int64Array:
    """Return int64 holding int32 ``a * b / 2**31`` rounded to nearest, ties upwards; (-2**31)**2 gives 2**31 - 1.

    a, b: int32 values, broadcast. gemmlowp adds a nudge of 2**30 (``1 - 2**30`` to negative products) and truncates.
    """
    product = a.astype(np.int64) * np.asarray(b, dtype=np.int64)
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    truncated = np.where(nudged >= 0, nudged >> 31, -((-nudged) >> 31))
    return np.minimum(truncated, INT32_HIGH)


def rounding_divide_by_power_of_two(x: IntegerArray, exponent: IntegerArray | int) -> Int64Array:
    """Return int64 ``x / 2**exponent`` rounded to nearest, ties away from zero; exponents 0..31, broadcast."""
    wide = x.astype(np.int64)
    power = np.asarray(exponent, dtype=np.int64)
    mask = (np.int64(1) << power) - 1
    threshold = (mask >> 1) + (wide < 0)
    return (wide >> power) + ((wide & mask) > threshold)


def multiply_by_quantised_multiplier(
    x: IntegerArray, multiplier: IntegerArray | int, shift: IntegerArray | int
) -> Int64Array:
    """Return int64 ``x * multiplier * 2**(shift - 31)``, rounded twice (LiteRT's MultiplyByQuantizedMultiplier).

    x: int32 values; multiplier and shift (-31..30) broadcast against it. A positive shift is applied first and
    saturates at the ends of int32, then the high multiply, then a right shift of -shift.
    """
    shifts = np.asarray(shift, dtype=np.int64)
    moved = np.clip(x.astype(np.int64) << np.maximum(shifts, 0), INT32_LOW, INT32_HIGH)
    high = saturating_rounding_doubling_high_multiply(moved, multiplier)
    return rounding_divide_by_power_of_two(high, np.maximum(-shifts, 0))


def round_half_away(x: NDArray[np.float64]) -> Int64Array:
    """Return int64: x rounded to the nearest integer, ties away from zero (C's ``round``), held within +-2**40."""
    held = np.clip(x, -(2.0**40), 2.0**40)
    whole = np.trunc(held)
    return np.asarray(whole + np.trunc(2 * (held - whole)), np.int64)  # the fraction is exact, and so is its double


def requantise_fixed(
    accumulator: IntegerArray,
    multiplier: IntegerArray | int,
    shift: IntegerArray | int,
    zero_point: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Return int8 ``clip(MultiplyByQuantizedMultiplier(acc, multiplier, shift) + zero_point, low, high)``."""
    return saturate_int8(multiply_by_quantised_multiplier(accumulator, multiplier, shift) + zero_point, low, high)


def requantise_once(
    accumulator: IntegerArray,
    factor: NDArray[np.float64] | float,
    zero_point: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Return int8 ``clip(round(float64(acc) * factor) + zero_point, low, high)``, ties away from zero.

    ``factor``: float64 of `real_multiplier`, broadcast. Source: FullyConnected of LiteRT's reference kernels, which is
    the one that rounds once, in float64.
    """
    return saturate_int8(round_half_away(accumulator.astype(np.float64) * factor) + zero_point, low, high)
