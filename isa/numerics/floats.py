"""Float32: raw bits, checked scales, and an exact fused multiply-add."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa.errors import InputError
from isa.numerics.integers import IntegerArray

Float32Array = NDArray[np.float32]
ScaleLike = float | np.float32 | Float32Array


def float32_bits(x: float | np.float32) -> int:
    """Return the raw IEEE 754 bits of float32 ``x`` as an unsigned integer, 0..2**32-1."""
    return int(np.float32(x).view(np.uint32))


def bits_float32(bits: int) -> np.float32:
    """Return the float32 whose raw IEEE 754 bits are ``bits``. Raises InputError outside 0..2**32-1."""
    if not 0 <= bits < 2**32:
        raise InputError(f"float32 bits {bits} do not fit 32 bits; give 0..4294967295")
    return np.uint32(bits).view(np.float32)


def checked_scale(scale: ScaleLike, name: str) -> Float32Array:
    """Return ``scale`` as a float32 array (0-d for a scalar). Raises InputError unless all are finite and above 0."""
    array = np.asarray(scale, dtype=np.float32)
    good = np.isfinite(array) & (array > 0)
    if not good.all():
        first = array.reshape(-1)[int(np.argmin(good.reshape(-1)))]
        raise InputError(f"{name} {first} is not a positive finite float32; quantise the tensor again")
    return array


def fused_multiply_add(a: IntegerArray, b: np.float32, c: Float32Array | np.float32) -> Float32Array:
    """Return float32 ``a * b + c`` rounded once, as a hardware FMA does: integers |a| < 2**28, float32 b and c.

    Why it is exact. ``p = a * b`` has at most 28 + 24 = 52 significant bits and an exponent that fits float64: exact.
    ``s = p + c`` may round in float64, and rounding again to float32 could then be wrong when s falls on a float32 tie
    that the exact sum misses. So s is *rounded to odd*: ``e``, the error of the addition, is had exactly (Knuth's
    TwoSum); where it is not zero and s has an even last bit, s is replaced by its neighbour in the direction of e.
    A value rounded to odd with 53 >= 24 + 2 bits rounds to float32 as the exact one does (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Transactions
    on Computers 57(4), 2008).
    """
    product = a.astype(np.float64) * np.float64(b)
    addend = np.asarray(c, dtype=np.float64)
    total = np.asarray(product + addend)
    recovered = total - product
    error = (product - (total - recovered)) + (addend - recovered)
    is_even = (total.view(np.int64) & 1) == 0
    odd = np.where((error != 0) & is_even, np.nextafter(total, np.copysign(np.inf, error)), total)
    return odd.astype(np.float32)


def rint_to_int64(x: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Round to the nearest integer, ties to even; returns int64. Magnitudes beyond 2**40 are held there (they saturate
    anyway, and the conversion to an integer must not overflow).
    """
    return np.asarray(np.rint(np.clip(x, -(2.0**40), 2.0**40))).astype(np.int64)
