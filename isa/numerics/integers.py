"""Integers: saturation, 32-bit addition and shifts that refuse to overflow, and the bound that proves they cannot."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from isa.errors import InputError

IntegerArray = NDArray[np.integer[Any]]
Int8Array = NDArray[np.int8]
Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]

INT8_LOW, INT8_HIGH = -128, 127
INT32_LOW, INT32_HIGH = -(2**31), 2**31 - 1

Direction = Literal["left", "right"]
ShiftRounding = Literal["floor", "nearest_even", "half_away"]


def saturate(x: IntegerArray, low: int, high: int) -> Int64Array:
    """Return int64 ``min(max(x, low), high)``, any shape. Raises InputError if ``low > high``."""
    if low > high:
        raise InputError(f"clamp limits low {low} and high {high} are in the wrong order; swap them")
    return np.clip(x.astype(np.int64), low, high)


def saturate_int8(x: IntegerArray, low: int = INT8_LOW, high: int = INT8_HIGH) -> Int8Array:
    """Return int8 ``min(max(x, low), high)``, any shape. Raises InputError unless -128 <= low <= high <= 127."""
    if low < INT8_LOW or high > INT8_HIGH:
        raise InputError(f"clamp limits {low}..{high} are outside int8; keep them within {INT8_LOW}..{INT8_HIGH}")
    return saturate(x, low, high).astype(np.int8)


def check_int32(x: IntegerArray, name: str) -> Int32Array:
    """Return ``x`` as int32. Raises OverflowError with ``name``, the first coordinate (C order) and the value that
    does not fit. The result of a zero-dimensional array has the coordinate ().
    """
    outside = (x < INT32_LOW) | (x > INT32_HIGH)
    if outside.any():
        coordinate = tuple(int(i) for i in np.unravel_index(int(np.argmax(outside)), x.shape))
        raise OverflowError(f"{name} overflows int32 at {coordinate}: {int(x[coordinate])}")
    return np.asarray(x.astype(np.int32))


def add_int32(a: IntegerArray, b: IntegerArray) -> Int32Array:
    """Return int32 ``a + b`` of two int32 arrays (broadcast). Raises OverflowError naming the first coordinate."""
    return check_int32(np.add(a, b, dtype=np.int64), "int32 addition")


def shift_int32(
    a: IntegerArray, amount: int, direction: Direction, rounding: ShiftRounding = "nearest_even"
) -> Int32Array:
    """Shift int32 values by ``amount`` bits (0..31); returns int32 of the same shape.

    Left: ``a * 2**amount``; OverflowError names the first coordinate that does not fit; ``rounding`` is not used.
    Right: ``a / 2**amount`` rounded by ``rounding``: ``floor`` (arithmetic shift), ``nearest_even`` (ties to even), or
    ``half_away`` (ties away from zero, as TensorFlow Lite's RoundingDivideByPOT).
    Raises InputError for another amount, direction or rounding.
    """
    if not 0 <= amount <= 31:
        raise InputError(f"shift amount {amount} is outside 0..31")
    wide = a.astype(np.int64)
    if direction == "left":
        return check_int32(wide * (1 << amount), f"int32 shift left by {amount}")
    if direction != "right":
        raise InputError(f"shift direction '{direction}' is unknown; use 'left' or 'right'")
    return _shift_right(wide, amount, rounding).astype(np.int32)


def _shift_right(wide: Int64Array, amount: int, rounding: ShiftRounding) -> Int64Array:
    if rounding not in ("floor", "nearest_even", "half_away"):
        raise InputError(f"shift rounding '{rounding}' is unknown; use 'floor', 'nearest_even' or 'half_away'")
    floor: Int64Array = wide >> amount
    if rounding == "floor":
        return floor
    doubled_rest = 2 * (wide - (floor << amount))  # 0 <= rest < 2**amount, compared with one half of it
    unit = 1 << amount
    tie_goes_up = (floor & 1) == 1 if rounding == "nearest_even" else wide >= 0
    goes_up = (doubled_rest > unit) | ((doubled_rest == unit) & tie_goes_up)
    return np.asarray(floor + goes_up, dtype=np.int64)


def accumulator_bound(weights: IntegerArray, bias: IntegerArray) -> Int64Array:
    """Largest magnitude an accumulator can reach on any int8 input, in any order of summation: int64 (OC,).

    ``weights`` is (OC, ...), ``bias`` (OC,) with the zero-point correction folded in. The bound is
    ``|bias| + 128 * sum |w|``: every partial sum of terms x*w with |x| <= 128 stays within it. It cannot overflow
    int32 if the bound is at most 2**31 - 1.
    """
    magnitudes: Int64Array = np.abs(weights.astype(np.int64)).sum(axis=tuple(range(1, weights.ndim)))
    return np.asarray(np.abs(bias.astype(np.int64)) + 128 * magnitudes)
