"""QLinear* and *Integer operators, and operators on plain integers, equal ONNX Runtime exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from byoc.importing import import_model
from byoc.runtimes.session import OnnxRuntimeSession
from isa.arch import Arch
from tests.byoc.oracle_check import check_against_onnxruntime, placed, random_feeds
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import simulate

CONTRIB = "com.microsoft"


def _weights(*shape: int) -> Any:
    return np.random.default_rng(11).integers(-128, 128, shape, np.int8)


def _runs_on_accelerator(model: onnx.ModelProto) -> None:
    for seed in range(3):
        assert placed(check_against_onnxruntime(model, seed))["op"] == "dla"


class Operands(ModelBuilder):
    """A builder for one element type whose parameters come as (scale, zero point) constants."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.dtype = dtype

    def pair(self, scale: Any, zero: int, dtype: str | None = None) -> tuple[str, str]:
        """Scale and zero point; that of uint8 is 128 higher. Explicit ``dtype`` is for weights."""
        move = 128 if (dtype or self.dtype) == "uint8" else 0
        zeros = np.full(np.shape(scale), zero + move)
        return self.constant(scale, "float32"), self.constant(zeros, dtype or self.dtype)

    def finish(
        self, op_type: str, *inputs: str, domain: str = "", **attributes: Any
    ) -> onnx.ModelProto:
        self.node(op_type, *inputs, name="op", result="y", domain=domain, **attributes)
        self.output("y", self.dtype)
        return self.model()


@pytest.fixture(params=["int8", "uint8"])
def operands(request: pytest.FixtureRequest) -> Operands:
    return Operands(request.param)


def test_convolution(operands: Operands) -> None:
    x = operands.input("x", (1, 4, 5, 6), operands.dtype)
    weights = operands.constant(_weights(6, 4, 3, 3), "int8")
    bias = operands.constant(np.arange(6) * 100 - 300, "int32")
    scales = operands.pair(np.linspace(0.01, 0.02, 6), 0, "int8")
    inputs = (x, *operands.pair(0.05, 3), weights, *scales, *operands.pair(0.1, -7), bias)
    _runs_on_accelerator(operands.finish("QLinearConv", *inputs, pads=[1, 1, 1, 1]))


def test_matrix_product(operands: Operands) -> None:
    x = operands.input("x", (2, 3, 7), operands.dtype)
    weights = operands.constant(_weights(7, 5), "int8")
    inputs = (
        x,
        *operands.pair(0.05, 3),
        weights,
        *operands.pair(0.02, 0, "int8"),
        *operands.pair(0.1, -7),
    )
    _runs_on_accelerator(operands.finish("QLinearMatMul", *inputs))


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(operands: Operands, transposed: int) -> None:
    x = operands.input("x", (3, 7), operands.dtype)
    weights = operands.constant(_weights(*((5, 7) if transposed else (7, 5))), "int8")
    bias = operands.constant(np.arange(5) * 100 - 300, "int32")
    scales = operands.pair(np.linspace(0.01, 0.02, 5), 0, "int8")
    inputs = (x, *operands.pair(0.05, 3), weights, *scales, bias, *operands.pair(0.1, -7))
    _runs_on_accelerator(operands.finish("QGemm", *inputs, domain=CONTRIB, transB=transposed))


def test_addition(operands: Operands) -> None:
    a, b = (operands.input(name, (2, 3, 4, 5), operands.dtype) for name in "ab")
    inputs = (a, *operands.pair(0.05, 3), b, *operands.pair(0.125, -9), *operands.pair(0.1, 5))
    _runs_on_accelerator(operands.finish("QLinearAdd", *inputs, domain=CONTRIB))


def test_average_pooling(operands: Operands) -> None:
    x = operands.input("x", (2, 3, 6, 7), operands.dtype)
    inputs = (x, *operands.pair(0.05, 3), *operands.pair(0.04, -20))
    attributes = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}
    _runs_on_accelerator(
        operands.finish("QLinearAveragePool", *inputs, domain=CONTRIB, **attributes)
    )


def test_global_average_pooling(operands: Operands) -> None:
    x = operands.input("x", (2, 3, 6, 7), operands.dtype)
    inputs = (x, *operands.pair(0.05, 3), *operands.pair(0.04, -20))
    _runs_on_accelerator(operands.finish("QLinearGlobalAveragePool", *inputs, domain=CONTRIB))


def test_leaky_relu(operands: Operands) -> None:
    x = operands.input("x", (2, 3, 6, 7), operands.dtype)
    inputs = (x, *operands.pair(0.05, 3), *operands.pair(0.04, -20))
    _runs_on_accelerator(operands.finish("QLinearLeakyRelu", *inputs, domain=CONTRIB, alpha=0.2))


