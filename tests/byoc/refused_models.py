"""Models with one operator that no accelerator computes, each with the violated rule and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from tests.byoc.small_models import ModelBuilder, convolution_unit, unary_unit

ONES = np.ones((6, 4, 3, 3), np.int8)


def _conv(**options: Any) -> onnx.ModelProto:
    options = {"weights": ONES, "shape": (1, 4, 5, 6), **options}
    return convolution_unit(options.pop("weights"), options.pop("shape"), **options)


def _qlinear_conv(**dtypes: str) -> onnx.ModelProto:
    """QLinearConv whose weights, or the data, are of chosen element types."""
    builder = ModelBuilder()
    data = dtypes.get("data", "int8")
    weights = dtypes.get("weights", "int8")
    x = builder.input("x", (1, 4, 5, 6), data)
    w = (
        builder.input("w", (6, 4, 3, 3), weights)
        if dtypes.get("variable")
        else builder.constant(ONES, weights, "w")
    )
    scale = builder.constant(0.1, "float32")
    zeros = [builder.constant(0, kind) for kind in (data, weights, "int8")]
    builder.node(
        "QLinearConv",
        x,
        scale,
        zeros[0],
        w,
        scale,
        zeros[1],
        scale,
        zeros[2],
        name="op",
        result="y",
    )
    builder.output("y", "int8")
    return builder.model()


def _constant_data() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.weights(np.ones((1, 4, 5, 6), np.int8), 0.1, name="x")
    result = builder.node("Conv", x, builder.weights(ONES, 0.1), name="op")
    builder.quantize(result, 0.1, 0, result="y")
    builder.output("y", "int8")
    return builder.model()


def _constant_operand() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.weights(np.ones((3, 7), np.int8), 0.1, name="k")
    builder.quantize(builder.node("Relu", x, name="op"), 0.1, 0, result="y")
    builder.output("y", "int8")
    return builder.model()


def _wide_data() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int32"), 0.1, 0, "int32")
    builder.quantize(builder.node("Relu", x, name="op"), 0.1, result="y")
    builder.output("y", "int8")
    return builder.model()


def _flags(op_type: str, first: str, second: str, scale: float = 0.5) -> onnx.ModelProto:
    """Two tensors of which flags are made, or which they choose."""
    builder = ModelBuilder()
    a = builder.dequantize(builder.input("a", (3, 7), first), 0.5, 0, first)
    b = builder.dequantize(builder.input("b", (3, 7), second), scale, 0, second)
    if op_type == "Where":
        chosen = builder.node("Where", builder.input("c", (3, 7), "bool"), a, b, name="op")
        builder.output(builder.quantize(chosen, 0.5, 0, first, result="y"), first)
    else:
        builder.output(builder.node(op_type, a, b, name="op", result="y"), "bool")
    return builder.model()


def _mixed(op_type: str, *kinds: str, **attributes: Any) -> onnx.ModelProto:
    """A unit whose operands have the first element types and whose result has the last."""
    builder = ModelBuilder()
    operands = [
        builder.dequantize(builder.input(f"x{i}", (1, 4, 5, 6), kind), 0.1, 0, kind)
        for i, kind in enumerate(kinds[:-1])
    ]
    builder.quantize(
        builder.node(op_type, *operands, name="op", **attributes), 0.1, 0, kinds[-1], result="y"
    )
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
    scales = [0.1, 0.2, 0.3, 0.4]
    zeros = [0, 0, 0, 0]
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int8"), scales, zeros, axis=1)
    builder.quantize(
        builder.node("Conv", x, builder.weights(ONES, 0.1), name="op"), 0.1, 0, result="y"
    )
    builder.output("y", "int8")
    return builder.model()


def _pair(
    op_type: str,
    *shapes: tuple[int, ...],
    constant: bool = False,
    scales: tuple[float, ...] = (0.1, 0.1, 0.1),
) -> Any:
    builder = ModelBuilder()
    names = [builder.input(f"x{i}", shape, "int8") for i, shape in enumerate(shapes)]
    if constant:
        names[-1] = builder.constant(np.ones(shapes[-1]), "int8", "k")
        builder.inputs.pop()
    names = names * 2 if len(names) == 1 else names
    operands = [builder.dequantize(name, scale) for name, scale in zip(names, scales, strict=False)]
    attributes = {"axis": 1} if op_type == "Concat" else {}
    builder.quantize(
        builder.node(op_type, *operands, name="op", **attributes), scales[2], result="y"
    )
    builder.output("y", "int8")
    return builder.model()


def _gemm(
    right: Any = None,
    bias: Any = None,
    bias_scale: float = 0.02,
    axis: int = 1,
    rows: int = 7,
    **attributes: Any,
) -> Any:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (rows, 7), "int8"), 0.1)
    matrix = np.ones((7, 7), np.int8) if right is None else right
    scales = np.full(matrix.shape[axis], 0.2) if axis == 0 else 0.2
    operands = [x, builder.weights(matrix, scales, axis=axis)]
    if bias is not None:
        operands.append(builder.weights(bias, bias_scale, name="b"))
    op_type = "MatMul" if matrix.ndim > 2 else "Gemm"
    builder.quantize(builder.node(op_type, *operands, name="op", **attributes), 0.1, result="y")
    builder.output("y", "int8")
    return builder.model()


def _bare_product(left: Any = None, right: str = "int8", zeros: int = 1) -> onnx.ModelProto:
    """Return a MatMulInteger of 3 by 7 by 5 with ``zeros`` zero points of the second operand.

    The first operand is constant if ``left`` is given.
    """
    builder = ModelBuilder()
    x = builder.input("x", (3, 7), "int8") if left is None else builder.constant(left, "int8", "k")
    points = builder.constant(0, "int8"), builder.constant(np.zeros(zeros), "int8")
    builder.node(
        "MatMulInteger",
        x,
        builder.constant(np.ones((7, 5)), right, "w"),
        *points,
        name="op",
        result="y",
    )
    builder.output("y", "int32")
    return builder.model()


def _other_axis() -> onnx.ModelProto:
    """Weights with a scale an input channel."""
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int8"), 0.1)
    weights = builder.weights(ONES, [0.1, 0.2, 0.3, 0.4], axis=1)
    builder.quantize(builder.node("Conv", x, weights, name="op"), 0.1, result="y")
    builder.output("y", "int8")
    return builder.model()


def _with_run_time_bias() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int8"), 0.1)
    bias = builder.dequantize(builder.input("b", (6,), "int32"), 0.01, 0, "int32")
    builder.quantize(
        builder.node("Conv", x, builder.weights(ONES, 0.1), bias, name="op"), 0.1, result="y"
    )
    builder.output("y", "int8")
    return builder.model()


def _with_offset_bias() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 4, 5, 6), "int8"), 0.1)
    bias = builder.weights(np.zeros(6, np.int32), 0.01, 5)
    builder.quantize(
        builder.node("Conv", x, builder.weights(ONES, 0.1), bias, name="op"), 0.1, result="y"
    )
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
    """Return a convolution whose sums can just exceed 2^31 - 1.

    It has 2065 · 64 = 132,160 taps of 127, and inputs down to -128: 128 · 127 · 132,160.
    """
    return _conv(
        weights=np.full((1, 2065, 8, 8), 127, np.int8), shape=(1, 2065, 8, 8), before=(0.05, 0)
    )


POOL = {"kernel_shape": [3, 3]}


def _reversed() -> onnx.ModelProto:
    """600 elements, the last one first."""
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (600,), "int8"), 0.5)
    parameters = [builder.constant([number], "int64") for number in (599, -601, 0, -1)]
    builder.quantize(builder.node("Slice", x, *parameters, name="op"), 0.5, result="y")
    builder.output("y", "int8")
    return builder.model()


REFUSALS: dict[str, tuple[Callable[[], onnx.ModelProto], str, dict[str, Any]]] = {
    "rank": (
        lambda: _conv(weights=np.ones((6, 4, 1, 1, 1), np.int8), shape=(1, 4, 5, 6, 7)),
        "one_or_two_dimensional",
        {"rank": 3},
    ),
    "constant data": (_constant_data, "variable_input", {"name": "x"}),
    "input type": (_wide_data, "eight_bit_input", {"name": "x", "type": "int32"}),
    "output type": (_wide_result, "eight_bit_output", {"name": "y", "type": "uint16"}),
    "weight type": (
        lambda: _qlinear_conv(weights="int16"),
        "eight_bit_weights",
        {"name": "w", "type": "int16"},
    ),
    "pool types": (
        lambda: _mixed("AveragePool", "int8", "uint8", **POOL),
        "equal_types",
        {"types": ("int8", "uint8")},
    ),
    "scale of a maximum": (
        lambda: unary_unit(
            "MaxPool", (1, 3, 6, 7), before=(0.125, 0), after=(0.25, 0), kernel_shape=[2, 2]
        ),
        "moves_integers",
        {
            "name": "x",
            "scale": 0.125,
            "zero_point": 0,
            "result": "y",
            "result_scale": 0.25,
            "result_zero_point": 0,
        },
    ),
    "operand types": (
        lambda: _mixed("Add", "int8", "uint8", "int8"),
        "equal_types",
        {"types": ("int8", "uint8", "int8")},
    ),
    "types of what is compared": (
        lambda: _flags("Greater", "int8", "uint8"),
        "one_type",
        {"types": ("int8", "uint8")},
    ),
    "types of what is chosen": (
        lambda: _flags("Where", "int8", "uint8"),
        "chosen_by_flags",
        {"types": ("bool", "int8", "uint8", "int8")},
    ),
    "scales of what is compared": (
        lambda: _flags("Less", "int8", "int8", 2.0**-41),
        "moderate_scales",
        {"name": "b", "scale": 2.0**-41},
    ),
    "window in the padding": (
        lambda: unary_unit("AveragePool", (1, 3, 6, 7), pads=[3, 0, 0, 0], **POOL),
        "windows_meet_input",
        {"axis": 0, "pads": (3, 0, 0, 0)},
    ),
    "per channel": (_per_channel_data, "per_tensor", {"name": "x", "axis": 1}),
    "scale": (lambda: _conv(after=(0.0, 0)), "usable_scales", {"name": "y", "scale": 0.0}),
    "empty": (lambda: _conv(shape=(0, 4, 5, 6)), "not_empty", {"name": "x", "shape": (0, 4, 5, 6)}),
    "run-time weights": (lambda: _qlinear_conv(variable="yes"), "constant_weights", {"name": "w"}),
    "constant operands": (
        lambda: _bare_product(np.ones((3, 7))),
        "one_computed",
        {"first": "k", "second": "w"},
    ),
    "operand type": (
        lambda: _bare_product(right="int16"),
        "eight_bit_operands",
        {"name": "w", "type": "int16"},
    ),
    "zero points": (lambda: _bare_product(zeros=3), "known_zero_points", {"name": "w", "count": 3}),
    "computed operands": (
        lambda: _pair("MatMul", (7, 7), (7, 7)),
        "dynamic_available",
        {"mnemonic": "OP_DYN_MAT_MUL", "isa": "v2"},
    ),
    "weight axis": (_other_axis, "weights_per_output_channel", {"axis": 1, "wanted": 0}),
    "column axis": (lambda: _gemm(axis=0), "scales_of_columns", {"name": "c2", "axis": 0}),
    "run-time bias": (_with_run_time_bias, "integer_bias", {"name": "b"}),
    "bias type": (
        lambda: _conv(bias=np.ones(6, np.int8)),
        "integer_bias",
        {"name": "b", "type": "int8"},
    ),
    "rows of biases": (
        lambda: _gemm(bias=np.ones((300, 1), np.int32), rows=300),
        "bias_of_columns",
        {"name": "b", "shape": (300, 1), "result": (300, 7)},
    ),
    "bias type of columns": (
        lambda: _gemm(bias=np.ones(7, np.int8)),
        "bias_of_columns",
        {"name": "b", "type": "int8"},
    ),
    "bias scale": (
        lambda: _conv(bias=np.ones(6, np.int32), bias_scale=0.002),
        "bias_in_accumulator_scale",
        {"scale": np.float32(0.002), "channel": 0, "wanted": np.float32(0.001)},
    ),
    "bias zero point": (_with_offset_bias, "bias_in_accumulator_scale", {"zero_point": 5}),
    "accumulator": (_large_channel_conv, "accumulators_fit", {"bound": 2148392960}),
    "window": (
        lambda: _conv(strides=[300, 1], shape=(1, 4, 5, 6)),
        "fits_fields",
        {"label": "strides (height)", "size": 300, "limit": 256},
    ),
    "width": (
        lambda: _conv(weights=np.ones((6, 4, 1), np.int8), shape=(1, 4, 70000)),
        "fits_fields",
        {"label": "width", "size": 70000, "limit": 65536},
    ),
    "transposed": (lambda: _gemm(transA=1), "plain_gemm", {"key": "transA", "actual": 1}),
    "alpha": (
        lambda: _gemm(bias=np.ones(7, np.int32), alpha=0.5),
        "plain_gemm",
        {"key": "alpha", "actual": 0.5},
    ),
    "negative alpha": (lambda: _gemm(alpha=-0.5), "plain_gemm", {"actual": -0.5}),
    "beta": (
        lambda: _gemm(bias=np.ones(7, np.int32), beta=0.5),
        "plain_gemm",
        {"key": "beta", "actual": 0.5},
    ),
    "pool scales": (
        lambda: unary_unit("MaxPool", (1, 3, 6, 7), after=(0.25, 3), **POOL),
        "moves_integers",
        {
            "name": "x",
            "scale": np.float32(0.05),
            "zero_point": 3,
            "result": "y",
            "result_scale": 0.25,
            "result_zero_point": 3,
        },
    ),
    "average dilation": (
        lambda: unary_unit("AveragePool", (1, 3, 6, 7), dilations=[2, 1], **POOL),
        "undilated_average",
        {"dilations": (2, 1)},
    ),
    "cut input": (
        lambda: unary_unit(
            "AveragePool", (1, 3, 6, 7), kernel_shape=[1, 1], strides=[3, 1], auto_pad="SAME_UPPER"
        ),
        "uncut_input",
        {"pads": (-1, 0, -1, 0)},
    ),
    "average rounded up": (
        lambda: unary_unit(
            "AveragePool", (1, 3, 6, 7), strides=[2, 2], ceil_mode=1, count_include_pad=1, **POOL
        ),
        "counted_without_rounding_up",
        {"ceil_mode": 1},
    ),
    "broadcast": (
        lambda: _pair("Add", (3, 7), (7,)),
        "instruction_there",
        {"mnemonic": "OP_B_ADD", "isa": "v2"},
    ),
    "broadcast in turns": (
        lambda: _pair("Max", (40, 1, 40, 1, 3), (40, 2, 40, 2, 3)),
        "few_slices",
        {"count": 3200},
    ),
    "many channels": (
        lambda: _pair("Max", (1 << 20, 2), (2,)),
        "channels_fit",
        {"label": "channels", "size": 1 << 20, "limit": 1 << 20},
    ),
    "constant operand": (_constant_operand, "computed_operands", {"name": "k"}),
    "constants alone": (lambda: _pair("Add", (3, 7), constant=True), "any_computed", {}),
    "small product": (
        lambda: _pair("Mul", (3, 7), (3, 7), scales=(1e-20, 1e-20, 1.0)),
        "near_product",
        {"ratio": pytest.approx(1e-40, 1e-4), "result": "y"},
    ),
    "far scales": (
        lambda: _pair("Add", (3, 7), (3, 7), scales=(1e30, 0.1, 1e-5)),
        "near_scales",
        {"name": "x0", "ratio": pytest.approx(1e35), "result": "y"},
    ),
    "far products": (
        lambda: _pair("Mul", (3, 7), (3, 7), scales=(8.0, 8.0, 2.0**-10)),
        "near_product",
        {"ratio": 2.0**16, "result": "y"},
    ),
    "far averages": (
        lambda: unary_unit(
            "AveragePool", (1, 2, 4, 4), kernel_shape=[2, 2], before=(4.0, 3), after=(2.0**-21, 3)
        ),
        "near_scales",
        {"name": "x", "ratio": 2.0**23, "result": "y"},
    ),
    "far numbers": (
        lambda: unary_unit("Relu", (3, 7), after=(3e38, 3)),
        "usable_scales",
        {"name": "y", "scale": pytest.approx(3e38)},
    ),
    "slices": (
        lambda: _pair("Concat", (2, 3), (2, 4)),
        "permutation_available",
        {"isa": "v2", "copies": 2},
    ),
    "bounds": (_run_time_bounds, "constant_bounds", {}),
    "slope": (
        lambda: unary_unit("LeakyRelu", (3, 7), alpha=float("inf")),
        "finite_slope",
        {"alpha": float("inf")},
    ),
    "order": (
        lambda: unary_unit("Transpose", (3, 7), perm=[1, 0]),
        "permutation_available",
        {"isa": "v2", "copies": 1},
    ),
    "reversed": (_reversed, "few_copies", {"copies": 600}),
    "rows apart": (
        lambda: unary_unit("ReduceMax", (2, 3, 4, 5), extra=[((1, 3), "int64")]),
        "adjacent_axes",
        {"axes": (1, 3), "shape": (2, 3, 4, 5)},
    ),
    "gains": (
        lambda: unary_unit("LayerNormalization", (2, 6), extra=[(np.ones(4), "float32")]),
        "fitting_parameters",
        {"shapes": [(4,)], "axis": 1, "rows": (6,)},
    ),
    "unknown operator": (lambda: unary_unit("Hardmax", (3, 7)), "known", {"operator": "Hardmax"}),
}
