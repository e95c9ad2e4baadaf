"""Every operator family against ONNX Runtime on random integers: zero tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest

from byoc.importing import import_model
from byoc.options import Target
from isa.arch import IDEAL, Arch
from tests.byoc.oracle_check import V2, check_against_onnxruntime, placed, random_feeds
from tests.byoc.small_models import ModelBuilder, convolution_unit, unary_unit
from tests.e2e.harness import compare

GENERATOR_SEED = 7


def _weights(*shape: int, dtype: str = "int8") -> Any:
    limits = np.iinfo(dtype)
    return np.random.default_rng(GENERATOR_SEED).integers(limits.min, limits.max + 1, shape, dtype)


V4 = Target(frozenset({"OP_DYN_MAT_MUL", "OP_E32_ADD"}), "v4", IDEAL)


def _runs_on_accelerator(model: onnx.ModelProto, *names: str, target: Target = V2) -> None:
    for seed in range(3):
        parts = check_against_onnxruntime(model, seed, target)
        for name in names or ("op",):
            assert placed(parts)[name] == "dla"


BIAS = np.arange(-900, 900, 300, dtype=np.int32)
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ((6, 4, 1, 1), (1, 4, 5, 6), {}),
    "padded": ((6, 4, 3, 3), (1, 4, 5, 6), {"pads": [1, 2, 0, 1], "bias": BIAS}),
    "strided": ((6, 4, 3, 2), (1, 4, 9, 8), {"strides": [2, 3], "bias": BIAS}),
    "dilated": ((6, 4, 3, 3), (1, 4, 9, 8), {"dilations": [2, 3]}),
    "same upper": ((6, 4, 2, 2), (1, 4, 5, 5), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((6, 4, 2, 4), (1, 4, 5, 5), {"auto_pad": "SAME_LOWER"}),
    "valid": ((6, 4, 2, 2), (1, 4, 5, 5), {"auto_pad": "VALID"}),
    "depthwise": ((6, 1, 3, 3), (1, 6, 5, 5), {"group": 6, "pads": [1, 1, 1, 1], "bias": BIAS}),
    "depthwise multiplier": ((6, 1, 3, 3), (1, 3, 5, 5), {"group": 3}),
    "grouped": ((6, 2, 3, 3), (1, 4, 5, 5), {"group": 2, "bias": BIAS}),
    "batch": ((6, 2, 3, 3), (3, 4, 5, 5), {"group": 2}),
    "one-dimensional": ((6, 4, 3), (2, 4, 9), {"strides": [2], "pads": [1, 0]}),
    "per channel": (
        (6, 4, 3, 3),
        (1, 4, 5, 5),
        {"weight_scale": [0.01, 0.02, 0.03, 0.04, 0.05, 0.06], "bias": BIAS},
    ),
    "relu": ((6, 4, 3, 3), (1, 4, 5, 5), {"activation": ("Relu",)}),
    "relu at the end of the range": (
        (6, 4, 3, 3),
        (1, 4, 5, 5),
        {"activation": ("Relu",), "after": (0.1, -128)},
    ),
    "clip": (
        (6, 4, 3, 3),
        (1, 4, 5, 5),
        {"activation": ("Clip",), "bounds": (-1.05, 2.25), "bias": BIAS},
    ),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case: str, dtype: str) -> None:
    weights, shape, options = CONVOLUTIONS[case]
    if dtype == "uint8":
        options = {**options, "before": (0.05, 121), "after": (0.1, 0 if "end" in case else 130)}
    _runs_on_accelerator(convolution_unit(_weights(*weights), shape, dtype=dtype, **options))


def test_uint8_weights_around_128() -> None:
    weights = _weights(6, 4, 3, 3, dtype="uint8")
    options = {
        "dtype": "uint8",
        "before": (0.05, 121),
        "after": (0.1, 130),
        "weight_zero_point": 128,
    }
    _runs_on_accelerator(convolution_unit(weights, (1, 4, 5, 5), **options))


ZEROS = {"one": 9, "at the end": -128, "one a filter": [1, -128, 3, 127, 0, 6], "none": 0}


@pytest.mark.parametrize("case", ["padded", "depthwise", "grouped", "one-dimensional", "relu"])
@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_weights_with_a_zero_point(case: str, zeros: str, dtype: str) -> None:
    """Nine bits a weight: products with parts of them, added.

    By script: 0 of 63,396 outputs, also a zero each.
    """
    weights, shape, options = CONVOLUTIONS[case]
    move = 0 if dtype == "int8" else 128
    scale = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06] if zeros == "one a filter" else 0.02
    moved = {"before": (0.05, 3 + move), "after": (0.1, -7 + move), "weight_scale": scale}
    points = np.asarray(ZEROS[zeros]) + move
    data = _weights(*weights, dtype=dtype)
    _runs_on_accelerator(
        convolution_unit(data, shape, dtype=dtype, weight_zero_point=points, **{**options, **moved})
    )


def _product(
    op_type: str, left: Sequence[int], right: tuple[int, int], dtype: str, **attributes: Any
) -> onnx.ModelProto:
    builder = ModelBuilder()
    zero = 3 if dtype == "int8" else 131
    x = builder.dequantize(builder.input("x", left, dtype), 0.05, zero, dtype)
    columns = right[0] if attributes.get("transB") else right[1]
    scales = np.linspace(0.01, 0.03, columns)
    operands = [
        x,
        builder.weights(_weights(*right), scales, axis=0 if attributes.get("transB") else 1),
    ]
    if op_type == "Gemm":
        bias = np.arange(columns, dtype=np.int32) * 100 - 200
        operands.append(builder.weights(bias, np.float32(0.05) * scales.astype(np.float32)))
    builder.quantize(
        builder.node(op_type, *operands, name="op", **attributes), 0.2, zero, dtype, result="y"
    )
    builder.output("y", dtype)
    return builder.model()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_matrix_products(dtype: str) -> None:
    _runs_on_accelerator(_product("Gemm", (3, 7), (5, 7), dtype, transB=1))
    _runs_on_accelerator(_product("Gemm", (3, 7), (7, 5), dtype))
    _runs_on_accelerator(_product("MatMul", (3, 7), (7, 5), dtype))
    _runs_on_accelerator(_product("MatMul", (2, 3, 7), (7, 5), dtype))


FACTORS: dict[str, tuple[tuple[int, ...], tuple[int, ...], bool, bool]] = {
    # shapes, and which of both is constant
    "two": ((3, 7), (7, 5), False, False),
    "batches": ((2, 3, 4, 7), (2, 3, 7, 5), False, False),
    "broadcast": ((2, 1, 4, 7), (3, 7, 5), False, False),
    "one matrix": ((2, 3, 4, 7), (7, 5), False, False),
    "rows": ((7,), (2, 7, 5), False, False),
    "columns": ((2, 3, 7), (7,), False, False),
    "vectors": ((7,), (7,), False, False),
    "weights of three dimensions": ((2, 3, 7), (1, 7, 5), False, True),
    "weights a batch": ((2, 3, 7), (2, 7, 5), False, True),
    "a column of weights": ((2, 3, 7), (7,), False, True),
    "weights first": ((6, 7), (7, 5), True, False),
    "weights first, batches": ((6, 7), (3, 7, 5), True, False),
    "weights a batch first": ((3, 6, 7), (3, 7, 5), True, False),
}
TYPES = {"int8": ("int8", "int8"), "uint8": ("uint8", "uint8"), "mixed": ("uint8", "int8")}


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("case", FACTORS)
def test_products_of_any_operands(case: str, types: str) -> None:
    """Products of any operands are exact; a script found 0 differences in 7,197,228 outputs.

    Its operands were computed.
    """
    builder = ModelBuilder()
    (*shapes, left, right) = FACTORS[case]
    operands = []
    for name, shape, constant, dtype in zip("ab", shapes, (left, right), TYPES[types], strict=True):
        zero = 0 if constant and types == "mixed" else 9
        zero += 0 if dtype == "int8" else 128
        if constant:
            operands.append(builder.weights(_weights(*shape, dtype=dtype), 0.02, zero))
        else:
            operands.append(
                builder.dequantize(builder.input(name, shape, dtype), 0.05, zero, dtype)
            )
    dtype = TYPES[types][0]
    result = builder.node("MatMul", *operands, name="op")
    builder.quantize(result, 0.2, 3 if dtype == "int8" else 131, dtype, result="y")
    builder.output("y", dtype)
    _runs_on_accelerator(builder.model(), target=V4)


BIASES = {
    "row": (5,),
    "one": (1,),
    "scalar": (),
    "matrix of a row": (1, 5),
    "column": (3, 1),
    "matrix": (3, 5),
}


@pytest.mark.parametrize("operator", ["Gemm", "QGemm"])
@pytest.mark.parametrize("case", [None, *BIASES])
def test_gemm(operator: str, case: str | None) -> None:
    """QGemm's alpha scales the bias, too: 0 of 8,100 outputs differ, by script."""
    builder = ModelBuilder()
    rng = np.random.default_rng(5)
    bias = None if case is None else rng.integers(-900, 900, BIASES[case]).astype(np.int32)
    x = builder.input("x", (3, 7), "int8")
    w = builder.constant(_weights(5, 7), "int8")
    if operator == "QGemm":
        scales = ("float32", (0.05, 0.02, 0.2))
        zeros = ("int8", (3, -9, 4))
        (xs, ws, ys), (xz, wz, yz) = (
            [builder.constant(n, kind) for n in values] for kind, values in (scales, zeros)
        )
        b = "" if bias is None else builder.constant(bias, "int32")
        operands = (x, xs, xz, w, ws, wz, b, ys, yz)
        factors = {"alpha": 0.7, "transB": 1}
        builder.node("QGemm", *operands, name="op", result="y", domain="com.microsoft", **factors)
    else:
        operands = (builder.dequantize(x, 0.05, 3), builder.dequantize(w, 0.02, -9))
        operands += (
            () if bias is None else (builder.weights(bias, np.float32(0.05) * np.float32(0.02)),)
        )
        factors = {
            "alpha": 0.7 if bias is None else 1.0,
            "beta": 1.0 if bias is not None else 3.0,
            "transB": 1,
        }
        builder.quantize(builder.node("Gemm", *operands, name="op", **factors), 0.2, 4, result="y")
    builder.output("y", "int8")
    _runs_on_accelerator(builder.model())


