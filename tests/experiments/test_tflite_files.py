"""TensorFlow Lite files from any source are rejected in one line, or run.

Operators that fall back have a reason.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import byoc
import experiments
from byoc.runtimes import litert
from experiments.running import inference
from isa.arch import Arch
from isa.installation import remedy
from tests.experiments.command_line import dla
from tests.fuzz_inputs.materials import tflite_model
from tests.fuzz_inputs.mutation import mutate_bytes, mutate_words
from tests.tflite.builder import Quantisation, Tensor, TfliteBuilder

pytestmark = pytest.mark.usefixtures("fresh_folder")

Capture = pytest.CaptureFixture[str]
FILE = Path("net.tflite")


def refused(capsys: Capture, content: bytes, *arguments: str) -> str:
    """The line that a model is refused with."""
    FILE.write_bytes(content)
    found = dla(capsys, "run", FILE, *arguments)
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("error: ")
    assert found.err.count("\n") == 1
    return found.err.removeprefix("error: ").rstrip("\n")


def changed(content: bytes, change: Callable[[Any], None]) -> bytes:
    """The file with something else in its ``ModelT``."""
    model = litert.schema().ModelT.InitFromPackedBuf(content, 0)
    change(model)
    return litert.pack_model(model)


def single(kind: str, dtype: Any = np.int8, **options: Any) -> bytes:
    """A model of one operator on one tensor."""
    builder = TfliteBuilder("single")
    quantisation = None if dtype == np.float32 else Quantisation(0.125)
    x = builder.input("x", (1, 4, 4, 3), quantisation, dtype)
    return builder.model(builder.operator(kind, [x], quantisation, dtype, **options))


def test_truncated(capsys: Capture) -> None:
    content = tflite_model()
    for end in (0, 4, 7, 8, 40, len(content) // 2, len(content) - 300):
        assert refused(capsys, content[:end]).startswith("net.tflite: ")


@pytest.mark.parametrize("seed", range(3))
def test_mutated(capsys: Capture, seed: int) -> None:
    """More of them: python -m tests.fuzz_inputs --kind "TensorFlow Lite" --count 1000."""
    rng = random.Random(seed)
    content = tflite_model()
    for mutate in [mutate_words] * 8 + [mutate_bytes] * 4:
        FILE.write_bytes(mutate(content, rng))
        found = dla(capsys, "run", FILE, "--set", "numerics=fixed")
        assert found.status in (0, 2), found.err
        assert (found.err.count("\n") == 1 and found.err.startswith("error: ")) or found.status == 0


def test_another_schema(capsys: Capture) -> None:
    def change(model: Any) -> None:
        model.version = 4

    line = refused(capsys, changed(tflite_model(), change))
    assert (
        line
        == "net.tflite: it has schema version 4, this tool reads version 3; convert or copy it "
        "again"
    )


def test_what_does_not_fit_is_named(capsys: Capture) -> None:
    def twice(model: Any) -> None:
        graph = model.subgraphs[0]
        graph.operators[1].outputs = graph.operators[0].outputs

    line = refused(capsys, changed(tflite_model(), twice))
    assert (
        line
        == "net.tflite: PAD:1 makes 'conv_2d_0', which is there already; convert or copy it again"
    )

    def shorter(model: Any) -> None:
        model.subgraphs[0].tensors[0].shape = [5, 3, 3, 3]

    line = refused(capsys, changed(tflite_model(), shorter))
    assert (
        line
        == "net.tflite: constant 'w' of shape [5, 3, 3, 3] has 108 of 135 bytes; convert or copy "
        "it again"
    )

    def otherwise(model: Any) -> None:
        tensor = next(
            tensor for tensor in model.subgraphs[0].tensors if tensor.name == b"conv_2d_0"
        )
        tensor.shape = [1, 6, 7, 4]

    line = refused(capsys, changed(tflite_model(), otherwise))
    assert line == (
        "net.tflite: CONV_2D:0 makes 'conv_2d_0' of shape [1, 6, 6, 4], and the model declares [1, "
        "6, 7, 4]; "
        "convert it again"
    )


def test_biases_that_name_the_axis_of_their_filters() -> None:
    """Biases may name the axis of their filters.

    The person detection of TensorFlow Lite for Microcontrollers does, and LiteRT 2.3 rejects it.
    """

    def misnamed(model: Any) -> None:
        tensor = next(tensor for tensor in model.subgraphs[0].tensors if tensor.name == b"b")
        tensor.quantization.quantizedDimension = 3

    FILE.write_bytes(changed(tflite_model(), misnamed))
    assert inference.run(FILE, settings=["numerics=fixed"]).report.check.mismatches == 0


def test_weights_of_four_bits_stay_on_the_cpu() -> None:
    def packed(model: Any) -> None:
        graph = model.subgraphs[0]
        tensor = next(tensor for tensor in graph.tensors if tensor.name == b"f")
        tensor.type = litert.schema().TensorType.INT4
        model.buffers[tensor.buffer].data = model.buffers[tensor.buffer].data[:10]

    reasons = _fallback(changed(tflite_model(), packed))
    assert reasons["FULLY_CONNECTED"] == (
        "FULLY_CONNECTED stays on the CPU: constant 'f' is of type int4: only 8-bit ones run on "
        "the accelerator"
    )


def test_two_layers_may_share_weights() -> None:
    """One behind planes, whose elements are in another order, and one behind a row."""
    builder = TfliteBuilder("shared")
    random = np.random.default_rng(0)
    w = builder.constant("w", random.integers(-127, 128, (4, 18), np.int8), Quantisation(0.01))
    x = builder.input("x", (1, 3, 3, 2), Quantisation(0.1))
    y = builder.input("y", (1, 18), Quantisation(0.1))
    window = {"filter_width": 1, "filter_height": 1, "stride_w": 1, "stride_h": 1}
    x = builder.operator("MAX_POOL_2D", [x], Quantisation(0.1), padding="VALID", **window)
    made = [
        builder.operator("FULLY_CONNECTED", [each, w, None], Quantisation(0.2)) for each in (x, y)
    ]
    assert _fallback(builder.model(*made)) == {}


def test_a_model_of_int16_alone(capsys: Capture) -> None:
    assert refused(capsys, single("RELU", np.int16)) == (
        "net.tflite: its operators make int16, no 8-bit integers: convert it with full integer "
        "quantisation (a "
        "representative dataset, and TFLITE_BUILTINS_INT8)"
    )


@pytest.mark.parametrize(
    ("option", "fact"),
    [("--shape", "has fixed shapes"), ("--fix", "has fixed inputs")],
)
def test_options_that_are_for_other_models(capsys: Capture, option: str, fact: str) -> None:
    line = refused(capsys, tflite_model(), option, "image=1")
    assert (
        line
        == f"net.tflite: a TensorFlow Lite model {fact}; leave {option} out, or convert the model "
        "otherwise"
    )


def test_without_the_extra(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    content = tflite_model()
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    monkeypatch.delitem(sys.modules, "ai_edge_litert.schema_py_generated", raising=False)
    line = refused(capsys, content)
    assert "\n" not in line
    assert line.endswith(f"install it with: {remedy('tflite')}")


def test_kernels_that_end_their_process(capsys: Capture) -> None:
    """LiteRT's optimised depthwise convolution reads the bias, whether or not there is one."""
    builder = TfliteBuilder("crash")
    x = builder.input("x", (1, 6, 8, 2), Quantisation(0.1))
    w = builder.constant("w", np.ones((1, 2, 2, 4), np.int8), Quantisation((0.1,) * 4, axis=3))
    content = builder.model(
        builder.operator(
            "DEPTHWISE_CONV_2D", [x, w], Quantisation(0.2), depth_multiplier=2, dilation_w_factor=1
        )
    )
    line = refused(capsys, content)
    assert "LiteRT ended its process on the model (exit status -" in line
    assert inference.run(FILE, settings=["numerics=fixed"]).report.check.mismatches == 0


