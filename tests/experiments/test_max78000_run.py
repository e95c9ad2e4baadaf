"""Networks of the vendor as ONNX models on the described MAX78000."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dla
from byoc.options import DEFAULTS
from byoc.package.interface import connect
from experiments.machines import max78000_arithmetic
from experiments.machines.description import LayerWork
from experiments.machines.evaluate import Evaluation, Evaluator
from experiments.machines.max78000 import MACHINE
from experiments.machines.max78000_arithmetic import (
    Integers,
    add_bias,
    convolve,
    pool_maximum,
    saturate,
    shift_sums,
)
from experiments.machines.max78000_figures import NETWORKS, chain_layers, predict_time
from experiments.machines.max78000_passes import count_kernels
from experiments.models.builder import NetworkBuilder
from experiments.running.network import load_network
from isa.errors import InputError
from tests.byoc.small_models import ModelBuilder

if TYPE_CHECKING:
    from onnx import ModelProto


def build_model(name: str, layers: Sequence[LayerWork]) -> ModelProto:
    """Return layers as a float ONNX model with random weights."""
    shape = layers[0].inputs[0]
    sides = len(shape) - 1
    builder = NetworkBuilder(name, "x", (1, *shape), seed=0)
    value = "x"
    for layer in layers[:-1]:
        channels = (layer.inputs[0][0], layer.output[0])
        if layer.pool is not None:
            window = list(layer.pool.kernel[-sides:])
            value = builder.node(
                "MaxPool", f"{layer.name} pool", value, kernel_shape=window, strides=window
            )
        pads = [layer.padding[1]] * 2 * sides
        kernel = layer.kernel[-sides:]
        value = builder.convolution(layer.name, value, channels, kernel, pads=pads)
        value = builder.relu(f"{layer.name} relu", value)
    last = layers[-1]
    value = builder.node("Flatten", "flatten", value)
    features = 1
    for side in last.inputs[0]:
        features *= side
    return builder.logits(value, (features, last.output[0]))


def evaluate(model: ModelProto) -> Evaluation:
    interface = connect(load_network(model).package, DEFAULTS)
    evaluator = Evaluator(interface.graph, interface.annotations, MACHINE)
    return evaluator.evaluate(MACHINE.parameters())


@pytest.mark.parametrize("network", ["mnist", "kws20_v3"])
def test_a_model_takes_the_time_of_its_published_row(network: str) -> None:
    found = evaluate(build_model(network, NETWORKS[network]))
    start = found.parameters.start_cycles  # type: ignore[attr-defined]
    assert found.milliseconds * 1000 == pytest.approx(predict_time(network, start))
    assert {rule for _, rule in found.refused.values()} <= {"boundary"}, found.refused


def test_weights_that_exceed_the_memories_together_name_the_processor() -> None:
    rows = [(300, 3, 1, 1), (64, 3, 1, 1), (300, 3, 1, 1), (10, 0, 0, 1)]
    found = evaluate(build_model("wide", chain_layers((64, 4, 4), rows)))
    reasons = {name: reason for name, (reason, rule) in found.refused.items() if rule != "boundary"}
    assert reasons == {
        "layer 1": "320 kernels of 9 bytes do not fit: processor 0 has 168 of 768 free"
    }
    assert {rule for _, rule in found.refused.values()} == {"boundary", "weight memory"}


def test_a_network_with_powers_of_two_runs_with_the_machines_arithmetic() -> None:
    random = np.random.default_rng(2)
    weights = random.integers(-128, 128, (4, 2, 3, 3))
    bias = random.integers(-128, 128, 4)
    matrix = random.integers(-8, 8, (16, 5))
    build = ModelBuilder()
    source = build.input("x", (1, 2, 4, 4))

    def settle(value: str, exponent: int) -> str:
        return build.dequantize(build.quantize(value, 2.0**exponent, 0, "int8"), 2.0**exponent, 0)

    kernel = build.dequantize(build.constant(weights, "int8"), 2.0**-7, 0)
    biases = build.dequantize(build.constant(bias * 128, "int32"), 2.0**-14, 0, "int32")
    value = build.node("Conv", settle(source, -7), kernel, biases, pads=[1] * 4)
    value = settle(build.node("Relu", value), -5)
    value = settle(build.node("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2]), -5)
    value = settle(build.node("Flatten", value), -5)
    factors = build.dequantize(build.constant(matrix, "int8"), 2.0**-7, 0)
    build.output(settle(build.node("MatMul", value, factors), -3))

    image = random.uniform(-1.2, 1.2, (1, 2, 4, 4)).astype(np.float32)
    result = dla.run(build.model(), machine="max78000", inputs=image)
    integers = saturate(np.rint(image[0] * 128).astype(np.int64))
    sums = add_bias(convolve(integers, weights, (1,) * 4, (1, 1)), bias)
    pooled = pool_maximum(np.maximum(shift_sums(sums, -2), 0), (2, 2), (2, 2))
    expected = shift_sums(pooled.reshape(-1) @ matrix, -2) / 8
    (found,) = result.outputs.values()
    assert found.reshape(-1).tolist() == expected.tolist()
    assert result.report.check.oracle.startswith("values: the machine's own arithmetic")


@pytest.mark.parametrize("bits", [4, 2])
def test_packed_weights_of_a_file_are_stored_packed(bits: int) -> None:
    """ONNX's int4 and int2 give the values of the same numbers in int8, in fewer kernels."""
    random = np.random.default_rng(bits)
    half = 1 << bits - 1
    weights = random.integers(-half, half, (8, 2, 3, 3))
    image = random.uniform(-1.2, 1.2, (1, 2, 4, 4)).astype(np.float32)
    found = []
    for dtype in ("int8", f"int{bits}"):
        build = ModelBuilder(opset=25)
        value = build.dequantize(
            build.quantize(build.input("x", (1, 2, 4, 4)), 2.0**-7, 0), 2.0**-7, 0
        )
        stored = build.constant(weights, "int8", "stored")
        if dtype != "int8":
            kind = {4: TensorProto.INT4, 2: TensorProto.INT2}[bits]
            build.initializers[-1] = helper.make_tensor(
                stored, kind, weights.shape, weights.ravel()
            )
        scale = build.constant(2.0 ** (1 - bits), "float32")
        kernel = build.node("DequantizeLinear", stored, scale)
        value = build.node("Conv", value, kernel, pads=[1] * 4)
        build.output(build.dequantize(build.quantize(value, 2.0**-4, 0), 2.0**-4, 0))
        result = dla.run(build.model(), machine="max78000", inputs=image)
        assert result.report.check.oracle.startswith("values: the machine's own arithmetic")
        found.append([output.tolist() for output in result.outputs.values()])
        (layer,) = [
            one.work for one in evaluate(build.model()).layers if one.work and one.work.weight_bytes
        ]
        assert layer.weight_bits == bits
        assert count_kernels(layer) == bits
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("low", "high", "zero", "bits"),
    [(0, 255, 128, 8), (0, 255, 0, 16), (120, 135, 128, 4), (0, 15, 8, 4), (127, 128, 128, 1)],
)
def test_bits_of_weights_are_counted_from_their_zero_point(
    low: int, high: int, zero: int, bits: int
) -> None:
    build = ModelBuilder()
    value = build.dequantize(build.quantize(build.input("x", (1, 2, 4, 4)), 0.05, 0), 0.05, 0)
    stored = build.constant(np.resize([low, high], (8, 2, 3, 3)), "uint8", "stored")
    scale, point = build.constant(0.5, "float32"), build.constant(zero, "uint8")
    value = build.node("Conv", value, build.node("DequantizeLinear", stored, scale, point))
    build.output(build.dequantize(build.quantize(value, 1, 0), 1, 0))
    found = evaluate(build.model())
    works = [layer.work for layer in found.layers if layer.work is not None]
    if bits <= 8:
        assert [work.weight_bits for work in works if work.macs] == [bits]
    else:
        assert any("weights of 16 bits exceed 8" in reason for reason, _ in found.refused.values())


