"""The quantiser finds ONNX Runtime's scales, zero points, weights and biases to the bit.

Names of tensors make no difference.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.importing import import_model
from byoc.quantisation.quantize import find_ranges, quantise, quantise_within
from byoc.runtimes.session import OnnxRuntimeSession
from tests.byoc.float_models import make_model, random_arrays, run
from tests.byoc.quantiser_oracle import described, differences, quantise_by_onnxruntime
from tests.byoc.test_quantize import network

node = helper.make_node

QUICK = ("digits-cnn", "resnet-8", "resnext-11")
SLOW = ("mobilenet-v2", "mobilenet-v3-small", "squeezenet", "ssd-mobilenet-v1")
"""All others: ``python -m tests.byoc.quantiser_oracle``, 10 minutes of ONNX Runtime's quantiser."""


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_built_in_networks_are_quantised_as_onnxruntime_does(name: str) -> None:
    assert not differences(name)


def branched() -> ModelProto:
    """Return a model with tensors that are read twice, clamped twice, outputs, or moved.

    One constant is added, one bias exceeds its scale, and one tensor passes a softmax.
    """
    nodes = [
        node("Conv", ["x", "w", "big"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Clip", ["r", "zero", "six"], ["k"]),
        node("Conv", ["k", "w", "b"], ["d"], pads=[1, 1, 1, 1]),
        node("Relu", ["d"], ["shown"]),
        node("Add", ["d", "one"], ["added"]),
        node("Transpose", ["added"], ["moved"], perm=[0, 2, 3, 1]),
        node("Softmax", ["moved"], ["soft"]),
        node("MatMul", ["soft", "m"], ["product"]),
        node("MatMul", ["soft", "m"], ["again"]),
        node("Max", ["product", "again"], ["most"]),
        node("Erf", ["most"], ["float"]),
        node("ReduceMean", ["float", "axes"], ["y"], keepdims=1),
    ]
    constants = random_arrays(3, w=[3, 3, 3, 3], big=[3], b=[3], one=[1], m=[3, 3])
    constants["big"][1] = 3e6
    constants["w"][1] *= np.float32(1e-9)
    constants |= {
        "zero": np.array(0, np.float32),
        "six": np.array(6, np.float32),
        "axes": np.array([2]),
    }
    model = make_model(nodes, [1, 3, 6, 6], constants)
    model.graph.output.extend(
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("d", "shown")]
    )
    return prepare(model)


@pytest.mark.parametrize("build", [network, branched])
def test_small_networks_are_quantised_as_onnxruntime_does(build: Callable[[], ModelProto]) -> None:
    model = build()
    ranges = find_ranges(model, seed=5)
    assert described(quantise_within(model, ranges)) == described(
        quantise_by_onnxruntime(model, ranges)
    )


def products(operator: str, hidden: str) -> tuple[ModelProto, np.ndarray]:
    """Three products with one bias, between them activations.

    One tensor has a name of the caller's choice.
    """
    generator = np.random.default_rng(0)
    shape, options = ([1, 8, 3, 3], {"pads": [1, 1, 1, 1]}) if operator == "Conv" else ([1, 8], {})
    kernel = (8, 8, 3, 3) if operator == "Conv" else (8, 8)
    constants = {
        name: (generator.normal(size=kernel) * 0.3).astype(np.float32)
        for name in ("w1", "w2", "w3")
    }
    constants["b"] = (generator.normal(size=8) * 0.2).astype(np.float32)
    nodes = [
        node(operator, ["x", "w1", "b"], ["h1"], name="g1", **options),
        node("Relu", ["h1"], ["r1"], name="n1"),
        node(operator, ["r1", "w2", "b"], [hidden], name="g2", **options),
        node("Sigmoid", [hidden], ["r2"], name="n2"),
        node(operator, ["r2", "w3", "b"], ["h3"], name="g3", **options),
        node("Tanh", ["h3"], ["y"], name="n3"),
    ]
    return make_model(nodes, shape, constants), generator.normal(size=(8, *shape)).astype(
        np.float32
    )


TAKEN = (
    *(
        "b0",
        "b1",
        "b_quantized",
        "b0_quantized",
        "w2_quantized",
        "w2_scale",
        "w2_zero_point",
        "x_scale",
    ),
    *(
        "x_zero_point",
        "r1_DequantizeLinear_Output",
        "r1_QuantizeLinear_Output",
        "y_QuantizeLinear_Input",
        "b:table",
    ),
    *("r2:table", "w2:transposed", "w2_DequantizeLinear_Output", "b_quantized_scale"),
)
"""Names that a quantiser or an importer makes of those of tensors that ``products`` has."""


def normalised(hidden: str) -> ModelProto:
    """Products by turned weights, a normalisation and a function.

    One tensor has a name of the caller's choice.
    """
    generator = np.random.default_rng(1)
    sizes = {"w1": (8, 8), "w2": (8, 8), "gain": (8,)}
    constants = {
        name: generator.normal(size=size).astype(np.float32) for name, size in sizes.items()
    }
    nodes = [
        node("Gemm", ["x", "w1"], [hidden], name="g1", transB=1),
        node("LayerNormalization", [hidden, "gain"], ["l"], name="n1"),
        node("Sigmoid", ["l"], ["s"], name="n2"),
        node("Gemm", ["s", "w2"], ["y"], name="g2", transB=1),
    ]
    return make_model(nodes, [4, 8], constants)


def test_a_tensor_may_have_any_name_that_the_importer_makes() -> None:
    feeds = [
        {"x": sample}
        for sample in np.random.default_rng(2).normal(size=(2, 4, 8)).astype(np.float32)
    ]
    expected = import_model(normalised("hidden"), calibration=feeds)
    made = [name for name in expected.graph.values if ":" in name]
    assert {name.partition(":")[2] for name in made} == {"table", "transposed", "real"}
    for name in made:
        package = import_model(normalised(name), calibration=feeds)
        assert len(package.graph.values) == len(expected.graph.values)
        for one, other in zip(package.graph.nodes, expected.graph.nodes, strict=True):
            assert one.op_type == other.op_type
            pairs = zip(one.inputs, other.inputs, strict=True)
            numbers = [
                (package.graph.values[a].constant, expected.graph.values[b].constant)
                for a, b in pairs
            ]
            assert all(np.array_equal(a, b) if a is not None else b is None for a, b in numbers)


def test_a_tensor_may_have_the_name_of_another_ones_reduction() -> None:
    """A tensor may have the name that the quantiser gives to the minimum of a large tensor.

    For large tensors the quantiser only keeps the least and the largest number, as tensors.
    """
    plain, taken = (
        make_model([node("Relu", ["x"], [name]), node("Neg", [name], ["y"])], [1, 1 << 18], {})
        for name in ("hidden", "y:ReduceMin")
    )
    feeds = [{"x": np.random.default_rng(3).normal(size=(1, 1 << 18)).astype(np.float32)}]
    assert (
        find_ranges(prepare(taken), feeds)["y:ReduceMin"]
        == find_ranges(prepare(plain), feeds)["hidden"]
    )
    assert find_ranges(prepare(taken), feeds)["y"] == find_ranges(prepare(plain), feeds)["y"]


@pytest.mark.parametrize("operator", ["Conv", "Gemm"])
@pytest.mark.parametrize("hidden", TAKEN)
def test_any_name_of_a_tensor_makes_the_same_network(operator: str, hidden: str) -> None:
    plain, samples = products(operator, "hidden")
    model, _ = products(operator, hidden)
    feeds = [{"x": sample} for sample in samples]
    package = import_model(model, calibration=feeds)
    expected = import_model(plain, calibration=feeds)
    assert [item.op_type for item in package.graph.nodes] == [
        item.op_type for item in expected.graph.nodes
    ]
    assert len(package.graph.values) == len(expected.graph.values)
    ours, theirs = (OnnxRuntimeSession(quantise(prepare(given), feeds)) for given in (model, plain))
    for feed in feeds:
        found = ours.run(["y"], feed)["y"]
        np.testing.assert_array_equal(found, theirs.run(["y"], feed)["y"])
        np.testing.assert_allclose(found, run(model, feed)[0], atol=0.1)
