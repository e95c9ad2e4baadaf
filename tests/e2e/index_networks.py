"""Small networks with run-time indices, conditions and masks, as exporters write them.

Each function returns a float ONNX model with drawn weights, for tests of whole networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class IndexNetwork:
    """Writer of a model: nodes, constants, inputs and outputs in order."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self._count = 0

    def start(self, count: int) -> None:
        """Number the next names from ``count`` on, so that a branch has names of its own."""
        self._count = count

    def input(self, name: str, shape: Sequence[int], kind: int = FLOAT) -> str:
        """Add an input of the network."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def constant(self, value: ArrayLike, kind: Any = np.float32) -> str:
        """Add a constant."""
        name = self._name("c")
        self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def weights(self, *shape: int) -> str:
        """Add drawn weights."""
        drawn: NDArray[Any] = self.random.standard_normal(shape) / np.sqrt(shape[0])
        return self.constant(drawn)

    def ints(self, *values: int) -> str:
        """Add a vector of integers."""
        return self.constant(values, np.int64)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output."""
        return self.add_many(op, 1, *inputs, **attributes)[0]

    def add_many(self, op: str, results: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        names = [self._name(op) for _ in range(results)]
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{self._count}", **attributes))
        return names

    def conv(self, x: str, into: int, of: int, size: int = 3, stride: int = 1) -> str:
        """Add a convolution with ReLU."""
        kernel = self.random.standard_normal((into, of, size, size)) / np.sqrt(of * size * size)
        pads = [size // 2] * 4
        y = self.add("Conv", x, self.constant(kernel), pads=pads, strides=[stride, stride])
        return self.add("Relu", y)

    def linear(self, x: str, of: int, into: int) -> str:
        """Add a product with weights, and a bias."""
        return self.add("Add", self.add("MatMul", x, self.weights(of, into)), self.weights(into))

    def model(self, *outputs: str, kinds: Sequence[int] = ()) -> onnx.ModelProto:
        """Return the model with the outputs, float where ``kinds`` does not say otherwise."""
        types = [*kinds, *[FLOAT] * (len(outputs) - len(kinds))]
        results = [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(outputs, types, strict=True)
        ]
        graph = helper.make_graph(self.nodes, "indices", self.inputs, results, self.constants)
        opsets = [helper.make_opsetid("", 20)]
        drawn = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        return onnx.shape_inference.infer_shapes(drawn, data_prop=True)

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"


def graph_network(
    seed: int = 0, nodes: int = 64, edges: int = 192, wide: int = 64
) -> onnx.ModelProto:
    """Return three layers of message passing over an edge list that is an input."""
    w = IndexNetwork(seed)
    x = w.input("nodes", (nodes, 32))
    index = w.input("edge_index", (2, edges), INT64)
    source = w.add("Gather", index, w.constant(0, np.int64), axis=0)
    target = w.add("Gather", index, w.constant(1, np.int64), axis=0)
    spread = w.add("Expand", w.add("Unsqueeze", target, w.ints(1)), w.ints(edges, wide))
    x = w.add("Relu", w.linear(x, 32, wide))
    for _ in range(3):
        pair = w.add(
            "Concat", w.add("Gather", x, source, axis=0), w.add("Gather", x, target, axis=0), axis=1
        )
        message = w.add("Relu", w.linear(pair, 2 * wide, wide))
        zeros = w.constant(np.zeros((nodes, wide)))
        total = w.add("ScatterElements", zeros, spread, message, axis=0, reduction="add")
        x = w.add("Add", x, w.add("Relu", w.linear(total, wide, wide)))
    pooled = w.add("ReduceMean", x, w.ints(0), keepdims=1)
    return w.model(w.linear(pooled, wide, 8))


def deformable_attention(seed: int = 0, size: int = 16, wide: int = 64) -> onnx.ModelProto:
    """Return an encoder with two layers of deformable attention, four heads of four points."""
    w = IndexNetwork(seed)
    heads, points = 4, 4
    x = w.input("image", (1, 3, 2 * size, 2 * size))
    x = w.conv(w.conv(x, 32, 3, stride=2), wide, 32)
    tokens = size * size
    x = w.add("Transpose", w.add("Reshape", x, w.ints(1, wide, tokens)), perm=[0, 2, 1])
    ticks = (np.arange(size) + 0.5) / size * 2 - 1
    reference = np.stack(np.meshgrid(ticks, ticks), -1).reshape(1, tokens, 1, 1, 2)
    for _ in range(2):
        value = w.add(
            "Reshape", w.linear(x, wide, wide), w.ints(1, size, size, heads, wide // heads)
        )
        value = w.add("Transpose", value, perm=[0, 3, 4, 1, 2])
        value = w.add("Reshape", value, w.ints(heads, wide // heads, size, size))
        offsets = w.linear(x, wide, heads * points * 2)
        offsets = w.add("Reshape", offsets, w.ints(1, tokens, heads, points, 2))
        offsets = w.add("Mul", offsets, w.constant(2 / size))
        grid = w.add("Add", offsets, w.constant(reference))
        grid = w.add("Transpose", grid, perm=[0, 2, 1, 3, 4])
        grid = w.add("Reshape", grid, w.ints(heads, tokens, points, 2))
        sampled = w.add("GridSample", value, grid, mode="linear", align_corners=0)
        scores = w.add(
            "Reshape", w.linear(x, wide, heads * points), w.ints(1, tokens, heads, points)
        )
        scores = w.add("Transpose", w.add("Softmax", scores, axis=-1), perm=[0, 2, 1, 3])
        scores = w.add("Reshape", scores, w.ints(heads, 1, tokens, points))
        mixed = w.add("ReduceSum", w.add("Mul", sampled, scores), w.ints(-1), keepdims=0)
        mixed = w.add("Reshape", mixed, w.ints(1, wide, tokens))
        mixed = w.linear(w.add("Transpose", mixed, perm=[0, 2, 1]), wide, wide)
        x = w.add("LayerNormalization", w.add("Add", x, mixed), w.weights(wide), w.weights(wide))
        hidden = w.linear(w.add("Relu", w.linear(x, wide, 2 * wide)), 2 * wide, wide)
        x = w.add("LayerNormalization", w.add("Add", x, hidden), w.weights(wide), w.weights(wide))
    return w.model(w.linear(w.add("ReduceMean", x, w.ints(1), keepdims=0), wide, 8))


def yolo_head(seed: int = 0, size: int = 64, classes: int = 8, most: int = 32) -> onnx.ModelProto:
    """Return a detector without NMS, as YOLOv10: the boxes of the best scores, from TopK."""
    w = IndexNetwork(seed)
    x = w.input("image", (1, 3, size, size))
    x = w.conv(w.conv(w.conv(x, 16, 3, stride=2), 32, 16, stride=2), 64, 32, stride=2)
    cells = (size // 8) ** 2
    boxes = w.conv(w.conv(x, 64, 64), 4, 64, 1)
    boxes = w.add("Reshape", boxes, w.ints(1, 4, cells))
    scores = w.add("Conv", w.conv(x, 64, 64), w.weights(classes, 64, 1, 1))
    scores = w.add("Sigmoid", w.add("Reshape", scores, w.ints(1, classes, cells)))
    boxes = w.add("Transpose", boxes, perm=[0, 2, 1])
    scores = w.add("Transpose", scores, perm=[0, 2, 1])
    best = w.add("ReduceMax", scores, w.ints(-1), keepdims=0)
    _, index = w.add_many("TopK", 2, best, w.ints(most), axis=-1)
    column = w.add("Unsqueeze", index, w.ints(-1))
    boxes = w.add("GatherElements", boxes, w.add("Tile", column, w.ints(1, 1, 4)), axis=1)
    scores = w.add("GatherElements", scores, w.add("Tile", column, w.ints(1, 1, classes)), axis=1)
    flat = w.add("Reshape", scores, w.ints(1, most * classes))
    values, place = w.add_many("TopK", 2, flat, w.ints(most), axis=-1)
    label = w.add("Mod", place, w.ints(classes))
    row = w.add("Unsqueeze", w.add("Div", place, w.ints(classes)), w.ints(-1))
    boxes = w.add("GatherElements", boxes, w.add("Tile", row, w.ints(1, 1, 4)), axis=1)
    parts = [boxes, w.add("Unsqueeze", values, w.ints(-1))]
    label = w.add("Unsqueeze", w.add("Cast", label, to=FLOAT), w.ints(-1))
    return w.model(w.add("Concat", *parts, label, axis=-1))


def mixture_of_experts(
    seed: int = 0, tokens: int = 32, wide: int = 64, experts: int = 4
) -> onnx.ModelProto:
    """Return two layers of a top-2 mixture of experts: every expert computes, the gates select."""
    w = IndexNetwork(seed)
    x = w.input("tokens", (tokens, wide))
    for _ in range(2):
        gates = w.linear(x, wide, experts)
        best, index = w.add_many("TopK", 2, gates, w.ints(2), axis=-1)
        shares = w.add("Softmax", best, axis=-1)
        zeros = w.constant(np.zeros((tokens, experts)))
        mask = w.add("ScatterElements", zeros, index, shares, axis=1)
        total = ""
        for number in range(experts):
            hidden = w.add("Relu", w.linear(x, wide, 2 * wide))
            share = w.add("Gather", mask, w.ints(number), axis=1)
            part = w.add("Mul", w.linear(hidden, 2 * wide, wide), share)
            total = w.add("Add", total, part) if total else part
        x = w.add("LayerNormalization", w.add("Add", x, total), w.weights(wide), w.weights(wide))
    return w.model(w.linear(x, wide, 8))


def masked_attention(
    seed: int = 0, tokens: int = 24, wide: int = 64, layers: int = 3
) -> onnx.ModelProto:
    """Return layers of attention with a mask of -inf and PyTorch's guard against NaN."""
    w = IndexNetwork(seed)
    ids = w.input("tokens", (1, tokens, wide))
    mask = w.input("mask", (1, tokens), INT64)
    shape = w.add("Shape", ids)
    length = w.add("Gather", shape, w.ints(1), axis=0)
    heads = w.add("Concat", w.ints(1), length, w.ints(4, wide // 4), axis=0)
    flat = w.add("Concat", w.ints(1), length, w.ints(wide), axis=0)
    kept = w.add("Cast", w.add("Reshape", mask, w.ints(1, 1, 1, tokens)), to=TensorProto.BOOL)
    added = w.add("Where", kept, w.constant(0.0), w.constant(-np.inf))
    x = ids
    for _ in range(layers):
        q, k, v = (
            w.add("Transpose", w.add("Reshape", w.linear(x, wide, wide), heads), perm=order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = w.add("Mul", w.add("MatMul", q, k), w.constant((wide // 4) ** -0.5))
        soft = w.add("Softmax", w.add("Add", scores, added), axis=-1)
        soft = w.add("Where", w.add("IsNaN", soft), w.constant(0.0), soft)
        mixed = w.add("Transpose", w.add("MatMul", soft, v), perm=[0, 2, 1, 3])
        x = w.add("Add", x, w.linear(w.add("Reshape", mixed, flat), wide, wide))
        x = w.add("LayerNormalization", x, w.weights(wide), w.weights(wide))
    total = w.add("ReduceSum", x, w.ints(1), keepdims=0)
    count = w.add("Cast", w.add("ReduceSum", mask, w.ints(1), keepdims=1), to=FLOAT)
    return w.model(w.linear(w.add("Div", total, count), wide, 8))


def guarded_division(seed: int = 0) -> onnx.ModelProto:
    """Return a log-energy front end with TensorFlow's div_no_nan, as tf2onnx writes it."""
    w = IndexNetwork(seed)
    x = w.input("frames", (16, 32))
    energy = w.add("Relu", w.linear(x, 32, 32))
    total = w.add("ReduceSum", energy, w.ints(1), keepdims=1)
    nothing = w.add("Equal", total, w.constant(0.0))
    safe = w.add("Where", nothing, w.constant(1.0), total)
    ratio = w.add("Div", energy, safe)
    ratio = w.add("Where", nothing, w.constant(0.0), ratio)
    plain = w.add("Div", energy, total)
    other = w.add("Where", w.add("Equal", total, w.constant(0.0)), w.constant(0.0), plain)
    return w.model(w.linear(w.add("Concat", ratio, other, axis=1), 64, 8))


def conditional(seed: int = 0) -> onnx.ModelProto:
    """Return a network that takes one of two branches by the mean of a feature."""
    w = IndexNetwork(seed)
    x = w.conv(w.input("image", (1, 3, 32, 32)), 16, 3, stride=2)
    mean = w.add("ReduceMean", x, keepdims=0)
    chosen = w.add("Greater", mean, w.constant(0.4))
    bodies = []
    for layers in (1, 3):
        body = IndexNetwork(seed + layers)
        body.start(1000 * layers)
        y = x
        for _ in range(layers):
            y = body.conv(y, 16, 16)
        result = helper.make_tensor_value_info(y, FLOAT, None)
        bodies.append(
            helper.make_graph(body.nodes, f"branch{layers}", [], [result], body.constants)
        )
    y = w.add("If", chosen, then_branch=bodies[0], else_branch=bodies[1])
    y = w.add("Flatten", w.add("GlobalAveragePool", y))
    return w.model(w.linear(y, 16, 8))


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "graph-network": graph_network,
    "deformable-attention": deformable_attention,
    "yolo-head": yolo_head,
    "mixture-of-experts": mixture_of_experts,
    "masked-attention": masked_attention,
    "guarded-division": guarded_division,
    "conditional": conditional,
}
