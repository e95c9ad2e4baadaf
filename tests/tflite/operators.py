"""Random cases of TensorFlow Lite's operators: models of one operator, with what `isa.numerics` makes of them.

A row of ``ROWS`` is an operator (or a form of one) with a generator of cases. The expected results come from the rules
alone, neither from the compiler nor from an instruction; LiteRT's reference kernels are the truth for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.runtimes import litert
from isa import numerics
from tests.tflite.builder import Quantisation, Tensor, TfliteBuilder

Int8 = NDArray[np.int8]
Random = np.random.Generator
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
LIMITS = {"RELU": (0.0, np.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


@dataclass(frozen=True, eq=False)
class Case:
    """A model of one operator, its inputs, and its results by the rules of `isa.numerics`."""

    content: bytes
    feeds: tuple[NDArray[Any], ...]
    expected: tuple[NDArray[Any], ...]

    def results(self) -> list[NDArray[Any]]:
        """What LiteRT's reference kernels make of it."""
        made = litert.interpreter(self.content, "reference")
        for detail, feed in zip(made.get_input_details(), self.feeds, strict=True):
            made.set_tensor(detail["index"], feed)
        made.invoke()
        return [np.array(made.get_tensor(detail["index"])) for detail in made.get_output_details()]


@dataclass(frozen=True)
class Row:
    """An operator of the table: its cases, its rule in `isa.numerics`, and where LiteRT has it."""

    operator: str
    draw: Callable[[Random], Case]
    rule: str
    source: str


# Draws. -------------------------------------------------------------------------------------------------------------


def _scale(random: Random, low: int = -8, high: int = 0) -> float:
    """Any float32, a power of two, or a small multiple of one: ties are frequent in the latter."""
    power = 2.0 ** int(random.integers(low, high + 1))
    factor = (float(random.uniform(0.5, 1)), 1.0, float(random.integers(3, 8)) / 4)[int(random.integers(3))]
    return float(np.float32(power * factor))


def _quantisation(random: Random, low: int = -8, high: int = 0) -> Quantisation:
    return Quantisation(_scale(random, low, high), int(random.choice([-128, 0, 127, random.integers(-128, 128)])))


def _shape(random: Random, rank: int = 4, largest: int = 7) -> tuple[int, ...]:
    return tuple(int(size) for size in random.integers(1, largest + 1, rank))


def _data(random: Random, shape: Sequence[int]) -> Int8:
    return random.integers(-128, 128, tuple(shape), np.int8)


def _real(tensor: Tensor) -> tuple[float, int]:
    assert tensor.quantisation is not None
    return tensor.quantisation.scales[0], tensor.quantisation.zero_point


def _centred(data: Int8, tensor: Tensor) -> NDArray[np.int64]:
    return data.astype(np.int64) - _real(tensor)[1]


def _limits(activation: str, tensor: Tensor) -> tuple[int, int]:
    scale, zero_point = _real(tensor)
    steps = numerics.activation_steps(LIMITS.get(activation, (-np.inf, np.inf)), scale)
    low, high = (int(np.clip(step + zero_point, -128, 127)) for step in steps)
    return low, high


class _Model:
    """A model of one operator under construction: its inputs get their data as they are declared."""

    def __init__(self, name: str) -> None:
        self.builder = TfliteBuilder(name.lower())
        self.feeds: list[NDArray[Any]] = []

    def input(self, data: NDArray[Any], quantisation: Quantisation | None) -> Tensor:
        self.feeds.append(data)
        return self.builder.input(f"input_{len(self.feeds)}", data.shape, quantisation, data.dtype)

    def numbers(self, name: str, *values: int) -> Tensor:
        return self.builder.constant(name, np.array(values, np.int32))

    def case(self, outputs: Sequence[Tensor], *expected: NDArray[Any]) -> Case:
        return Case(self.builder.model(*outputs), tuple(self.feeds), expected)


# Products with constant weights. ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """A sliding window: padding before, the size of the result."""

    before: tuple[int, int]
    size: tuple[int, int]