def test_packed_weights_with_a_computed_zero_point_stay_in_the_file() -> None:
    """ONNX Runtime computes the product, because the zero point is no constant."""
    build = ModelBuilder()
    value = build.dequantize(build.quantize(build.input("x", (1, 2, 4, 4)), 0.05, 0), 0.05, 0)
    stored = build.constant(np.ones((8, 2, 3, 3), np.int64), "int8", "stored")
    build.initializers[-1] = helper.make_tensor(stored, TensorProto.INT4, (8, 2, 3, 3), [1] * 144)
    zero = build.node("Cast", build.input("zero", (), "int8"), to=TensorProto.INT4)
    kernel = build.node("DequantizeLinear", stored, build.constant(0.5, "float32"), zero)
    build.output(build.dequantize(build.quantize(build.node("Conv", value, kernel), 1, 0), 1, 0))
    image = np.ones((1, 2, 4, 4), np.float32)
    result = dla.run(build.model(), inputs={"x": image, "zero": np.zeros((), np.int8)})
    (found,) = result.outputs.values()
    assert (found == 9).all()


def test_weight_bits_make_a_network_fit_and_limit_its_weights() -> None:
    rows = [(300, 3, 1, 1), (64, 3, 1, 1), (300, 3, 1, 1), (10, 0, 0, 1)]
    model = build_model("wide", chain_layers((64, 4, 4), rows))
    given = {"quantise": "power-of-two", "machine": "max78000"}
    narrow = dla.run(model, weight_bits={"*": 4, "layer 1": 2}, **given)
    on_cpu = [
        {row.node for row in result.report.placement if row.reason and "kernels" in row.reason}
        for result in (dla.run(model, **given), narrow)
    ]
    assert on_cpu == [{"layer 1"}, set()]
    values = narrow.package.graph.values
    for node in narrow.package.graph.nodes:
        if node.op_type in ("Conv", "MatMul"):
            constant = values[node.inputs[1]].constant
            assert constant is not None
            half = 2 if node.name == "layer 1" else 8
            assert constant.min() >= -half
            assert constant.max() < half
            assert constant.max() - constant.min() > half


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"weight_bits": {"*": 4}},
            "weight_bits is for quantise='power-of-two', not for minmax",
        ),
        (
            {"weight_bits": {"conv9": 4}, "quantise": "power-of-two"},
            "weight_bits=.*: no product with constant weights has this name; did you mean conv ",
        ),
        (
            {"weight_bits": {"*": 3}, "quantise": "power-of-two"},
            "weight_bits={.*3}: choose 1, 2, 4 or 8 bits",
        ),
    ],
)
def test_weight_bits_that_do_not_apply_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dla.run(build_residual(), machine="max78000", **given)


