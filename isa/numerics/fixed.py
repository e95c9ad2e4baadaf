"""Integer-only scaling: TensorFlow Lite's 31-bit multiplier and shift with double rounding.

Source: TensorFlow Lite ``kernels/internal/common.h`` and ``quantization_util.cc``, gemmlowp ``fixedpoint.h``.
"""

import math

import numpy as np

from isa.errors import InputError
from isa.numerics.floats import ScaleLike, checked_scale
from isa.numerics.integers import (
    INT8_HIGH,
    INT8_LOW,
    INT32_HIGH,
    Int8Array,
    Int32Array,
    Int64Array,
    IntegerArray,
    check_int32,
    saturate_int8,
)


def quantise_multiplier(real: float) -> tuple[int, int]:
    """Return (multiplier, shift) with ``real ~ multiplier * 2**(shift - 31)``, |multiplier| 0 or in 2**30..2**31-1.

    ``real`` is a float64; only the slope of a leaky ReLU can be negative. The fraction is rounded half away from zero;
    a magnitude below 2**-32 becomes (0, 0). Raises InputError for a non-finite value, or one that needs a shift above
    30.
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
    if shift > 30:
        raise InputError(f"multiplier {real} is above 2**30; quantise the tensor again")
    return multiplier, shift


def requantise_multipliers(
    input_scale: ScaleLike, weight_scale: ScaleLike, output_scale: ScaleLike
) -> tuple[Int32Array, Int32Array]:
    """Return int32 (multipliers, shifts), the shape of ``weight_scale``, of ``xs * ws / ys`` in float64.

    Source: TensorFlow Lite PopulateConvolutionQuantizationParams. Raises InputError for a bad scale.
    """
    product = np.float64(checked_scale(input_scale, "input scale")) * np.asarray(
        checked_scale(weight_scale, "weight scale"), dtype=np.float64
    )
    real = np.asarray(product / np.float64(checked_scale(output_scale, "output scale")))
    pairs = np.array([quantise_multiplier(float(r)) for r in real.reshape(-1)], dtype=np.int32).reshape(-1, 2)
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
    """Return int64 ``x * multiplier * 2**(shift - 31)``, rounded twice (TensorFlow Lite MultiplyByQuantizedMultiplier).

    x: int32 values; multiplier and shift broadcast against it. A positive shift is applied first (OverflowError if it
    leaves int32: undefined in TensorFlow Lite, an error here), then the high multiply, then a right shift of -shift.
    """
    shifts = np.asarray(shift, dtype=np.int64)
    moved = check_int32(x.astype(np.int64) << np.maximum(shifts, 0), "fixed-point left shift")
    high = saturating_rounding_doubling_high_multiply(moved, multiplier)
    return rounding_divide_by_power_of_two(high, np.maximum(-shifts, 0))


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