def _plan(
    shape: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int], same: bool
) -> _Plan:
    before, size = [], []
    for extent, taps, stride, dilation in zip(shape, window, strides, dilations, strict=True):
        reach = (taps - 1) * dilation + 1
        count = -(-extent // stride) if same else -(-(extent - reach + 1) // stride)
        before.append(max((count - 1) * stride + reach - extent, 0) // 2 if same else 0)
        size.append(count)
    return _Plan((before[0], before[1]), (size[0], size[1]))


def _taps(
    data: NDArray[np.int64],
    plan: _Plan,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    fill: int = 0,
) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """Of every position of the window, what all windows read there: (N, OH, OW, C)."""
    margin = [
        (step * dilation + stride,) * 2 for step, dilation, stride in zip(window, dilations, strides, strict=True)
    ]
    padded = np.pad(data, ((0, 0), *margin, (0, 0)), constant_values=fill)
    for row in range(window[0]):
        for column in range(window[1]):
            start = [
                edge[0] - before + place * dilation
                for edge, before, place, dilation in zip(margin, plan.before, (row, column), dilations, strict=True)
            ]
            rows, columns = (
                slice(first, first + (size - 1) * stride + 1, stride)
                for first, size, stride in zip(start, plan.size, strides, strict=True)
            )
            yield row, column, padded[:, rows, columns]


def _weight_quantisation(random: Random, channels: int, axis: int) -> Quantisation:
    scales = tuple(_scale(random, -9, -5) for _ in range(channels if random.integers(4) else 1))
    return Quantisation(scales, 0, axis if len(scales) > 1 else 0)


def _bias(
    random: Random, model: _Model, source: Tensor, weights: Quantisation, channels: int
) -> tuple[Tensor, NDArray[np.int32]]:
    values = random.integers(-3000, 3000, channels).astype(np.int32)
    scale = _real(source)[0]
    scales = tuple(float(np.float32(scale * one)) for one in weights.scales)
    return model.builder.constant("bias", values, Quantisation(scales)), values


def _result_quantisation(random: Random, source: Tensor, weights: Quantisation, products: int) -> Quantisation:
    """A scale in which results use much of int8, and sometimes leave it."""
    spread = _real(source)[0] * float(np.mean(weights.scales)) * 74 * 74 * products**0.5
    scale = float(np.float32(spread / 64 * 2.0 ** random.uniform(-1.5, 1)))
    if not random.integers(3):
        scale = 2.0 ** round(np.log2(scale))
    return replace(_quantisation(random), scale=scale)


def _requantised(
    total: NDArray[np.int64], source: Tensor, weights: Quantisation, result: Tensor, activation: str
) -> Int8:
    scale, zero_point = _real(result)
    factors = numerics.real_multiplier(_real(source)[0], np.array(weights.scales, np.float32), scale)
    return numerics.requantise_fixed(
        total, *numerics.quantise_multipliers(factors), zero_point, *_limits(activation, result)
    )


def _convolution(random: Random) -> Case:
    model = _Model("conv_2d")
    groups = int(random.choice([1, 1, 1, 2]))
    depth, channels = (int(size) * groups for size in random.integers(1, 9, 2))
    window, strides = random.integers(1, 4, 2).tolist(), random.integers(1, 3, 2).tolist()
    dilations = random.integers(1, 3, 2).tolist() if strides == [1, 1] else [1, 1]
    sizes = [int(random.integers((taps - 1) * step + 1, 12)) for taps, step in zip(window, dilations, strict=True)]
    x = model.input(_data(random, (int(random.integers(1, 3)), *sizes, depth)), _quantisation(random))
    quantisation = _weight_quantisation(random, channels, 0)
    filters = random.integers(-127, 128, (channels, *window, depth // groups), np.int8)
    weights = model.builder.constant("weights", filters, quantisation)
    bias, start = _bias(random, model, x, quantisation, channels)
    same, activation = bool(random.integers(2)), str(random.choice(ACTIVATIONS))
    y = model.builder.operator(
        "CONV_2D",
        [x, weights, bias],
        _result_quantisation(random, x, quantisation, filters[0].size),
        padding="SAME" if same else "VALID",
        stride_h=strides[0],
        stride_w=strides[1],
        dilation_h_factor=dilations[0],
        dilation_w_factor=dilations[1],
        fused_activation_function=activation,
    )
    plan = _plan(sizes, window, strides, dilations, same)
    total = np.broadcast_to(start.astype(np.int64), y.shape).copy()
    block = channels // groups
    for row, column, values in _taps(_centred(model.feeds[0], x), plan, window, strides, dilations):
        for group in range(groups):
            some, inputs = slice(group * block, (group + 1) * block), depth // groups
            part = values[..., group * inputs : (group + 1) * inputs]
            total[..., some] += part @ filters[some, row, column].astype(np.int64).T
    return model.case([y], _requantised(total, x, quantisation, y, activation))


def _depthwise(random: Random) -> Case:
    model = _Model("depthwise_conv_2d")
    depth, multiplier = int(random.integers(1, 9)), int(random.integers(1, 4))
    window, strides = random.integers(1, 5, 2).tolist(), [int(random.integers(1, 3))] * 2
    dilations = random.integers(1, 3, 2).tolist() if strides == [1, 1] else [1, 1]
    sizes = [int(random.integers((taps - 1) * step + 1, 13)) for taps, step in zip(window, dilations, strict=True)]
    x = model.input(_data(random, (int(random.integers(1, 3)), *sizes, depth)), _quantisation(random))
    quantisation = _weight_quantisation(random, depth * multiplier, 3)
    filters = random.integers(-127, 128, (1, *window, depth * multiplier), np.int8)
    weights = model.builder.constant("weights", filters, quantisation)
    bias, start = _bias(random, model, x, quantisation, depth * multiplier)
    same, activation = bool(random.integers(2)), str(random.choice(ACTIVATIONS))
    y = model.builder.operator(
        "DEPTHWISE_CONV_2D",
        [x, weights, bias],
        _result_quantisation(random, x, quantisation, window[0] * window[1]),
        padding="SAME" if same else "VALID",
        stride_h=strides[0],
        stride_w=strides[1],
        dilation_h_factor=dilations[0],
        dilation_w_factor=dilations[1],
        depth_multiplier=multiplier,
        fused_activation_function=activation,
    )
    plan = _plan(sizes, window, strides, dilations, same)
    total = np.broadcast_to(start.astype(np.int64), y.shape).copy()
    for row, column, values in _taps(_centred(model.feeds[0], x), plan, window, strides, dilations):
        total += np.repeat(values, multiplier, axis=-1) * filters[0, row, column].astype(np.int64)
    return model.case([y], _requantised(total, x, quantisation, y, activation))


def _transposed(random: Random) -> Case:
    model = _Model("transpose_conv")
    depth, channels = (int(size) for size in random.integers(1, 9, 2))
    window, strides = random.integers(1, 5, 2).tolist(), random.integers(1, 4, 2).tolist()
    sizes = random.integers(1, 7, 2).tolist()
    same = bool(random.integers(2)) and all(taps >= step for taps, step in zip(window, strides, strict=True))
    made = [
        size * step if same else (size - 1) * step + taps
        for size, step, taps in zip(sizes, strides, window, strict=True)
    ]
    shape = model.numbers("shape", 1, *made, channels)
    quantisation = _weight_quantisation(random, channels, 0)
    filters = random.integers(-127, 128, (channels, *window, depth), np.int8)
    weights = model.builder.constant("weights", filters, quantisation)
    x = model.input(_data(random, (1, *sizes, depth)), _quantisation(random))
    bias, start = _bias(random, model, x, quantisation, channels)
    y = model.builder.operator(
        "TRANSPOSE_CONV",
        [shape, weights, x, bias],
        _result_quantisation(random, x, quantisation, depth * 2),
        padding="SAME" if same else "VALID",
        stride_h=strides[0],
        stride_w=strides[1],
    )
    whole = [(size - 1) * step + taps for size, step, taps in zip(sizes, strides, window, strict=True)]
    cut = [max(full - wanted, 0) // 2 for full, wanted in zip(whole, made, strict=True)]
    total = np.zeros((1, *(max(size, wanted) for size, wanted in zip(whole, made, strict=True)), channels), np.int64)
    values = _centred(model.feeds[0], x)
    for row in range(window[0]):
        for column in range(window[1]):
            rows = slice(row, row + (sizes[0] - 1) * strides[0] + 1, strides[0])
            columns = slice(column, column + (sizes[1] - 1) * strides[1] + 1, strides[1])
            total[:, rows, columns] += values @ filters[:, row, column].astype(np.int64).T
    total = total[:, cut[0] : cut[0] + made[0], cut[1] : cut[1] + made[1]] + start
    return model.case([y], _requantised(total, x, quantisation, y, "NONE"))


def _fully_connected(random: Random) -> Case:
    model = _Model("fully_connected")
    rows, depth, channels = (int(size) for size in random.integers(1, 40, 3))
    x = model.input(_data(random, (rows, depth)), _quantisation(random))
    quantisation = _weight_quantisation(random, channels, 0)
    matrix = random.integers(-127, 128, (channels, depth), np.int8)
    weights = model.builder.constant("weights", matrix, quantisation)
    bias, start = _bias(random, model, x, quantisation, channels)
    activation = str(random.choice(ACTIVATIONS))
    y = model.builder.operator(
        "FULLY_CONNECTED",
        [x, weights, bias],
        _result_quantisation(random, x, quantisation, depth),
        fused_activation_function=activation,
    )
    total = _centred(model.feeds[0], x) @ matrix.astype(np.int64).T + start
    scale, zero_point = _real(y)
    factors = numerics.real_multiplier(_real(x)[0], np.array(quantisation.scales, np.float32), scale)
    return model.case([y], numerics.requantise_once(total, factors, zero_point, *_limits(activation, y)))


def _batch_matmul(random: Random) -> Case:
    model = _Model("batch_matmul")
    batch, rows, depth, channels = (int(size) for size in random.integers(1, 20, 4))
    turned = bool(random.integers(2)), bool(random.integers(2))
    first, second = (batch % 3 + 1, rows, depth), (batch % 3 + 1, depth, channels)
    shapes = [(b, j, i) if turn else (b, i, j) for turn, (b, i, j) in zip(turned, (first, second), strict=True)]
    tensors = [model.input(_data(random, shape), _quantisation(random)) for shape in shapes]
    right = tensors[1].quantisation
    assert right is not None
    y = model.builder.operator(
        "BATCH_MATMUL",
        tensors,
        _result_quantisation(random, tensors[0], right, depth),
        adj_x=turned[0],
        adj_y=turned[1],
    )
    a, b = (
        np.swapaxes(_centred(data, tensor), 1, 2) if turn else _centred(data, tensor)
        for data, tensor, turn in zip(model.feeds, tensors, turned, strict=True)
    )
    scale, zero_point = _real(y)
    factor = numerics.product_multiplier(_real(tensors[0])[0], _real(tensors[1])[0], scale)
    return model.case([y], numerics.requantise_fixed(a @ b, *numerics.quantise_multiplier(factor), zero_point))


# Element by element. ------------------------------------------------------------------------------------------------


def _broadcast(random: Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = _shape(random, 4, 9)
    if random.integers(2):
        return shape, shape
    one = tuple(size if random.integers(2) else 1 for size in shape)
    return (shape, one) if random.integers(2) else (one, shape)


def _pair(
    kind: str, function: Callable[[Int8, Int8, Sequence[Tensor], tuple[int, int]], Int8], fused: bool
) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        model = _Model(kind)
        tensors = [model.input(_data(random, shape), _quantisation(random, -6, 0)) for shape in _broadcast(random)]
        activation = str(random.choice(ACTIVATIONS)) if fused else "NONE"
        options = {"fused_activation_function": activation} if fused else {}
        quantisation = _quantisation(random, -5, 1)
        y = model.builder.operator(kind, tensors, quantisation, **options)
        a, b = model.feeds
        return model.case([y], function(a, b, [*tensors, y], _limits(activation, y)))

    return draw


def _numbers(tensors: Sequence[Tensor]) -> tuple[list[float], list[int]]:
    pairs = [_real(tensor) for tensor in tensors]
    return [scale for scale, _ in pairs], [zero for _, zero in pairs]


def _add(a: Int8, b: Int8, tensors: Sequence[Tensor], limits: tuple[int, int]) -> Int8:
    scales, zeros = _numbers(tensors)
    return numerics.add_fixed(a, b, numerics.add_fixed_constants(*scales), tuple(zeros), *limits)


def _subtract(a: Int8, b: Int8, tensors: Sequence[Tensor], limits: tuple[int, int]) -> Int8:
    scales, zeros = _numbers(tensors)
    return numerics.add_fixed(a, b, numerics.add_fixed_constants(*scales), tuple(zeros), *limits, subtract=True)


def _squared_difference(a: Int8, b: Int8, tensors: Sequence[Tensor], limits: tuple[int, int]) -> Int8:
    scales, zeros = _numbers(tensors)
    return numerics.squared_difference_fixed(
        a, b, numerics.squared_difference_constants(*scales), tuple(zeros), *limits
    )


def _multiply(a: Int8, b: Int8, tensors: Sequence[Tensor], limits: tuple[int, int]) -> Int8:
    scales, zeros = _numbers(tensors)
    factor = float(numerics.rounded_multiplier(*scales[:2], output_scale=scales[2]))
    constants = numerics.quantise_multiplier(factor)
    return numerics.multiply_fixed(a, b, *constants, (zeros[0], zeros[1], zeros[2]), *limits)


def _compare(kind: str, function: np.ufunc) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        model, quantisation = _Model(kind), _quantisation(random)
        tensors = [model.input(_data(random, shape), quantisation) for shape in _broadcast(random)]
        y = model.builder.operator(kind, tensors, quantisation)
        return model.case([y], function(*model.feeds))

    return draw


def _single(
    kind: str, function: Callable[[Int8, Tensor, Tensor, float], Int8], slope: str = ""
) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        model = _Model(kind)
        x = model.input(_data(random, _shape(random)), _quantisation(random, -8, 3))
        alpha = float(np.float32(random.uniform(-2, 2))) if slope else 0.0
        y = model.builder.operator(kind, [x], _quantisation(random, -8, 3), **({slope: alpha} if slope else {}))
        return model.case([y], function(model.feeds[0], x, y, alpha))

    return draw


def _unary(x: Int8, source: Tensor, result: Tensor, function: Any, alpha: float, limits: tuple[int, int]) -> Int8:
    (before, zero_x), (after, zero_y) = _real(source), _real(result)
    positive = numerics.quantise_multiplier(float(numerics.rounded_multiplier(before, output_scale=after)))
    negative = numerics.quantise_multiplier(float(numerics.rounded_multiplier(before, alpha, output_scale=after)))
    return numerics.unary_fixed(x, function, positive, negative, zero_x, zero_y, *limits)


def _relu(name: str) -> Callable[[Int8, Tensor, Tensor, float], Int8]:
    return lambda x, source, result, alpha: _unary(x, source, result, "leaky_relu", 1.0, _limits(name, result))


def _leaky(x: Int8, source: Tensor, result: Tensor, alpha: float) -> Int8:
    return _unary(x, source, result, "leaky_relu", alpha, (-128, 127))


def _absolute(x: Int8, source: Tensor, result: Tensor, alpha: float) -> Int8:
    return _unary(x, source, result, "absolute", 0.0, (-128, 127))


def _requantise(x: Int8, source: Tensor, result: Tensor, alpha: float) -> Int8:
    (before, zero_x), (after, zero_y) = _real(source), _real(result)
    constants = numerics.quantise_multiplier(float(numerics.real_multiplier(before, 1.0, after)))
    return numerics.requantise_fixed(x.astype(np.int64) - zero_x, *constants, zero_y)


def _prelu(random: Random) -> Case:
    model = _Model("prelu")
    x = model.input(_data(random, _shape(random)), _quantisation(random))
    values = _data(random, (1, 1, x.shape[-1]))
    alpha = model.builder.constant("alpha", values, _quantisation(random))
    y = model.builder.operator("PRELU", [x, alpha], _quantisation(random))
    (a, _), (s, _), (t, zero_t) = map(_real, (x, alpha, y))
    above, below = (
        numerics.quantise_multiplier(float(numerics.rounded_multiplier(*factors, output_scale=t)))
        for factors in ((a,), (a, s))
    )
    centred = _centred(model.feeds[0], x)
    product = np.minimum(centred, 0) * _centred(values, alpha)
    total = numerics.multiply_by_quantised_multiplier(np.maximum(centred, 0), *above)
    total += numerics.multiply_by_quantised_multiplier(product, *below)
    return model.case([y], numerics.saturate_int8(total + zero_t))


# Pools, reductions, rows, resizes. ----------------------------------------------------------------------------------


def _pool(kind: str) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        model = _Model(kind)
        window, strides = random.integers(1, 5, 2).tolist(), random.integers(1, 4, 2).tolist()
        sizes = [int(random.integers(taps, 13)) for taps in window]
        quantisation = _quantisation(random)
        x = model.input(_data(random, (int(random.integers(1, 3)), *sizes, int(random.integers(1, 9)))), quantisation)
        same, activation = bool(random.integers(2)), str(random.choice(ACTIVATIONS))
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
        data, limits, zero_point = model.feeds[0].astype(np.int64), _limits(activation, y), _real(y)[1]
        plan = _plan(sizes, window, strides, (1, 1), same)
        if kind == "MAX_POOL_2D":
            taps = [tap for _, _, tap in _taps(data, plan, window, strides, (1, 1), -128)]
            return model.case([y], numerics.saturate_int8(np.max(np.stack(taps), axis=0), *limits))
        ones = np.ones_like(data)
        total, count = (
            sum((tap for _, _, tap in _taps(values, plan, window, strides, (1, 1))), np.zeros((), np.int64))
            for values in (data, ones)
        )
        unity = numerics.quantise_multiplier(1.0)
        return model.case([y], numerics.average_fixed(total, count, *unity, zero_point, zero_point, *limits))

    return draw


def _axes(random: Random, rank: int) -> tuple[int, ...]:
    count = int(random.integers(1, rank + 1))
    return tuple(sorted(int(axis) for axis in random.choice(rank, count, replace=False)))


def _reduce(kind: str) -> Callable[[Random], Case]:
    def draw(random: Random) -> Case:
        model, rank = _Model(kind), int(random.integers(1, 5))
        data, axes = _data(random, _shape(random, rank, 12)), _axes(random, rank)
        x = model.input(data, _quantisation(random))
        assert x.quantisation is not None
        count = int(np.prod([data.shape[axis] for axis in axes]))
        after = _quantisation(random)
        if kind == "SUM":
            after = replace(after, scale=float(np.float32(after.scales[0] * count**0.5)))
        if kind == "REDUCE_MAX":
            after = x.quantisation
        keep = bool(random.integers(2))
        y = model.builder.operator(kind, [x, model.numbers("axes", *axes)], after, keep_dims=keep)
        if kind == "REDUCE_MAX":
            return model.case([y], data.max(axis=axes, keepdims=keep))
        (before, _), (scale, zero_y) = _real(x), _real(y)
        constants = numerics.quantise_multiplier(float(numerics.real_multiplier(before, 1.0, scale)))
        if kind == "SUM":
            return model.case([y], _sum_of_bytes(data, axes, keep, x, y, constants))
        total = _centred(data, x).sum(axis=axes, keepdims=keep)
        mean = numerics.mean_multiplier(*constants, count)
        return model.case([y], numerics.requantise_fixed(np.asarray(total), *mean, zero_y))

    return draw


def _sum_of_bytes(
    data: Int8, axes: tuple[int, ...], keep: bool, source: Tensor, result: Tensor, constants: tuple[int, int]
) -> Int8:
    """LiteRT 2.3's reference kernel of SUM takes the bytes of int8 tensors for uint8, zero points as they are."""
    (_, zero_x), (_, zero_y) = _real(source), _real(result)
    total = (data.view(np.uint8).astype(np.int64) - zero_x).sum(axis=axes, keepdims=keep)
    moved = numerics.requantise_fixed(np.asarray(total), *constants, zero_y - 128)
    return moved ^ np.int8(-128)


def _softmax(random: Random) -> Case:
    model = _Model("softmax")
    rows, count = int(random.integers(1, 9)), int(random.choice([1, 2, 10, 100, random.integers(1, 512)]))
    beta = float(np.float32(random.choice([1.0, 1.0, 0.5, 2.0, random.uniform(0.1, 4)])))
    data = _data(random, (rows, count))
    if random.integers(2):
        data = np.clip(random.normal(0, 20, data.shape), -128, 127).astype(np.int8)
    x = model.input(data, _quantisation(random, -8, 1))
    y = model.builder.operator("SOFTMAX", [x], Quantisation(1 / 256, -128), beta=beta)
    table, factor = numerics.softmax_table_fixed(_real(x)[0], beta), numerics.softmax_factor_fixed(1 / 256)
    return model.case([y], numerics.softmax_fixed(data[:, :, np.newaxis], table, factor, -128)[..., 0])


def _resize(random: Random) -> Case:
    model, quantisation = _Model("resize_bilinear"), _quantisation(random)
    shape = (1, *(int(size) for size in random.integers(1, 9, 2)), int(random.integers(1, 5)))
    x = model.input(_data(random, shape), quantisation)
    made = random.integers(1, 20, 2).tolist()
    aligned, halves = [(False, False), (True, False), (False, True)][int(random.integers(3))]
    sizes, options = model.numbers("size", *made), {"align_corners": aligned, "half_pixel_centers": halves}
    y = model.builder.operator("RESIZE_BILINEAR", [x, sizes], quantisation, **options)
    rows, columns = (
        numerics.resize_coordinates(size, wanted, aligned, halves)
        for size, wanted in zip(shape[1:3], made, strict=True)
    )
    planes, unity, zero = model.feeds[0][0].transpose(2, 0, 1), numerics.quantise_multiplier(1.0), _real(y)[1]
    found = numerics.interpolate_fixed(planes, rows, columns, *unity, zero, zero)
    return model.case([y], found.transpose(1, 2, 0)[np.newaxis])


_SCALED, _UNARY = "`requantise_fixed`, factor `real_multiplier`", "`unary_fixed`, factors `rounded_multiplier`"
_STORED = "stored values as they are"

ROWS = (
    Row("CONV_2D", _convolution, _SCALED, "integer_ops/conv.h"),
    Row("DEPTHWISE_CONV_2D", _depthwise, _SCALED, "integer_ops/depthwise_conv.h"),
    Row("TRANSPOSE_CONV", _transposed, _SCALED, "integer_ops/transpose_conv.h"),
    Row(
        "FULLY_CONNECTED",
        _fully_connected,
        "`requantise_once`, factor `real_multiplier`",
        "integer_ops/fully_connected.h",
    ),
    Row("BATCH_MATMUL", _batch_matmul, "`requantise_fixed`, factor `product_multiplier`", "batch_matmul.h"),
    Row("ADD", _pair("ADD", _add, True), "`add_fixed`", "integer_ops/add.h, kernels/add.cc"),
    Row("SUB", _pair("SUB", _subtract, True), "`add_fixed` with `subtract`", "sub.h, kernels/sub.cc"),
    Row(
        "MUL",
        _pair("MUL", _multiply, True),
        "`multiply_fixed`, factor `rounded_multiplier`",
        "integer_ops/mul.h, kernels/mul.cc",
    ),
    Row(
        "SQUARED_DIFFERENCE",
        _pair("SQUARED_DIFFERENCE", _squared_difference, False),
        "`squared_difference_fixed`",
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
    Row("LEAKY_RELU", _single("LEAKY_RELU", _leaky, "alpha"), _UNARY, "leaky_relu.h, kernels/activations.cc"),
    Row("ABS", _single("ABS", _absolute), _UNARY, "kernels/elementwise.cc"),
    Row("PRELU", _prelu, "two `rounded_multiplier`, of ratio and slopes", "prelu.h, kernels/activations.cc"),
    Row("QUANTIZE", _single("QUANTIZE", _requantise), _SCALED, "requantize.h"),
    Row("RESIZE_BILINEAR", _resize, "`interpolate_fixed` at `resize_coordinates`", "resize_bilinear.h"),
)
"""``source`` is below ``kernels/internal/reference/`` of LiteRT, or below the folder that it names."""
