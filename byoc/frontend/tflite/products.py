"""Readers of convolutions, fully connected layers and matrix products; weights are transposed."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.frontend.tflite.file import TFLiteTensor
from byoc.frontend.tflite.unit import (
    KeptOnCpuError,
    Reader,
    TensorView,
    UnitContext,
    natural,
    permute_axes,
    planes,
)
from byoc.graph import Quantization

SAME = 0
VALID = 1
"""Padding modes by their numbers in the schema."""


def window(
    unit: UnitContext, kernel: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int]
) -> dict[str, Any]:
    """Return the attributes of a two-dimensional window."""
    begins, ends = pad_window(
        unit.shape(0)[1:3],
        unit.result().shape[1:3],
        (kernel, strides, dilations),
        unit.options.padding == SAME,
    )
    return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": (*begins, *ends)}


def pad_window(
    source: tuple[int, ...],
    result: tuple[int, ...],
    window: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
    same: bool,
) -> tuple[list[int], list[int]]:
    """Return the padding before and after rows and columns of a plane.

    ``window`` has kernel, strides and dilations. SAME puts the smaller padding first, as LiteRT's
    ComputePaddingWithOffset does; without it, nothing precedes.
    """
    begins = []
    ends = []
    for axis, (kernel, stride, dilation) in enumerate(zip(*window, strict=True)):
        reach = (kernel - 1) * dilation + 1
        total = max((result[axis] - 1) * stride + reach - source[axis], 0)
        begins.append(total // 2 if same else 0)
        ends.append(total - begins[-1])
    return begins, ends


def _constant_weights(unit: UnitContext, source: int, *, symmetric: bool = False) -> NDArray[Any]:
    """Return the constant weights of a product.

    Raises KeptOnCpuError if LiteRT would read them differently.
    LiteRT's kernels interpret the weights' bytes as the type of operand ``source``. Kernels with
    ``symmetric`` weights ignore the zero point of int8.
    """
    weights = unit.tensor(1)
    given = unit.tensor(source)
    if weights.data is None:
        raise KeptOnCpuError(
            f"its weights '{weights.name}' are computed at run time; only constant ones run on the "
            "accelerator"
        )
    if weights.dtype != given.dtype:
        raise KeptOnCpuError(
            f"its weights are {weights.dtype} and its input {given.dtype}: "
            "convert the model to int8"
        )
    found = weights.quantization
    if symmetric and weights.dtype == "int8" and found is not None and found.zero_point.any():
        raise KeptOnCpuError(
            "its int8 weights have a zero point, which LiteRT's kernels do not read: convert the "
            "model again"
        )
    return weights.data


def convolution(unit: UnitContext) -> None:
    """Read CONV_2D; its filters have axes (outputs, rows, columns, inputs of a group)."""
    _convolution(unit, (0, 3, 1, 2))


def depthwise(unit: UnitContext) -> None:
    """Read DEPTHWISE_CONV_2D; its filters have axes (1, rows, columns, channels × multiplier)."""
    _convolution(unit, (3, 0, 1, 2))


def _convolution(unit: UnitContext, order: tuple[int, int, int, int]) -> None:
    """Add a Conv node for a TensorFlow Lite convolution with a given order of filter axes.

    ``order`` transposes the filters to (outputs, inputs of a group, rows, columns).
    """
    activation = unit.activation()
    options = unit.options
    data = np.ascontiguousarray(_constant_weights(unit, 0, symmetric=True).transpose(order))
    _, depth, *kernel = data.shape
    channels = unit.shape(0)[3]
    if depth == 0 or channels % depth or len(unit.shape(0)) != 4:
        raise KeptOnCpuError(f"its input has {channels} channels, its filters have {depth}")
    strides = options.strideH, options.strideW
    dilations = options.dilationHFactor, options.dilationWFactor
    if min(*strides, *dilations) < 1:
        raise KeptOnCpuError(f"its strides are {strides} and its dilations {dilations}")
    result = unit.result().shape
    unit.node(
        "Conv",
        [unit.value(0, planes(unit.shape(0))), _filters(unit, data, order), *_bias(unit, 2)],
        planes(result),
        {
            **window(unit, (kernel[0], kernel[1]), strides, dilations),
            "group": channels // depth,
            **activation,
        },
        macs=prod(result) * prod(data.shape[1:]),
    )


def _check_multiples(plane: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Raise KeptOnCpuError if rows or columns of a result are no multiples of the strides."""
    if min(strides) < 1 or any(size % step for size, step in zip(plane, strides, strict=True)):
        raise KeptOnCpuError(
            f"its result has {plane[0]} × {plane[1]} elements, which are no multiples of its "
            f"strides {strides}"
        )


