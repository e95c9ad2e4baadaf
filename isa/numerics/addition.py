"""Addition of two quantised tensors by ONNX Runtime's rule (QLinearAdd)."""

import numpy as np

from isa.errors import InputError
from isa.numerics.floats import Float32Array, checked_scale, fused_multiply_add, rint_to_int64
from isa.numerics.integers import INT8_HIGH, INT8_LOW, Int8Array, IntegerArray, saturate_int8


def add_constants(
    scale_a: float, zero_a: int, scale_b: float, zero_b: int, scale_y: float, zero_y: int
) -> tuple[np.float32, np.float32, np.float32]:
    """Return float32 (ratio_a, ratio_b, constant) of `add`, with the ORIGINAL zero points (0..255 of a uint8 model).

    ratio_a = sa / sy, ratio_b = sb / sy, constant = zy - fma(ratio_a, za, ratio_b * zb), each step float32. Source:
    QLinearAdd of ONNX Runtime (MlasQLinearAdd), measured to the bit. Raises InputError for a bad scale, or ratios so
    large that float32 overflows.
    """
    with np.errstate(over="ignore"):
        ratio_a = np.float32(checked_scale(scale_a, "scale of a") / checked_scale(scale_y, "scale of y"))
        ratio_b = np.float32(checked_scale(scale_b, "scale of b") / checked_scale(scale_y, "scale of y"))
        product_b = ratio_b * np.float32(zero_b)
    if max(ratio_a, ratio_b) > 2.0**100:
        raise InputError(f"scales {scale_a} and {scale_b} over {scale_y} leave float32; quantise the tensor again")
    constant = np.float32(zero_y) - fused_multiply_add(np.asarray(zero_a), ratio_a, product_b)
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
    """Return int8 ``clip(rint(fma(a', ra, fma(b', rb, k))) - offset, low, high)`` of a' = a + offset and
    b' = b + offset.

    a, b: stored int8 values (broadcast); offset: 0, or 128 where the ONNX tensors are uint8; low, high: limits of the
    stored result. The textbook formula errs on ties. ONNX Runtime has a true FMA there on every CPU with AVX2.
    """
    inner: Float32Array = fused_multiply_add(b.astype(np.int64) + offset, ratio_b, constant)
    total = fused_multiply_add(a.astype(np.int64) + offset, ratio_a, inner)
    return saturate_int8(rint_to_int64(total) - offset, low, high)


def add_table(
    ratio_a: np.float32,
    ratio_b: np.float32,
    constant: np.float32,
    offset: int = 0,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Return `add` of all pairs: an int8 (256, 256) table for kernels, indexed [a.view(uint8), b.view(uint8)]."""
    every = np.arange(256, dtype=np.uint8).view(np.int8)
    return add(every[:, np.newaxis], every, ratio_a, ratio_b, constant, offset, low, high)
