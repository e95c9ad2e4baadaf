"""Random cases of TensorFlow Lite's operators with the results that `isa.numerics` gives.

A row of ``ROWS`` is an operator (or a form of one) with a generator of cases. The expected results
come from the rules alone, neither from the compiler nor from an instruction; LiteRT's reference
kernels are the truth for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isa import numerics
from tests.tflite.builder import Quantisation, Tensor
from tests.tflite.draws import (
    ACTIVATIONS,
    Case,
    Int8,
    ModelDraft,
    Random,
    activation_limits,
    centre,
    draw_data,
    draw_quantisation,
    draw_shape,
    scale_and_zero,
)
from tests.tflite.weighted_operators import (
    _plan,
    _taps,
    draw_batch_matmul,
    draw_convolution,
    draw_depthwise,
    draw_fully_connected,
    draw_transposed,
)


@dataclass(frozen=True)
class Row:
    """An operator of the table: its cases, its rule in `isa.numerics`, and where LiteRT has it."""

    operator: str
    draw: Callable[[Random], Case]
    rule: str
    source: str


# Element by element.
# ------------------------------------------------------------------------------------------------


def _broadcast(random: Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = draw_shape(random, 4, 9)
    if random.integers(2):
        return shape, shape
    one = tuple(size if random.integers(2) else 1 for size in shape)
    return (shape, one) if random.integers(2) else (one, shape)


def _pair(
    kind: str,
    function: Callable[[Int8, Int8, Sequence[Tensor], tuple[int, int]], Int8],
    fused: bool,
) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        model = ModelDraft(kind)
        tensors = [
            model.input(draw_data(random, shape), draw_quantisation(random, -6, 0))
            for shape in _broadcast(random)
        ]
        activation = str(random.choice(ACTIVATIONS)) if fused else "NONE"
        options = {"fused_activation_function": activation} if fused else {}
        quantisation = draw_quantisation(random, -5, 1)
        y = model.builder.operator(kind, tensors, quantisation, **options)
        a, b = model.feeds
        return model.case([y], function(a, b, [*tensors, y], activation_limits(activation, y)))

    return draw


def _numbers(tensors: Sequence[Tensor]) -> tuple[list[float], list[int]]:
    pairs = [scale_and_zero(tensor) for tensor in tensors]
    return [scale for scale, _ in pairs], [zero for _, zero in pairs]


def _add(a: Int8, b: Int8, tensors: Sequence[Tensor], limits: tuple[int, int]) -> Int8:
    scales, zeros = _numbers(tensors)
    return numerics.add_fixed(a, b, numerics.add_fixed_constants(*scales), tuple(zeros), *limits)


def _subtract(a: Int8, b: Int8, tensors: Sequence[Tensor], limits: tuple[int, int]) -> Int8:
    scales, zeros = _numbers(tensors)
    return numerics.add_fixed(
        a, b, numerics.add_fixed_constants(*scales), tuple(zeros), *limits, subtract=True
    )


def _squared_difference(
    a: Int8, b: Int8, tensors: Sequence[Tensor], limits: tuple[int, int]
) -> Int8:
    scales, zeros = _numbers(tensors)
    return numerics.subtract_squared_fixed(
        a, b, numerics.compute_squared_difference_constants(*scales), tuple(zeros), *limits
    )


def _multiply(a: Int8, b: Int8, tensors: Sequence[Tensor], limits: tuple[int, int]) -> Int8:
    scales, zeros = _numbers(tensors)
    factor = float(numerics.compute_rounded_multiplier(*scales[:2], output_scale=scales[2]))
    constants = numerics.quantise_multiplier(factor)
    return numerics.multiply_fixed(a, b, *constants, (zeros[0], zeros[1], zeros[2]), *limits)


def _compare(kind: str, function: np.ufunc) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        model = ModelDraft(kind)
        quantisation = draw_quantisation(random)
        tensors = [
            model.input(draw_data(random, shape), quantisation) for shape in _broadcast(random)
        ]
        y = model.builder.operator(kind, tensors, quantisation)
        return model.case([y], function(*model.feeds))

    return draw


def _single(
    kind: str, function: Callable[[Int8, Tensor, Tensor, float], Int8], slope: str = ""
) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        model = ModelDraft(kind)
        x = model.input(draw_data(random, draw_shape(random)), draw_quantisation(random, -8, 3))
        alpha = float(np.float32(random.uniform(-2, 2))) if slope else 0.0
        y = model.builder.operator(
            kind, [x], draw_quantisation(random, -8, 3), **({slope: alpha} if slope else {})
        )
        return model.case([y], function(model.feeds[0], x, y, alpha))

    return draw


def _unary(
    x: Int8, source: Tensor, result: Tensor, function: Any, alpha: float, limits: tuple[int, int]
) -> Int8:
    (before, zero_x) = scale_and_zero(source)
    (after, zero_y) = scale_and_zero(result)
    positive = numerics.quantise_multiplier(
        float(numerics.compute_rounded_multiplier(before, output_scale=after))
    )
    negative = numerics.quantise_multiplier(
        float(numerics.compute_rounded_multiplier(before, alpha, output_scale=after))
    )
    return numerics.unary_fixed(x, function, positive, negative, zero_x, zero_y, *limits)


def _relu(name: str) -> Callable[[Int8, Tensor, Tensor, float], Int8]:
    return lambda x, source, result, alpha: _unary(
        x, source, result, "leaky_relu", 1.0, activation_limits(name, result)
    )


def _leaky(x: Int8, source: Tensor, result: Tensor, alpha: float) -> Int8:
    return _unary(x, source, result, "leaky_relu", alpha, (-128, 127))


def _absolute(x: Int8, source: Tensor, result: Tensor, alpha: float) -> Int8:
    return _unary(x, source, result, "absolute", 0.0, (-128, 127))


def _requantise(x: Int8, source: Tensor, result: Tensor, alpha: float) -> Int8:
    (before, zero_x) = scale_and_zero(source)
    (after, zero_y) = scale_and_zero(result)
    constants = numerics.quantise_multiplier(float(numerics.real_multiplier(before, 1.0, after)))
    return numerics.requantise_fixed(x.astype(np.int64) - zero_x, *constants, zero_y)


def _prelu(random: Random) -> Case:
    model = ModelDraft("prelu")
    x = model.input(draw_data(random, draw_shape(random)), draw_quantisation(random))
    values = draw_data(random, (1, 1, x.shape[-1]))
    alpha = model.builder.constant("alpha", values, draw_quantisation(random))
    y = model.builder.operator("PRELU", [x, alpha], draw_quantisation(random))
    (a, _), (s, _), (t, zero_t) = map(scale_and_zero, (x, alpha, y))
    above, below = (
        numerics.quantise_multiplier(
            float(numerics.compute_rounded_multiplier(*factors, output_scale=t))
        )
        for factors in ((a,), (a, s))
    )
    centred = centre(model.feeds[0], x)
    product = np.minimum(centred, 0) * centre(values, alpha)
    total = numerics.multiply_by_quantised_multiplier(np.maximum(centred, 0), *above)
    total += numerics.multiply_by_quantised_multiplier(product, *below)
    return model.case([y], numerics.saturate_int8(total + zero_t))


# Pools, reductions, rows, resizes.
# ----------------------------------------------------------------------------------


def _pool(kind: str) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        model = ModelDraft(kind)
        window = random.integers(1, 5, 2).tolist()
        strides = random.integers(1, 4, 2).tolist()
        sizes = [int(random.integers(taps, 13)) for taps in window]
        quantisation = draw_quantisation(random)
        x = model.input(
            draw_data(random, (int(random.integers(1, 3)), *sizes, int(random.integers(1, 9)))),
            quantisation,
        )
        same = bool(random.integers(2))
        activation = str(random.choice(ACTIVATIONS))
        y = model.builder.operator(
            kind,
            [x],
            quantisation,
            padding="SAME" if same else "VALID",
            stride_h=strides[0],
            stride_w=strides[1],
            filter_height=window[0],
            filter_width=window[1],
            fused_activation_function=activation,
        )
        data = model.feeds[0].astype(np.int64)
        limits = activation_limits(activation, y)
        zero_point = scale_and_zero(y)[1]
        plan = _plan(sizes, window, strides, (1, 1), same)
        if kind == "MAX_POOL_2D":
            taps = [tap for _, _, tap in _taps(data, plan, window, strides, (1, 1), -128)]
            return model.case([y], numerics.saturate_int8(np.max(np.stack(taps), axis=0), *limits))
        ones = np.ones_like(data)
        total, count = (
            sum(
                (tap for _, _, tap in _taps(values, plan, window, strides, (1, 1))),
                np.zeros((), np.int64),
            )
            for values in (data, ones)
        )
        unity = numerics.quantise_multiplier(1.0)
        return model.case(
            [y], numerics.average_fixed(total, count, *unity, zero_point, zero_point, *limits)
        )

    return draw


def _axes(random: Random, rank: int) -> tuple[int, ...]:
    count = int(random.integers(1, rank + 1))
    return tuple(sorted(int(axis) for axis in random.choice(rank, count, replace=False)))


def _reduce(kind: str) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        model = ModelDraft(kind)
        rank = int(random.integers(1, 5))
        data = draw_data(random, draw_shape(random, rank, 12))
        axes = _axes(random, rank)
        x = model.input(data, draw_quantisation(random))
        assert x.quantisation is not None
        count = int(np.prod([data.shape[axis] for axis in axes]))
        after = draw_quantisation(random)
        if kind == "SUM":
            after = replace(after, scale=float(np.float32(after.scales[0] * count**0.5)))
        if kind == "REDUCE_MAX":
            after = x.quantisation
        keep = bool(random.integers(2))
        y = model.builder.operator(kind, [x, model.numbers("axes", *axes)], after, keep_dims=keep)
        if kind == "REDUCE_MAX":
            return model.case([y], data.max(axis=axes, keepdims=keep))
        (before, _) = scale_and_zero(x)
        (scale, zero_y) = scale_and_zero(y)
        constants = numerics.quantise_multiplier(
            float(numerics.real_multiplier(before, 1.0, scale))
        )
        if kind == "SUM":
            return model.case([y], _sum_of_bytes(data, axes, keep, x, y, constants))
        total = centre(data, x).sum(axis=axes, keepdims=keep)
        mean = numerics.mean_multiplier(*constants, count)
        return model.case([y], numerics.requantise_fixed(np.asarray(total), *mean, zero_y))

    return draw


def _sum_of_bytes(
    data: Int8,
    axes: tuple[int, ...],
    keep: bool,
    source: Tensor,
    result: Tensor,
    constants: tuple[int, int],
) -> Int8:
    """Compute SUM of int8 tensors like LiteRT 2.3's reference kernel, which reads uint8 bytes.

    It does not change the zero points.
    """
    (_, zero_x), (_, zero_y) = scale_and_zero(source), scale_and_zero(result)
    total = (data.view(np.uint8).astype(np.int64) - zero_x).sum(axis=axes, keepdims=keep)
    moved = numerics.requantise_fixed(np.asarray(total), *constants, zero_y - 128)
    return moved ^ np.int8(-128)


def _softmax(random: Random) -> Case:
    model = ModelDraft("softmax")
    rows = int(random.integers(1, 9))
    count = int(random.choice([1, 2, 10, 100, random.integers(1, 512)]))
    beta = float(np.float32(random.choice([1.0, 1.0, 0.5, 2.0, random.uniform(0.1, 4)])))
    data = draw_data(random, (rows, count))
    if random.integers(2):
        data = np.clip(random.normal(0, 20, data.shape), -128, 127).astype(np.int8)
    x = model.input(data, draw_quantisation(random, -8, 1))
    y = model.builder.operator("SOFTMAX", [x], Quantisation(1 / 256, -128), beta=beta)
    table = numerics.softmax_table_fixed(scale_and_zero(x)[0], beta)
    factor = numerics.softmax_factor_fixed(1 / 256)
    return model.case(
        [y], numerics.softmax_fixed(data[:, :, np.newaxis], table, factor, -128)[..., 0]
    )


def _resize(random: Random) -> Case:
    model = ModelDraft("resize_bilinear")
    quantisation = draw_quantisation(random)
    shape = (1, *(int(size) for size in random.integers(1, 9, 2)), int(random.integers(1, 5)))
    x = model.input(draw_data(random, shape), quantisation)
    made = random.integers(1, 20, 2).tolist()
    aligned, halves = [(False, False), (True, False), (False, True)][int(random.integers(3))]
    sizes = model.numbers("size", *made)
    options = {"align_corners": aligned, "half_pixel_centers": halves}
    y = model.builder.operator("RESIZE_BILINEAR", [x, sizes], quantisation, **options)
    rows, columns = (
        numerics.resize_coordinates(size, wanted, aligned, halves)
        for size, wanted in zip(shape[1:3], made, strict=True)
    )
    planes = model.feeds[0][0].transpose(2, 0, 1)
    unity = numerics.quantise_multiplier(1.0)
    zero = scale_and_zero(y)[1]
    found = numerics.interpolate_fixed(planes, rows, columns, *unity, zero, zero)
    return model.case([y], found.transpose(1, 2, 0)[np.newaxis])


_SCALED = "`requantise_fixed`, factor `real_multiplier`"
_UNARY = "`unary_fixed`, factors `compute_rounded_multiplier`"
_STORED = "stored values as they are"

ROWS = (
    Row("CONV_2D", draw_convolution, _SCALED, "integer_ops/conv.h"),
    Row("DEPTHWISE_CONV_2D", draw_depthwise, _SCALED, "integer_ops/depthwise_conv.h"),
    Row("TRANSPOSE_CONV", draw_transposed, _SCALED, "integer_ops/transpose_conv.h"),
    Row(
        "FULLY_CONNECTED",
        draw_fully_connected,
        "`requantise_once`, factor `real_multiplier`",
        "integer_ops/fully_connected.h",
    ),
    Row(
        "BATCH_MATMUL",
        draw_batch_matmul,
        "`requantise_fixed`, factor `product_multiplier`",
        "batch_matmul.h",
    ),
    Row("ADD", _pair("ADD", _add, True), "`add_fixed`", "integer_ops/add.h, kernels/add.cc"),
    Row(
        "SUB", _pair("SUB", _subtract, True), "`add_fixed` with `subtract`", "sub.h, kernels/sub.cc"
    ),
    Row(
        "MUL",
        _pair("MUL", _multiply, True),
        "`multiply_fixed`, factor `compute_rounded_multiplier`",
        "integer_ops/mul.h, kernels/mul.cc",
    ),
    Row(
        "SQUARED_DIFFERENCE",
        _pair("SQUARED_DIFFERENCE", _squared_difference, False),
        "`subtract_squared_fixed`",
        "kernels/squared_difference.cc",
    ),
    Row("MINIMUM", _compare("MINIMUM", np.minimum), _STORED, "maximum_minimum.h"),
    Row("MAXIMUM", _compare("MAXIMUM", np.maximum), _STORED, "maximum_minimum.h"),
    Row("AVERAGE_POOL_2D", _pool("AVERAGE_POOL_2D"), "`average_fixed`", "integer_ops/pooling.h"),
    Row("MAX_POOL_2D", _pool("MAX_POOL_2D"), _STORED, "integer_ops/pooling.h"),
    Row("MEAN", _reduce("MEAN"), "`requantise_fixed`, factor `mean_multiplier`", "reduce.h"),
    Row("SUM", _reduce("SUM"), f"{_SCALED}, of bytes as uint8", "kernels/reduce.cc"),
    Row("REDUCE_MAX", _reduce("REDUCE_MAX"), _STORED, "reduce.h"),
    Row("SOFTMAX", _softmax, "`softmax_fixed`", "softmax.h, gemmlowp fixedpoint.h"),
    *(
        Row(name, _single(name, _relu(name)), _UNARY, "kernels/activations.cc")
        for name in ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
    ),
    Row(
        "LEAKY_RELU",
        _single("LEAKY_RELU", _leaky, "alpha"),
        _UNARY,
        "leaky_relu.h, kernels/activations.cc",
    ),
    Row("ABS", _single("ABS", _absolute), _UNARY, "kernels/elementwise.cc"),
    Row(
        "PRELU",
        _prelu,
        "two `compute_rounded_multiplier`, of ratio and slopes",
        "prelu.h, kernels/activations.cc",
    ),
    Row("QUANTIZE", _single("QUANTIZE", _requantise), _SCALED, "requantize.h"),
    Row(
        "RESIZE_BILINEAR",
        _resize,
        "`interpolate_fixed` at `resize_coordinates`",
        "resize_bilinear.h",
    ),
)
"""``source`` is below ``kernels/internal/reference/`` of LiteRT, or below the folder that it
names.
"""
