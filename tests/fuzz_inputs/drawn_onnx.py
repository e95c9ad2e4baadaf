"""ONNX graphs drawn from nothing, most of them valid, some with odd values.

The rules of the standard for operators are repeated here; ``onnx.shape_inference`` decides which
nodes are valid.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ODD_INTEGERS = (0, -1, -2, 3, 7, 100, 2**20, 2**31, 2**62, -(2**62))
ODD_NUMBERS = (0.0, -1.0, 1e-40, 1e38, -1e38, float("nan"), float("inf"), -float("inf"))
NAMES = (
    "a",
    "x",
    "",
    "=1+1",
    "[/b]",
    "a/b:0",
    "é",
    "__proto__",
    "y" * 300,
    "..",
    "a b",
    "input",
    "w",
    "c0",
    "-x",
)


class _Drawing:
    """A graph that grows; ``odd`` is the share of implausible values."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.odd = rng.choice((0.0, 0.0, 0.02, 0.1))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}

    def integer(self, *usual: int) -> int:
        return self.rng.choice(ODD_INTEGERS if self.rng.random() < self.odd else usual)

    def number(self, *usual: float) -> float:
        return self.rng.choice(ODD_NUMBERS if self.rng.random() < self.odd else usual)

    def integers(self, count: int, *usual: int) -> list[int]:
        count += self.rng.choice((-1, 1)) if self.rng.random() < self.odd else 0
        return [self.integer(*usual) for _ in range(max(count, 0))]

    def constant(self, *shape: int, dtype: Any = np.float32) -> str:
        sizes = [max(0, min(size, 64)) for size in shape]
        values = (
            np.random.default_rng(self.rng.randrange(1 << 30)).standard_normal(sizes).astype(dtype)
        )
        if self.rng.random() < self.odd and values.size:
            values.flat[self.rng.randrange(values.size)] = self.number(1.0)
        return self.stored(values)

    def stored(self, values: Any, dtype: Any = None) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name


def _window(draw: _Drawing) -> dict[str, Any]:
    size = draw.rng.choice((1, 2, 3, 3, 5))
    found: dict[str, Any] = {"kernel_shape": [size, draw.integer(size, size, 1)]}
    if draw.rng.random() < 0.5:
        found["strides"] = draw.integers(2, 1, 2, 3)
    if draw.rng.random() < 0.5:
        found["pads"] = draw.integers(4, 0, 0, 1)
    elif draw.rng.random() < 0.2:
        found["auto_pad"] = draw.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    return found


def _conv(draw: _Drawing, x: str) -> onnx.NodeProto:
    channels = draw.shapes[x][1]
    window = _window(draw)
    group = draw.rng.choice([one for one in (1, 1, 2, channels) if one and channels % one == 0])
    if draw.rng.random() < 0.2:
        window["dilations"] = draw.integers(2, 1, 2)
    outputs = group * draw.rng.randint(1, 4)
    w = draw.constant(
        outputs, channels // group, *(max(0, min(one, 9)) for one in window["kernel_shape"])
    )
    bias = [draw.constant(outputs)] if draw.rng.random() < 0.6 else []
    return helper.make_node("Conv", [x, w, *bias], ["y"], group=draw.integer(group), **window)


def _transposed(draw: _Drawing, x: str) -> onnx.NodeProto:
    window = {key: value for key, value in _window(draw).items() if key != "auto_pad"}
    if draw.rng.random() < 0.3:
        window["output_padding"] = draw.integers(2, 0, 1)
    sizes = (max(0, min(one, 9)) for one in window["kernel_shape"])
    return helper.make_node(
        "ConvTranspose",
        [x, draw.constant(draw.shapes[x][1], draw.rng.randint(1, 4), *sizes)],
        ["y"],
        **window,
    )


