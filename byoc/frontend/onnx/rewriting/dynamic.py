"""Dynamically quantised models become float ones again, so that they are quantised statically.

``DynamicQuantizeLinear`` finds the scale of an activation when the model runs, which an accelerator with integer
instructions does not do. With the range that calibration has seen it is a constant, and the integer product behind it
the product of real numbers that it stands for: the weights are dequantised, nothing is rounded in between, and the
quantiser chooses as for any float model. The operators that write such models: ONNX Runtime's ``quantize_dynamic``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from byoc.frontend.onnx.rewriting.constants import fold_constants
from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    add_constant,
    copy_model,
    is_float32,
    remove_dead_code,
    set_nodes,
    standard,
    use_counts,
)
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.session import OnnxRuntimeSession
from isa.numerics import steps

DYNAMIC = "DynamicQuantizeLinear"
_PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
_REAL = frozenset({"Add", "Sub", "Mul", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Cast"})
"""What may follow an integer product before its scales are multiplied."""
Arrays = Mapping[str, NDArray[Any]]


DYNAMIC_OPERATORS = frozenset({DYNAMIC, "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
"""Operators that quantise an activation when they run."""


def with_static_ranges(model: ModelProto, feeds: Iterable[Arrays]) -> ModelProto:
    """The float model that a prepared, dynamically quantised one stands for, with scales from ranges seen on ``feeds``.

    What reads a quantised activation and is no product with constant weights gets it from a QuantizeLinear.
    """
    result = copy_model(model)
    ranges = _ranges(result, feeds)
    rewriter = _Rewriter(result.graph)
    nodes: list[NodeProto] = []
    for node in result.graph.node:
        nodes += rewriter.rewrite(node, ranges)
    set_nodes(result.graph, nodes)
    del result.graph.value_info[:]
    remove_dead_code(result.graph)
    result = fold_constants(infer_shapes(result))
    _fold_factors(result.graph)
    return result


def _ranges(model: ModelProto, feeds: Iterable[Arrays]) -> dict[str, tuple[float, float]]:
    """The range of every operand of DynamicQuantizeLinear, zero included."""
    names = list(dict.fromkeys(node.input[0] for node in model.graph.node if node.op_type == DYNAMIC))
    inputs = {value.name for value in model.graph.input}
    observed = copy_model(model)
    outputs = {value.name for value in model.graph.output} | inputs
    observed.graph.output.extend(ValueInfoProto(name=name) for name in names if name not in outputs)
    session = OnnxRuntimeSession(observed)
    ranges = dict.fromkeys(names, (0.0, 0.0))
    wanted = list(outputs - inputs | {name for name in names if name not in inputs})
    for feed in feeds:
        values = session.run(wanted, feed) | dict(feed)
        for name in names:
            low, high = ranges[name]
            ranges[name] = (min(low, float(values[name].min())), max(high, float(values[name].max())))
    return ranges


class _Rewriter:
    """One walk over a graph in topological order."""

    def __init__(self, graph: GraphProto) -> None:
        self.graph = graph
        self.arrays = ConstantArrays(graph, lambda tensor: True)
        self.activations: dict[str, tuple[str, np.float32]] = {}  # quantised tensor → the real one, its scale
        self.real: set[str] = set()  # tensors that were int32 and are real now

    def rewrite(self, node: NodeProto, ranges: Mapping[str, tuple[float, float]]) -> list[NodeProto]:
        """The nodes to put in this one's place."""
        if node.op_type == DYNAMIC and standard(node):
            return self._quantise(node, ranges[node.input[0]])
        if node.op_type in _PRODUCTS and node.input[0] in self.activations and node.input[1] in self.arrays:
            return [self._product(node)]
        if node.op_type == "DynamicQuantizeMatMul" and node.input[1] in self.arrays:
            return self._matmul(node)
        if node.op_type == "DynamicQuantizeLSTM" and {node.input[1], node.input[2]} <= set(self.arrays):
            return [self._lstm(node)]
        if self.real.intersection(node.input):
            return self._follow(node)
        return [node]

    def _quantise(self, node: NodeProto, limits: tuple[float, float]) -> list[NodeProto]:
        low, high = limits
        scale = np.float32((high - low) / 255 or 1)
        zero_point = steps(np.float32(-low), scale, 0, np.uint8)
        parameters: tuple[NDArray[Any], NDArray[Any]] = np.asarray(scale), np.asarray(zero_point)
        for name, array in zip(node.output[1:], parameters, strict=True):
            self.arrays[name] = array
            self.graph.initializer.append(numpy_helper.from_array(array, name))
        self.activations[node.output[0]] = node.input[0], scale
        return [helper.make_node("QuantizeLinear", [node.input[0], *node.output[1:]], [node.output[0]], node.name)]

    def _product(self, node: NodeProto) -> NodeProto:
        """In units of its scales, as the integers were."""
        source, scale = self.activations[node.input[0]]
        matrix = node.op_type == "MatMulInteger"
        zero = self._zero_point(node, 3, -1 if matrix else 0)
        weights = (self.arrays[node.input[1]].astype(np.float32) - zero) / scale
        name = add_constant(self.graph, f"{node.input[1]}_real", weights.astype(np.float32))
        self.real.add(node.output[0])
        made = helper.make_node(_PRODUCTS[node.op_type], [source, name], list(node.output), node.name)
        made.attribute.extend(node.attribute)
        return made

    def _zero_point(self, node: NodeProto, position: int, axis: int) -> NDArray[np.float32]:
        """That of the weights, one for all or one a channel, as it broadcasts to them."""
        name = node.input[position] if len(node.input) > position else ""
        rank = self.arrays[node.input[1]].ndim
        return _along(self.arrays[name], axis, rank) if name else np.zeros((), np.float32)

    def _matmul(self, node: NodeProto) -> list[NodeProto]:
        """A, B, scale of B, its zero point, bias."""
        parameters = [self.arrays[name] if name else None for name in (*node.input, "", "", "")[2:5]]
        scale, zero, bias = parameters
        weights = self.arrays[node.input[1]].astype(np.float32)
        assert scale is not None
        real = (weights - (0 if zero is None else _along(zero, -1, weights.ndim))) * _along(scale, -1, weights.ndim)
        name = add_constant(self.graph, f"{node.input[1]}_real", real.astype(np.float32))
        if bias is None:
            return [helper.make_node("MatMul", [node.input[0], name], list(node.output), node.name)]
        product = f"{node.output[0]}_product"
        return [
            helper.make_node("MatMul", [node.input[0], name], [product], node.name),
            helper.make_node("Add", [product, node.input[4]], list(node.output)),
        ]

    def _lstm(self, node: NodeProto) -> NodeProto:
        """Weights are transposed, and their scales are (directions) or (directions, 4 · hidden)."""
        operands = [*node.input, *[""] * (12 - len(node.input))]
        for position, (scale, zero) in {1: (8, 9), 2: (10, 11)}.items():
            weights = self.arrays[operands[position]].astype(np.float32)
            factors, zeros = (self.arrays[operands[each]].astype(np.float32) for each in (scale, zero))
            shape = (len(weights), 1, -1)
            real = ((weights - zeros.reshape(shape)) * factors.reshape(shape)).transpose(0, 2, 1)
            operands[position] = add_constant(self.graph, f"{operands[position]}_real", real.astype(np.float32))
        made = helper.make_node("LSTM", operands[:8], list(node.output), node.name)
        made.attribute.extend(node.attribute)
        return made

    def _follow(self, node: NodeProto) -> list[NodeProto]:
        """What reads integers that are real now: operands that still are integers are cast."""
        if node.op_type not in _REAL:
            return [node]
        if node.op_type == "Cast":
            return [helper.make_node("Identity", list(node.input), list(node.output), node.name)]
        cast: list[NodeProto] = []
        arithmetic = node.op_type in ("Add", "Sub", "Mul")
        for index, name in enumerate(node.input):
            if arithmetic and name and name not in self.real:
                real = f"{node.output[0]}_real{index}"
                cast.append(helper.make_node("Cast", [name], [real], to=TensorProto.FLOAT))
                node.input[index] = real
        self.real.update(node.output)
        return [*cast, node]


