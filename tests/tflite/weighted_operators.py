"""Draw TensorFlow Lite operators with constant weights, and compute their results by the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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
    draw_scale,
    scale_and_zero,
)


@dataclass(frozen=True)
class _Plan:
    """A sliding window: padding before, the size of the result."""

    before: tuple[int, int]
    size: tuple[int, int]


def _plan(
    shape: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    same: bool,
) -> _Plan:
    before = []
    size = []
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
    """Yield, for every position of the window, the data that all windows read: (N, OH, OW, C)."""
    margin = [
        (step * dilation + stride,) * 2
        for step, dilation, stride in zip(window, dilations, strides, strict=True)
    ]
    padded = np.pad(data, ((0, 0), *margin, (0, 0)), constant_values=fill)
    for row in range(window[0]):
        for column in range(window[1]):
            start = [
                edge[0] - before + place * dilation
                for edge, before, place, dilation in zip(
                    margin, plan.before, (row, column), dilations, strict=True
                )
            ]
            rows, columns = (
                slice(first, first + (size - 1) * stride + 1, stride)
                for first, size, stride in zip(start, plan.size, strides, strict=True)
            )
            yield row, column, padded[:, rows, columns]


def _weight_quantisation(random: Random, channels: int, axis: int) -> Quantisation:
    scales = tuple(draw_scale(random, -9, -5) for _ in range(channels if random.integers(4) else 1))
    return Quantisation(scales, 0, axis if len(scales) > 1 else 0)


def _bias(
    random: Random, model: ModelDraft, source: Tensor, weights: Quantisation, channels: int
) -> tuple[Tensor, NDArray[np.int32]]:
    values = random.integers(-3000, 3000, channels).astype(np.int32)
    scale = scale_and_zero(source)[0]
    scales = tuple(float(np.float32(scale * one)) for one in weights.scales)
    return model.builder.constant("bias", values, Quantisation(scales)), values


def _result_quantisation(
    random: Random, source: Tensor, weights: Quantisation, products: int
) -> Quantisation:
    """A scale in which results use much of int8, and sometimes leave it."""
    spread = scale_and_zero(source)[0] * float(np.mean(weights.scales)) * 74 * 74 * products**0.5
    scale = float(np.float32(spread / 64 * 2.0 ** random.uniform(-1.5, 1)))
    if not random.integers(3):
        scale = 2.0 ** round(np.log2(scale))
    return replace(draw_quantisation(random), scale=scale)


def _requantised(
    total: NDArray[np.int64], source: Tensor, weights: Quantisation, result: Tensor, activation: str
) -> Int8:
    scale, zero_point = scale_and_zero(result)
    factors = numerics.real_multiplier(
        scale_and_zero(source)[0], np.array(weights.scales, np.float32), scale
    )
    return numerics.requantise_fixed(
        total,
        *numerics.quantise_multipliers(factors),
        zero_point,
        *activation_limits(activation, result),
    )


def draw_convolution(random: Random) -> Case:
    model = ModelDraft("conv_2d")
    groups = int(random.choice([1, 1, 1, 2]))
    depth, channels = (int(size) * groups for size in random.integers(1, 9, 2))
    window = random.integers(1, 4, 2).tolist()
    strides = random.integers(1, 3, 2).tolist()
    dilations = random.integers(1, 3, 2).tolist() if strides == [1, 1] else [1, 1]
    sizes = [
        int(random.integers((taps - 1) * step + 1, 12))
        for taps, step in zip(window, dilations, strict=True)
    ]
    x = model.input(
        draw_data(random, (int(random.integers(1, 3)), *sizes, depth)), draw_quantisation(random)
    )
    quantisation = _weight_quantisation(random, channels, 0)
    filters = random.integers(-127, 128, (channels, *window, depth // groups), np.int8)
    weights = model.builder.constant("weights", filters, quantisation)
    bias, start = _bias(random, model, x, quantisation, channels)
    same = bool(random.integers(2))
    activation = str(random.choice(ACTIVATIONS))
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
    for row, column, values in _taps(centre(model.feeds[0], x), plan, window, strides, dilations):
        for group in range(groups):
            some = slice(group * block, (group + 1) * block)
            inputs = depth // groups
            part = values[..., group * inputs : (group + 1) * inputs]
            total[..., some] += part @ filters[some, row, column].astype(np.int64).T
    return model.case([y], _requantised(total, x, quantisation, y, activation))


def draw_depthwise(random: Random) -> Case:
    model = ModelDraft("depthwise_conv_2d")
    depth = int(random.integers(1, 9))
    multiplier = int(random.integers(1, 4))
    window = random.integers(1, 5, 2).tolist()
    strides = [int(random.integers(1, 3))] * 2
    dilations = random.integers(1, 3, 2).tolist() if strides == [1, 1] else [1, 1]
    sizes = [
        int(random.integers((taps - 1) * step + 1, 13))
        for taps, step in zip(window, dilations, strict=True)
    ]
    x = model.input(
        draw_data(random, (int(random.integers(1, 3)), *sizes, depth)), draw_quantisation(random)
    )
    quantisation = _weight_quantisation(random, depth * multiplier, 3)
    filters = random.integers(-127, 128, (1, *window, depth * multiplier), np.int8)
    weights = model.builder.constant("weights", filters, quantisation)
    bias, start = _bias(random, model, x, quantisation, depth * multiplier)
    same = bool(random.integers(2))
    activation = str(random.choice(ACTIVATIONS))
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
    for row, column, values in _taps(centre(model.feeds[0], x), plan, window, strides, dilations):
        total += np.repeat(values, multiplier, axis=-1) * filters[0, row, column].astype(np.int64)
    return model.case([y], _requantised(total, x, quantisation, y, activation))


def draw_transposed(random: Random) -> Case:
    model = ModelDraft("transpose_conv")
    depth, channels = (int(size) for size in random.integers(1, 9, 2))
    window = random.integers(1, 5, 2).tolist()
    strides = random.integers(1, 4, 2).tolist()
    sizes = random.integers(1, 7, 2).tolist()
    same = bool(random.integers(2)) and all(
        taps >= step for taps, step in zip(window, strides, strict=True)
    )
    made = [
        size * step if same else (size - 1) * step + taps
        for size, step, taps in zip(sizes, strides, window, strict=True)
    ]
    shape = model.numbers("shape", 1, *made, channels)
    quantisation = _weight_quantisation(random, channels, 0)
    filters = random.integers(-127, 128, (channels, *window, depth), np.int8)
    weights = model.builder.constant("weights", filters, quantisation)
    x = model.input(draw_data(random, (1, *sizes, depth)), draw_quantisation(random))
    bias, start = _bias(random, model, x, quantisation, channels)
    y = model.builder.operator(
        "TRANSPOSE_CONV",
        [shape, weights, x, bias],
        _result_quantisation(random, x, quantisation, depth * 2),
        padding="SAME" if same else "VALID",
        stride_h=strides[0],
        stride_w=strides[1],
    )
    whole = [
        (size - 1) * step + taps for size, step, taps in zip(sizes, strides, window, strict=True)
    ]
    cut = [max(full - wanted, 0) // 2 for full, wanted in zip(whole, made, strict=True)]
    total = np.zeros(
        (1, *(max(size, wanted) for size, wanted in zip(whole, made, strict=True)), channels),
        np.int64,
    )
    values = centre(model.feeds[0], x)
    for row in range(window[0]):
        for column in range(window[1]):
            rows = slice(row, row + (sizes[0] - 1) * strides[0] + 1, strides[0])
            columns = slice(column, column + (sizes[1] - 1) * strides[1] + 1, strides[1])
            total[:, rows, columns] += values @ filters[:, row, column].astype(np.int64).T
    total = total[:, cut[0] : cut[0] + made[0], cut[1] : cut[1] + made[1]] + start
    return model.case([y], _requantised(total, x, quantisation, y, "NONE"))


def draw_fully_connected(random: Random) -> Case:
    model = ModelDraft("fully_connected")
    rows, depth, channels = (int(size) for size in random.integers(1, 40, 3))
    x = model.input(draw_data(random, (rows, depth)), draw_quantisation(random))
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
    total = centre(model.feeds[0], x) @ matrix.astype(np.int64).T + start
    scale, zero_point = scale_and_zero(y)
    factors = numerics.real_multiplier(
        scale_and_zero(x)[0], np.array(quantisation.scales, np.float32), scale
    )
    return model.case(
        [y], numerics.requantise_once(total, factors, zero_point, *activation_limits(activation, y))
    )


def draw_batch_matmul(random: Random) -> Case:
    model = ModelDraft("batch_matmul")
    batch, rows, depth, channels = (int(size) for size in random.integers(1, 20, 4))
    turned = bool(random.integers(2)), bool(random.integers(2))
    first = (batch % 3 + 1, rows, depth)
    second = (batch % 3 + 1, depth, channels)
    shapes = [
        (b, j, i) if turn else (b, i, j)
        for turn, (b, i, j) in zip(turned, (first, second), strict=True)
    ]
    tensors = [model.input(draw_data(random, shape), draw_quantisation(random)) for shape in shapes]
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
        np.swapaxes(centre(data, tensor), 1, 2) if turn else centre(data, tensor)
        for data, tensor, turn in zip(model.feeds, tensors, turned, strict=True)
    )
    scale, zero_point = scale_and_zero(y)
    factor = numerics.product_multiplier(
        scale_and_zero(tensors[0])[0], scale_and_zero(tensors[1])[0], scale
    )
    return model.case(
        [y], numerics.requantise_fixed(a @ b, *numerics.quantise_multiplier(factor), zero_point)
    )
