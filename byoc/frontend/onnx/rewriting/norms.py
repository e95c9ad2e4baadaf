"""Finds normalisations that an exporter wrote as elementary operators, so that each is quantised as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    add_constant,
    attributes,
    copy_model,
    is_float32,
    remove_dead_code,
    set_nodes,
    shapes_of,
    standard,
)
from byoc.frontend.onnx.rewriting.opset import convert_opset, opset_of
from byoc.frontend.onnx.rewriting.shapes import infer_shapes

LAYER, ROOT_MEAN_SQUARE = "LayerNormalization", "RMSNormalization"
ROOT_MEAN_SQUARE_OPSET = 23


class Found(NamedTuple):
    """A normalisation without gain and bias: its operand, the axis where rows begin, epsilon, whether it is centred."""

    source: str
    axis: int
    epsilon: float
    centred: bool


def recognise_norms(model: ModelProto) -> ModelProto:
    """A copy in which layer normalisations of the last dimensions are LayerNormalization or RMSNormalization nodes.

    ``(x - mean) / sqrt(mean((x - mean)^2) + epsilon)``, or without the means, then a constant factor and summand: with
    Pow or Mul for the square, ReduceMean, Sqrt or Pow, Div or Reciprocal and Mul. Wants shapes inferred and constants
    folded. Where the model cannot have the opset that RMSNormalization needs, those stay as they are.
    """
    result = copy_model(model)
    finder = _Finder(result)
    nodes = [finder.rewritten(node) for node in result.graph.node]
    if finder.roots and not finder.has_roots:
        newer = convert_opset(model, ROOT_MEAN_SQUARE_OPSET)
        if opset_of(newer) >= ROOT_MEAN_SQUARE_OPSET:
            return recognise_norms(infer_shapes(newer))
    set_nodes(result.graph, nodes)
    remove_dead_code(result.graph)
    return result


@dataclass
class _Finder:
    """Looks for patterns from their last node back."""

    model: ModelProto
    roots: bool = False
    """Whether a normalisation by the root mean square was found."""

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.has_roots = opset_of(self.model) >= ROOT_MEAN_SQUARE_OPSET
        self.shapes = shapes_of(graph)
        self.arrays = ConstantArrays(graph, is_float32)
        self.integers = ConstantArrays(graph, lambda tensor: not is_float32(tensor))
        self.producers = {output: node for node in graph.node for output in node.output}

    def rewritten(self, node: NodeProto) -> NodeProto:
        """The normalisation that ends in ``node``, or the node itself."""
        bare = self._bare(node)
        bias = None
        if bare is None:
            gained, bias = self._with_constant(node, "Add") or (node, None)
            product = self._with_constant(gained, "Mul")
            bare = self._bare(product[0]) if product else None
            if bare is None or product is None or (bias is not None and not bare.centred):
                return node
            gain = self._fitted(product[1], bare)
        else:
            gain = np.ones(1, np.float32)
        self.roots |= not bare.centred
        if not (bare.centred or self.has_roots):
            return node
        shape = self.shapes[bare.source][bare.axis :]
        summand = None if bias is None else self._fitted(bias, bare)
        if gain is None or (bias is not None and summand is None):
            return node
        name, graph = node.output[0], self.model.graph
        numbers = [gain] if summand is None else [gain, summand]
        operands = [
            add_constant(graph, f"{name}_{part}", np.broadcast_to(array, shape))
            for part, array in zip(("gain", "bias"), numbers, strict=False)
        ]
        op_type = LAYER if bare.centred else ROOT_MEAN_SQUARE
        return helper.make_node(
            op_type, [bare.source, *operands], [name], node.name, axis=bare.axis, epsilon=bare.epsilon
        )

    def _made_by(self, name: str, *op_types: str) -> NodeProto | None:
        node = self.producers.get(name)
        return node if node is not None and node.op_type in op_types and standard(node) else None

    def _with_constant(self, node: NodeProto, op_type: str) -> tuple[NodeProto, NDArray[np.float32]] | None:
        """The producer of the other operand of ``node``, a sum or product with a constant, and the constant."""
        if node.op_type != op_type or not standard(node):
            return None
        for constant, other in (tuple(node.input), tuple(reversed(node.input))):
            if constant in self.arrays and other in self.producers:
                return self.producers[other], self.arrays[constant]
        return None

    def _fitted(self, array: NDArray[np.float32], bare: Found) -> NDArray[np.float32] | None:
        """``array`` without leading ones, where it can be spread over a row; else None."""
        shape = self.shapes[bare.source][bare.axis :]
        extra = max(array.ndim - len(shape), 0)
        if any(size != 1 for size in array.shape[:extra]):
            return None
        inner = array.reshape(array.shape[extra:])
        try:
            np.broadcast_to(inner, shape)
        except ValueError:
            return None
        return inner

    def _bare(self, node: NodeProto) -> Found | None:
        """What ``node`` ends, if it divides by a deviation."""
        if not standard(node):
            return None
        if node.op_type == "Div":
            return self._normalised(node.input[0], node.input[1])
        if node.op_type == "Mul":
            for factor, other in (tuple(node.input), tuple(reversed(node.input))):
                inverse = self._made_by(factor, "Reciprocal", "Div")
                if inverse is not None and inverse.op_type == "Reciprocal":
                    return self._normalised(other, inverse.input[0])
                if inverse is not None and self._number(inverse.input[0]) == 1:
                    return self._normalised(other, inverse.input[1])
        return None

    def _normalised(self, data: str, deviation: str) -> Found | None:
        """``data / deviation``."""
        root = self._made_by(deviation, "Sqrt", "Pow")
        if root is None or (root.op_type == "Pow" and self._number(root.input[1]) != 0.5):
            return None
        total = self._made_by(root.input[0], "Add")
        for number, mean in (tuple(total.input), tuple(reversed(total.input))) if total is not None else ():
            epsilon, variance = self._number(number), self._mean(mean)
            squared = None if variance is None else self._squared(variance[0])
            if epsilon is None or variance is None or squared is None:
                continue
            centred = self._centred(data)
            if centred is not None and self._centred(squared) == centred and centred[1] == variance[1]:
                return Found(*centred, epsilon, centred=True)
            if squared == data:
                return Found(data, variance[1], epsilon, centred=False)
        return None

    def _centred(self, name: str) -> tuple[str, int] | None:
        """What a tensor is less its mean along the last dimensions, and the first of them."""
        node = self._made_by(name, "Sub")
        average = self._mean(node.input[1]) if node is not None else None
        return average if node is not None and average is not None and average[0] == node.input[0] else None

    def _squared(self, name: str) -> str | None:
        node = self._made_by(name, "Pow", "Mul")
        if node is None:
            return None
        square = self._number(node.input[1]) == 2 if node.op_type == "Pow" else node.input[0] == node.input[1]
        return node.input[0] if square else None

    def _mean(self, name: str) -> tuple[str, int] | None:
        """The operand of a mean along the last dimensions, which it keeps, and the first of them."""
        node = self._made_by(name, "ReduceMean")
        if node is None or not attributes(node).get("keepdims", 1) or node.input[0] not in self.shapes:
            return None
        axes = attributes(node).get("axes", ())
        if len(node.input) > 1 and node.input[1]:
            if node.input[1] not in self.integers:
                return None
            axes = self.integers[node.input[1]].reshape(-1).tolist()
        rank = len(self.shapes[node.input[0]])
        found = sorted(int(axis) % rank for axis in axes)
        if not found or found != list(range(found[0], rank)):
            return None
        return node.input[0], found[0]

    def _number(self, name: str) -> float | None:
        """The single number that a constant holds."""
        for arrays in (self.arrays, self.integers):
            if name in arrays and arrays[name].size == 1:
                return float(arrays[name].reshape(()))
        return None
