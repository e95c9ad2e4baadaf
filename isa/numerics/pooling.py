"""Average pooling and interpolation of planes.

The rules are ONNX Runtime's float32 rules for windows and for linear Resize, its integer rule for
global average, and integer-only rules for all of them.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from isa.numerics.requantising import (
    INT8_HIGH,
    INT8_LOW,
    Float32Array,
    Int8Array,
    IntegerArray,
    check_scale,
    multiply_by_quantised_multiplier,
    requantise,
    rint_to_int64,
    saturate_int8,
)

FRACTION_BITS = 20  # a mean of centred int8 values is below 2**8, so it stays below 2**28
UNITY = (1 << 30, 1)  # quantise_multiplier(1.0)
WEIGHT_BITS = 10
"""Fraction bits of the weights of an integer-only interpolation along one dimension."""


def average_taps(
    taps: Iterable[tuple[IntegerArray, NDArray[np.bool_]]],
    count: IntegerArray | int,
    scales: tuple[float, float],
    zero_points: tuple[int, int],
    offset: int = 0,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Average pooling windows of int8 by the rule of ONNX Runtime's QLinearAveragePool.

    Every step is float32, and the sum is a running one: ``s += (x + offset - zx) * sx`` over the
    valid taps, then ``y = clip(rint(s / count / sy + zy) - offset, low, high)``. A tap in the
    padding adds nothing, which equals reading the zero point. Summing integers instead is wrong on
    ties.

    Args:
        taps: one (values, valid) pair for each kernel position in row-major order: stored int8
            values of every output position, for example (C, OH, OW), and a bool array that
            broadcasts against them, False where the tap reads padding.
        count: the divisor of every output position (broadcast): its number of valid taps, or with
            count_include_pad KH * KW everywhere. In ONNX Runtime this holds even for a window that
            extends beyond the padding in ceil_mode.
        scales: scales of the input and the result.
        zero_points: ORIGINAL zero points of the input and the result.
        offset: 128 if the ONNX tensors are uint8, otherwise 0.
        low: lower limit of the stored result.
        high: upper limit of the stored result.

    Returns:
        int8 of the shape of one tap.

    Raises:
        InputError: a scale is bad.
    """
    input_scale, output_scale = scales
    input_zero, output_zero = zero_points
    scale = np.float32(check_scale(input_scale, "input scale"))
    total: Float32Array = np.zeros((), np.float32)
    for values, valid in taps:
        dequantised = (values.astype(np.int64) + offset - input_zero).astype(np.float32) * scale
        total = total + np.where(valid, dequantised, np.float32(0))
    divisor: Float32Array = np.asarray(count, dtype=np.float32)
    mean: Float32Array = np.divide(total, divisor, dtype=np.float32)
    shifted: Float32Array = mean / check_scale(output_scale, "output scale") + np.float32(
        output_zero
    )
    return saturate_int8(rint_to_int64(shifted) - offset, low, high)


def global_average_scale(input_scale: float, output_scale: float, count: int) -> np.float32:
    """Return the scale factor of a global average pooling in float32.

    It is ``float32(xs / float32(ys * count))``, the factor of `global_average`.

    ``count`` is the number of elements of a plane, H * W.
    """
    with np.errstate(over="ignore"):  # as in C
        divisor = check_scale(output_scale, "output scale") * np.float32(count)
        return np.float32(check_scale(input_scale, "input scale") / divisor)


def global_average(
    total: IntegerArray,
    scale: np.float32,
    output_zero: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Return the int8 global averages for sums of quantised elements.

    The value is ``clip(rint(float32(total) * scale) + zy)``.

    This is the rule of ONNX Runtime's QLinearGlobalAveragePool. ``total`` is the integer sum of (x
    - zx) over the plane, of shape (C,) or any other; ``scale`` comes from `global_average_scale`.
    The zero point is added after rounding, so the shift from uint8 to int8 is exact and no offset
    is needed.
    """
    return requantise(total, scale, output_zero, low, high)


def average_fixed(
    total: IntegerArray,
    count: IntegerArray | int,
    multiplier: int,
    shift: int,
    input_zero: int,
    output_zero: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Average pooling windows of int8 with integers only.

    ``total`` is the sum of the stored int8 values; a counted padding tap reads the zero point. With
    equal input and output quantisation (multiplier and shift of 1.0, equal zero points) the rule is
    TensorFlow Lite's AveragePool: ``total / count`` rounded half away from zero. TensorFlow Lite
    has no rule for other cases. This project computes the centred mean with 20 fraction bits,
    ``(total - count * zx) * 2**20 / count`` rounded half away from zero. It scales the mean by the
    multiplier and ``shift - 20`` and adds the output zero point. The result is clipped to
    low..high.
    """
    counts = np.asarray(count, dtype=np.int64)
    if (multiplier, shift) == UNITY and input_zero == output_zero:
        return saturate_int8(_divide_half_away(total.astype(np.int64), counts), low, high)
    centred = (total.astype(np.int64) - counts * input_zero) << FRACTION_BITS
    scaled = multiply_by_quantised_multiplier(
        _divide_half_away(centred, counts), multiplier, shift - FRACTION_BITS
    )
    return saturate_int8(scaled + output_zero, low, high)


def mean_multiplier(multiplier: int, shift: int, count: int) -> tuple[int, int]:
    """Return (multiplier, shift) of a mean of ``count`` elements.

    ``multiplier`` and ``shift`` are those of the ratio of the scales. They are ``multiplier * 2**b
    // count`` and ``shift - b``. b is the index of count's first bit, or less if the shift would be
    below -31. Source: QuantizedMeanOrSum of LiteRT's reference kernels.
    """
    places = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << places) // count, shift - places