def _pool(draw: _Drawing, x: str) -> onnx.NodeProto:
    kind = draw.rng.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    more: dict[str, Any] = {} if kind.startswith("Global") else _window(draw)
    if more and draw.rng.random() < 0.3:
        more["ceil_mode"] = draw.integer(0, 1)
    if kind == "AveragePool" and draw.rng.random() < 0.3:
        more["count_include_pad"] = draw.integer(0, 1)
    return helper.make_node(kind, [x], ["y"], **more)


def _single(draw: _Drawing, x: str) -> onnx.NodeProto:
    kind = draw.rng.choice((
        "Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Selu", "Gelu",
        "Softplus", "Erf",
        "Exp", "Sqrt", "Abs", "Neg", "Floor", "Round", "Sign", "Reciprocal", "Identity", "Mish",
        "Celu", "Not", "Log",
    ))  # fmt: skip
    more = (
        {"alpha": draw.number(0.1, 0.2)}
        if kind in ("LeakyRelu", "HardSigmoid", "Elu", "Celu")
        else {}
    )
    return helper.make_node(kind, [x], ["y"], **more)


def _pair(draw: _Drawing, x: str) -> onnx.NodeProto:
    kind = draw.rng.choice(
        ("Add", "Add", "Mul", "Sub", "Div", "Max", "Min", "Pow", "PRelu", "Mod", "Equal", "Greater")
    )
    shape = draw.shapes[x]
    other = draw.rng.choice([
        x, *(name for name, one in draw.shapes.items() if one == shape), draw.constant(),
        draw.constant(*shape[1:]),
        draw.constant(*(size if place == 1 else 1 for place, size in enumerate(shape))),
    ])  # fmt: skip
    pair = [x, other]
    if kind != "PRelu" and draw.rng.random() < 0.3:
        pair.reverse()
    return helper.make_node(kind, pair, ["y"], **({"fmod": 1} if kind == "Mod" else {}))