def _fallback(content: bytes) -> dict[str, str | None]:
    FILE.write_bytes(content)
    report = inference.run(FILE, settings=["numerics=fixed"]).report
    assert report.check.mismatches == report.check.outputs.differences == 0
    return {place.op_type: place.reason for place in report.placement if place.on == "cpu"}


def _behind(
    kind: str, operands: Callable[[TfliteBuilder, Tensor], list[Tensor]], **options: Any
) -> bytes:
    """A convolution, and an operator behind it."""
    builder = TfliteBuilder("behind")
    x = builder.input("x", (1, 6, 6, 4), Quantisation(0.05))
    w = builder.constant(
        "w", np.arange(-8, 8, dtype=np.int8).reshape(4, 1, 1, 4), Quantisation(0.1)
    )
    b = builder.constant("b", np.zeros(4, np.int32), Quantisation(0.005))
    x = builder.operator("CONV_2D", [x, w, b], Quantisation(0.1))
    return builder.model(builder.operator(kind, operands(builder, x), **options))


def test_reasons_on_the_cpu() -> None:
    rows = _behind("LOG_SOFTMAX", lambda b, x: [x], quantisation=Quantisation(16 / 256, 127))
    assert _fallback(rows) == {
        "LOG_SOFTMAX": "LOG_SOFTMAX stays on the CPU: its rule is LiteRT's own"
    }
    slopes = _behind(
        "PRELU",
        lambda b, x: [x, b.input("a", (1, 1, 4), Quantisation(0.1))],
        quantisation=Quantisation(0.1),
    )
    assert _fallback(slopes) == {
        "PRELU": "PRELU stays on the CPU: it is no function of one tensor and a constant a channel"
    }
    real = _behind("DEQUANTIZE", lambda b, x: [x], dtype=np.float32)
    assert list(_fallback(real)) == ["DequantizeLinear"]


