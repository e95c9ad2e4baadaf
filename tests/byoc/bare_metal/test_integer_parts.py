"""Integer nodes that the CPU computes give the runtime's bits in C, on drawn inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from experiments.cli.main import main
from tests.byoc.bare_metal.images import build_bundle
from tests.byoc.bare_metal.served import Served
from tests.tflite.builder import Quantisation, TfliteBuilder

RANDOM = np.random.default_rng(4)
SAMPLES = 6


class Draft:
    """Quantised ONNX model with one node between quantised tensors."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def constant(self, name: str, array: NDArray[Any]) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantise(self, name: str, scale: float, zero: int, dtype: str = "") -> str:
        """Add QuantizeLinear and DequantizeLinear behind ``name``."""
        steps = [
            self.constant(f"{name} scale", np.float32(scale)),
            self.constant(f"{name} zero", np.array(zero, dtype or self.dtype)),
        ]
        ends = [f"{name} q", f"{name} d"]
        self.nodes.append(helper.make_node("QuantizeLinear", [name, *steps], ends[:1]))
        self.nodes.append(helper.make_node("DequantizeLinear", [ends[0], *steps], ends[1:]))
        return ends[1]

    def input(self, name: str, shape: tuple[int, ...], scale: float, zero: int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return self.quantise(name, scale, zero)

    def weights(self, name: str, shape: tuple[int, ...], axis: int) -> str:
        """Add int8 weights with a scale for each index of ``axis``."""
        scales = RANDOM.uniform(0.001, 0.02, shape[axis]).astype(np.float32)
        given = [
            self.constant(name, RANDOM.integers(-127, 128, shape).astype(np.int8)),
            self.constant(f"{name} scale", scales),
            self.constant(f"{name} zero", np.zeros(shape[axis], np.int8)),
        ]
        self.nodes.append(helper.make_node("DequantizeLinear", given, [f"{name} d"], axis=axis))
        return f"{name} d"

    def bias(self, name: str, source: float, weights: str) -> str:
        """Add an int32 bias in the scale of the sums."""
        scales = next(
            numpy_helper.to_array(c) for c in self.constants if c.name == f"{weights} scale"
        )
        given = [
            self.constant(name, RANDOM.integers(-3000, 3000, len(scales)).astype(np.int32)),
            self.constant(f"{name} scale", np.float32(source) * scales),
            self.constant(f"{name} zero", np.zeros(len(scales), np.int32)),
        ]
        self.nodes.append(helper.make_node("DequantizeLinear", given, [f"{name} d"], axis=0))
        return f"{name} d"

    def finish(self, op_type: str, inputs: list[str], shape: tuple[int, ...], scale: float,
               zero: int, **attributes: Any) -> onnx.ModelProto:  # fmt: skip
        self.nodes.append(helper.make_node(op_type, inputs, ["y"], name="node", **attributes))
        output = self.quantise("y", scale, zero)
        graph = helper.make_graph(
            self.nodes, "node", self.inputs,
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)], self.constants,
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def make_model(kind: str, dtype: str) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    """Return a model with a node of ``kind``, and the shapes of its inputs."""
    draft = Draft(dtype)
    middle = 128 if dtype == "uint8" else 0
    if kind in ("conv", "depthwise"):
        groups = 6 if kind == "depthwise" else 2
        x = draft.input("x", (1, 6, 9, 7), 0.05, middle - 11)
        w = draft.weights("w", (12, 6 // groups, 3, 2), 0)
        b = draft.bias("b", 0.05, "w")
        model = draft.finish(
            "Conv", [x, w, b], (1, 12, 4, 8), 0.11, middle + 7,
            group=groups, strides=[2, 1], pads=[1, 2, 0, 1], dilations=[1, 2],
        )  # fmt: skip
        return model, {"x": (1, 6, 9, 7)}
    if kind == "matmul":
        x = draft.input("x", (3, 5, 20), 0.05, middle - 11)
        w = draft.weights("w", (20, 9), 1)
        return draft.finish("MatMul", [x, w], (3, 5, 9), 0.2, middle), {"x": (3, 5, 20)}
    if kind == "products":
        shapes: dict[str, tuple[int, ...]] = {"a": (2, 5, 20), "b": (2, 20, 9)}
        a, b = (draft.input(name, shape, 0.05, middle - 11) for name, shape in shapes.items())
        return draft.finish("MatMul", [a, b], (2, 5, 9), 0.09, middle), shapes
    if kind == "softmax":
        x = draft.input("x", (3, 10, 4), 0.04, middle)
        return draft.finish("Softmax", [x], (3, 10, 4), 1 / 256, middle - 128, axis=1), {
            "x": (3, 10, 4)
        }
    shapes = {"a": (2, 3, 1, 50), "b": (2, 3, 6, 50)}
    scales = {"a": 0.05, "b": 0.025} if kind == "Add" else {"a": 0.0471, "b": 0.0232}
    a, b = (draft.input(name, shape, scales[name], middle - 5) for name, shape in shapes.items())
    scale = {"Mul": 0.017, "Add": 0.05, "Sub": 0.06, "Div": 0.4}[kind]
    return draft.finish(kind, [a, b], (2, 3, 6, 50), scale, middle + 3), shapes


def check_on_cpu(path: Path, feeds: dict[str, NDArray[np.float32]], *words: str) -> str:
    """Export a model with drawn inputs, compare C with the runtime, and return the C source."""
    np.savez(path.with_suffix(".npz"), **feeds)  # type: ignore[arg-type]
    folder = path.parent / "made"
    given = ["--input", str(path.with_suffix(".npz")), *words, "--quiet", "-o", str(folder)]
    assert main(["export", "--bare-metal", str(path), *given]) == 0
    found = Served().run_library(build_bundle(folder))
    assert found.status == 0, found.text
    return (folder / f"network_{path.stem}.c").read_text()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("conv", "dla_multiply"), ("depthwise", "dla_multiply"), ("matmul", "dla_multiply"),
        ("products", "dla_multiply"), ("softmax", "dla_softmax"), ("Mul", "NULL"),
        ("Add", "NULL"), ("Sub", "dla_combine_bytes"), ("Div", "dla_combine_bytes"),
    ],
)  # fmt: skip
def test_integer_nodes_equal_the_runtime(kind: str, call: str, dtype: str, tmp_path: Path) -> None:
    model, shapes = make_model(kind, dtype)
    onnx.save(model, tmp_path / "node.onnx")
    feeds = {name: RANDOM.normal(0, 3, shape).astype(np.float32) for name, shape in shapes.items()}
    text = check_on_cpu(tmp_path / "node.onnx", feeds, "--cpu", "node")
    body = text[text.index("_run(const struct dla_port") :]
    assert call in body
    assert "dla_run(" not in body