def test_weight_bits_accept_a_name_with_brackets() -> None:
    builder = NetworkBuilder("brackets", "x", (1, 3, 8, 8), seed=1)
    first = builder.relu("relu", builder.convolution("/layer[0]/conv", "x", (3, 8), (3, 3)))
    model = builder.logits(builder.node("Flatten", "flatten", first), (8 * 8 * 8, 10))
    bits = {"/layer[0]/conv": 2}
    graph = dla.run(model, quantise="power-of-two", weight_bits=bits).package.graph
    (node,) = [node for node in graph.nodes if node.name == "/layer[0]/conv"]
    constant = graph.values[node.inputs[1]].constant
    assert constant is not None
    assert set(np.unique(constant)) == {-2, -1, 0, 1}


def build_residual() -> ModelProto:
    """Return a float network with a pool, a residual sum, and biases larger than its weights."""
    builder = NetworkBuilder("residual", "x", (1, 3, 16, 16), seed=1)
    first = builder.relu("relu 1", builder.convolution("conv 1", "x", (3, 8), (3, 3), pads=[1] * 4))
    second = builder.convolution("conv 2", first, (8, 8), (3, 3), pads=[1] * 4)
    total = builder.relu("relu 2", builder.node("Add", "sum", second, first))
    pooled = builder.node("MaxPool", "pool", total, kernel_shape=[2, 2], strides=[2, 2])
    return builder.logits(builder.node("Flatten", "flatten", pooled), (8 * 8 * 8, 10))


@pytest.mark.parametrize("network", ["mnist", "residual"])
def test_a_float_network_gets_scales_of_powers_of_two(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    residual = network == "residual"
    model = build_residual() if residual else build_model(network, NETWORKS[network])
    shape = (1, 3, 16, 16) if residual else (1, 1, 28, 28)
    image = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    given = {"inputs": image, "quantise": "power-of-two"}
    result = dla.run(model, machine="max78000", **given)
    assert result.report.check.oracle.startswith("values: the machine's own arithmetic")

    values = result.package.graph.values.values()
    for value in (one for one in values if one.quantization is not None):
        assert value.quantization is not None
        assert value.quantization.scale.size == 1
        assert np.frexp(float(value.quantization.scale))[0] == 0.5
        assert not value.quantization.zero_point.any()
        if value.constant is not None and value.dtype == "int32":
            assert not (value.constant % 128).any()
            assert abs(value.constant // 128).max() <= 128

    # Ties are the only difference from the integer model, whose oracle is ONNX Runtime.
    def round_ties_to_even(sums: Integers, shift: int) -> Integers:
        return saturate(np.rint(sums * 2.0**shift / 128).astype(np.int64))

    monkeypatch.setattr(max78000_arithmetic, "shift_sums", round_ties_to_even)
    even = dla.run(model, machine="max78000", **given)
    ours = dla.run(model, **given)
    assert ours.report.check.mismatches == 0
    for name, found in ours.outputs.items():
        assert even.outputs[name].tolist() == found.tolist()

    session = onnxruntime.InferenceSession(model.SerializeToString())
    (exact,) = session.run(None, {"x": image})
    (found,) = result.outputs.values()
    assert (exact**2).sum() > 10**1.5 * ((exact - found) ** 2).sum()  # 15 dB
