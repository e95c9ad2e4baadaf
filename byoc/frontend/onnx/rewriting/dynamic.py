"""Convert dynamically quantised models back to float, so that they are quantised statically.

``DynamicQuantizeLinear`` determines an activation's scale at run time, which an accelerator with
integer instructions cannot do. With the range observed in calibration the scale is constant. The
integer product after it becomes the real product that it represents: the weights are dequantised,
nothing is rounded in between, and the quantiser treats it as any float model. ONNX Runtime's
``quantize_dynamic`` writes such models.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from byoc.frontend.onnx.rewriting.constants import fold_constants
from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, walk_model, write_operators
from byoc.frontend.onnx.rewriting.movement import CHAINED
from byoc.frontend.onnx.rewriting.prepare import drop_dead_code
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.operators.table import POLYNOMIAL
from byoc.runtimes.protobuf import copy_model, copy_node, standard
from byoc.runtimes.session import OnnxRuntimeSession
from isa.numerics import steps

DYNAMIC = "DynamicQuantizeLinear"
_PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
Arrays = Mapping[str, NDArray[Any]]


DYNAMIC_OPERATORS = frozenset({DYNAMIC, "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
"""Operators that quantise an activation at run time."""


def make_static_ranges(model: ModelProto, feeds: Iterable[Arrays]) -> ModelProto:
    """Return the float model that a prepared, dynamically quantised model represents.

    Scales come from the ranges observed on ``feeds``. A consumer of a quantised activation that is
    not a product with constant weights reads it from a QuantizeLinear.
    """
    ranges = _ranges(model, feeds)
    result = walk_model(
        model,
        lambda graph: _DynamicRewriter(graph, ranges).rewrite,
        lambda node: True,
        upwards=True,
    )
    return _fold_factors(fold_constants(infer_shapes(drop_dead_code(result))))


def _ranges(model: ModelProto, feeds: Iterable[Arrays]) -> dict[str, tuple[float, float]]:
    """Return the range of every operand of DynamicQuantizeLinear nodes, including 0."""
    names = list(
        dict.fromkeys(node.input[0] for node in model.graph.node if node.op_type == DYNAMIC)
    )
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
            ranges[name] = (
                min(low, float(values[name].min())),
                max(high, float(values[name].max())),
            )
    return ranges


class _DynamicRewriter:
    """Rewriter of dynamically quantised operators as float ones, from the results upwards."""

    def __init__(self, graph: GraphView, ranges: Mapping[str, tuple[float, float]]) -> None:
        self.graph = graph
        self.arrays = graph.constants
        self.ranges = ranges
        self.real: set[str] = set()  # int32 tensors that are now real
        for node in (each for nodes in graph.slots for each in nodes):
            # Data movement and arithmetic may follow between an integer product and its scales.
            follows = node.op_type in CHAINED | POLYNOMIAL and self.real.intersection(node.input)
            if follows or self._is_product(node):
                self.real.update(node.output)

    def rewrite(self, node: NodeProto) -> Sequence[NodeProto] | None:
        """Return float nodes that replace a dynamically quantised node; None if it stays."""
        if node.op_type == DYNAMIC and standard(node):
            return self._quantise(node)
        if self._is_product(node):
            return self._product(node)
        if node.op_type == "DynamicQuantizeMatMul" and node.input[1] in self.arrays:
            return self._matmul(node)
        if (
            node.op_type == "DynamicQuantizeLSTM"
            and node.input[1] in self.arrays
            and node.input[2] in self.arrays
        ):
            return [self._lstm(node)]
        return self._follow(node) if self.real.intersection(node.input) else None

    def _is_product(self, node: NodeProto) -> bool:
        """Return True for a product with constant weights of integers with a known zero point."""
        if node.op_type not in _PRODUCTS or node.input[1] not in self.arrays:
            return False
        zero = "".join(node.input[2:3])
        fixed = not zero or (zero in self.arrays and self.arrays[zero].size == 1)
        return fixed or self.graph.maker(node.input[0], DYNAMIC) is not None

    def _scale(self, dynamic: NodeProto) -> np.float32:
        low, high = self.ranges[dynamic.input[0]]
        return np.float32((high - low) / 255 or 1)

    def _quantise(self, node: NodeProto) -> list[NodeProto]:
        w = NodeWriter(self.graph, node)
        scale = self._scale(node)
        zero_point = steps(np.float32(-self.ranges[node.input[0]][0]), scale, 0, np.uint8)
        names = [w.constant(scale, part="scale"), w.constant(zero_point, part="zero_point")]
        made = helper.make_node(
            "QuantizeLinear", [node.input[0], *names], node.output[:1], node.name
        )
        renamed = zip(names, node.output[1:], strict=True)
        return [
            made,
            *(helper.make_node("Identity", [name], [given]) for name, given in renamed if given),
        ]

    def _product(self, node: NodeProto) -> list[NodeProto]:
        """Return the float product that replaces a product of integers.

        Integers that a DynamicQuantizeLinear did not make, such as rows of a table, have a constant
        scale, by which the file multiplies the product later.
        """
        w = NodeWriter(self.graph, node)
        dynamic = self.graph.maker(node.input[0], DYNAMIC)
        matrix = node.op_type == "MatMulInteger"
        weights = self.arrays[node.input[1]].astype(np.float32)
        weights -= self._zero_point(node, 3, -1 if matrix else 0)
        if dynamic is not None:
            weights /= self._scale(dynamic)
            data = dynamic.input[0]
        else:
            zeros = [w.constant(self.arrays[name].reshape(())) for name in node.input[2:3] if name]
            data = w.add("DequantizeLinear", node.input[0], w.constant(np.float32(1)), *zeros)
        name = self.graph.constant(f"{node.input[1]}_real", weights)
        made = copy_node(node)
        made.op_type = _PRODUCTS[node.op_type]
        made.input[:] = [data, name]
        return [*w.nodes, made]

    def _zero_point(self, node: NodeProto, position: int, axis: int) -> NDArray[np.float32]:
        """Return the zero point of a product's weights, in a shape that broadcasts to them."""
        name = node.input[position] if len(node.input) > position else ""
        rank = self.arrays[node.input[1]].ndim
        return _broadcast_along(self.arrays[name], axis, rank) if name else np.zeros((), np.float32)

    def _matmul(self, node: NodeProto) -> list[NodeProto]:
        """Rewrite DynamicQuantizeMatMul as float operators."""
        parameters = [
            self.arrays[name] if name else None for name in (*node.input, "", "", "")[2:5]
        ]
        scale, zero, bias = parameters
        weights = self.arrays[node.input[1]].astype(np.float32)
        assert scale is not None
        real = (
            weights - (0 if zero is None else _broadcast_along(zero, -1, weights.ndim))
        ) * _broadcast_along(scale, -1, weights.ndim)
        name = self.graph.constant(f"{node.input[1]}_real", real.astype(np.float32))
        w = NodeWriter(self.graph, node)
        product = w.add("MatMul", node.input[0], name, label=node.name)
        if bias is not None:
            w.add("Add", product, node.input[4])
        return w.finish()

    def _lstm(self, node: NodeProto) -> NodeProto:
        """Rewrite DynamicQuantizeLSTM as a float LSTM.

        Its weights are transposed; there is a scale per direction or per gate row.
        """
        operands = [*node.input, *[""] * (12 - len(node.input))]
        for position, (scale, zero) in {1: (8, 9), 2: (10, 11)}.items():
            weights = self.arrays[operands[position]].astype(np.float32)
            factors, zeros = (
                self.arrays[operands[each]].astype(np.float32) for each in (scale, zero)
            )
            shape = (len(weights), 1, -1)
            real = ((weights - zeros.reshape(shape)) * factors.reshape(shape)).transpose(0, 2, 1)
            operands[position] = self.graph.constant(
                f"{operands[position]}_real", real.astype(np.float32)
            )
        made = helper.make_node("LSTM", operands[:8], list(node.output), node.name)
        made.attribute.extend(node.attribute)
        return made

    def _follow(self, node: NodeProto) -> list[NodeProto] | None:
        """Rewrite an operator with operands that became floats; cast its other operands."""
        if node.op_type == "Cast":
            return [helper.make_node("Identity", list(node.input), list(node.output), node.name)]
        if node.op_type not in POLYNOMIAL:
            return None
        w = NodeWriter(self.graph, node)
        made = copy_node(node)
        for index, name in enumerate(node.input):
            if name not in self.real:
                made.input[index] = w.add("Cast", name, to=TensorProto.FLOAT)
        return [*w.nodes, made]


def _broadcast_along(values: NDArray[Any], axis: int, rank: int) -> NDArray[np.float32]:
    """Reshape one value, or one per channel, to broadcast along ``axis`` of a tensor."""
    if values.size == 1:
        return values.astype(np.float32).reshape(())
    shape = [1] * rank
    shape[axis] = values.size
    return values.astype(np.float32).reshape(shape)


@write_operators("MatMul")
def _fold_factors(graph: GraphView, node: NodeProto) -> list[NodeProto] | None:
    """Fold constant factors (one, or one per column) after a matrix product into its weights."""
    following = None if graph.is_shown(node.output[0]) else graph.only_reader(node.output[0])
    if following is None or following.op_type != "Mul" or node.input[1] not in graph.floats:
        return None
    factors = [graph.floats[name] for name in following.input if name in graph.floats]
    weights = graph.floats[node.input[1]]
    if len(factors) != 1 or factors[0].shape not in ((), (1,), weights.shape[-1:]):
        return None
    made = copy_node(node)
    made.input[1] = graph.constant(f"{node.output[0]}_weight", weights * factors[0])
    graph.replace(
        following, [helper.make_node("Identity", node.output[:1], following.output, following.name)]
    )
    return [made]