@pytest.mark.parametrize("scale", [0.04, 0.05])
def test_concatenation(operands: Operands, scale: float) -> None:
    a = operands.input("a", (1, 2, 3), operands.dtype)
    b = operands.input("b", (1, 4, 3), operands.dtype)
    inputs = (*operands.pair(0.05, 3), a, *operands.pair(0.05, 3), b, *operands.pair(scale, 3))
    _runs_on_accelerator(operands.finish("QLinearConcat", *inputs, domain=CONTRIB, axis=1))


def _integer_product(
    op_type: str, shape: tuple[int, ...], weights: Any, dtype: str, zeros: tuple[int, ...]
) -> Any:
    builder = ModelBuilder()
    x = builder.input("x", shape, dtype)
    w = builder.constant(weights, "int8")
    names = [
        builder.constant(zero, kind) for zero, kind in zip(zeros, (dtype, "int8"), strict=False)
    ]
    builder.node(op_type, x, w, *names, name="op", result="y")
    builder.output("y", "int32")
    return builder.model()


@pytest.mark.parametrize("zeros", [(), (7,), (7, 0)])
def test_integer_products_without_requantisation(zeros: tuple[int, ...]) -> None:
    _runs_on_accelerator(
        _integer_product("ConvInteger", (1, 4, 5, 6), _weights(6, 4, 3, 3), "uint8", zeros)
    )
    _runs_on_accelerator(_integer_product("MatMulInteger", (3, 7), _weights(7, 5), "uint8", zeros))


PLAIN: dict[str, dict[str, Any]] = {
    "MaxPool": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
    "Flatten": {"axis": 2},
    "Identity": {},
}


@pytest.mark.parametrize("op_type", PLAIN)
def test_operators_on_bare_integers(operands: Operands, op_type: str) -> None:
    x = operands.input("x", (2, 3, 6, 7), operands.dtype)
    _runs_on_accelerator(operands.finish(op_type, x, **PLAIN[op_type]))


def test_relu_on_bare_int8() -> None:
    operands = Operands("int8")
    _runs_on_accelerator(operands.finish("Relu", operands.input("x", (2, 3, 6, 7), "int8")))


@pytest.mark.parametrize("op_type", ["Min", "Max"])
def test_comparisons_of_bare_integers(operands: Operands, op_type: str) -> None:
    _runs_on_accelerator(
        operands.finish(op_type, *(operands.input(name, (3, 7), operands.dtype) for name in "ab"))
    )


def test_clip_of_bare_integers(operands: Operands) -> None:
    move = 128 if operands.dtype == "uint8" else 0
    bounds = [operands.constant(bound + move, operands.dtype) for bound in (-30, 55)]
    _runs_on_accelerator(
        operands.finish("Clip", operands.input("x", (3, 7), operands.dtype), *bounds)
    )


def test_concatenation_of_bare_integers(operands: Operands) -> None:
    a = operands.input("a", (1, 2, 3), operands.dtype)
    b = operands.input("b", (1, 4, 3), operands.dtype)
    _runs_on_accelerator(operands.finish("Concat", a, b, axis=1))


def test_choices_and_splits_behind_operators_of_onnx_runtime_are_placed(operands: Operands) -> None:
    """onnx does not know these operators or the shapes of their results.

    The model as given is the oracle.
    """
    x, y = (operands.input(name, (2, 6, 4), operands.dtype) for name in "ab")
    flags = operands.input("flags", (2, 6, 4), "bool")
    pairs = [*operands.pair(0.05, 3), y, *operands.pair(0.02, -9), *operands.pair(0.04, 0)]
    chosen = operands.node("QLinearWhere", flags, x, *pairs, domain=CONTRIB)
    sizes = operands.constant([1, 5], "int64")
    operands.nodes.append(
        onnx.helper.make_node("Split", [chosen, sizes], ["y", "z"], name="split", axis=1)
    )
    for name, size in (("y", 1), ("z", 5)):
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(operands.dtype))
        operands.outputs.append(onnx.helper.make_tensor_value_info(name, kind, (2, size, 4)))
    model = operands.model()
    package = import_model(model, "chosen")
    feeds = random_feeds(model, 3)
    found = simulate(package, feeds, Arch(isa="v4"))
    expected = OnnxRuntimeSession(model).run(["y", "z"], feeds)
    assert {place.op_type for place in found.network.partition.placement if place.on == "cpu"} <= {
        "Cast"
    }
    for name, wanted in expected.items():
        np.testing.assert_array_equal(found.run.outputs[name], wanted)
