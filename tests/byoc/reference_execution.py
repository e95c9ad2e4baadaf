"""Execute operations on stored integers in NumPy, as an oracle of patterns without the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from byoc.compiled import Partition, Region
from byoc.graph import Graph
from byoc.host.sessions import opener
from byoc.operators.activation import Activation
from byoc.operators.arithmetic import (
    Add,
    DivisionOperator,
    MultiplicationOperator,
    SubtractionOperator,
)
from byoc.operators.convolution import Convolution
from byoc.operators.copies import StridedCopy
from byoc.operators.matmul import DynamicMatMul, MatMul
from byoc.operators.minmax import MinMax
from byoc.operators.movement import Alias
from byoc.operators.operator import Operator
from byoc.operators.pieces import Piece
from byoc.operators.pooling import AveragePool, MaxPool
from byoc.operators.products import Requantisation, RequantiseConstants, WideAdd
from byoc.operators.records import Operand
from byoc.operators.window import WindowOperator
from isa.numerics.addition import add, add_constants, divide, multiply, subtract
from isa.numerics.pooling import average_taps, global_average, global_average_scale
from isa.numerics.requantising import requantise
from isa.numerics.unary import unary

Array = NDArray[Any]
Memory = dict[str, Array]


def run_partition(
    partition: Partition, model: onnx.ModelProto, feeds: Mapping[str, Array]
) -> dict[str, Array]:
    """Every boundary tensor of the network, in its ONNX element type."""
    tensors = dict(feeds)
    for part in partition.parts:
        if isinstance(part, Region):
            tensors |= run_region(partition.graph, part, tensors)
        else:
            tensors |= opener(model, partition.graph)(part.inputs, part.outputs).run(tensors)
    return tensors


def run_region(graph: Graph, region: Region, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The region's outputs in their ONNX element types."""
    memory: Memory = {name: to_stored(tensors[name]).reshape(-1) for name in region.inputs}
    run_operations(graph, region.operations, memory)
    results = {}
    for name in region.outputs:
        value = graph.values[name]
        results[name] = from_stored(memory[name], value.dtype).reshape(value.shape)
    return results


def to_stored(tensor: Array) -> Array:
    return (tensor.astype(np.int64) - 128).astype(np.int8) if tensor.dtype == np.uint8 else tensor


def from_stored(flat: Array, dtype: str) -> Array:
    return (
        (flat.astype(np.int64) + 128).astype(np.uint8) if dtype == "uint8" else flat.astype(dtype)
    )


def run_operations(graph: Graph, operations: Iterable[Operator], memory: Memory) -> None:
    for operation in operations:
        memory |= {name: data.reshape(-1) for name, data in operation.constant_operands.items()}
        sources = [_read(memory, operand) for operand in operation.inputs]
        if isinstance(operation, Alias):
            for start, source in zip(operation.offsets, sources, strict=True):
                _write(graph, memory, Operand(operation.output.value, source.shape, start), source)
        else:
            _write(graph, memory, operation.output, _kind_of(operation)(operation, *sources))


def _read(memory: Memory, operand: Operand) -> Array:
    return memory[operand.value][operand.offset : operand.offset + operand.elements].reshape(
        operand.shape
    )


def _write(graph: Graph, memory: Memory, operand: Operand, data: Array) -> None:
    whole = graph.values.get(operand.value)
    elements = operand.elements if whole is None else whole.elements
    buffer = memory.setdefault(
        operand.value, np.zeros(elements, np.int8 if operand.dtype == "int8" else np.int32)
    )
    assert data.size == operand.elements, (
        "an operation makes as many elements as its output operand has"
    )
    buffer[operand.offset : operand.offset + operand.elements] = data.reshape(-1)


def _finish(accumulators: Array, how: RequantiseConstants | None, channel_axis: int) -> Array:
    assert np.abs(accumulators).max(initial=0) < 2**31
    if how is None:
        return accumulators.astype(np.int32)
    around = [1] * accumulators.ndim
    around[channel_axis] = -1
    rounded = how.scales.rounded
    scale = rounded if rounded.size == 1 else rounded.reshape(around)
    return requantise(accumulators, scale, how.zero_point, how.low, how.high)


def _windows(
    x: Array, operation: WindowOperator, kernel: tuple[int, int], fill: int
) -> list[Array]:
    """For every tap, row-major, the (C, OH, OW) values it reads."""
    top, left, bottom, right = operation.pads
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right)), constant_values=fill)
    _, height, width = operation.output.shape
    taps = []
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            down = row * operation.dilations[0]
            across = column * operation.dilations[1]
            rows = slice(down, down + (height - 1) * operation.strides[0] + 1, operation.strides[0])
            columns = slice(
                across, across + (width - 1) * operation.strides[1] + 1, operation.strides[1]
            )
            taps.append(padded[:, rows, columns])
    return taps


