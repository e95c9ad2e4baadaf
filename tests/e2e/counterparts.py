"""Run ONNX counterparts of the operators that Arm's Vela 5.2 places on Ethos-U.

``python -m tests.e2e.counterparts`` quantises and runs every one on the newest machine, compares it
with ONNX Runtime, and prints the last section of ``docs/validation.md``. The list is that of ``vela
--supported-ops-report`` (version 5.2.0, TensorFlow Lite).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from byoc.importing import import_model
from byoc.operators.onnx_view import BOUNDARIES
from isa.arch import Arch
from isa.errors import InputError
from tests.e2e.graph_builder import GraphBuilder
from tests.e2e.graph_steps import Tensor
from tests.e2e.harness import compare

PLANE = (1, 4, 6, 8)
ONLY_U85 = frozenset({
    "ASSIGN_VARIABLE", "CAST", "DIV", "EQUAL", "GATHER", "GREATER", "GREATER_EQUAL", "LESS",
    "LESS_EQUAL",
    "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "NOT_EQUAL", "READ_VARIABLE", "REDUCE_ALL",
    "REDUCE_ANY", "SCATTER_ND",
    "SELECT", "SELECT_V2",
})  # fmt: skip
"""What U55 and U65 do not place."""
NO_COUNTERPART = {
    "ASSIGN_VARIABLE": "ONNX networks have no variables: state is an input and an output",
    "READ_VARIABLE": "ONNX networks have no variables: state is an input and an output",
}

Build = Callable[[GraphBuilder, Tensor, Tensor], None]


def _plain(op: str, **attributes: Any) -> Build:
    return lambda b, x, y: _done(b.node(op, [x], x.shape, **attributes))


def _pair(op: str) -> Build:
    return lambda b, x, y: _done(b.node(op, [x, y], x.shape))


def _done(made: list[Tensor]) -> None:
    del made


def _convolution(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node("Conv", [x, b.normal(8, 4, 3, 3)], (1, 8, 6, 8), pads=[1, 1, 1, 1])


def _depthwise(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node("Conv", [x, b.normal(8, 1, 3, 3)], (1, 8, 6, 8), pads=[1, 1, 1, 1], group=4)


def _transposed(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node("ConvTranspose", [x, b.normal(4, 3, 3, 3)], (1, 3, 13, 17), strides=[2, 2])


def _fully_connected(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node("Gemm", [b.reshaped(x, (4, 48)), b.normal(5, 48), b.normal(5)], (4, 5), transB=1)


def _batch_matmul(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node(
        "MatMul", [x, b.node("Transpose", [y], (1, 4, 8, 6), perm=[0, 1, 3, 2])[0]], (1, 4, 6, 6)
    )


def _clipped(low: float, high: float) -> Build:
    return lambda b, x, y: _done(b.node("Clip", [x, b.constant(low), b.constant(high)], x.shape))


def _pool(op: str) -> Build:
    return lambda b, x, y: _done(b.node(op, [x], (1, 4, 3, 4), kernel_shape=[2, 2], strides=[2, 2]))


def _joined(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node("Concat", [x, y], (1, 4, 12, 8), axis=2)


def _packed(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    parts = [b.node("Unsqueeze", [item, b.integers(2)], (1, 4, 1, 6, 8))[0] for item in (x, y)]
    b.node("Concat", list(parts), (1, 4, 2, 6, 8), axis=2)


def _unpacked(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    for part in b.node("Split", [x, b.integers(1, 1, 1, 1)], *([(1, 1, 6, 8)] * 4), axis=1):
        b.node("Squeeze", [part, b.integers(1)], (1, 6, 8))


def _split(*sizes: int) -> Build:
    return lambda b, x, y: _done(
        b.node("Split", [x, b.integers(*sizes)], *[(1, 4, 6, n) for n in sizes], axis=3)
    )


def _comparison(op: str) -> Build:
    def build(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
        b.node("Where", [b.node(op, [x, y], x.shape)[0], x, y], x.shape)

    return build


def _logical(op: str, first: str = "Greater") -> Build:
    def build(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
        flags: list[Tensor | str] = [b.node(first, [x, y], x.shape)[0]]
        if op != "Not":
            flags += b.node("Less", [x, b.constant(0.5)], x.shape)
        b.node("Where", [b.node(op, flags, x.shape)[0], x, y], x.shape)

    return build


def _any(op: str) -> Build:
    def build(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
        flags = b.node(
            "Cast", [b.node("Greater", [x, y], x.shape)[0]], x.shape, to=TensorProto.FLOAT
        )[0]
        b.node(op, [flags, b.integers(3)], (1, 4, 6, 1))

    return build


def _reduction(op: str) -> Build:
    return lambda b, x, y: _done(b.node(op, [x, b.integers(2, 3)], (1, 4, 1, 1)))


def _argmax(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node("ArgMax", [x], (1, 1, 6, 8), axis=1)


def _padded(mode: str, *value: float) -> Build:
    def build(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
        filled = [b.constant(number) for number in value]
        b.node("Pad", [x, b.integers(0, 0, 1, 2, 0, 0, 1, 1), *filled], (1, 4, 8, 11), mode=mode)

    return build


def _resized(mode: str) -> Build:
    def build(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
        scales = b.constant(np.array([1, 1, 2, 2], np.float32))
        b.node("Resize", [x, "", scales], (1, 4, 12, 16), mode=mode, nearest_mode="floor")

    return build


def _sliced(*numbers: tuple[int, int, int, int]) -> Build:
    def build(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
        starts, stops, axes, steps = (b.integers(*row) for row in zip(*numbers, strict=True))
        shape = list(x.shape)
        for start, stop, axis, step in numbers:
            shape[axis] = len(range(x.shape[axis])[start:stop:step])
        b.node("Slice", [x, starts, stops, axes, steps], tuple(shape))

    return build


def _lstm(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    steps = b.reshaped(x, (6, 1, 32))
    b.node(
        "LSTM",
        [steps, b.normal(1, 32, 32, scale=0.2), b.normal(1, 32, 8, scale=0.2)],
        (6, 1, 1, 8),
        hidden_size=8,
    )


def _squared_difference(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node("Pow", [b.node("Sub", [x, y], x.shape)[0], b.constant(2.0)], x.shape)


def _root(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    positive = b.node("Clip", [x, b.constant(0.1), b.constant(9.0)], x.shape)[0]
    b.node("Reciprocal", [b.node("Sqrt", [positive], x.shape)[0]], x.shape)


def _logarithm(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node("Log", [b.node("Clip", [x, b.constant(0.1), b.constant(9.0)], x.shape)[0]], x.shape)


def _quotient(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node("Div", [x, b.node("Clip", [y, b.constant(0.5), b.constant(9.0)], x.shape)[0]], x.shape)


def _gathered(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    b.node("Gather", [x, b.integers(3, 0, 5)], (1, 4, 3, 8), axis=2)


def _scattered(b: GraphBuilder, x: Tensor, y: Tensor) -> None:
    indices = b.constant(np.array([[0, 2], [0, 1]], np.int64))
    rows = b.node("Slice", [y, b.integers(0), b.integers(2), b.integers(1)], (1, 2, 6, 8))[0]
    b.node("ScatterND", [x, indices, b.reshaped(rows, (2, 6, 8))], x.shape)


COUNTERPARTS: Mapping[str, tuple[str, Build]] = {
    "ABS": ("Abs", _plain("Abs")),
    "ADD": ("Add", _pair("Add")),
    "ARG_MAX": ("ArgMax", _argmax),
    "AVERAGE_POOL_2D": ("AveragePool", _pool("AveragePool")),
    "BATCH_MATMUL": ("MatMul of two activations", _batch_matmul),
    "CAST": ("Cast", _any("ReduceMax")),
    "CONCATENATION": ("Concat", _joined),
    "CONV_2D": ("Conv", _convolution),
    "DEPTHWISE_CONV_2D": ("Conv in groups", _depthwise),
    "DIV": ("Div", _quotient),
    "ELU": ("Elu", _plain("Elu")),
    "EQUAL": ("Equal, Where", _comparison("Equal")),
    "EXP": ("Exp", _plain("Exp")),
    "EXPAND_DIMS": ("Unsqueeze", _packed),
    "FULLY_CONNECTED": ("Gemm", _fully_connected),
    "GATHER": ("Gather", _gathered),
    "GELU": ("Gelu", _plain("Gelu")),
    "GREATER": ("Greater, Where", _comparison("Greater")),
    "GREATER_EQUAL": ("GreaterOrEqual, Where", _comparison("GreaterOrEqual")),
    "HARD_SWISH": ("HardSwish", _plain("HardSwish")),
    "LEAKY_RELU": ("LeakyRelu", _plain("LeakyRelu", alpha=0.1)),
    "LESS": ("Less, Where", _comparison("Less")),
    "LESS_EQUAL": ("LessOrEqual, Where", _comparison("LessOrEqual")),
    "LOG": ("Log", _logarithm),
    "LOGICAL_AND": ("And", _logical("And")),
    "LOGICAL_NOT": ("Not", _logical("Not")),
    "LOGICAL_OR": ("Or", _logical("Or")),
    "LOGISTIC": ("Sigmoid", _plain("Sigmoid")),
    "MAXIMUM": ("Max", _pair("Max")),
    "MAX_POOL_2D": ("MaxPool", _pool("MaxPool")),
    "MEAN": ("ReduceMean", _reduction("ReduceMean")),
    "MINIMUM": ("Min", _pair("Min")),
    "MIRROR_PAD": ("Pad, reflect", _padded("reflect")),
    "MUL": ("Mul", _pair("Mul")),
    "NEG": ("Neg", _plain("Neg")),
    "NOT_EQUAL": ("Equal, Not, Where", _logical("Not", "Equal")),
    "PACK": ("Unsqueeze, Concat", _packed),
    "PAD": ("Pad, constant 0", _padded("constant")),
    "PADV2": ("Pad, any constant", _padded("constant", 0.5)),
    "PRELU": ("PRelu", lambda b, x, y: _done(b.node("PRelu", [x, b.normal(4, 1, 1)], x.shape))),
    "QUANTIZE": ("QuantizeLinear", _joined),
    "REDUCE_ALL": ("ReduceMin of flags", _any("ReduceMin")),
    "REDUCE_ANY": ("ReduceMax of flags", _any("ReduceMax")),
    "REDUCE_MAX": ("ReduceMax", _reduction("ReduceMax")),
    "REDUCE_MIN": ("ReduceMin", _reduction("ReduceMin")),
    "RELU": ("Relu", _plain("Relu")),
    "RELU6": ("Clip(0, 6)", _clipped(0.0, 6.0)),
    "RELU_0_TO_1": ("Clip(0, 1)", _clipped(0.0, 1.0)),
    "RELU_N1_TO_1": ("Clip(-1, 1)", _clipped(-1.0, 1.0)),
    "RESHAPE": ("Reshape", _fully_connected),
    "RESIZE_BILINEAR": ("Resize, linear", _resized("linear")),
    "RESIZE_NEAREST_NEIGHBOR": ("Resize, nearest", _resized("nearest")),
    "REVERSE_V2": ("Slice of step -1", _sliced((-1, -100, 3, -1))),
    "RSQRT": ("Sqrt, Reciprocal", _root),
    "SCATTER_ND": ("ScatterND", _scattered),
    "SELECT": ("Where", _comparison("Greater")),
    "SELECT_V2": ("Where", _comparison("Less")),
    "SLICE": ("Slice", _sliced((1, 3, 1, 1), (2, 6, 2, 1))),
    "SOFTMAX": ("Softmax", _plain("Softmax", axis=-1)),
    "SPLIT": ("Split in equal parts", _split(4, 4)),
    "SPLIT_V": ("Split", _split(3, 5)),
    "SQUARED_DIFFERENCE": ("Sub, Pow", _squared_difference),
    "SQUEEZE": ("Squeeze", _unpacked),
    "STRIDED_SLICE": ("Slice with steps", _sliced((0, 6, 2, 2), (1, 8, 3, 3))),
    "SUB": ("Sub", _pair("Sub")),
    "SUM": ("ReduceSum", _reduction("ReduceSum")),
    "TANH": ("Tanh", _plain("Tanh")),
    "TILE": (
        "Tile",
        lambda b, x, y: _done(b.node("Tile", [x, b.integers(1, 2, 1, 3)], (1, 8, 6, 24))),
    ),
    "TRANSPOSE": (
        "Transpose",
        lambda b, x, y: _done(b.node("Transpose", [x], (1, 6, 8, 4), perm=[0, 2, 3, 1])),
    ),
    "TRANSPOSE_CONV": ("ConvTranspose", _transposed),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": ("LSTM", _lstm),
    "UNPACK": ("Split, Squeeze", _unpacked),
}


@dataclass(frozen=True)
class Outcome:
    """Placement of the ONNX counterpart of ``operator``.

    ``reason`` is empty if no node of it ran on the CPU.
    """

    operator: str
    counterpart: str
    elements: int
    mismatches: int
    reason: str


def network(operator: str) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """The ONNX counterpart of a TensorFlow Lite operator as a float model, and an input for it."""
    builder = GraphBuilder(0)
    inputs = [Tensor("x", PLANE), Tensor("y", PLANE)]
    builder.inputs = inputs
    builder.tensors = list(inputs)
    COUNTERPARTS[operator][1](builder, *inputs)
    used = [item for item in inputs if item.name in builder.read]
    results = [
        item for item in builder.tensors if item.name not in builder.read and item not in inputs
    ]
    whole = {"ArgMax": TensorProto.INT64}
    graph = helper.make_graph(
        builder.nodes,
        operator.lower(),
        [helper.make_tensor_value_info(item.name, TensorProto.FLOAT, item.shape) for item in used],
        [
            helper.make_tensor_value_info(
                item.name, whole.get(builder.nodes[-1].op_type, TensorProto.FLOAT), item.shape
            )
            for item in results
        ],
        builder.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {
        item.name: builder.random.standard_normal(item.shape).astype(np.float32) for item in used
    }
    return model, feeds


def run(operator: str) -> Outcome:
    """Quantise the counterpart, run it on the newest machine, and hold it to ONNX Runtime."""
    if operator in NO_COUNTERPART:
        return Outcome(operator, "none", 0, 0, NO_COUNTERPART[operator])
    name = COUNTERPARTS[operator][0]
    model, feeds = network(operator)
    try:
        package = import_model(model, operator.lower(), calibration=[feeds])
    except InputError as error:
        return Outcome(operator, name, 0, 0, str(error))
    done = compare(package, feeds, Arch(isa="v4"))
    fallen = [
        place
        for place in done.partition.placement
        if place.on == "cpu" and place.op_type not in BOUNDARIES
    ]
    reason = "; ".join(dict.fromkeys(f"{place.op_type}: {place.reason}" for place in fallen))
    return Outcome(operator, name, done.elements, done.mismatches, reason)


def all_outcomes() -> list[Outcome]:
    """Every operator's, by name."""
    return [run(operator) for operator in sorted({*COUNTERPARTS, *NO_COUNTERPART})]


