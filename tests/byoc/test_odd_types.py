"""Models of half precision or with dynamic quantisation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

from byoc.frontend.onnx.rewriting.form import widen
from experiments.report.tables import total_lines
from tests.byoc.test_odd_models import CONVOLUTION, branch, info, model_of, node, on, ran, weights

HALF = [TensorProto.FLOAT16, TensorProto.BFLOAT16]


def halved(model: ModelProto, kind: int) -> ModelProto:
    """The model with everything that is float32 in another type."""
    graph = model.graph
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.elem_type = kind
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


@pytest.mark.parametrize("kind", HALF)
def test_half_precision_becomes_float32_first(kind: int, tmp_path: Path) -> None:
    nodes = [*CONVOLUTION, node("Mul", ["r", "factor"], ["y"])]
    report = ran(halved(model_of(nodes, {"factor": np.float32(2)}), kind), tmp_path)
    assert on(report, "dla")["Conv"] == 1
    assert report.fidelity is not None
    assert report.fidelity.widened
    assert min(report.fidelity.noise.values()) > 25
    assert "in float32 for half precision" in dict(total_lines(report))["model"]


def test_casts_to_half_precision_and_back_are_gone(tmp_path: Path) -> None:
    body = branch("z", node("Cast", ["h"], ["z0"], to=1), node("Relu", ["z0"], ["z"]))
    nodes = [
        node("Cast", ["x"], ["xh"], to=10),
        node("Conv", ["xh", "wh"], ["c"], pads=[1, 1, 1, 1]),
        node(
            "ConstantOfShape",
            ["four"],
            ["zeros"],
            value=helper.make_tensor("v", TensorProto.FLOAT16, [1], [0.5]),
        ),
        node("Add", ["c", "zeros"], ["h"]),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "one"], ["big"]),
        node(
            "If",
            ["big"],
            ["i"],
            then_branch=body,
            else_branch=branch("z", node("Cast", ["h"], ["z"], to=1)),
        ),
        node("Relu", ["i"], ["y"]),
    ]
    constants = {
        "wh": weights(4, 3, 3, 3).astype(np.float16),
        "four": np.array([1, 4, 8, 8]),
        "one": np.float32(1),
    }
    model = model_of(nodes, constants)
    before = model.SerializeToString(deterministic=True)
    operators = Counter(item.op_type for item in widen(model).graph.node)
    assert model.SerializeToString(deterministic=True) == before
    assert operators["Identity"] == 1
    assert "Cast" not in operators
    assert on(ran(model, tmp_path), "dla")["Conv"] == 1


def test_a_model_without_half_precision_is_left_alone() -> None:
    model = model_of(CONVOLUTION, {}, outputs=[info("r", TensorProto.FLOAT, None)])
    assert widen(model) is model


def dynamic(model: ModelProto, folder: Path) -> ModelProto:
    """The model as ONNX Runtime's dynamic quantiser writes it."""
    onnx.save(model, folder / "float.onnx")
    operators = ["Conv", "MatMul", "Gemm", "LSTM"]
    quantize_dynamic(folder / "float.onnx", folder / "dynamic.onnx", op_types_to_quantize=operators)
    return onnx.load(folder / "dynamic.onnx")


def layers(*, biased: bool) -> ModelProto:
    """Convolutions, a recurrent layer and a matrix product."""
    nodes = [
        node("Conv", ["x", "w", "b"][: 2 + biased], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "w2"], ["c2"], group=2),
        node("Reshape", ["c2", "rows"], ["s"]),
        node("LSTM", ["s", "lw", "lr", "lb"], ["o", "", ""], hidden_size=5),
        node("Squeeze", ["o", "axis"], ["q"]),
        node("MatMul", ["q", "m"], ["p"]),
        node("Add", ["p", "mb"], ["y"]),
    ]
    constants = {
        "b": weights(4),
        "w2": weights(6, 2, 1, 1),
        "rows": np.array([8, 1, 48]),
        "lw": weights(1, 20, 48),
        "lr": weights(1, 20, 5),
        "lb": weights(1, 40),
        "axis": np.array([1]),
        "m": weights(5, 7),
        "mb": weights(7),
    }
    return model_of(nodes, constants)


@pytest.mark.parametrize("biased", [False, True])
def test_dynamic_quantisation_becomes_static(biased: bool, tmp_path: Path) -> None:
    model = dynamic(layers(biased=biased), tmp_path)
    found = Counter(item.op_type for item in model.graph.node)
    assert (found["ConvInteger"], found["MatMulInteger"], found["DynamicQuantizeLSTM"]) == (2, 1, 1)
    report = ran(model, tmp_path)
    assert on(report, "dla")["Conv"] == 2
    assert on(report, "dla")["MatMul"] >= 1
    assert "DynamicQuantizeLinear" not in on(report, "cpu")
    assert report.fidelity is not None
    assert report.fidelity.made_static == found["DynamicQuantizeLinear"] + 1
    # against the model with its own error of eight bits
    assert min(report.fidelity.noise.values()) > 15
    assert (
        f"{report.fidelity.made_static} dynamic quantisations made static"
        in dict(total_lines(report))["model"]
    )


def test_a_dynamically_quantised_model_takes_calibration(tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", x=weights(3, 1, 3, 8, 8))
    report = ran(
        dynamic(layers(biased=True), tmp_path), tmp_path, calibration=tmp_path / "samples.npz"
    )
    assert report.fidelity is not None
    assert report.fidelity.made_static


def test_sixteen_bit_activations_are_quantised_to_eight_bits(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        node("DequantizeLinear", ["k", "ks"], ["kd"]),
        node("Conv", ["xd", "kd"], ["c"], name="conv"),
        node("QuantizeLinear", ["c", "s", "z"], ["cq"]),
        node("DequantizeLinear", ["cq", "s", "z"], ["y"]),
    ]
    constants = {
        "s": np.float32(0.001),
        "z": np.int16(0),
        "k": np.ones((4, 3, 1, 1), np.int8),
        "ks": np.float32(0.1),
    }
    report = ran(model_of(nodes, constants, opset=21), tmp_path)
    assert [entry.on for entry in report.placement if entry.op_type == "Conv"] == ["dla"]
    assert report.fidelity.noise["y"] > 30
    assert report.fidelity.calibration.added.activations > 0
