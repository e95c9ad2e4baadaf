"""Requantisation to small integers by the rules of ONNX Runtime and of LiteRT.

ONNX Runtime's rules use float32, LiteRT's only integers.

ONNX Runtime's rules convert real numbers (QuantizeLinear) and accumulators (QLinearConv, QGemm).
The module also has the building blocks of both families: saturation, 32-bit addition and shifts
that reject overflow, the bound that proves its absence, raw bits of float32, checked scales, and an
exact fused multiply-add.

Integer-only scaling is TensorFlow Lite's 31-bit multiplier and shift, rounded twice. Source: LiteRT
2.3, its reference kernels: ``kernels/internal/common.cc`` and ``quantization_util.cc``, gemmlowp
``fixedpoint.h``. The kernels compute a multiplier from scales in one of two ways: in float64
(`real_multiplier`: convolutions, additions, reductions, a change of quantisation), or in float32
step by step (`compute_rounded_multiplier`: products of two activations, ReLU and its variants). All
were measured.

If LiteRT's arithmetic overflows int32 (undefined in C++, in practice it wraps around), the left
shift here saturates instead. The result is then exact: multipliers are 2**29 or more, so a
saturated value is scaled to at least 2**29 and clipped to int8 by its sign, as the exact product
would be. The compiler leaves such operators to the CPU.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from isa.errors import InputError

IntegerArray = NDArray[np.integer[Any]]
Int8Array = NDArray[np.int8]
Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]

INT8_LOW = -128
INT8_HIGH = 127
INT32_LOW = -(2**31)
INT32_HIGH = 2**31 - 1

Direction = Literal["left", "right"]
ShiftRounding = Literal["floor", "nearest_even", "half_away"]


def saturate(x: IntegerArray, low: int, high: int) -> Int64Array:
    """Return int64 ``min(max(x, low), high)``, any shape. Raises InputError if ``low > high``."""
    if low > high:
        raise InputError(
            f"clamp limits low {low} and high {high} are in the wrong order; swap them"
        )
    return np.clip(x.astype(np.int64), low, high)


def saturate_int8(x: IntegerArray, low: int = INT8_LOW, high: int = INT8_HIGH) -> Int8Array:
    """Return int8 ``min(max(x, low), high)``, any shape.

    Raises InputError unless -128 <= low <= high <= 127.
    """
    if low < INT8_LOW or high > INT8_HIGH:
        raise InputError(
            f"clamp limits {low}..{high} are outside int8; keep them within {INT8_LOW}..{INT8_HIGH}"
        )
    return saturate(x, low, high).astype(np.int8)


def check_int32(x: IntegerArray, name: str) -> Int32Array:
    """Return ``x`` as int32; raise OverflowError if a value does not fit.

    The error gives ``name``, the value and its coordinate (the first in C order); a
    zero-dimensional array has the coordinate ().
    """
    outside = (x < INT32_LOW) | (x > INT32_HIGH)
    if outside.any():
        coordinate = tuple(int(i) for i in np.unravel_index(int(np.argmax(outside)), x.shape))
        raise OverflowError(f"{name} overflows int32 at {coordinate}: {int(x[coordinate])}")
    return np.asarray(x.astype(np.int32))


def add_int32(a: IntegerArray, b: IntegerArray) -> Int32Array:
    """Return int32 ``a + b`` of two int32 arrays (broadcast).

    Raises OverflowError naming the first coordinate.
    """
    return check_int32(np.add(a, b, dtype=np.int64), "int32 addition")


def shift_int32(
    a: IntegerArray, amount: int, direction: Direction, rounding: ShiftRounding = "nearest_even"
) -> Int32Array:
    """Shift int32 values by ``amount`` bits (0..31); return int32 of the same shape.

    Left: ``a * 2**amount``; ``rounding`` is not used. Right: ``a / 2**amount`` rounded by
    ``rounding``: ``floor`` (arithmetic shift), ``nearest_even`` (ties to even), or ``half_away``
    (ties away from zero, as TensorFlow Lite's RoundingDivideByPOT).

    Raises:
        OverflowError: a result does not fit; the message names its first coordinate.
        InputError: the amount, direction or rounding is not one of these.
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
        raise InputError(
            f"shift rounding '{rounding}' is unknown; use 'floor', 'nearest_even' or 'half_away'"
        )
    floor: Int64Array = wide >> amount
    if rounding == "floor":
        return floor
    doubled_rest = 2 * (wide - (floor << amount))  # 0 <= rest < 2**amount, compared with half of it
    unit = 1 << amount
    tie_goes_up = (floor & 1) == 1 if rounding == "nearest_even" else wide >= 0
    goes_up = (doubled_rest > unit) | ((doubled_rest == unit) & tie_goes_up)
    return np.asarray(floor + goes_up, dtype=np.int64)


def accumulator_bound(weights: IntegerArray, bias: IntegerArray) -> Int64Array:
    """Return the largest magnitude that an accumulator can reach on any int8 input: int64 (OC,).

    ``weights`` is (OC, ...), ``bias`` (OC,) with the zero-point correction folded in. The bound is
    ``|bias| + 128 * sum |w|``: every partial sum of terms x*w with |x| <= 128 stays within it, in
    any order of summation. It cannot overflow int32 if the bound is at most 2**31 - 1.
    """
    magnitudes: Int64Array = np.abs(weights.astype(np.int64)).sum(
        axis=tuple(range(1, weights.ndim))
    )
    return np.asarray(np.abs(bias.astype(np.int64)) + 128 * magnitudes)


Float32Array = NDArray[np.float32]
ScaleLike = float | np.float32 | Float32Array


def float32_bits(x: float | np.float32) -> int:
    """Return the raw IEEE 754 bits of float32 ``x`` as an unsigned integer, 0..2**32-1."""
    return int(np.float32(x).view(np.uint32))


def check_scale(scale: ScaleLike, name: str) -> Float32Array:
    """Return ``scale`` as a float32 array (0-d for a scalar).

    Raises InputError unless all are finite and above 0.
    """
    array = np.asarray(scale, dtype=np.float32)
    good = np.isfinite(array) & (array > 0)
    if not good.all():
        first = array.reshape(-1)[int(np.argmin(good.reshape(-1)))]
        raise InputError(
            f"{name} {first} is not a positive finite float32; quantise the tensor again"
        )
    return array


def multiply_add_once_rounded(
    a: IntegerArray, b: np.float32, c: Float32Array | np.float32
) -> Float32Array:
    """Return float32 ``a * b + c``, rounded once like a hardware FMA.

    a are integers with |a| < 2**28; b and c are float32.

    The result is exact for the following reason. ``p = a * b`` has at most 28 + 24 = 52 significant
    bits and an exponent that fits float64, so it is exact. ``s = p + c`` may round in float64.
    Rounding s again to float32 would be wrong if s falls on a float32 tie that the exact sum
    misses. Therefore s is *rounded to odd*: Knuth's TwoSum gives the error ``e`` of the addition
    exactly. If e is not zero and s has an even last bit, s is replaced by its neighbour in the
    direction of e. A value rounded to odd with 53 >= 24 + 2 bits rounds to float32 like the exact
    one (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
    rounding to odd", IEEE Transactions on Computers 57(4), 2008).
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
    """Round to the nearest integer, ties to even; return int64.

    Magnitudes are clamped to 2**40. They saturate anyway, and the conversion to an integer must not
    overflow.
    """
    return np.asarray(np.rint(np.clip(x, -(2.0**40), 2.0**40))).astype(np.int64)


LARGEST_SHIFT = 30


def quantise_multiplier(real: float) -> tuple[int, int]:
    """Return (multiplier, shift) with ``real ~ multiplier * 2**(shift - 31)``.

    The magnitude of the multiplier is 0 or in 2**30..2**31-1. ``real`` is a float64; only the slope
    of a leaky ReLU can be negative. The fraction is rounded half away from zero. A magnitude below
    2**-32 becomes (0, 0); one of 2**30 or more becomes the largest pair. Their products are 0 or
    exceed int8 in any case. Raises InputError for a non-finite value.
    """
    if not math.isfinite(real):
        raise InputError(f"multiplier {real} is not a finite number; quantise the tensor again")
    if real < 0:
        multiplier, shift = quantise_multiplier(-real)
        return -multiplier, shift
    fraction, shift = math.frexp(real)  # 0.5 <= fraction < 1, or 0
    # exact: a 53-bit fraction shifted by 31 leaves 22 bits for the half
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier = 2**30
        shift = shift + 1
    if real == 0 or shift < -31:
        return 0, 0
    return (multiplier, shift) if shift <= LARGEST_SHIFT else (2**31 - 1, LARGEST_SHIFT)


def real_multiplier(
    input_scale: ScaleLike, other_scale: ScaleLike, output_scale: ScaleLike
) -> NDArray[np.float64]:
    """Return the requantisation factor ``xs * ws / ys`` of a layer in float64.

    It has the shape of ``other_scale``.

    All scales are converted to float64 first. ``other_scale`` is that of the weights, or 1. Source:
    PopulateConvolutionQuantizationParams of LiteRT. Raises InputError for a bad scale.
    """
    first, other, result = (
        np.asarray(check_scale(scale, name), np.float64)
        for scale, name in (
            (input_scale, "input scale"),
            (other_scale, "weight scale"),
            (output_scale, "output scale"),
        )
    )
    return np.asarray(first * other / result)


def compute_rounded_multiplier(*factors: ScaleLike, output_scale: ScaleLike) -> Float32Array:
    """Return float32 ``a * b / ys``, rounded after each step.

    ``factors`` is one scale, two scales, or a scale and a slope. Source: the Prepare functions of
    LiteRT's Mul, Prelu, Relu, LeakyRelu and Abs. Raises InputError for a bad scale.
    """
    with np.errstate(over="ignore", under="ignore"):
        product = check_scale(factors[0], "input scale")
        for factor in factors[1:]:
            product = product * np.asarray(factor, np.float32)
        return np.asarray(product / check_scale(output_scale, "output scale"), np.float32)


def product_multiplier(scale_a: ScaleLike, scale_b: ScaleLike, output_scale: ScaleLike) -> float:
    """Return the factor that scales a product of two activations to its result.

    The product of the activations' scales is float32; the division by the result's scale is
    float64. Source: GetQuantizedConvolutionMultipler of LiteRT, for BatchMatMul. Raises InputError
    for a bad scale.
    """
    with np.errstate(over="ignore", under="ignore"):
        product = check_scale(scale_a, "scale of a") * check_scale(scale_b, "scale of b")
    return float(np.float64(product) / np.float64(check_scale(output_scale, "output scale")))


def activation_steps(bounds: tuple[float, float], scale: ScaleLike) -> tuple[float, float]:
    """Return a fused activation's limits in whole steps above the zero point.

    They are ``round(float32(bound / scale))``. Ties round away from zero: ReLU6 with a scale of 12
    ends at 1. ONNX Runtime and XNNPACK round to even and end at 0. Infinite ``bounds`` stay
    infinite. Source: CalculateActivationRangeQuantized of LiteRT.
    """
    with np.errstate(over="ignore"):
        low, high = np.asarray(bounds, np.float32) / check_scale(scale, "output scale")
    return _round_away(low), _round_away(high)


def _round_away(steps: np.float32) -> float:
    return (
        float(steps) if np.isinf(steps) else float(round_half_away(np.asarray(steps, np.float64)))
    )


def quantise_multipliers(real: NDArray[np.floating]) -> tuple[Int32Array, Int32Array]:
    """Return int32 (multipliers, shifts) in the shape of ``real``.

    Each pair is the `quantise_multiplier` of one element.
    """
    pairs = np.array(
        [quantise_multiplier(float(one)) for one in real.reshape(-1)], dtype=np.int32
    ).reshape(-1, 2)
    return pairs[:, 0].reshape(real.shape), pairs[:, 1].reshape(real.shape)


def multiply_high_doubled(a: IntegerArray, b: IntegerArray | int) -> Int64Array:
    """Return int32 values ``a * b / 2**31`` as int64, rounded to nearest, ties upwards.

    The result of (-2**31)**2 is 2**31 - 1. a and b are int32 values and broadcast. gemmlowp adds a
    nudge of 2**30 (``1 - 2**30`` to negative products) and truncates.
    """
    product = a.astype(np.int64) * np.asarray(b, dtype=np.int64)
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    truncated = np.where(nudged >= 0, nudged >> 31, -((-nudged) >> 31))
    return np.minimum(truncated, INT32_HIGH)


def rounding_divide_by_power_of_two(x: IntegerArray, exponent: IntegerArray | int) -> Int64Array:
    """Return int64 ``x / 2**exponent`` rounded to nearest, ties away from zero.

    Exponents 0..31, broadcast.
    """
    wide = x.astype(np.int64)
    power = np.asarray(exponent, dtype=np.int64)
    mask = (np.int64(1) << power) - 1
    threshold = (mask >> 1) + (wide < 0)
    return (wide >> power) + ((wide & mask) > threshold)


def multiply_by_quantised_multiplier(
    x: IntegerArray, multiplier: IntegerArray | int, shift: IntegerArray | int
) -> Int64Array:
    """Return int64 ``x * multiplier * 2**(shift - 31)``, rounded twice.

    This is LiteRT's MultiplyByQuantizedMultiplier. x holds int32 values; multiplier and shift
    (-31..30) broadcast against it. A positive shift comes first and saturates to int32, then the
    high multiply, then a right shift of -shift.
    """
    shifts = np.asarray(shift, dtype=np.int64)
    moved = np.clip(x.astype(np.int64) << np.maximum(shifts, 0), INT32_LOW, INT32_HIGH)
    high = multiply_high_doubled(moved, multiplier)
    return rounding_divide_by_power_of_two(high, np.maximum(-shifts, 0))


def round_half_away(x: NDArray[np.float64]) -> Int64Array:
    """Return ``x`` rounded to the nearest int64, ties away from zero, as C's ``round``.

    The result is clamped to +-2**40.
    """
    held = np.clip(x, -(2.0**40), 2.0**40)
    whole = np.trunc(held)
    # the fraction and its double are exact
    return np.asarray(whole + np.trunc(2 * (held - whole)), np.int64)


def requantise_fixed(
    accumulator: IntegerArray,
    multiplier: IntegerArray | int,
    shift: IntegerArray | int,
    zero_point: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Requantise accumulators to int8 with integers only.

    ``y = clip(MultiplyByQuantizedMultiplier(acc, multiplier, shift) + zero_point, low, high)``.
    """
    return saturate_int8(
        multiply_by_quantised_multiplier(accumulator, multiplier, shift) + zero_point, low, high
    )


def requantise_once(
    accumulator: IntegerArray,
    factor: NDArray[np.float64] | float,
    zero_point: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Requantise accumulators to int8 with a float64 factor, rounded once.

    Returns ``clip(round(float64(acc) * factor) + zero_point, low, high)``.

    Ties are rounded away from zero. ``factor`` is the float64 of `real_multiplier`, broadcast.
    Source: FullyConnected of LiteRT's reference kernels, the only operator that rounds once, in
    float64.
    """
    return saturate_int8(
        round_half_away(accumulator.astype(np.float64) * factor) + zero_point, low, high
    )


def steps(
    real: ArrayLike, scale: ArrayLike, zero_point: ArrayLike, dtype: DTypeLike
) -> NDArray[Any]:
    """Quantise real numbers: return ``clip(rint(real / scale) + zero_point)``.

    The result has the type ``dtype``.

    Operands broadcast. Each step is rounded in the floating type of ``real`` and ``scale``, as
    QuantizeLinear does in float32. The results equal ONNX Runtime's for 4,000,000 random numbers,
    including ties, infinities and all 8-bit types. This rule converts all real numbers to integers
    except accumulators, which :func:`requantise` multiplies.
    """
    with np.errstate(over="ignore"):  # infinity exceeds every limit
        quotient = np.asarray(np.asarray(real) / np.asarray(scale))
        np.rint(quotient, out=quotient)  # in place: weights have hundreds of megabytes
        moved = np.asarray(quotient + np.asarray(zero_point).astype(quotient.dtype))
    del quotient
    limits = np.iinfo(dtype)
    if limits.bits > 16:  # float32 cannot represent all of their limits
        moved = moved.astype(np.float64)
    return np.asarray(np.clip(moved, limits.min, limits.max, out=moved).astype(dtype))


def requantise_scale(
    input_scale: ScaleLike, weight_scale: ScaleLike, output_scale: ScaleLike
) -> Float32Array:
    """Return the float32 requantisation factor ``float32(float32(xs * ws) / ys)``.

    It has the shape of ``weight_scale`` (scalar or (OC,)).

    Each step is rounded, as in ONNX Runtime; rounding once from float64 differs in a quarter of
    random cases. Raises InputError for a scale that is not positive and finite.
    """
    product = check_scale(input_scale, "input scale") * check_scale(weight_scale, "weight scale")
    return np.asarray(product / check_scale(output_scale, "output scale"), dtype=np.float32)


def requantise(
    accumulator: IntegerArray,
    scale: ScaleLike,
    zero_point: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Requantise accumulators to int8 with a float32 factor.

    Returns ``clip(rint(float32(float32(acc) * s)) + zero_point, low, high)``.

    The result has the shape of ``accumulator``. ``scale`` is float32 and broadcasts against the
    accumulator (per channel: (C, 1, 1) on (C, H, W)). The zero point is added after rounding, as an
    integer. Source: MlasRequantizeOutput of ONNX Runtime, measured bit for bit. Raises InputError
    for clamp limits outside int8 or in the wrong order.
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
    """Requantise float32 accumulators for fast kernels; DESTROY ``accumulator``.

    The results are written to ``out``, which has the same shape.

    The result equals `requantise` of the integers in ``accumulator``. Clamping comes before
    rounding, which gives the same result because the limits are integers and rounding is monotonic.
    The values are then below 2**17, and adding 1.5 * 2**23 leaves float32 no bits for a fraction.
    The sum is thus rounded to an integer, ties to even, and its low bits are the result. An even
    zero point can be part of that constant; for an odd one the last 1 is added to the int8 result
    (which wraps around and back). An int32 beyond 2**24 must have been converted from the exact
    integer (rounding to nearest), not summed in float32. Raises InputError unless ``zero_point``
    fits 16 bits.
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