def _conv(operation: Convolution, x: Array) -> Array:
    weights = operation.weights.astype(np.int64)
    outputs, _, height, width = weights.shape
    taps = np.stack(
        _windows(x.astype(np.int64), operation, (height, width), operation.input_zero_point)
    )
    flat = weights.reshape(outputs, -1, height * width)
    size = outputs // operation.groups
    depth = x.shape[0] // operation.groups
    sums = np.concatenate(
        [
            np.einsum(
                "oct,tchw->ohw",
                flat[g * size : (g + 1) * size],
                taps[:, g * depth : (g + 1) * depth],
            )
            for g in range(operation.groups)
        ]
    )
    return _finish(sums + operation.bias.reshape(-1, 1, 1), operation.requantise, 0)


def _matmul(operation: MatMul, x: Array) -> Array:
    sums = x.astype(np.int64) @ operation.weights.astype(np.int64) + operation.bias
    return _finish(sums, operation.requantise, 1)


def _dynamic_matmul(operation: DynamicMatMul, a: Array, b: Array) -> Array:
    first, second = (
        x.astype(np.int64) - zero for x, zero in zip((a, b), operation.zero_points, strict=True)
    )
    return _finish(first @ (second.T if operation.transposed else second), operation.requantise, 1)


def _wide_add(operation: WideAdd, a: Array, b: Array) -> Array:
    return a + b


def _requantise(operation: Requantisation, x: Array) -> Array:
    return _finish(x.astype(np.int64), operation.requantise, 1 if x.ndim == 2 else 0)


def _max_pool(operation: MaxPool, x: Array) -> Array:
    return np.max(_windows(x, operation, operation.kernel, -128), axis=0)


def _average_pool(operation: AveragePool, x: Array) -> Array:
    numbers = (operation.input_scale, operation.output_scale)
    if operation.mode == "global_average":
        total = (x.astype(np.int64) + operation.offset - operation.input_zero_point).sum(
            axis=(1, 2)
        )
        scale = global_average_scale(*numbers, x.shape[1] * x.shape[2])
        zero = operation.output_zero_point - operation.offset
        return global_average(total, scale, zero, operation.low, operation.high)
    valid = _windows(np.ones_like(x, bool), operation, operation.kernel, 0)
    values = _windows(x, operation, operation.kernel, 0)
    count: Any = np.sum(valid, axis=0)
    if operation.count_include_pad:
        count = operation.kernel[0] * operation.kernel[1]
    return average_taps(
        zip(values, valid, strict=True),
        count,
        (operation.input_scale, operation.output_scale),
        (operation.input_zero_point, operation.output_zero_point),
        operation.offset,
        operation.low,
        operation.high,
    )


def _add(operation: Add, a: Array, b: Array) -> Array:
    (sa, sb, sy) = operation.scales
    (za, zb, zy) = operation.zero_points
    constants = add_constants(sa, za, sb, zb, sy, zy)
    return add(a, b, *constants, operation.offset, operation.low, operation.high)


def _subtract(operation: SubtractionOperator, a: Array, b: Array) -> Array:
    zeros = tuple(zero - operation.offset for zero in operation.zero_points)
    return subtract(a, b, operation.scales, zeros, operation.low, operation.high)


def _divide(operation: DivisionOperator, a: Array, b: Array) -> Array:
    zeros = tuple(zero - operation.offset for zero in operation.zero_points)
    return divide(a, b, operation.scales, zeros, operation.low, operation.high)


def _multiply(operation: MultiplicationOperator, a: Array, b: Array) -> Array:
    (sa, sb, sy) = map(np.float32, operation.scales)
    (za, zb, zy) = operation.zero_points
    offset = operation.offset
    zeros = za - offset, zb - offset, zy
    return multiply(
        a, b, np.float32(np.float32(sa * sb) / sy), zeros, offset, operation.low, operation.high
    )


def _unary(operation: Activation, x: Array) -> Array:
    return unary(
        x,
        "absolute" if operation.function == "abs" else operation.function,
        (operation.input_scale, operation.output_scale),
        (operation.input_zero_point, operation.output_zero_point),
        operation.alpha,
        operation.low,
        operation.high,
    )


def _minmax(operation: MinMax, a: Array, b: Array) -> Array:
    return np.minimum(a, b) if operation.function == "min" else np.maximum(a, b)


def _strided_copy(operation: StridedCopy, x: Array) -> Array:
    dims = (operation.channels, operation.rows, *operation.inner)
    piece = Piece(-Piece(0, 0, dims).lowest, 0, dims)
    sources, targets = piece.positions()
    assert sorted(targets.tolist()) == list(range(operation.output.elements)), (
        "only what has no gaps is read here"
    )
    result = np.zeros(operation.output.elements, np.int8)
    result[targets] = x.reshape(-1)[sources]
    return result


def _kind_of(operation: Operator) -> Callable[..., Array]:
    """Return the function that computes the operation's family, or the family that it refines."""
    return next(_KINDS[family] for family in type(operation).__mro__ if family in _KINDS)


_KINDS: dict[type[Operator], Callable[..., Array]] = {
    Convolution: _conv,
    MatMul: _matmul,
    DynamicMatMul: _dynamic_matmul,
    WideAdd: _wide_add,
    Requantisation: _requantise,
    MaxPool: _max_pool,
    AveragePool: _average_pool,
    Add: _add,
    SubtractionOperator: _subtract,
    MultiplicationOperator: _multiply,
    DivisionOperator: _divide,
    Activation: _unary,
    MinMax: _minmax,
    StridedCopy: _strided_copy,
}
