"""Elementary operators in place of others, before quantisation: reductions of functions, LogSoftmax, PRelu of a slope
an element, LRN, and the mean and deviation that a LayerNormalization tells besides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    Writer,
    attributes,
    copy_model,
    is_float32,
    names_of,
    rewrite_nodes,
    shapes_of,
    standard,
    types_of,
)
from byoc.frontend.onnx.rewriting.opset import opset_of

LEAST_OPSET = 18
"""From here on all reductions have their axes as an input."""


def decompose_reductions(model: ModelProto) -> ModelProto:
    """A copy in which the operators of :data:`WRITTEN` are elementary ones. Wants shapes inferred and constants folded.

    Inside of them, functions of one value become tables, and plain reductions and differences are instructions.
    """
    result = copy_model(model)
    if opset_of(model) < LEAST_OPSET:
        return result
    graph = result.graph
    shapes, integers = shapes_of(graph), ConstantArrays(graph, lambda tensor: not is_float32(tensor))
    types, taken = types_of(graph), names_of(graph)

    def decomposed(node: NodeProto) -> list[NodeProto] | None:
        known = node.op_type in WRITTEN and standard(node) and types.get(node.input[0]) == TensorProto.FLOAT
        axes = _axes(node, shapes, integers) if known else None
        if axes is None:
            return None
        writer = _Writer(graph, node, axes, shapes[node.input[0]], taken)
        WRITTEN[node.op_type](writer, node.input[0])
        writer.nodes[-1].output[0] = node.output[0]
        return writer.nodes

    rewrite_nodes(graph, decomposed)
    return result


def _axes(node: NodeProto, shapes: Mapping[str, tuple[int, ...]], integers: ConstantArrays) -> list[int] | None:
    """The axes of a row; None where they are not known, or there are none, or the norm is none."""
    options, shape = attributes(node), shapes.get(node.input[0])
    if not shape or options.get("p", 2) < 1:
        return None
    rank = len(shape)
    if node.op_type == "PRelu":
        return None if _is_of_channels(shapes.get(node.input[1], ()), shape) else []
    if node.op_type == "LRN":
        return []
    if node.op_type == "LayerNormalization":
        return list(range(int(options.get("axis", -1)) % rank, rank)) if any(node.output[1:]) else None
    if node.op_type in _POOLS:
        return list(range(2, rank)) or None
    if "axis" in options or node.op_type in _ALONG_ONE:
        return [int(options.get("axis", -1)) % rank]
    given = [name for name in node.input[1:] if name]
    if any(name not in integers for name in given):
        return None
    found = [int(axis) % rank for name in given for axis in integers[name].reshape(-1).tolist()]
    return found or (None if options.get("noop_with_empty_axes") else list(range(rank)))


def _is_of_channels(slope: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a slope is one number, or one a channel, which makes tables."""
    channels = [1, *shape[1:2], *(1 for _ in shape[2:])] if len(shape) > 1 else shape
    return np.prod(slope) == 1 or [1] * (len(shape) - len(slope)) + list(slope) == list(channels)


class _Writer(Writer):
    """A reduction along ``axes`` of rows of ``shape``."""

    def __init__(
        self, graph: GraphProto, node: NodeProto, axes: list[int], shape: tuple[int, ...], taken: set[str]
    ) -> None:
        super().__init__(graph, node, taken)
        self.shape = shape
        self._axes = self.constant(axes, np.int64) if axes else ""

    def reduce(self, op_type: str, operand: str, *, keep: bool = False, result: str = "") -> str:
        """A plain reduction; with ``keep`` its dimensions stay whatever the operator says."""
        keepdims = 1 if keep else int(self.options.get("keepdims", 1))
        return self.add(op_type, operand, self._axes, result=result, keepdims=keepdims)


def _log_softmax(w: _Writer, x: str) -> None:
    below = w.add("Sub", x, w.reduce("ReduceMax", x, keep=True))
    w.add("Sub", below, w.add("Log", w.reduce("ReduceSum", w.add("Exp", below), keep=True)))