def test_wider_activations_stay_on_the_cpu(capsys: Capture) -> None:
    builder = TfliteBuilder("wide")
    x = builder.input("x", (1, 8), Quantisation(0.05))
    w = builder.constant("w", np.ones((4, 8), np.int8), Quantisation(0.1))
    x = builder.operator("FULLY_CONNECTED", [x, w, None], Quantisation(0.2))
    x = builder.operator("QUANTIZE", [x], Quantisation(0.001), np.int16)
    content = builder.model(builder.operator("MUL", [x, x], Quantisation(0.01), np.int16))
    reasons = _fallback(content)
    assert (
        reasons["MUL"]
        == "MUL stays on the CPU: 'quantize_1' has element type int16: quantise it to 8 bits"
    )


def test_custom_operators_fall_back_by_name(capsys: Capture) -> None:
    def custom(model: Any) -> None:
        schema = litert.schema()
        graph = model.subgraphs[0]
        place = graph.operators[-2].opcodeIndex
        code = model.operatorCodes[place]
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
        code.customCode = "MyOwnOperator"
        graph.operators[-2].builtinOptions, graph.operators[-2].builtinOptionsType = None, 0

    content = changed(tflite_model(), custom)
    FILE.write_bytes(content)
    found = dla(capsys, "partition", FILE, "--set", "numerics=fixed")
    assert found.status == 0
    assert "MyOwnOperator stays on the CPU: it is a custom operator" in " ".join(found.out.split())
    line = refused(capsys, content, "--set", "numerics=fixed")
    assert "MyOwnOperator" in line


