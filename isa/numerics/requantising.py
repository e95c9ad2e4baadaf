"""From int32 accumulators to int8 by ONNX Runtime's rule (QLinearConv, QLinearMatMul, QGemm)."""

import numpy as np

from isa.numerics.floats import Float32Array, ScaleLike, checked_scale, rint_to_int64
from isa.numerics.integers import INT8_HIGH, INT8_LOW, Int8Array, IntegerArray, saturate_int8


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

    Equal to `requantise` of the integers that ``accumulator`` holds: adding the zero point and clamping in float32 is
    exact below 2**24, and what is above saturates either way. An int32 beyond 2**24 must have been converted from the
    exact integer (rounding to nearest), not summed in float32.
    """
    np.multiply(accumulator, scale, out=accumulator)
    np.rint(accumulator, out=accumulator)
    np.add(accumulator, np.float32(zero_point), out=accumulator)
    np.clip(accumulator, np.float32(low), np.float32(high), out=accumulator)
    np.copyto(out, accumulator, casting="unsafe")
