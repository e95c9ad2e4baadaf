"""Rewrite reductions, normalisations and PRelu as elementary operators on rows of one tensor."""

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
from onnx import NodeProto, TensorProto

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, write_operators
from byoc.operators.rows import fold_axes
from byoc.runtimes.protobuf import attributes

LEAST_OPSET = 18
"""First opset in which all reductions have their axes as an input."""


def _axes(graph: GraphView, node: NodeProto) -> list[int] | None:
    """Return the axes that a reduction or normalisation runs along.

    Returns None if they are unknown, or if the operator is not rewritten.
    """
    options = attributes(node)
    shape = graph.shapes.get(node.input[0])
    if not shape or options.get("p", 2) < 1:
        return None
    rank = len(shape)
    if node.op_type == "PRelu":
        return None if _is_of_channels(graph.shapes.get(node.input[1], ()), shape) else []
    if node.op_type == "LRN":
        return []
    if node.op_type == "LayerNormalization":
        return (
            list(range(int(options.get("axis", -1)) % rank, rank)) if any(node.output[1:]) else None
        )
    if node.op_type in _POOLS:
        return list(range(2, rank)) or None
    if "axis" in options or node.op_type in _ALONG_ONE:
        return [int(options.get("axis", -1)) % rank]
    given = [name for name in node.input[1:] if name]
    if any(name not in graph.constants for name in given):
        return None
    found = [
        int(axis) % rank for name in given for axis in graph.constants[name].reshape(-1).tolist()
    ]
    if node.op_type in PLAIN and (0 in shape or fold_axes(shape, found) is not None):
        return None
    return found or (None if options.get("noop_with_empty_axes") else list(range(rank)))


def _is_of_channels(slope: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return True if the slopes of a PRelu are one number or one per channel.

    Such a PRelu becomes a table.
    """
    channels = [1, *shape[1:2], *(1 for _ in shape[2:])] if len(shape) > 1 else shape
    return np.prod(slope) == 1 or [1] * (len(shape) - len(slope)) + list(slope) == list(channels)


class _Reduction(NodeWriter):
    """Writer of a reduction along ``axes`` of a tensor of ``shape``."""

    def __init__(self, graph: GraphView, node: NodeProto, axes: list[int]) -> None:
        super().__init__(graph, node)
        self.shape = graph.shapes[node.input[0]]
        self.axes = sorted(axes)
        self._axes = self.constant(axes, np.int64) if axes else ""

    def reduce(self, op_type: str, operand: str, *, keep: bool = False, result: str = "") -> str:
        """Add a reduction node; with ``keep``, reduced dimensions always stay with size 1."""
        keepdims = 1 if keep else int(self.options.get("keepdims", 1))
        return self.add(op_type, operand, self._axes, result=result, keepdims=keepdims)


def _log_softmax(w: _Reduction, x: str) -> None:
    below = w.add("Sub", x, w.reduce("ReduceMax", x, keep=True))
    w.add("Sub", below, w.add("Log", w.reduce("ReduceSum", w.add("Exp", below), keep=True)))


def _log_sum_exp(w: _Reduction, x: str) -> None:
    """Write ReduceLogSumExp, subtracting the maximum first to avoid overflow."""
    total = w.reduce(
        "ReduceSum", w.add("Exp", w.add("Sub", x, w.reduce("ReduceMax", x, keep=True)))
    )
    w.add("Add", w.add("Log", total), w.reduce("ReduceMax", x))


def _reduce_squares(*behind: str) -> Callable[[_Reduction, str], None]:
    return _reduce_function(lambda w, x: w.add("Mul", x, x), *behind)


def _reduce_function(
    function: Callable[[_Reduction, str], str], *behind: str
) -> Callable[[_Reduction, str], None]:
    def write(w: _Reduction, x: str) -> None:
        result = w.reduce("ReduceSum", function(w, x))
        for op_type in behind:
            result = w.add(op_type, result)

    return write


def _prelu(w: _Reduction, x: str) -> None:
    below = w.add("Min", x, w.constant(np.float32(0)))
    w.add("Add", w.add("Relu", x), w.add("Mul", below, w.node.input[1]))


def _lrn(w: _Reduction, x: str) -> None:
    """Write LRN: x · (bias + alpha · mean of squares along the channels)^-beta.

    Pools average along rows, not channels. The mean is therefore a pool with pixels as channels and
    channels as rows.
    """
    size, images, channels = w.options.get("size", 1), *w.shape[:2]
    pixels = prod(w.shape[2:])
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


def _layer_normalization(w: _Reduction, x: str) -> None:
    """Write LayerNormalization and its optional mean and inverse deviation separately."""
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


def _norm(w: _Reduction, x: str) -> None:
    power = w.options.get("p", 2)
    size = w.add("Abs", x)
    total = w.reduce(
        "ReduceSum", size if power == 1 else w.add("Pow", size, w.constant(np.float32(power)))
    )
    if power > 1:
        w.add("Pow", total, w.constant(np.float32(1 / power)))


def _side_by_side(w: _Reduction, x: str) -> None:
    """Write a reduction after a Transpose that moves the reduced axes to the end."""
    kept = [axis for axis in range(len(w.shape)) if axis not in w.axes]
    last = w.constant(range(len(kept), len(w.shape)), np.int64)
    reduced = w.add(w.node.op_type, w.add("Transpose", x, perm=[*kept, *w.axes]), last, keepdims=0)
    if w.options.get("keepdims", 1):
        w.add("Unsqueeze", reduced, w.constant(w.axes, np.int64))


PLAIN = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
_POOLS = ("GlobalLpPool",)
_ALONG_ONE = ("LogSoftmax",)
WRITTEN: Mapping[str, Callable[[_Reduction, str], None]] = {
    "LogSoftmax": _log_softmax,
    "ReduceL1": _reduce_function(lambda w, x: w.add("Abs", x)),
    "ReduceL2": _reduce_squares("Sqrt"),
    "ReduceLogSum": _reduce_function(lambda w, x: x, "Log"),
    "ReduceSumSquare": _reduce_squares(),
    "ReduceLogSumExp": _log_sum_exp,
    "GlobalLpPool": _norm,
    "LRN": _lrn,
    "PRelu": _prelu,
    "LayerNormalization": _layer_normalization,
    **dict.fromkeys(PLAIN, _side_by_side),
}
"""Functions that rewrite each operator; the last node that they add produces the result."""


@write_operators(*WRITTEN)
def decompose_reductions(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite the operators of :data:`WRITTEN` as elementary ones; needs folded constants.

    Functions of one value among them become tables. Plain reductions and differences have
    instructions of their own.
    """
    known = graph.types.get(node.input[0]) == TensorProto.FLOAT and graph.opset >= LEAST_OPSET
    axes = _axes(graph, node) if known else None
    if axes is None:
        return None
    writer = _Reduction(graph, node, axes)
    WRITTEN[node.op_type](writer, node.input[0])
    return writer.finish()