@pytest.mark.parametrize("numerics", ["onnxruntime", "fixed"])
def test_float_inputs_of_litert(numerics: str, tmp_path: Path) -> None:
    builder = TfliteBuilder("float")
    x = builder.input("x", (1, 3000), dtype=np.float32)
    scale = Quantisation(0.03, 3)
    made = builder.operator("QUANTIZE", [x], scale)
    tanh = builder.operator("TANH", [made], Quantisation(1 / 128, 0))
    path = tmp_path / "float.tflite"
    path.write_bytes(builder.model(builder.operator("DEQUANTIZE", [tanh], dtype=np.float32)))
    steps = np.concatenate([RANDOM.integers(-140, 140, 1500) + 0.5, RANDOM.normal(0, 90, 1500)])
    feeds = {"x": (steps * np.float32(0.03)).astype(np.float32)[None]}
    np.savez(tmp_path / "float.npz", **feeds)
    machine = {"settings": {"numerics": numerics}}
    words = ["--set", f"numerics={numerics}", "--input", str(tmp_path / "float.npz")]
    folder = tmp_path / "made"
    assert main(["export", "--bare-metal", str(path), *words, "--quiet", "-o", str(folder)]) == 0
    found = Served(machine).run_library(build_bundle(folder))
    assert found.status == 0, found.text
    rule = {"onnxruntime": "DLA_RECIPROCAL", "fixed": "DLA_HALF_AWAY"}[numerics]
    assert rule in (folder / "network_float.c").read_text()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("q_bias_overflow2", "its sums may need more than 32 bits"),
        ("q_w_axis1", "weights are quantised along axis 1"),
        ("q_avg_dil", "average pooling has no dilation"),
    ],
)
def test_refusals_give_the_reason(
    name: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).parents[2] / "cases" / "second" / f"{name}.onnx"
    words = ["export", "--bare-metal", str(path), "--no-samples", "-o", str(tmp_path / "made")]
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert reason in lines[-1]
    assert "runs on the CPU and cannot be exported" in lines[-1]