def read_transposed_convolution(unit: UnitContext) -> None:
    """Read TRANSPOSE_CONV; its filters have axes (outputs, rows, columns, inputs).

    Element stride · q + r of a result is a sum over the taps r + pad, r + pad + stride, ... of the
    window. For every r this is a plain convolution, and all of them together are one convolution
    with stride² times the channels. Its result, viewed as (batch, r of rows and columns, channels,
    rows, columns), contains the elements of the model's tensor.
    """
    activation = unit.activation()
    weights = unit.tensor(1)
    options = unit.options
    data = _constant_weights(unit, 2, symmetric=True)
    result = unit.result().shape
    source = unit.shape(2)
    strides = options.strideH, options.strideW
    _check_multiples(result[1:3], strides)
    axes = [
        _phases(
            weights.shape[1 + axis],
            strides[axis],
            source[1 + axis],
            result[1 + axis],
            options.padding,
        )
        for axis in range(2)
    ]
    (rows, top, bottom), (columns, left, right) = axes
    filters = _phase_filters(weights, data, rows, columns)
    copies = prod(strides)
    batch, _, _, outputs = result
    factors = (
        batch,
        result[1] // strides[0],
        strides[0],
        result[2] // strides[1],
        strides[1],
        outputs,
    )
    lies = (batch, copies * outputs, factors[1], factors[3])
    unit.node(
        "Conv",
        [
            unit.value(2, planes(source)),
            _add_repeated(unit, 1, "filters", filters, copies),
            *_biases(unit, 3, copies),
        ],
        TensorView(result, factors, (0, 2, 4, 5, 1, 3), lies, None),
        {
            **_EVERY_STEP,
            "kernel": filters.shape[2:],
            "pads": (top, left, bottom, right),
            "group": 1,
            **activation,
        },
        macs=prod(source) * prod(weights.shape[:3]),
    )


_EVERY_STEP = {"strides": (1, 1), "dilations": (1, 1)}


def _phase_filters(
    weights: TFLiteTensor, data: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any]
) -> NDArray[Any]:
    """Rearrange the filters of a transposed convolution so that each phase has its own.

    The shape is (r of rows and columns and outputs, inputs, taps, taps).
    Missing taps read the zero point.
    """
    zero = 0 if weights.quantization is None else int(weights.quantization.zero_point.flat[0])
    padded = np.pad(
        data.transpose(0, 3, 1, 2), ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=zero
    )
    found = padded[:, :, rows][:, :, :, :, columns]  # outputs, inputs, r, taps, r, taps
    turned = np.ascontiguousarray(found.transpose(2, 4, 0, 1, 3, 5))
    return turned.reshape(-1, weights.shape[3], rows.shape[1], columns.shape[1])