def _along(values: NDArray[Any], axis: int, rank: int) -> NDArray[np.float32]:
    """One value, or one a channel, as it broadcasts to a tensor of this rank along ``axis``."""
    if values.size == 1:
        return values.astype(np.float32).reshape(())
    shape = [1] * rank
    shape[axis] = values.size
    return values.astype(np.float32).reshape(shape)


def _fold_factors(graph: GraphProto) -> None:
    """Multiply constant factors behind a matrix product, one or one a column, into its weights, in place."""
    arrays = ConstantArrays(graph, is_float32)
    uses = use_counts(graph)
    readers = {name: node for node in graph.node for name in node.input}
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in arrays:
            continue
        following = readers.get(node.output[0]) if uses[node.output[0]] == 1 else None
        while following is not None and following.op_type == "Identity" and uses[following.output[0]] == 1:
            following = readers.get(following.output[0])
        if following is None or following.op_type != "Mul":
            continue
        factors = [arrays[name] for name in following.input if name in arrays]
        weights = arrays[node.input[1]]
        if len(factors) != 1 or factors[0].shape not in ((), (1,), weights.shape[-1:]):
            continue
        node.input[1] = add_constant(graph, f"{node.output[0]}_weight", weights * factors[0])
        source = next(name for name in following.input if name not in arrays)
        following.CopyFrom(helper.make_node("Identity", [source], list(following.output), following.name))
    remove_dead_code(graph)