POOLS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "max": ("MaxPool", (1, 3, 6, 7), {"kernel_shape": [2, 3]}),
    "max padded": (
        "MaxPool",
        (1, 3, 6, 7),
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
    ),
    "max rounded up": (
        "MaxPool",
        (1, 3, 6, 7),
        {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1},
    ),
    "max dilated": ("MaxPool", (1, 3, 6, 7), {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    "max batch": ("MaxPool", (2, 3, 6, 7), {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
    "max line": ("MaxPool", (1, 3, 9), {"kernel_shape": [2], "strides": [2]}),
    "global max": ("GlobalMaxPool", (2, 3, 4, 5), {}),
    "average": ("AveragePool", (1, 3, 6, 7), {"kernel_shape": [2, 3]}),
    "average padded": ("AveragePool", (1, 3, 6, 7), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "average counting": (
        "AveragePool",
        (1, 3, 6, 7),
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "average rounded up": (
        "AveragePool",
        (2, 3, 6, 7),
        {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1},
    ),
    "average counting, rounded up to the same": (
        "AveragePool",
        (1, 3, 7, 9),
        {
            "kernel_shape": [3, 3],
            "pads": [1, 1, 1, 1],
            "strides": [2, 2],
            "count_include_pad": 1,
            "ceil_mode": 1,
        },
    ),
    "average line": ("AveragePool", (1, 3, 9), {"kernel_shape": [3], "strides": [2]}),
    # ONNX Runtime takes a window that is the whole plane for a global average, which rounds ties
    # otherwise.
    "average of the plane": ("AveragePool", (1, 64, 2, 2), {"kernel_shape": [2, 2]}),
    "average of the line": ("AveragePool", (1, 64, 2), {"kernel_shape": [2], "strides": [2]}),
    "global average": ("GlobalAveragePool", (2, 3, 4, 5), {}),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", POOLS)
def test_pooling(case: str, dtype: str) -> None:
    op_type, shape, attributes = POOLS[case]
    before = (0.05, 3 if dtype == "int8" else 131)
    after = before if "Max" in op_type else (0.04, before[1] - 20)
    _runs_on_accelerator(unary_unit(op_type, shape, dtype, before, after, **attributes))


def _averages_of_images() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (2, 20, 40, 30), "int8"), 0.05, 3, "int8")
    average = builder.node("GlobalAveragePool", x, name="op")
    builder.quantize(builder.node("Relu", average, name="act"), 0.003, 5, "int8", result="y")
    builder.output("y", "int8")
    return builder.model()


TIGHT: dict[str, onnx.ModelProto] = {
    "dilated": convolution_unit(
        _weights(6, 16, 2), (1, 16, 700), dilations=[64], pads=[64, 0], bias=BIAS
    ),
    "strided": convolution_unit(_weights(6, 16, 3), (2, 16, 701), strides=[3], pads=[1, 2]),
    "depthwise": convolution_unit(_weights(16, 1, 5), (1, 16, 7000), group=16, pads=[2, 2]),
    "grouped": convolution_unit(_weights(6, 8, 3), (1, 16, 701), group=2, weight_zero_point=9),
    "planes": convolution_unit(_weights(6, 16, 1, 1), (1, 16, 2, 700), bias=BIAS),
    "channels": convolution_unit(
        _weights(6, 17, 3, 3), (1, 17, 5, 200), strides=[2, 3], pads=[1, 2, 0, 1], bias=BIAS
    ),
    "line of channels": convolution_unit(
        _weights(6, 120, 3), (1, 120, 200), dilations=[64], activation=("Relu",)
    ),
    "channels with a zero point": convolution_unit(
        _weights(6, 34, 3, 3), (1, 34, 5, 100), weight_zero_point=9
    ),
    "max": unary_unit("MaxPool", (1, 3, 9001), kernel_shape=[3], strides=[2], pads=[1, 1]),
    "average": unary_unit(
        "AveragePool", (1, 3, 9001), after=(0.04, 9), kernel_shape=[4], strides=[3], pads=[2, 1]
    ),
    "maximum of planes": unary_unit("GlobalMaxPool", (1, 20, 40, 30)),
    "maxima": unary_unit(
        "MaxPool", (1, 20, 70, 60), kernel_shape=[23, 12], strides=[3, 4], pads=[1, 2, 3, 0]
    ),
    "average of planes": unary_unit("GlobalAveragePool", (1, 20, 40, 30), after=(0.04, 9)),
    "averages of images": _averages_of_images(),
    "tables": unary_unit(
        "PRelu", (2, 3, 90, 101), extra=[([[[0.3]], [[-1.2]], [[0.7]]], "float32")], after=(0.04, 9)
    ),
}


@pytest.mark.parametrize("case", TIGHT)
def test_what_does_not_fit_in_the_least_is_cut_finer(case: str) -> None:
    """Operators that exceed the smallest memory are split into finer tiles.

    Lines are vertical, because tiles are bands of rows. Input channels are halved and the halves'
    products added. A table a channel is a table in each channel. In atoms a plane is averaged as a
    row, and maxima are those of rows and then of columns.
    """
    package = import_model(TIGHT[case], case)
    feed = random_feeds(TIGHT[case], 5)
    for isa, pe in product(("v4", "v5"), ((4, 16, 1), (3, 5, 2))):
        array = dict(zip(("ic", "oc", "ow"), pe, strict=True))
        found = compare(
            package, feed, Arch.model_validate({"isa": isa, "sram_bytes": 8192, "pe": array})
        )
        assert (found.mismatches, placed(found.partition)["op"]) == (0, "dla")


def _product_with_a_zero_point() -> onnx.ModelProto:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (2, 9, 37), "int8"), 0.05, 3, "int8")
    weights = builder.weights(_weights(37, 19), 0.01, 9)
    builder.quantize(builder.node("MatMul", x, weights, name="op"), 0.5, 3, "int8", result="y")
    builder.output("y", "int8")
    return builder.model()


NINE_BITS: dict[str, onnx.ModelProto] = {
    "images": convolution_unit(
        _weights(17, 5, 3, 3), (3, 5, 9, 8), weight_zero_point=-20, activation=("Relu",)
    ),
    "groups": convolution_unit(
        _weights(24, 4, 3, 3), (2, 12, 9, 8), group=3, weight_zero_point=9, strides=[2, 1]
    ),
    "depthwise": convolution_unit(
        _weights(20, 1, 3, 3), (2, 20, 9, 8), group=20, weight_zero_point=9, pads=[1] * 4
    ),
    "matrices": _product_with_a_zero_point(),
}
"""Weights that have nine bits without their zero point."""


@pytest.mark.parametrize("case", NINE_BITS)
def test_weights_of_nine_bits_run_on_both_memories(case: str) -> None:
    """The products with both parts are added, on v5 in one product that reads its input twice."""
    package, feed = import_model(NINE_BITS[case], case), random_feeds(NINE_BITS[case], 5)
    for isa, (ic, oc) in product(("v4", "v5"), ((4, 16), (1, 256))):
        found = compare(
            package, feed, Arch.model_validate({"isa": isa, "pe": {"ic": ic, "oc": oc, "ow": 1}})
        )
        assert (found.mismatches, placed(found.partition)["op"]) == (0, "dla")


ACTIVATIONS: dict[str, tuple[str, list[tuple[float, str]], dict[str, Any]]] = {
    "relu": ("Relu", [], {}),
    "leaky relu": ("LeakyRelu", [], {"alpha": 0.13}),
    "leaky relu default": ("LeakyRelu", [], {}),
    "abs": ("Abs", [], {}),
    "clip": ("Clip", [(-1.3, "float32"), (2.1, "float32")], {}),
    "clip below": ("Clip", [(-1.3, "float32")], {}),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("case", ACTIVATIONS)
def test_activation(case: str, dtype: str) -> None:
    op_type, extra, attributes = ACTIVATIONS[case]
    zero = 3 if dtype == "int8" else 131
    for after in ((0.05, zero), (0.037, zero - 40), (0.09, -128 if dtype == "int8" else 0)):
        _runs_on_accelerator(
            unary_unit(op_type, (2, 3, 4, 5), dtype, (0.05, zero), after, extra, **attributes)
        )


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("activation", ["", "Relu"])
def test_addition(dtype: str, activation: str) -> None:
    builder = ModelBuilder()
    move = 0 if dtype == "int8" else 128
    a = builder.dequantize(builder.input("a", (2, 3, 4, 5), dtype), 0.05, 3 + move, dtype)
    b = builder.dequantize(builder.input("b", (2, 3, 4, 5), dtype), 0.125, -9 + move, dtype)
    total = builder.node("Add", a, b, name="op")
    total = builder.node("Relu", total, name="act") if activation else total
    builder.quantize(total, 0.1, 5 + move, dtype, result="y")
    builder.output("y", dtype)
    _runs_on_accelerator(builder.model())


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("op_type", ["Min", "Max"])
def test_minimum_and_maximum(dtype: str, op_type: str) -> None:
    builder = ModelBuilder()
    quantization = (0.05, 3 if dtype == "int8" else 131, dtype)
    operands = [
        builder.dequantize(builder.input(name, (3, 7), dtype), *quantization) for name in "ab"
    ]
    builder.quantize(builder.node(op_type, *operands, name="op"), *quantization, result="y")
    builder.output("y", dtype)
    _runs_on_accelerator(builder.model())


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("op_type", "scales"),
    [
        ("Add", (2.0**12, 2.0**12, 2.0**-10)),
        ("Mul", (32.0, 1.0, 2.0**-10)),
        ("Sub", (8.0, 8.0, 2.0**-19)),
    ],
)
def test_as_far_beyond_the_result_as_operands_may_be(
    op_type: str, scales: tuple[float, float, float], dtype: str
) -> None:
    """Steps of the result up to the end of int32, in both directions."""
    low = np.iinfo(dtype).min
    builder = ModelBuilder()
    zero_points = (low, low) if op_type != "Mul" else (low, low + 255)
    names = [
        builder.dequantize(builder.input(name, (3, 700), dtype), scale, zero, dtype)
        for name, scale, zero in zip("ab", scales[:2], zero_points, strict=True)
    ]
    builder.quantize(
        builder.node(op_type, *names, name="op"), scales[2], low + 9, dtype, result="y"
    )
    builder.output("y", dtype)
    _runs_on_accelerator(
        builder.model(), target=replace(V2, instructions=V2.instructions | {"OP_E_SUB", "OP_E_MUL"})
    )


@pytest.mark.parametrize("op_type", ["Min", "Max"])
def test_comparison_of_one_operand_is_the_operand(op_type: str) -> None:
    _runs_on_accelerator(unary_unit(op_type, (3, 7)))


MOVEMENTS: dict[str, tuple[str, tuple[int, ...], list[tuple[Any, str]], dict[str, Any]]] = {
    "reshape": ("Reshape", (2, 3, 4), [([4, -1], "int64")], {}),
    "flatten": ("Flatten", (2, 3, 4), [], {"axis": 2}),
    "squeeze": ("Squeeze", (1, 3, 1, 4), [([0, 2], "int64")], {}),
    "unsqueeze": ("Unsqueeze", (3, 4), [([0, 3], "int64")], {}),
    "transpose": ("Transpose", (1, 3, 1, 4), [], {"perm": [1, 0, 3, 2]}),
}


@pytest.mark.parametrize("case", MOVEMENTS)
def test_free_movement(case: str) -> None:
    op_type, shape, extra, attributes = MOVEMENTS[case]
    _runs_on_accelerator(unary_unit(op_type, shape, extra=extra, **attributes))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("scales", [(0.05, 0.05, 0.05), (0.05, 0.02, 0.04)])
def test_concatenation(dtype: str, scales: tuple[float, float, float]) -> None:
    builder = ModelBuilder()
    zeros = [
        (0 if dtype == "int8" else 128) + (0 if len(set(scales)) == 1 else move)
        for move in (-5, 7, 0)
    ]
    first = builder.dequantize(builder.input("a", (1, 2, 3, 4), dtype), scales[0], zeros[0], dtype)
    second = builder.dequantize(builder.input("b", (1, 5, 3, 4), dtype), scales[1], zeros[1], dtype)
    result = builder.node("Concat", first, second, name="op", axis=-3)
    builder.quantize(result, scales[2], zeros[2], dtype, result="y")
    builder.output("y", dtype)
    _runs_on_accelerator(builder.model())


def test_change_of_scale_between_dequantize_and_quantize() -> None:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (3, 7), "uint8"), 0.05, 131, "uint8")
    parameters = builder.constant(0.03, "float32"), builder.constant(-4, "int8")
    builder.node("QuantizeLinear", x, *parameters, name="op", result="y")
    builder.output("y", "int8")
    _runs_on_accelerator(builder.model())


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_windows_of_more_than_255_run_where_the_fields_are_wide(dtype: str) -> None:
    """A kernel of 1,024, a stride and pads beyond 255, and the average of a large plane.

    On ``v3`` they do not fit.
    """
    rng = np.random.default_rng(0)
    wide = {"kernel_shape": [1024], "strides": [300], "pads": [400, 511]}
    models = [
        convolution_unit(
            rng.integers(-127, 128, (3, 2, 1024)).astype(np.int8),
            (1, 2, 2000),
            dtype=dtype,
            after=(2.0, 7),
            **wide,
        ),
        unary_unit("GlobalAveragePool", (1, 2, 300, 260), dtype),
        unary_unit("MaxPool", (1, 2, 3, 700), dtype, kernel_shape=[2, 600], strides=[1, 90]),
    ]
    for model in models:
        shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
        feed = {"x": rng.integers(0, 256, shape).astype(np.uint8).view(dtype)}
        package = import_model(model, "wide")
        found = compare(package, feed, Arch(isa="v4"))
        assert (found.mismatches, [place.on for place in found.partition.placement]) == (0, ["dla"])
        (place,) = compare(package, feed, Arch(isa="v3")).partition.placement
        assert place.on == "cpu"
        assert "does not fit a field below 256" in str(place.reason)
