"""Operators that ONNX Runtime computes wrongly are rewritten first, on every processor."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from byoc.runtimes.protobuf import all_nodes, constants
from byoc.runtimes.runtime_faults import avoid_saturation
from byoc.runtimes.session import OnnxRuntimeSession
from tests.byoc.oracle_check import random_feeds
from tests.byoc.small_models import ModelBuilder, unary_unit

A = np.full((3, 8), 250, np.uint8)
B = np.where(np.arange(40).reshape(8, 5) % 7, 127, -128).astype(np.int8)
SUMS = A.astype(np.int64) @ B
"""Sums of which every pair passes 16 bits."""
CONTRIB = "com.microsoft"


def _product(b: ModelBuilder, left: str, right: str) -> None:
    b.node("MatMul", left, right, result="y")
    b.output("y")


def _plain(b: ModelBuilder) -> None:
    right = b.node("DequantizeLinear", b.constant(B, "int8"), b.constant(1, "float32"))
    _product(b, b.dequantize(b.input("a", A.shape, "uint8"), 1, 0, "uint8"), right)


def _behind_views(b: ModelBuilder) -> None:
    right = b.dequantize(b.constant(B.reshape(5, 8), "int8"), 1)
    right = b.node("Reshape", right, b.constant([5, 8], "int64"))
    right = b.node("Reshape", right, b.constant([8, 5], "int64"))
    _product(b, b.dequantize(b.input("a", A.shape, "uint8"), 1, 0, "uint8"), right)


def _of_a_constant_node(b: ModelBuilder) -> None:
    weights = helper.make_tensor("t", TensorProto.INT8, B.shape, B.tobytes(), raw=True)
    right = b.dequantize(b.node("Constant", value=weights), 1)
    _product(b, b.dequantize(b.input("a", A.shape, "uint8"), 1, 0, "uint8"), right)


def _computed(b: ModelBuilder) -> None:
    right = b.quantize(b.constant(B, "float32"), 1)
    _product(b, b.dequantize(b.input("a", A.shape, "uint8"), 1, 0, "uint8"), b.dequantize(right, 1))


def _shared_with_an_output(b: ModelBuilder) -> None:
    right = b.dequantize(b.constant(B, "int8", "w"), 1)
    b.node("Neg", right, result="negative")
    b.output("negative")
    _product(b, b.dequantize(b.input("a", A.shape, "uint8"), 1, 0, "uint8"), right)


def _with_names_taken(b: ModelBuilder) -> None:
    right = b.dequantize(b.constant(B, "int8", "w"), 1)
    left = b.dequantize(b.input("a", A.shape, "uint8"), 1, 0, "uint8")
    _product(
        b,
        left,
        b.node("Add", right, b.constant(0, "float32", "w_uint8"), result="zero_point_uint8"),
    )
    b.nodes[-1].input[1] = right


def _in_a_body(b: ModelBuilder) -> None:
    right = b.dequantize(b.constant(B, "int8"), 1)
    left = b.dequantize(b.input("a", A.shape, "uint8"), 1, 0, "uint8")
    outputs = [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [3, 5])]
    bodies = [
        helper.make_graph(
            [helper.make_node("MatMul", [left, right], ["inner"], name=name)], name, [], outputs
        )
        for name in ("then", "else")
    ]
    condition = b.constant(True, "bool")
    b.node("If", condition, result="y", then_branch=bodies[0], else_branch=bodies[1])
    b.output("y")


def _dynamic(b: ModelBuilder) -> None:
    weights = b.constant(B, "int8")
    scale = b.constant(np.ones(5), "float32")
    real = b.node("Cast", b.input("a", A.shape, "uint8"), to=TensorProto.FLOAT)
    kept = b.node("Concat", real, b.constant([[0, 255, 0, 0, 0, 0, 0, 0]], "float32"), axis=0)
    found = b.node("DynamicQuantizeMatMul", kept, weights, scale, domain=CONTRIB)
    b.node("Slice", found, b.constant([0], "int64"), b.constant([3], "int64"), result="y")
    b.output("y")


def _integers_to_float(b: ModelBuilder) -> None:
    weights = b.constant(B, "int8")
    one = b.constant(1, "float32")
    x = b.input("a", A.shape, "uint8")
    b.node(
        "MatMulIntegerToFloat",
        x,
        weights,
        one,
        b.constant(np.ones(5), "float32"),
        result="y",
        domain=CONTRIB,
    )
    b.output("y")


def _sums_without_zero_points(b: ModelBuilder) -> None:
    found = b.node("MatMulInteger", b.input("a", A.shape, "uint8"), b.constant(B, "int8"))
    b.node("Cast", found, to=TensorProto.FLOAT, result="y")
    b.output("y")


def _behind_a_pool_of_channels_last(b: ModelBuilder) -> None:
    planes = b.node(
        "Reshape", b.input("a", A.shape, "uint8"), b.constant([1, 1, *A.shape], "int64")
    )
    pooled = b.node("NhwcMaxPool", planes, domain=CONTRIB, kernel_shape=[1, 1])
    found = b.node(
        "MatMulInteger",
        b.node("Reshape", pooled, b.constant(A.shape, "int64")),
        b.constant(B, "int8"),
    )
    b.node("Cast", found, to=TensorProto.FLOAT, result="y")
    b.output("y")


FORMS: dict[str, Callable[[ModelBuilder], None]] = {
    "plain": _plain,
    "behind views": _behind_views,
    "of a Constant node": _of_a_constant_node,
    "computed": _computed,
    "shared with an output": _shared_with_an_output,
    "with names taken": _with_names_taken,
    "in a body": _in_a_body,
    "DynamicQuantizeMatMul": _dynamic,
    "MatMulIntegerToFloat": _integers_to_float,
    "MatMulInteger": _sums_without_zero_points,
    "NhwcMaxPool": _behind_a_pool_of_channels_last,
}


def _form(name: str) -> onnx.ModelProto:
    builder = ModelBuilder()
    FORMS[name](builder)
    return builder.model()


@pytest.mark.parametrize("optimised", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_products_of_uint8_and_int8_are_exact(form: str, optimised: bool) -> None:
    session = OnnxRuntimeSession(_form(form), optimised=optimised)
    np.testing.assert_array_equal(session.run(["y"], {"a": A})["y"], SUMS)
    assert session.optimised == optimised  # it runs as it was made


@pytest.mark.parametrize("form", FORMS)
def test_int8_operands_of_mixed_products_are_replaced(form: str) -> None:
    """Also on processors whose products do not saturate."""
    model = _form(form)
    products = ("MatMul", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
    before = [node.input[1] for node in all_nodes(model.graph) if node.op_type in products]
    added = avoid_saturation(model.graph, constants(model.graph))
    after = [node.input[1] for node in all_nodes(model.graph) if node.op_type in products]
    assert len(before) >= 1
    assert not {*before} & {*after}
    assert any(tensor.data_type == TensorProto.UINT8 for tensor in added)


@pytest.mark.parametrize("types", [("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8")])
def test_other_products_stay_as_they_are(types: tuple[str, str]) -> None:
    b = ModelBuilder()
    operands = (
        b.dequantize(b.input(name, (4, 4), dtype), 1, 0, dtype)
        for name, dtype in zip("ab", types, strict=True)
    )
    _product(b, *operands)
    model = b.model()
    assert avoid_saturation(model.graph, constants(model.graph)) == []
    assert model == b.model()


WINDOWS = list(product((2, 3), (1, 2, 3), ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0])))


def _averages(
    x: NDArray[Any], shape: tuple[int, ...], size: int, stride: int, pads: list[int]
) -> NDArray[Any]:
    """Averages over windows of the padded input; what is behind the padding does not count."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    found = np.empty(shape)
    for row, column in np.ndindex(shape[2:]):
        window = padded[
            :, :, row * stride : row * stride + size, column * stride : column * stride + size
        ]
        found[:, :, row, column] = window.mean((2, 3))
    return found