def _phases(
    kernel: int, stride: int, source: int, result: int, padding: int
) -> tuple[NDArray[Any], int, int]:
    """Return the kernel taps of each output phase of a transposed convolution, and the pads.

    The taps are by phase and position, ``kernel`` for none. Element stride · q + r uses tap k of
    input (stride · q + r + pad - k) / stride.
    """
    pad = max((source - 1) * stride + kernel - result, 0) // 2 if padding == SAME else 0
    first = [(phase + pad) % stride for phase in range(stride)]
    reach = [
        [((phase + pad - tap) // stride, tap) for tap in range(start, kernel, stride)]
        for phase, start in enumerate(first)
    ]
    steps = [step for taps in reach for step, _ in taps]
    low = min(steps, default=0)
    high = max(steps, default=0)
    found = np.full((stride, high - low + 1), kernel)
    for phase, taps in enumerate(reach):
        for step, tap in taps:
            found[phase, step - low] = tap
    return found, -low, result // stride - 1 + high - (source - 1)


def _add_repeated(
    unit: UnitContext, position: int, label: str, data: NDArray[Any], copies: int
) -> str:
    """Add a per-channel constant, repeated once for each copy of the channels."""
    found = unit.tensor(position).quantization
    if found is not None and not found.per_tensor:
        found = Quantization(np.tile(found.scale, copies), np.tile(found.zero_point, copies), 0)
    return unit.add_constant(position, label, data, found)


def _biases(unit: UnitContext, position: int, copies: int) -> list[str]:
    """Return the biases of a convolution, repeated once for each copy of the channels."""
    if not unit.is_given(position):
        return []
    data = unit.get_constant(position)
    if data is None:
        return [unit.value(position, natural(unit.shape(position)))]
    return [unit.add_constant(position, "biases", np.tile(data, copies), None)]


def _filters(unit: UnitContext, data: NDArray[Any], order: tuple[int, ...]) -> str:
    quantization = unit.tensor(1).quantization
    if quantization is not None and not quantization.per_tensor:
        quantization = Quantization(
            quantization.scale, quantization.zero_point, order.index(quantization.axis or 0)
        )
    return unit.add_constant(1, "filters", data, quantization)


def _bias(unit: UnitContext, position: int) -> list[str]:
    """Return the bias of a product if there is one.

    Its scale is the accumulators' by definition.
    """
    if not unit.is_given(position):
        return []
    found = unit.tensor(position)
    if found.data is None:
        return [unit.value(position, natural(found.shape))]
    return [unit.add_constant(position, "bias", found.data, None)]


def read_fully_connected(unit: UnitContext) -> None:
    """Read FULLY_CONNECTED; its weights have axes (outputs, inputs).

    If the input has channels first, the weights' columns are reordered instead of the input.
    """
    activation = unit.activation()
    weights = unit.tensor(1)
    if unit.options.weightsFormat:
        raise KeptOnCpuError("its weights are shuffled")
    data = _constant_weights(unit, 0)
    outputs, depth = weights.shape
    rows = prod(unit.shape(0)) // depth if depth else 0
    view, columns = _rows(unit, rows, depth)
    quantization = weights.quantization
    if quantization is not None and not quantization.per_tensor:
        quantization = Quantization(quantization.scale, quantization.zero_point, 1)
    turned = unit.add_constant(1, "columns", np.ascontiguousarray(data[:, columns].T), quantization)
    result = natural(unit.result().shape)
    flat = TensorView(result.shape, result.factors, result.order, (rows, outputs), None)
    bias = _bias(unit, 2)
    macs = rows * depth * outputs
    whole = result if result.shape[:-1] == (rows,) else flat
    unit.node("MatMul", [unit.value(0, view), turned, *bias], whole, dict(activation), macs=macs)


def _rows(unit: UnitContext, rows: int, depth: int) -> tuple[TensorView, NDArray[Any]]:
    """Return a layer's input as a matrix, and the column of the weights for each element."""
    have = unit.view(0)
    positions = have.arrange(np.arange(rows * depth).reshape(have.shape)).reshape(rows, depth)
    columns = positions[0] if rows else np.arange(depth)
    whole = np.arange(rows)[:, np.newaxis] * depth + columns
    if not np.array_equal(positions, whole):
        have = natural(have.shape)
        columns = np.arange(depth)
    lying = have if have.lies == (rows, depth) else replace(have, lies=(rows, depth), axes=None)
    return lying, columns


def batch_matmul(unit: UnitContext) -> None:
    """Read BATCH_MATMUL: products of matrices in the last two dimensions, possibly transposed."""
    left = natural(unit.shape(0))
    right = natural(unit.shape(1))
    attributes = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1} if unit.options.adjY else {}
    if unit.options.adjY and unit.get_constant(1) is not None:
        right = _transpose_view(right)
        attributes = {}
    # LiteRT's rule is the same for constant and computed operands
    attributes = {**attributes, "pairwise": 1}
    if unit.options.adjX:
        left = _transpose_view(left)
    macs = prod(unit.result().shape) * unit.shape(0)[-2 if unit.options.adjX else -1]
    operands = unit.value(0, left), unit.value(1, right)
    unit.node("MatMul", operands, natural(unit.result().shape), attributes, macs=macs)


def _transpose_view(view: TensorView) -> TensorView:
    """Return a view of matrices with their last two dimensions exchanged."""
    axes = tuple(range(len(view.shape)))
    return permute_axes(view.shape, (*axes[:-2], *axes[-2:][::-1]))


READERS: dict[str, Reader] = {
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": depthwise,
    "FULLY_CONNECTED": read_fully_connected,
    "BATCH_MATMUL": batch_matmul,
    "TRANSPOSE_CONV": read_transposed_convolution,
}