SPECIFICATION = """
networks = ["net.tflite"]
presets = ["balanced-64"]
[arch]
numerics = ["fixed"]
sram_bytes = [65536, 131072]
"""


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "net.tflite", "-o", "net.dla"),
        ("partition", "net.tflite"),
        ("emit", "net.tflite", "--set", "numerics=fixed", "-o", "programs"),
        ("explain", "net.tflite", "--set", "numerics=fixed"),
        ("tune", "net.tflite", "--set", "numerics=fixed", "--measurements", "2", "--no-model"),
        ("golden", "snapshot", "net.tflite", "-o", "net.snapshot"),
        ("sweep", "spec.toml", "--workers", "1", "--output", "net.sqlite"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_that_takes_a_model_takes_it(capsys: Capture, words: tuple[str, ...]) -> None:
    FILE.write_bytes(tflite_model())
    Path("spec.toml").write_text(SPECIFICATION, encoding="utf-8")
    found = dla(capsys, *words)
    assert found.status == 0, found.err


def test_the_python_api_takes_it() -> None:
    FILE.write_bytes(tflite_model())
    package = byoc.import_model(FILE)
    assert package.source == "net"
    compiled = byoc.compile(package, Arch.model_validate({"isa": "v4", "numerics": "fixed"}))
    assert compiled.programs
    assert experiments.run(FILE, settings=["numerics=fixed"]).report.check.mismatches == 0


def test_data_behind_the_flatbuffer_are_read(capsys: Capture) -> None:
    """Data behind the flatbuffer, as ai-edge-quantizer writes them, are read.

    The network and the result are the same.
    """
    content = tflite_model()
    model = litert.schema().ModelT.InitFromPackedBuf(content, 0)
    stored = [
        np.asarray(buffer.data, np.uint8).tobytes() if buffer.data is not None else b""
        for buffer in model.buffers
    ]
    for place in range(2):  # once for the size of the flatbuffer, once for the places behind it
        at = len(content) if place else 1 << 20
        for buffer, data in zip(model.buffers, stored, strict=True):
            if data:
                buffer.data = None
                buffer.offset = at
                buffer.size = len(data)
                at += -(-len(data) // 16) * 16
        content = litert.pack_model(model)
        model = litert.schema().ModelT.InitFromPackedBuf(content, 0)
    content += b"".join(data.ljust(-(-len(data) // 16) * 16, b"\0") for data in stored)
    FILE.write_bytes(content)
    behind = experiments.run(FILE).report
    FILE.write_bytes(tflite_model())
    inside = experiments.run(FILE).report
    assert behind.check.mismatches == 0
    assert (behind.check.elements, behind.totals) == (inside.check.elements, inside.totals)


def test_a_variable_without_a_handle_is_refused(capsys: Capture) -> None:
    def change(model: Any) -> None:
        schema = litert.schema()
        code = schema.OperatorCodeT()
        code.builtinCode = schema.BuiltinOperator.READ_VARIABLE
        code.deprecatedBuiltinCode = 127
        code.version = 1
        model.operatorCodes.append(code)
        model.subgraphs[0].operators[-1].opcodeIndex = len(model.operatorCodes) - 1

    line = refused(capsys, changed(tflite_model(), change))
    assert line.startswith("net.tflite: READ_VARIABLE:")
    assert "names no variable of the main subgraph" in line


@pytest.mark.parametrize("scale", [0.0, -0.5, np.inf, np.nan])
def test_scales_are_positive_and_finite(capsys: Capture, scale: float) -> None:
    def change(model: Any) -> None:
        tensor = next(one for one in model.subgraphs[0].tensors if one.quantization is not None)
        tensor.quantization.scale = [scale]
        tensor.quantization.zeroPoint = [0]

    line = refused(capsys, changed(tflite_model(), change))
    assert (
        f" has the scale {scale:g}; scales are positive and finite; convert or copy it again"
        in line
    )


@pytest.mark.parametrize("point", [-129, 128, 134217728])
def test_zero_points_are_values_of_the_type(capsys: Capture, point: int) -> None:
    def change(model: Any) -> None:
        int8 = litert.schema().TensorType.INT8
        tensor = next(
            one
            for one in model.subgraphs[0].tensors
            if one.quantization is not None and one.type == int8
        )
        tensor.quantization.scale = [0.5]
        tensor.quantization.zeroPoint = [point]

    line = refused(capsys, changed(tflite_model(), change))
    assert f" has the zero point {point}; int8 holds none such; convert or copy it again" in line