def test_averages_that_count_padding_behind_the_input_are_those_of_the_file() -> None:
    """Averages that count padding behind the input are those of the file.

    The integer operator that ONNX Runtime makes of them is up to 60 steps away in 8 of these 18
    windows.
    """
    x = np.random.default_rng(0).integers(-128, 128, (1, 2, 8, 9)).astype(np.int8)
    for size, stride, pads in WINDOWS:
        window = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": pads}
        model = unary_unit(
            "AveragePool",
            x.shape,
            "int8",
            (0.05, 0),
            (0.05, 0),
            ceil_mode=1,
            count_include_pad=1,
            **window,
        )
        found = OnnxRuntimeSession(model).run(["y"], {"x": x})["y"]
        assert np.abs(found - _averages(x, found.shape, size, stride, pads)).max() <= 0.51, window


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("op_type", ["Conv", "Gemm", "ConvTranspose"])
def test_weights_in_float_stay_so(op_type: str, dtype: str) -> None:
    """ONNX Runtime's WeightBiasQuantization rounds them to int8.

    Uint8 operands then saturated, too (109 steps).
    """
    rng = np.random.default_rng(0)
    b = ModelBuilder()
    shapes = ((4, 64), (64, 8)) if op_type == "Gemm" else ((1, 8, 6, 6), (8, 8, 3, 3))
    weights = rng.choice([-1, 1], shapes[1], p=[0.2, 0.8]) * rng.uniform(0.9, 1, shapes[1])
    x = b.dequantize(b.input("x", shapes[0], dtype), 0.1, 0, dtype)
    b.quantize(b.node(op_type, x, b.constant(weights, "float32")), 0.5, 0, dtype, result="y")
    b.output("y", dtype)
    feeds = random_feeds(b.model(), 0)
    found, plain = (
        OnnxRuntimeSession(b.model(), optimised=way).run(["y"], feeds)["y"] for way in (True, False)
    )
    np.testing.assert_array_equal(found, plain)