@dataclass(frozen=True)
class _Movement:
    """Draws for an operator that changes the shape of ``x``."""

    x: str
    shape: tuple[int, ...]
    axis: int
    order: list[int]
    starts: list[int]
    ends: list[int]
    wanted: list[list[int]]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def node(self, kind: str, *operands: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(kind, [self.x, *operands], ["y"], **attributes)


def _shaped(draw: _Drawing, x: str) -> onnx.NodeProto:
    shape = draw.shapes[x]
    axis = draw.integer(*range(-len(shape), len(shape)), 0)
    order = draw.rng.sample(range(len(shape)), len(shape))
    wanted = [
        [-1],
        [1, -1],
        list(shape[::-1]),
        [int(np.prod(shape))],
        [0, -1],
        [*shape, 1],
        [-1, draw.integer(1, 2, 3)],
    ]
    starts = draw.integers(1, 0, 1)
    ends = draw.integers(1, 1, 2, -1)
    movement = _Movement(x, shape, axis, order, starts, ends, wanted)
    return _MOVEMENTS[draw.rng.randrange(len(_MOVEMENTS))](draw, movement)


def _reshape(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    return move.node("Reshape", draw.stored(draw.rng.choice(move.wanted), np.int64))


def _transpose(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    return move.node("Transpose", perm=[draw.integer(one) for one in move.order])


def _flatten(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    return move.node("Flatten", axis=move.axis)


def _concat(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    other = draw.rng.choice((move.x, draw.constant(*move.shape)))
    return move.node("Concat", other, axis=move.axis)


def _slice(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    starts = draw.stored(move.starts, np.int64)
    ends = draw.stored(move.ends, np.int64)
    axes = draw.stored(draw.integers(1, move.axis), np.int64)
    return move.node("Slice", starts, ends, axes, draw.stored(draw.integers(1, 1, 2), np.int64))


def _pad(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    pads = draw.stored(draw.integers(2 * move.rank, 0, 0, 1), np.int64)
    return move.node("Pad", pads, mode=draw.rng.choice(("constant", "reflect", "edge")))


def _reduce(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    kind = draw.rng.choice(
        ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd")
    )
    axes = draw.stored(draw.integers(1, *range(move.rank), 0), np.int64)
    return move.node(kind, axes, keepdims=draw.integer(0, 1))


def _along_axis(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    kind = draw.rng.choice(("Softmax", "LogSoftmax", "Hardmax", "ArgMax"))
    return move.node(kind, axis=move.axis)


def _gather(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    one = draw.rng.random() < 0.5
    index = draw.stored(draw.integer(0, -1) if one else draw.integers(2, 0, 1), np.int64)
    return move.node("Gather", index, axis=move.axis)


def _resize(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    factors = [draw.number(1.0, 2.0, 0.5) for _ in range(move.rank - 2)]
    scales = draw.stored([1.0, 1.0, *factors], np.float32)
    mode = draw.rng.choice(("nearest", "linear", "cubic"))
    how = draw.rng.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    return move.node("Resize", "", scales, mode=mode, coordinate_transformation_mode=how)


def _clip(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    low, high = (
        draw.stored(draw.number(*usual), np.float32) for usual in ((0.0, -1.0), (6.0, 1.0))
    )
    return move.node("Clip", low, high)


def _repeat(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    repeats = draw.stored(draw.integers(move.rank, 1, 1, 2), np.int64)
    return move.node(draw.rng.choice(("Tile", "Expand")), repeats)


def _blocks(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    kind = draw.rng.choice(("SpaceToDepth", "DepthToSpace"))
    return move.node(kind, blocksize=draw.integer(1, 2))


def _squeeze(draw: _Drawing, move: _Movement) -> onnx.NodeProto:
    axes = draw.stored(draw.integers(1, 0, 1), np.int64)
    return move.node(draw.rng.choice(("Squeeze", "Unsqueeze")), axes)


_MOVEMENTS: tuple[Callable[[_Drawing, _Movement], onnx.NodeProto], ...] = (
    _reshape, _transpose, _flatten, _concat, _slice, _pad, _reduce, _along_axis, _gather, _resize,
    _clip, _repeat, _blocks, _squeeze,
)  # fmt: skip


def _matrix(draw: _Drawing, x: str) -> onnx.NodeProto:
    shape = draw.shapes[x]
    rng = draw.rng
    outputs = rng.randint(1, 6)
    if len(shape) == 2 and rng.random() < 0.6:
        turned = draw.integer(0, 1)
        weights = draw.constant(outputs, shape[1]) if turned else draw.constant(shape[1], outputs)
        bias = [draw.constant(outputs)] if rng.random() < 0.6 else []
        return helper.make_node(
            "Gemm", [x, weights, *bias], ["y"], transB=turned, alpha=draw.number(1.0, 0.5)
        )
    return helper.make_node("MatMul", [x, draw.constant(shape[-1] if shape else 1, outputs)], ["y"])


def _normal(draw: _Drawing, x: str) -> onnx.NodeProto:
    channels = draw.shapes[x][1]
    scale, bias, mean = (draw.constant(channels) for _ in range(3))
    variance = draw.stored(np.full(channels, draw.number(1.0, 0.5)), np.float32)
    epsilon = draw.number(1e-5, 1e-3)
    match draw.rng.randrange(3):
        case 0:
            inputs = [x, scale, bias, mean, variance]
            return helper.make_node("BatchNormalization", inputs, ["y"], epsilon=epsilon)
        case 1:
            return helper.make_node(
                "InstanceNormalization", [x, scale, bias], ["y"], epsilon=epsilon
            )
        case _:
            wide = draw.shapes[x][-1]
            return helper.make_node(
                "LayerNormalization",
                [x, draw.constant(wide), draw.constant(wide)],
                ["y"],
                epsilon=epsilon,
            )


def _recurrent(draw: _Drawing, x: str) -> onnx.NodeProto:
    steps, _, wide = draw.shapes[x]
    assert steps is not None
    kind, gates = draw.rng.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    hidden = draw.rng.randint(1, 4)
    weights = [draw.constant(1, gates * hidden, one) for one in (wide, hidden)]
    return helper.make_node(kind, [x, *weights], ["y"], hidden_size=draw.integer(hidden))


def _quantised(draw: _Drawing, x: str) -> onnx.NodeProto:
    scale = draw.stored(draw.number(0.1, 0.02), np.float32)
    zero = draw.stored(draw.rng.choice((0, 3)), np.int8)
    draw.nodes.append(helper.make_node("QuantizeLinear", [x, scale, zero], [f"q{len(draw.nodes)}"]))
    return helper.make_node("DequantizeLinear", [draw.nodes[-1].output[0], scale, zero], ["y"])


_ANY = (_single, _single, _pair, _pair, _shaped, _shaped, _shaped, _matrix, _quantised)
_PLANES = (_conv, _conv, _conv, _pool, _transposed, _normal)
_Family = Callable[[_Drawing, str], onnx.NodeProto]


def onnx_model(folder: Path, rng: random.Random) -> None:
    """Write ``drawn.onnx`` with up to ten nodes, each after any earlier tensor.

    About every second tensor is an output.
    """
    draw = _Drawing(rng)
    shape = rng.choice(((1, 3, 8, 8), (1, 4, 5, 7), (2, 3, 6, 6), (1, 6), (1, 5, 6), (4, 1, 6)))
    draw.shapes["x"] = shape
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    for _ in range(rng.choice((1, 2, 4, 7, 10))):
        x = rng.choice([*draw.shapes, list(draw.shapes)[-1]])
        families: list[_Family] = list(_ANY)
        if len(draw.shapes[x]) == 4:
            families += _PLANES
        if len(draw.shapes[x]) == 3:
            families.append(_recurrent)
        before = len(draw.nodes)
        node = rng.choice(families)(draw, x)
        node.output[0] = f"t{len(draw.nodes)}"
        node.name = f"n{len(draw.nodes)}"
        made = _shape(draw, inputs, node)
        if made is None and rng.random() >= draw.odd:
            del draw.nodes[before:]
            continue
        draw.nodes.append(node)
        draw.shapes[node.output[0]] = made or draw.shapes[x]
    _save(folder, draw, inputs)


def _shape(
    draw: _Drawing, inputs: list[onnx.ValueInfoProto], node: onnx.NodeProto
) -> tuple[int, ...] | None:
    """Return the shape of the node's result in float, or None if the node is invalid."""
    wanted = [onnx.ValueInfoProto(name=node.output[0])]
    graph = helper.make_graph([*draw.nodes, node], "g", inputs, wanted, draw.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    # ONNX's own counts to the end with a step of 2^62
    whole = all(one.op_type != "Slice" for one in graph.node)
    try:
        found = (
            onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=whole)
            .graph.output[0]
            .type
        )
    except (onnx.shape_inference.InferenceError, ValueError):
        return None
    kind = found.tensor_type
    dims = tuple(one.dim_value for one in kind.shape.dim)
    small = 0 < np.prod(dims, dtype=float) < 1 << 16
    return (
        dims if kind.elem_type == TensorProto.FLOAT and kind.HasField("shape") and small else None
    )


def _save(folder: Path, draw: _Drawing, inputs: list[onnx.ValueInfoProto]) -> None:
    rng = draw.rng
    last = list(draw.shapes)[-1]
    outputs = [
        name for name in draw.shapes if name != "x" and (name == last or rng.random() < 0.5)
    ] or ["x"]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, draw.shapes[name])
        for name in outputs
    ]
    graph = helper.make_graph(draw.nodes, "drawn", inputs, infos, draw.constants)
    if rng.random() < 0.1:
        _rename(graph, rng.choice(list(draw.shapes)), rng.choice(NAMES))
    if rng.random() < 0.1:
        graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    if rng.random() < draw.odd:
        graph.input[0].type.tensor_type.elem_type = rng.randrange(1, 22)
    opset = rng.choice((13, 17, 21, 21, 21))
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10),
        folder / "drawn.onnx",
    )


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name == old:
                    names[place] = new
        if node.name == "n0":
            node.name = new
    for info in (*graph.input, *graph.output):
        info.name = new if info.name == old else info.name