def _divide_half_away(
    numerator: NDArray[np.int64], divisor: NDArray[np.int64]
) -> NDArray[np.int64]:
    quotient = (np.abs(numerator) + divisor // 2) // divisor
    return np.where(numerator < 0, -quotient, quotient)


def neighbours(
    coordinates: Float32Array, size: int
) -> tuple[IntegerArray, IntegerArray, Float32Array, Float32Array]:
    """Return the two elements next to each resize coordinate, and their float32 weights.

    The elements are among ``size``.

    Coordinates beyond an end are clamped to it. If there is no element above, both are the last
    one, with weights of one half.
    """
    inside: Float32Array = np.clip(coordinates, np.float32(0), np.float32(size - 1))
    below = inside.astype(np.int64)
    above = np.minimum(below + 1, size - 1)
    weights = (np.abs(inside - place.astype(np.float32)) for place in (above, below))
    first, second = (np.where(below == above, np.float32(0.5), weight) for weight in weights)
    return below, above, first, second


def interpolate(
    x: IntegerArray,
    rows: Float32Array,
    columns: Float32Array,
    input_scale: float,
    input_zero: int,
    output_scale: float,
    output_zero: int,
) -> Int8Array:
    """Resize int8 planes (C, H, W) by interpolation to (C, OH, OW).

    The coordinates are ``rows`` (OH,) and ``columns`` (OW,). ``x`` holds stored int8 values. Every
    step is float32: ``v = (x - zx) * sx``; then the sum of ``(row weight * column weight) * v``
    over the four neighbours, upper before lower and left before right; then ``clip(rint(sum / sy) +
    zy)``. Source: UpsampleBilinear of ONNX Runtime 1.31 between DequantizeLinear and QuantizeLinear
    (0 of 2,069,472 outputs differ). Raises InputError for a bad scale.
    """
    value = (x.astype(np.int64) - input_zero).astype(np.float32) * check_scale(
        input_scale, "input scale"
    )
    total: Float32Array = np.zeros((), np.float32)
    for row, column, weight in _corners(x.shape, rows, columns):
        total = total + weight * value[:, row][:, :, column]
    return saturate_int8(
        rint_to_int64(total / check_scale(output_scale, "output scale")) + output_zero
    )


def _corners(
    shape: tuple[int, ...], rows: Float32Array, columns: Float32Array
) -> Iterator[tuple[IntegerArray, IntegerArray, Float32Array]]:
    """Yield rows, columns and float32 weights of the four neighbours of each resized element.

    Each has shape (OH, OW).
    """
    top, bottom, upper, lower = neighbours(rows, shape[1])
    left, right, before, behind = neighbours(columns, shape[2])
    for row, vertical in ((top, upper), (bottom, lower)):
        for column, horizontal in ((left, before), (right, behind)):
            yield row, column, vertical[:, np.newaxis] * horizontal


def interpolate_fixed(
    x: IntegerArray,
    rows: Float32Array,
    columns: Float32Array,
    multiplier: int,
    shift: int,
    input_zero: int,
    output_zero: int,
) -> Int8Array:
    """Resize int8 planes by interpolation with integers only.

    Weights have 10 fraction bits per dimension and sum to 1.

    With equal input and output quantisation it is ResizeBilinear of LiteRT's reference kernels: the
    weighted sum of the STORED values / 2^20, rounded half away from zero. LiteRT has no rule for
    other cases; this project scales the sum of centred values by the multiplier and ``shift - 20``
    and adds the output zero point.
    """
    unit = 1 << WEIGHT_BITS
    kept = (multiplier, shift) == UNITY and input_zero == output_zero
    values = x.astype(np.int64) - (0 if kept else input_zero)
    (top, bottom, _, low), (left, right, _, far) = (
        neighbours(rows, x.shape[1]),
        neighbours(columns, x.shape[2]),
    )
    down, along = (np.rint(weight * np.float32(unit)).astype(np.int64) for weight in (low, far))
    upper = values[:, top] * (unit - down)[:, np.newaxis] + values[:, bottom] * down[:, np.newaxis]
    total = upper[:, :, left] * (unit - along) + upper[:, :, right] * along
    if kept:
        return saturate_int8(_divide_half_away(total, np.asarray(unit * unit)))
    return saturate_int8(
        multiply_by_quantised_multiplier(total, multiplier, shift - 2 * WEIGHT_BITS) + output_zero
    )


def resize_coordinates(
    size: int, wanted: int, align_corners: bool, half_pixels: bool
) -> Float32Array:
    """Return the float32 input coordinate of each position of a resized dimension.

    The input has ``size`` elements, the result ``wanted``.

    The input has ``size`` elements. Coordinates are multiples of 2^-10 computed with integers, as
    in ResizeBilinear of LiteRT's reference kernels.
    """
    aligned = align_corners and wanted > 1
    first, last = (size - 1, wanted - 1) if aligned else (size, wanted)
    step = (first * (1 << WEIGHT_BITS) + last // 2) // last
    start = step // 2 - (1 << (WEIGHT_BITS - 1)) if half_pixels else 0
    scaled = np.clip(np.arange(wanted) * step + start, 0, (size - 1) << WEIGHT_BITS)
    return np.asarray(scaled / (1 << WEIGHT_BITS), np.float32)
