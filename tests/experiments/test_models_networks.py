"""The built-in networks: sizes, determinism, and an integer operator for every layer."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from byoc.frontend.onnx.file import load_model
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.quantisation.quantize import quantise
from byoc.runtimes.protobuf import opset_of, shapes_of
from experiments.models import MODELS
from experiments.models.digits import MODEL_FILE
from experiments.models.light import LIGHT_NETWORKS
from tests.byoc.float_models import fused_operators, integer_session, operators, run

SMALL_LIGHT = ("squeezenet", "shufflenet", pytest.param("densenet121", marks=pytest.mark.slow))
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("mobilenet-v1", "resnet-18")]


@cache
def prepared(name: str) -> ModelProto:
    return prepare(MODELS[name].build(0))


@cache
def quantised(name: str) -> ModelProto:
    return quantise(prepared(name), MODELS[name].calibration(0))


def multiply_accumulates(model: ModelProto) -> int:
    """Count the multiply-accumulates of convolutions and fully connected layers.

    Padded taps count.
    """
    shapes = shapes_of(model.graph)
    total = 0
    for node in model.graph.node:
        if node.op_type == "Conv":
            total += int(np.prod(shapes[node.output[0]]) * np.prod(shapes[node.input[1]][1:]))
        elif node.op_type == "Gemm":
            total += int(np.prod(shapes[node.input[1]]))
    return total


@pytest.mark.parametrize(
    ("name", "convolutions", "macs"),
    [
        ("digits-cnn", 3, 8 * 8 * (16 * 9 + 16 * 9 + 16 * 32) + 512 * 10),
        ("mobilenet-v1", 27, 568_740_352),
        ("resnet-8", 9, 12_501_632),
        ("resnet-18", 20, 1_814_073_344),
        ("resnext-11", 13, 45_713_920),
    ],
)
def test_sizes(name: str, convolutions: int, macs: int) -> None:
    model = prepared(name)
    assert operators(model)["Conv"] == convolutions
    assert multiply_accumulates(model) == macs


def test_mobilenet_is_built_with_batch_normalisation() -> None:
    counts = operators(MODELS["mobilenet-v1"].build(0))
    assert counts == {
        "Conv": 27,
        "BatchNormalization": 27,
        "Relu": 27,
        "GlobalAveragePool": 1,
        "Flatten": 1,
        "Gemm": 1,
    }


@pytest.mark.parametrize("name", ["resnet-8", "light-squeezenet"])
def test_weights_follow_the_seed(name: str) -> None:
    first, same, other = (
        MODELS[name].build(seed).SerializeToString(deterministic=True) for seed in (0, 0, 1)
    )
    assert first == same
    assert first != other


@pytest.mark.parametrize("name", ["digits-cnn", "resnet-8", "resnext-11", *LARGE])
def test_every_layer_becomes_integer(name: str, tmp_path: Path) -> None:
    layers = operators(prepared(name))
    expected = {
        "QuantizeLinear": 1,
        "DequantizeLinear": 1,
        "QLinearConv": layers["Conv"],
        "QGemm": 1,
        "Flatten": 1,
        "QLinearAdd": layers["Add"],
        "MaxPool": layers["MaxPool"],
        "QLinearGlobalAveragePool": layers["GlobalAveragePool"],
    }
    assert fused_operators(quantised(name), tmp_path) == {
        key: count for key, count in expected.items() if count
    }


@pytest.mark.parametrize("name", ["resnet-8", "resnext-11", *LARGE])
def test_outputs_are_varied_and_survive_quantisation(name: str) -> None:
    sample = MODELS[name].sample_input()
    exact = run(prepared(name), sample)[0]
    integer = integer_session(quantised(name)).run(None, sample)[0]
    assert len(np.unique(integer)) > min(integer.size, 100) * 0.9
    noise = np.mean((exact - integer) ** 2) / np.mean(exact**2)
    assert 10 * np.log10(1 / noise) > 20


def test_held_out_accuracy() -> None:
    builtin = MODELS["digits-cnn"]
    dataset = builtin.dataset()
    assert dataset is not None
    images, labels = dataset
    assert images.shape == (450, 1, 8, 8)
    integer = integer_session(quantised("digits-cnn"))
    exact = integer_session(prepared("digits-cnn"))
    for session in (exact, integer):
        found = [
            int(session.run(None, {"image": image[np.newaxis]})[0].argmax()) for image in images
        ]
        assert np.mean(np.array(found) == labels) >= 0.97


def test_committed_network_is_small() -> None:
    path = Path(__file__).parents[2] / "experiments" / "models" / MODEL_FILE
    assert path.stat().st_size < 30_000
    assert len(load_model(path).graph.node) == 9


@pytest.mark.parametrize("name", SMALL_LIGHT)
def test_light_networks_import_and_quantise(name: str, tmp_path: Path) -> None:
    builtin = MODELS[f"light-{name}"]
    built = builtin.build(0)
    assert (opset_of(built), built.ir_version) == (9, 3)
    onnx.checker.check_model(built)
    model = prepare(built)
    layers = operators(model)
    fused = fused_operators(quantise(model, builtin.calibration(0)), tmp_path)
    assert fused["QLinearConv"] == layers["Conv"]
    assert fused["QLinearConcat"] == layers["Concat"]
    assert "BatchNormalization" not in layers
    assert "FusedConv" not in fused


def test_all_light_networks_are_registered() -> None:
    assert {name for name in MODELS if name.startswith("light-")} == {
        f"light-{name}" for name in LIGHT_NETWORKS
    }


def test_registry_is_light_to_import() -> None:
    heavy = ("onnx", "onnxruntime", "matplotlib", "PIL")
    code = f"import sys, experiments.models; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
