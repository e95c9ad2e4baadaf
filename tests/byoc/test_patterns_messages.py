"""Every requirement and constraint, by the exact text that the user reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import onnx
import pytest

from byoc.frontend.onnx.importer import import_graph
from byoc.operators.registry import built_in
from byoc.operators.support import support_table
from byoc.options import Grouped
from byoc.partition import partition
from byoc.target import Target
from tests.byoc.oracle_check import V1, V2, placed
from tests.byoc.small_models import ModelBuilder, convolution_unit, unary_unit

ONES = np.ones((6, 4, 3, 3), np.int8)


def _reason(model: onnx.ModelProto, target: Target = V2, node: str = "op") -> str:
    return placed(partition(import_graph(model), target))[node]


def _conv(**options: Any) -> onnx.ModelProto:
    options = {"weights": ONES, "shape": (1, 4, 5, 6), **options}
    return convolution_unit(options.pop("weights"), options.pop("shape"), **options)


def _qlinear_conv(**dtypes: str) -> onnx.ModelProto:
    """QLinearConv whose weights, or the data, are of chosen element types."""
    builder = ModelBuilder()
    data, weights = dtypes.get("data", "int8"), dtypes.get("weights", "int8")
    x = builder.input("x", (1, 4, 5, 6), data)
    w = builder.input("w", (6, 4, 3, 3), weights) if dtypes.get("variable") else builder.constant(ONES, weights, "w")
    scale = builder.constant(0.1, "float32")
    zeros = [builder.constant(0, kind) for kind in (data, weights, "int8")]
    builder.node("QLinearConv", x, scale, zeros[0], w, scale, zeros[1], scale, zeros[2], name="op", result="y")
    builder.output("y", "int8")
    return builder.model()


def _constant_data() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.weights(np.ones((1, 4, 5, 6), np.int8), 0.1, name="x")
    result = builder.node("Conv", x, builder.weights(ONES, 0.1), name="op")
    builder.quantize(result, 0.1, 0, result="y")
    builder.output("y", "int8")
    return builder.model()


def _wide_data() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int32"), 0.1, 0, "int32")
    builder.quantize(builder.node("Relu", x, name="op"), 0.1, result="y")
    builder.output("y", "int8")
    return builder.model()


def _mixed(op_type: str, *kinds: str, **attributes: Any) -> onnx.ModelProto:
    """A unit whose operands have the first element types and whose result has the last."""
    builder = ModelBuilder()
    operands = [
        builder.dequantize(builder.input(f"x{i}", (1, 4, 5, 6), kind), 0.1, 0, kind)
        for i, kind in enumerate(kinds[:-1])
    ]
    builder.quantize(builder.node(op_type, *operands, name="op", **attributes), 0.1, 0, kinds[-1], result="y")
    builder.output("y", kinds[-1])
    return builder.model()


def _wide_result() -> onnx.ModelProto:
    """A requantisation to uint16, which no pattern reads."""
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int8"), 0.1)
    builder.quantize(builder.node("Relu", x, name="op"), 0.1, 0, "uint16", result="y")
    builder.output("y", "uint16")
    return builder.model()


def _per_channel_data() -> onnx.ModelProto:
    builder = ModelBuilder()
    scales, zeros = [0.1, 0.2, 0.3, 0.4], [0, 0, 0, 0]
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int8"), scales, zeros, axis=1)
    builder.quantize(builder.node("Conv", x, builder.weights(ONES, 0.1), name="op"), 0.1, 0, result="y")
    builder.output("y", "int8")
    return builder.model()


def _pair(
    op_type: str, *shapes: tuple[int, ...], constant: bool = False, scales: tuple[float, ...] = (0.1, 0.1, 0.1)
) -> Any:
    builder = ModelBuilder()
    names = [builder.input(f"x{i}", shape, "int8") for i, shape in enumerate(shapes)]
    if constant:
        names[-1] = builder.constant(np.ones(shapes[-1]), "int8", "k")
        builder.inputs.pop()
    operands = [builder.dequantize(name, scale) for name, scale in zip(names, scales, strict=False)]
    attributes = {"axis": 1} if op_type == "Concat" else {}
    builder.quantize(builder.node(op_type, *operands, name="op", **attributes), scales[2], result="y")
    builder.output("y", "int8")
    return builder.model()


def _gemm(right: Any = None, bias: Any = None, bias_scale: float = 0.02, axis: int = 1, **attributes: Any) -> Any:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (7, 7), "int8"), 0.1)
    matrix = np.ones((7, 7), np.int8) if right is None else right
    scales = np.full(matrix.shape[axis], 0.2) if axis == 0 else 0.2
    operands = [x, builder.weights(matrix, scales, axis=axis)]
    if bias is not None:
        operands.append(builder.weights(bias, bias_scale, name="b"))
    op_type = "MatMul" if matrix.ndim > 2 else "Gemm"
    builder.quantize(builder.node(op_type, *operands, name="op", **attributes), 0.1, result="y")
    builder.output("y", "int8")
    return builder.model()


def _with_run_time_bias() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int8"), 0.1)
    bias = builder.dequantize(builder.input("b", (6,), "int32"), 0.01, 0, "int32")
    builder.quantize(builder.node("Conv", x, builder.weights(ONES, 0.1), bias, name="op"), 0.1, result="y")
    builder.output("y", "int8")
    return builder.model()


def _with_offset_bias() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int8"), 0.1)
    bias = builder.weights(np.zeros(6, np.int32), 0.01, 5)
    builder.quantize(builder.node("Conv", x, builder.weights(ONES, 0.1), bias, name="op"), 0.1, result="y")
    builder.output("y", "int8")
    return builder.model()


def _run_time_bounds() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.input("x", (3, 7), "int8")
    low = builder.input("low", (), "int8")
    builder.node("Clip", x, low, name="op", result="y")
    builder.output("y", "int8")
    return builder.model()


def _large_channel_conv() -> onnx.ModelProto:
    """2065 · 64 = 132,160 taps of 127 with inputs down to -128: 128 · 127 · 132,160 is just above 2^31 - 1."""
    return _conv(weights=np.full((1, 2065, 8, 8), 127, np.int8), shape=(1, 2065, 8, 8), before=(0.05, 0))


POOL = {"kernel_shape": [3, 3]}
UINT8_ZEROS = np.arange(125, 131)
MESSAGES: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "rank": (
        lambda: _conv(weights=np.ones((6, 4, 1, 1, 1), np.int8), shape=(1, 4, 5, 6, 7)),
        "the window has 3 dimensions; only 1-D and 2-D windows run on the accelerator",
    ),
    "constant data": (_constant_data, "input 'x' is constant; the first operand is computed at run time"),
    "input type": (
        _wide_data,
        "input 'x' has element type int32; only int8 and uint8 tensors run on the accelerator",
    ),
    "output type": (
        _wide_result,
        "output 'y' has element type uint16; results are int8 or uint8, or int32 of an integer product",
    ),
    "weight type": (
        lambda: _qlinear_conv(weights="int16"),
        "weights 'w' have element type int16; only int8 weights, or uint8 weights around 128, run on the accelerator",
    ),
    "pool types": (
        lambda: _mixed("AveragePool", "int8", "uint8", **POOL),
        "input is int8, output is uint8; input and output have the same element type",
    ),
    "movement types": (
        lambda: _mixed("Flatten", "int8", "uint8"),
        "'x0' is int8, 'y' is uint8; inputs and output must have the same quantisation",
    ),
    "operand types": (
        lambda: _mixed("Add", "int8", "uint8", "int8"),
        "element types are int8, uint8, int8; operands and result have the same element type",
    ),
    "window in the padding": (
        lambda: unary_unit("AveragePool", (1, 3, 6, 7), pads=[3, 0, 0, 0], **POOL),
        "a window along spatial axis 0 lies in the padding alone (pads (3, 0, 0, 0)); "
        "every window covers at least one element of the input",
    ),
    "per channel": (
        _per_channel_data,
        "tensor 'x' is quantised per channel along axis 1; activations have one scale and one zero point a tensor",
    ),
    "scale": (
        lambda: _conv(after=(0.0, 0)),
        "tensor 'y' has the scale 0; scales are positive and finite",
    ),
    "empty": (
        lambda: _conv(shape=(0, 4, 5, 6)),
        "tensor 'x' of shape (0, 4, 5, 6) is empty; tensors have at least one element",
    ),
    "run-time weights": (
        lambda: _qlinear_conv(variable="yes"),
        "weights 'w' are computed at run time; only constant weights run on the accelerator",
    ),
    "asymmetric weights": (
        lambda: _conv(weight_scale=[0.1] * 6, weight_zero_point=[0, 0, 3, 0, 0, 0]),
        "weights have a zero point: 3 (channel 2); only symmetric weights run on the accelerator",
    ),
    "asymmetric weights per tensor": (
        lambda: _conv(weight_zero_point=3),
        "weights have a zero point: 3 (channel 0); only symmetric weights run on the accelerator",
    ),
    "asymmetric uint8 weights": (
        lambda: _conv(weights=ONES.astype(np.uint8), weight_scale=[0.1] * 6, weight_zero_point=UINT8_ZEROS),
        "weights have a zero point: 125 (channel 0); only symmetric weights run on the accelerator",
    ),
    "weight axis": (
        lambda: _gemm(axis=0),
        "weights are quantised along axis 0, output channels are axis 1; "
        "weights have one scale, or one an output channel",
    ),
    "run-time bias": (
        _with_run_time_bias,
        "bias 'b' is computed at run time; the bias is constant, int32, and has one element an output channel",
    ),
    "bias type": (
        lambda: _conv(bias=np.ones(6, np.int8)),
        "bias 'b' has element type int8; the bias is constant, int32, and has one element an output channel",
    ),
    "bias shape": (
        lambda: _gemm(bias=np.ones((7, 1), np.int32)),
        "bias 'b' has shape (7, 1) for 7 output channels; "
        "the bias is constant, int32, and has one element an output channel",
    ),
    "bias scale": (
        lambda: _conv(bias=np.ones(6, np.int32), bias_scale=0.002),
        "the bias has scale 0.00200000009 (channel 0), not 0.00100000005; "
        "the bias has zero point 0 and the scale of the accumulators, input scale × weight scale",
    ),
    "bias zero point": (
        _with_offset_bias,
        "the bias has zero point 5; "
        "the bias has zero point 0 and the scale of the accumulators, input scale × weight scale",
    ),
    "accumulator": (
        _large_channel_conv,
        "an accumulator could reach 2148392960; "
        "accumulators are int32: |bias| + 128 · Σ|weights| of every output channel is at most 2147483647",
    ),
    "window": (
        lambda: _conv(strides=[300, 1], shape=(1, 4, 5, 6)),
        "window parameter 300 does not fit a field below 256; "
        "sizes, kernel, strides, dilations and pads fit the instruction's fields",
    ),
    "width": (
        lambda: _conv(weights=np.ones((6, 4, 1), np.int8), shape=(1, 4, 70000)),
        "width 70000 does not fit a field below 65536; "
        "sizes, kernel, strides, dilations and pads fit the instruction's fields",
    ),
    "matrices": (
        lambda: _gemm(right=np.ones((7, 7, 7), np.int8)),
        "the weights have shape (7, 7, 7); the weights are one matrix",
    ),
    "transposed": (
        lambda: _gemm(transA=1),
        "transA is 1; only Gemm with transA = 0 and alpha = beta = 1 runs on the accelerator",
    ),
    "alpha": (
        lambda: _gemm(alpha=0.5),
        "alpha is 0.5; only Gemm with transA = 0 and alpha = beta = 1 runs on the accelerator",
    ),
    "beta": (
        lambda: _gemm(bias=np.ones(7, np.int32), beta=0.5),
        "beta is 0.5; only Gemm with transA = 0 and alpha = beta = 1 runs on the accelerator",
    ),
    "pool scales": (
        lambda: unary_unit("MaxPool", (1, 3, 6, 7), after=(0.25, 3), **POOL),
        "'x' has scale 0.0500000007 and zero point 3, 'y' has scale 0.25 and zero point 3; "
        "inputs and output must have the same quantisation",
    ),
    "average dilation": (
        lambda: unary_unit("AveragePool", (1, 3, 6, 7), dilations=[2, 1], **POOL),
        "dilations are (2, 1); average pooling has no dilation",
    ),
    "average rounded up": (
        lambda: unary_unit("AveragePool", (1, 3, 6, 7), strides=[2, 2], ceil_mode=1, count_include_pad=1, **POOL),
        "ceil_mode is 1; average pooling that counts padding does not round its output size up",
    ),
    "three operands": (
        lambda: _mixed("Max", "int8", "int8", "int8", "int8"),
        "it has 3 operands; element-wise operators have two operands",
    ),
    "broadcast": (
        lambda: _pair("Add", (3, 7), (7,)),
        "operands have the shapes (3, 7) and (7,); operands are not broadcast",
    ),
    "constant operand": (
        lambda: _pair("Add", (3, 7), (3, 7), constant=True),
        "input 'k' is constant; all operands are computed at run time",
    ),
    "far scales": (
        lambda: _pair("Add", (3, 7), (3, 7), scales=(1e30, 0.1, 1e-5)),
        "the scale of 'x0' is 1e+35 times that of 'y'; an operand's scale is at most 2^100 times that of the result",
    ),
    "comparison scales": (
        lambda: _pair("Max", (3, 7), (3, 7), scales=(0.125, 0.25, 0.25)),
        "'x0' has scale 0.125 and zero point 0, 'y' has scale 0.25 and zero point 0; "
        "inputs and output must have the same quantisation",
    ),
    "slices": (
        lambda: _pair("Concat", (2, 3), (2, 4)),
        "axis 1 of shape (2, 7) makes 2 slices of every operand; "
        "every operand is one dense slice of the result: the dimensions before the axis are 1",
    ),
    "bounds": (_run_time_bounds, "its bounds are computed at run time; the bounds of a Clip are constant"),
    "slope": (
        lambda: unary_unit("LeakyRelu", (3, 7), alpha=float("inf")),
        "alpha is inf; the slope of a LeakyRelu is finite",
    ),
    "order": (
        lambda: unary_unit("Transpose", (3, 7), perm=[1, 0]),
        "perm (1, 0) reorders shape (3, 7); "
        "only a Transpose that keeps the order of the dimensions longer than 1 costs nothing",
    ),
    "unknown operator": (lambda: unary_unit("Sigmoid", (3, 7)), "operator Sigmoid has no pattern"),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_reason(case: str) -> None:
    build, expected = MESSAGES[case]
    assert _reason(build()) == expected


def test_depthwise_needs_its_instruction_or_emulation() -> None:
    model = _conv(weights=np.ones((4, 1, 3, 3), np.int8), group=4)
    assert _reason(model, V1) == (
        "OP_DEPTH_CONV is not in ISA v1; "
        "a depthwise convolution runs on it or is emulated: use --isa v2 or --emulate-depthwise"
    )
    assert _reason(model, Target(frozenset(), "v1", emulate_depthwise=True)) == "dla"
    assert _reason(model, V2) == "dla"


def test_grouped_convolutions_run_as_they_are_told() -> None:
    model = _conv(weights=np.ones((4, 2, 3, 3), np.int8), group=2)
    machine = {name: Target(frozenset(names), name) for name, names in (("v1", ()), ("v3", ("OP_GROUP_CONV",)))}
    outcomes = {
        (name, grouped): _reason(model, replace(target, grouped=grouped))
        for name, target in machine.items()
        for grouped in get_args(Grouped)
    }
    kept = "it has 2 groups; with --grouped cpu, grouped convolutions stay on the CPU"
    missing = "OP_GROUP_CONV is not in ISA v1; with --grouped native, grouped convolutions run on it: use --isa v3"
    reasons = {("v1", "cpu"): kept, ("v3", "cpu"): kept, ("v1", "native"): missing}
    assert outcomes == {key: reasons.get(key, "dla") for key in outcomes}
    assert _reason(model, replace(machine["v3"], group_limit=2)) == (
        "groups 2 does not fit a field below 2; sizes, kernel, strides, dilations and pads fit the instruction's fields"
    )


def test_every_rule_is_one_line_and_in_the_support_table() -> None:
    rows = support_table()
    assert [row.family for row in rows] == [family.family for family in built_in().families]
    products = next(row for row in rows if row.family == "matmul")
    assert products.operators == ("MatMul", "Gemm", "QLinearMatMul", "MatMulInteger", "QGemm")
    for row in rows:
        assert row.operators
        assert all(rule and "\n" not in rule and not rule.endswith(".") for rule in row.rules), row.family
