"""Partly quantised files: int8 weights of float computations, or dynamic quantisation.

The latter is combined with an int8 table.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from experiments.running.inference import run
from tests.byoc.small_models import ModelBuilder

EDGES = {"QuantizeLinear", "DequantizeLinear", "Gather"}


def run_calibrated(model: onnx.ModelProto, folder: Path, samples: np.ndarray) -> None:
    """Run a file with samples and without, and compare it with the file's own results.

    The accelerator runs all operators except those at the boundary, in one region.
    """
    path = folder / "mixture.onnx"
    onnx.save(model, path)
    report = run(path).report
    assert any(warning.kind == "uncalibrated" for warning in report.warnings)
    report = run(path, calibration={model.graph.input[0].name: samples}).report
    on_cpu = {(place.op_type, place.reason) for place in report.placement if place.on == "cpu"}
    assert {op_type for op_type, _ in on_cpu} <= EDGES, on_cpu
    assert len({place.region for place in report.placement if place.on == "dla"}) == 1
    assert report.check is not None
    assert report.check.elements > 0
    assert report.check.mismatches == 0
    assert report.fidelity is not None
    assert min(report.fidelity.noise.values()) > 20


def draw_weight_only(random: np.random.Generator) -> onnx.ModelProto:
    """Return Conv and MatMul layers with quantised weights and float activations.

    Weights have 4 or 8 bits and scales per tensor, channel or block.
    """
    b = ModelBuilder()
    channels = int(random.integers(2, 5)) * 2
    value = b.input("x", [1, channels, 8, 8])
    for _ in range(random.integers(1, 4)):
        kind = random.choice(["Conv", "MatMul", "transposed"])
        shape = (channels, channels, 3, 3) if kind == "Conv" else (8, 8)
        dtype = str(random.choice(["int8", "uint8"]))
        limits = np.iinfo(dtype)
        stored = b.constant(random.integers(limits.min, limits.max + 1, shape), dtype)
        form = random.choice(["tensor", "channel", "block"])
        scales = {
            "tensor": (),
            "channel": shape[:1],
            "block": (shape[0], shape[1] // 2, *shape[2:]),
        }[form]
        scale = b.constant(random.uniform(0.005, 0.02, scales), "float32")
        zero = b.constant(np.full(scales, 128 if dtype == "uint8" else 0), dtype)
        options = {"tensor": {}, "channel": {"axis": 0}, "block": {"axis": 1, "block_size": 2}}[
            form
        ]
        weights = b.node("DequantizeLinear", stored, scale, zero, **options)
        if kind == "Conv":
            value = b.node("Conv", value, weights, pads=[1, 1, 1, 1])
        else:
            weights = b.node("Transpose", weights, perm=[1, 0]) if kind == "transposed" else weights
            value = b.node("MatMul", value, weights)
        value = b.node("Relu", value) if random.integers(2) else value
    b.output(value)
    return b.model()


@pytest.mark.parametrize("seed", range(6))
def test_float_activations_of_quantised_weights_are_quantised(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    model = draw_weight_only(random)
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    samples = random.standard_normal((6, channels, 8, 8)).astype(np.float32)
    run_calibrated(model, tmp_path, samples)


def draw_tagger(random: np.random.Generator, folder: Path) -> onnx.ModelProto:
    """Return an embedding, recurrent or not, with products that ONNX Runtime quantises dynamically.

    An int8 table.
    """
    b = ModelBuilder(17)
    rows = int(random.integers(20, 60))
    width = int(random.integers(4, 9)) * 4
    table = b.constant(random.integers(-128, 128, (rows, width)), "int8", "table")
    value = b.dequantize(
        b.node("Gather", table, b.input("ids", [1, 6], "int64"), result="rows"), 0.02
    )
    if random.integers(2):
        value = b.node(
            "Relu",
            b.node(
                "MatMul", value, b.constant(random.standard_normal((width, width)) / 4, "float32")
            ),
        )
    value = b.node("MatMul", value, b.constant(random.standard_normal((width, 5)) / 4, "float32"))
    b.output(value)
    onnx.save(b.model(), folder / "float.onnx")
    quantize_dynamic(folder / "float.onnx", folder / "dynamic.onnx", weight_type=QuantType.QInt8)
    return onnx.load(folder / "dynamic.onnx")


@pytest.mark.parametrize("seed", range(6))
def test_dynamic_quantisation_beside_an_int8_table_becomes_static(
    seed: int, tmp_path: Path
) -> None:
    random = np.random.default_rng(seed)
    model = draw_tagger(random, tmp_path)
    assert {"DynamicQuantizeLinear", "DequantizeLinear"} <= {
        node.op_type for node in model.graph.node
    }
    run_calibrated(model, tmp_path, random.integers(0, 20, (8, 6)))


def test_a_split_is_sliced_when_its_shape_is_known_after_folding(tmp_path: Path) -> None:
    """The rows' number is a Range, whose length shape inference does not know before folding."""
    b = ModelBuilder(17)
    zero, one = b.constant(0, "int64"), b.constant(1, "int64")
    length = b.node("ReduceProd", b.constant([2], "int64"), keepdims=0)
    rows = b.node("Gather", b.input("x", [4, 6, 5]), b.node("Range", zero, length, one), axis=0)
    halves = [b.node("Split", rows, axis=1)]
    b.nodes[-1].output.append("second")
    b.output(b.node("Mul", halves[0], b.node("Sigmoid", "second")))
    model = b.model()
    path = tmp_path / "split.onnx"
    onnx.save(model, path)
    samples = np.random.default_rng(0).standard_normal((4, 4, 6, 5)).astype(np.float32)
    found = run(path, calibration={"x": samples}, inputs={"x": samples[0]}, cache=False)
    assert found.report.check is not None
    assert found.report.check.mismatches == 0
    on_cpu = {place.op_type for place in found.report.placement if place.on == "cpu"}
    assert on_cpu <= {"QuantizeLinear", "DequantizeLinear"}
    session = onnxruntime.InferenceSession(str(path))
    (wanted,) = session.run(None, {"x": samples[0]})
    (ours,) = found.outputs.values()
    assert np.abs(ours - wanted).max() < 0.05
