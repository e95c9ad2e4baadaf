"""To integers by ONNX Runtime's rules: from real numbers (QuantizeLinear), from accumulators (QLinearConv, QGemm)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from isa.errors import InputError
from isa.numerics.floats import Float32Array, ScaleLike, checked_scale, rint_to_int64
from isa.numerics.integers import INT8_HIGH, INT8_LOW, Int8Array, IntegerArray, saturate_int8


def steps(real: ArrayLike, scale: ArrayLike, zero_point: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """Return ``clip(rint(real / scale) + zero_point)`` as integers of type ``dtype``; operands broadcast.

    In the floating type of ``real`` and ``scale``, each step rounded, as QuantizeLinear has it in float32: equal to
    ONNX Runtime's for 4,000,000 drawn numbers, ties, infinities and every type of 8 bits included. The rule of every
    real number that becomes an integer but for accumulators, which :func:`requantise` multiplies.
    """
    with np.errstate(over="ignore"):  # infinity is beyond every limit
        quotient = np.asarray(np.asarray(real) / np.asarray(scale))
        moved = np.rint(quotient) + np.asarray(zero_point).astype(quotient.dtype)
    limits = np.iinfo(dtype)
    if limits.bits > 16:  # float32 has not all of their limits
        moved = moved.astype(np.float64)
    return np.asarray(np.clip(moved, limits.min, limits.max).astype(dtype))


def requantise_scale(input_scale: ScaleLike, weight_scale: ScaleLike, output_scale: ScaleLike) -> Float32Array:
    """Return ``float32(float32(xs * ws) / ys)``, the shape of ``weight_scale`` (scalar or (OC,)).

    Rounded step by step, as ONNX Runtime does; rounding once from float64 differs in a quarter of all draws.
    Raises InputError for a scale that is not positive and finite.
    """
    product = checked_scale(input_scale, "input scale") * checked_scale(weight_scale, "weight scale")
    return np.asarray(product / checked_scale(output_scale, "output scale"), dtype=np.float32)


def requantise(
    accumulator: IntegerArray, scale: ScaleLike, zero_point: int, low: int = INT8_LOW, high: int = INT8_HIGH
) -> Int8Array:
    """Return int8 ``clip(rint(float32(float32(acc) * s)) + zero_point, low, high)``, the shape of ``accumulator``.

    ``scale`` is float32 and broadcasts against the accumulator (per channel: (C, 1, 1) on (C, H, W)). The zero point is
    added after rounding, as an integer. Source: MlasRequantizeOutput of ONNX Runtime, measured to the bit.
    Raises InputError for clamp limits outside int8 or in the wrong order.
    """
    scaled = accumulator.astype(np.float32) * np.asarray(scale, dtype=np.float32)
    return saturate_int8(rint_to_int64(scaled) + zero_point, low, high)


def requantise_float32(
    accumulator: Float32Array,
    scale: Float32Array,
    zero_point: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
    *,
    out: Int8Array,
) -> None:
    """`requantise` for fast kernels: float32 accumulators, which it DESTROYS, and the result in ``out`` (same shape).

    Equal to `requantise` of the integers that ``accumulator`` holds. Clamping before rounding is the same, because the
    limits are integers and rounding is monotonic. Then the values are below 2**17, and adding 1.5 * 2**23 leaves
    float32 no bits for a fraction: the sum is rounded to an integer, ties to even, and stands in the low bits of the
    result. An even zero point can be part of that constant; of an odd one the last 1 is added to the int8 result
    (which wraps around and back). An int32 beyond 2**24 must have been converted from the exact integer (rounding to
    nearest), not summed in float32. Raises InputError unless ``zero_point`` fits 16 bits.
    """
    if not -(1 << 15) <= zero_point < 1 << 15:
        raise InputError(f"zero point {zero_point} does not fit 16 bits; quantise the tensor again")
    np.multiply(accumulator, scale, out=accumulator)
    accumulator.clip(np.float32(low - zero_point), np.float32(high - zero_point), out=accumulator)
    odd = zero_point & 1
    np.add(accumulator, np.float32(1.5 * 2**23 + zero_point - odd), out=accumulator)
    np.copyto(out, accumulator.view(np.int32), casting="unsafe")
    if odd:
        np.add(out, np.int8(1), out=out)