def _log_sum_exp(w: _Writer, x: str) -> None:
    """Less the maximum first, which nothing can exceed."""
    total = w.reduce("ReduceSum", w.add("Exp", w.add("Sub", x, w.reduce("ReduceMax", x, keep=True))))
    w.add("Add", w.add("Log", total), w.reduce("ReduceMax", x))


def _of_squares(*behind: str) -> Callable[[_Writer, str], None]:
    return _of(lambda w, x: w.add("Mul", x, x), *behind)


def _of(function: Callable[[_Writer, str], str], *behind: str) -> Callable[[_Writer, str], None]:
    def write(w: _Writer, x: str) -> None:
        result = w.reduce("ReduceSum", function(w, x))
        for op_type in behind:
            result = w.add(op_type, result)

    return write


def _prelu(w: _Writer, x: str) -> None:
    below = w.add("Min", x, w.constant(np.float32(0)))
    w.add("Add", w.add("Relu", x), w.add("Mul", below, w.node.input[1]))


def _lrn(w: _Writer, x: str) -> None:
    """x · (bias + alpha · mean of squares along the channels)^-beta.

    The mean is a pool of which every pixel is a channel and every channel a row: pools work on channels side by side.
    """
    size, images, channels = w.options.get("size", 1), *w.shape[:2]
    pixels = math.prod(w.shape[2:])
    rows = w.constant(np.array([images, channels, pixels], np.int64))
    columns = w.constant(np.array([images, pixels, channels, 1], np.int64))
    turned = w.add("Transpose", w.add("Reshape", w.add("Mul", x, x), rows), perm=[0, 2, 1])
    pads = [(size - 1) // 2, 0, size // 2, 0]
    squares = w.add("Reshape", turned, columns)
    mean = w.add("AveragePool", squares, kernel_shape=[size, 1], pads=pads, count_include_pad=1)
    scaled = w.add("Mul", mean, w.constant(np.float32(w.options.get("alpha", 1e-4))))
    moved = w.add("Add", scaled, w.constant(np.float32(w.options.get("bias", 1.0))))
    factor = w.add("Pow", moved, w.constant(np.float32(-w.options.get("beta", 0.75))))
    back = w.add("Transpose", factor, perm=[0, 2, 1, 3])
    w.add("Mul", x, w.add("Reshape", back, w.constant(np.array(w.shape, np.int64))))


def _layer_normalization(w: _Writer, x: str) -> None:
    """The normalisation by itself, and what else of it somebody wants."""
    _, mean, inverse = (*w.node.output, "")[:3]
    mean = w.reduce("ReduceMean", x, result=mean)
    if inverse:
        distance = w.add("Sub", x, mean)
        variance = w.reduce("ReduceMean", w.add("Mul", distance, distance))
        epsilon = w.constant(np.float32(w.options.get("epsilon", 1e-5)))
        w.add("Reciprocal", w.add("Sqrt", w.add("Add", variance, epsilon)), result=inverse)
    alone = NodeProto.FromString(w.node.SerializeToString())
    del alone.output[1:]
    w.nodes.append(alone)


def _norm(w: _Writer, x: str) -> None:
    """The p-norm."""
    power, size = w.options.get("p", 2), w.add("Abs", x)
    total = w.reduce("ReduceSum", size if power == 1 else w.add("Pow", size, w.constant(np.float32(power))))
    if power > 1:
        w.add("Pow", total, w.constant(np.float32(1 / power)))


_POOLS = ("GlobalLpPool",)
_ALONG_ONE = ("LogSoftmax",)
WRITTEN: Mapping[str, Callable[[_Writer, str], None]] = {
    "LogSoftmax": _log_softmax,
    "ReduceL1": _of(lambda w, x: w.add("Abs", x)),
    "ReduceL2": _of_squares("Sqrt"),
    "ReduceSumSquare": _of_squares(),
    "ReduceLogSumExp": _log_sum_exp,
    "GlobalLpPool": _norm,
    "LRN": _lrn,
    "PRelu": _prelu,
    "LayerNormalization": _layer_normalization,
}
"""How each operator is written; the last node makes its result."""