def page(outcomes: list[Outcome]) -> str:
    """The last section of ``docs/validation.md``: the operators side by side."""
    small = [outcome for outcome in outcomes if outcome.operator not in ONLY_U85]
    lines = [
        "## Operators side by side",
        "",
        f"Arm's compiler Vela 5.2 places {len(small)} TensorFlow Lite operators on the "
        "accelerators Ethos-U55",
        f"and U65, and {len(outcomes)} on U85. Our accelerator with ISA v4 executes "
        f"{_placed(small)} of the {len(small)} and {_placed(outcomes)} of the",
        f"{len(outcomes)} as quantised ONNX operators. Every element of their results equals that "
        "of ONNX Runtime.",
        "",
        "The table names the ONNX operators that correspond to each TensorFlow Lite operator. In "
        "the column",
        '"here", "yes" means that all of them run on our accelerator. `python -m '
        "tests.e2e.counterparts`",
        "generates this section; do not edit it. [Supported operators](support.md) lists all other "
        "operators.",
        "",
        "| Vela | U55 | U85 | ONNX | here |",
        "|---|---|---|---|---|",
    ]
    for found in outcomes:
        small_too = "" if found.operator in ONLY_U85 else "yes"
        here = f"CPU: {found.reason}" if found.reason else "yes"
        lines.append(f"| {found.operator} | {small_too} | yes | {found.counterpart} | {here} |")
    return "\n".join(lines) + "\n"


def _placed(outcomes: list[Outcome]) -> int:
    return sum(not outcome.reason for outcome in outcomes)


if __name__ == "__main__":
    sys.stdout.write(page(all_outcomes()))
