"""Float TensorFlow Lite models become ONNX models that compute what LiteRT computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import dla
from byoc.frontend.tflite.file import TfliteModel, read_tflite
from byoc.frontend.tflite.float_operators import CONVERTERS
from byoc.frontend.tflite.floating import TRANSPOSED, is_float, run_float, to_onnx, write_builtins
from byoc.runtimes import litert
from byoc.runtimes.litert_process import LiteRTModel
from isa.errors import InputError
from tests.tflite.builder import Quantisation, Tensor, TfliteBuilder
from tests.tflite.streaming import State, with_variables

RANDOM = np.random.default_rng(47)
WINDOW: dict[str, Any] = {"filter_height": 2, "filter_width": 3, "stride_h": 2, "stride_w": 1}
Build = Callable[[TfliteBuilder, Tensor], list[Tensor]]


def floats(*shape: int) -> NDArray[np.float32]:
    """Random numbers of both signs."""
    return RANDOM.normal(0, 1, shape).astype(np.float32)


def add(builder: TfliteBuilder, kind: str, *operands: Any, **options: Any) -> Tensor:
    """Add a float operator; arrays among ``operands`` become constants."""
    taken = [
        builder.constant(f"{kind}_{number}_{RANDOM.integers(1 << 30)}", one)
        if isinstance(one, np.ndarray)
        else one
        for number, one in enumerate(operands)
    ]
    return builder.operator(kind, taken, dtype=np.float32, **options)


def integers(*values: int) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def several(builder: TfliteBuilder, kind: str, *operands: Any, **options: Any) -> list[Tensor]:
    """Add an operator with two results."""
    taken = [
        builder.constant(f"{kind}_{number}", one) if isinstance(one, np.ndarray) else one
        for number, one in enumerate(operands)
    ]
    return builder.operators(kind, taken, [None, None], np.float32, **options)


def convolved(builder: TfliteBuilder, x: Tensor) -> Tensor:
    """A convolution with padding, strides and an activation, so that planes precede the rest."""
    return add(
        builder, "CONV_2D", x, floats(4, 3, 3, 4), floats(4), padding="SAME", stride_h=1,
        fused_activation_function="RELU6",
    )  # fmt: skip


def compared(builder: TfliteBuilder, kind: str, *operands: Tensor) -> Tensor:
    """A comparison, or a function of Boolean tensors."""
    return builder.operator(kind, operands, dtype=np.bool_)


def chosen(builder: TfliteBuilder, x: Tensor) -> list[Tensor]:
    """Choices by every comparison, by functions of two of them, and by slices."""
    y = convolved(builder, x)
    kinds = ("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "EQUAL", "NOT_EQUAL")
    found = [compared(builder, kind, x, y) for kind in kinds]
    found += [compared(builder, kind, *found[1:4:2]) for kind in ("LOGICAL_AND", "LOGICAL_OR")]
    found.append(compared(builder, "LOGICAL_NOT", found[0]))
    results = [add(builder, "SELECT_V2", one, x, floats(4)) for one in found]
    first = builder.constant("first", np.array([True]))
    return [*results, add(builder, "SELECT", found[0], x, y), add(builder, "SELECT", first, x, y)]


CASES: dict[str, Build] = {
    "choices": chosen,
    "convolution": lambda b, x: [
        add(
            b, "CONV_2D", x, floats(6, 3, 2, 4), floats(6), padding="VALID", stride_h=2,
            dilation_h_factor=1, dilation_w_factor=2, fused_activation_function="RELU_N1_TO_1",
        )
    ],
    "depthwise": lambda b, x: [
        add(
            b, "DEPTHWISE_CONV_2D", x, floats(1, 3, 3, 8), floats(8), padding="SAME", stride_h=2,
            stride_w=2, depth_multiplier=2,
        )
    ],
    "transposed": lambda b, x: [
        add(
            b, "TRANSPOSE_CONV", integers(1, 12, 18, 3), floats(3, 3, 3, 4), x, floats(3),
            padding="SAME", stride_h=2, stride_w=2,
        )
    ],
    "pools": lambda b, x: [
        add(b, "AVERAGE_POOL_2D", convolved(b, x), padding="SAME", **WINDOW),
        add(b, "MAX_POOL_2D", x, padding="VALID", **WINDOW),
    ],
    "resizes": lambda b, x: [
        add(b, "RESIZE_BILINEAR", x, integers(11, 7)),
        add(b, "RESIZE_BILINEAR", x, integers(11, 7), align_corners=True),
        add(b, "RESIZE_BILINEAR", x, integers(11, 7), half_pixel_centers=True),
        add(b, "RESIZE_NEAREST_NEIGHBOR", convolved(b, x), integers(11, 7)),
        add(b, "RESIZE_NEAREST_NEIGHBOR", x, integers(11, 7), half_pixel_centers=True),
    ],
    "blocks": lambda b, x: [
        add(b, "DEPTH_TO_SPACE", convolved(b, x), block_size=2),
        add(b, "SPACE_TO_DEPTH", x, block_size=3),
    ],
    "pads": lambda b, x: [
        add(b, "PAD", convolved(b, x), np.array([[0, 0], [1, 2], [0, 1], [0, 3]], np.int32)),
        add(
            b, "PADV2", x, np.array([[0, 0], [1, 0], [0, 2], [0, 0]], np.int32),
            np.array([0.5], np.float32),
        ),
        add(b, "MIRROR_PAD", x, np.array([[0, 0], [1, 2], [2, 0], [0, 0]], np.int32)),
    ],
    "binary": lambda b, x: [
        add(b, "ADD", convolved(b, x), x, fused_activation_function="RELU"),
        add(b, "SUB", convolved(b, x), floats(4), fused_activation_function="RELU_N1_TO_1"),
        add(b, "MUL", x, floats(1, 1, 1, 4)),
        add(b, "DIV", floats(6, 9, 4), add(b, "EXP", x)),
        add(b, "MAXIMUM", x, convolved(b, x)),
        add(b, "MINIMUM", x, floats(4)),
        add(b, "SQUARED_DIFFERENCE", x, convolved(b, x)),
        add(b, "PRELU", convolved(b, x), np.abs(floats(1, 1, 4))),
    ],
    "unary": lambda b, x: [
        add(b, kind, x)
        for kind in (
            "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LOGISTIC", "TANH", "ELU", "ABS",
            "HARD_SWISH", "NEG", "EXP", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "SQUARE",
        )
    ],
    "roots": lambda b, x: [
        add(b, kind, add(b, "EXP", convolved(b, x))) for kind in ("SQRT", "RSQRT", "LOG")
    ],
    "activations with options": lambda b, x: [
        add(b, "LEAKY_RELU", convolved(b, x), alpha=0.3),
        add(b, "GELU", x, approximate=True),
        add(b, "GELU", x),
        add(b, "SOFTMAX", convolved(b, x), beta=0.5),
        add(b, "LOG_SOFTMAX", x),
    ],
    "reductions": lambda b, x: [
        add(b, "MEAN", convolved(b, x), integers(1, 2), keep_dims=True),
        add(b, "MEAN", x, integers(1, 2)),
        add(b, "SUM", x, integers(3)),
        add(b, "REDUCE_MAX", convolved(b, x), integers(-1), keep_dims=True),
        add(b, "REDUCE_MIN", x, integers(2)),
    ],
    "shapes": lambda b, x: [
        add(b, "RESHAPE", convolved(b, x), integers(6, 36)),
        add(b, "TRANSPOSE", x, integers(0, 3, 1, 2)),
        add(b, "CONCATENATION", convolved(b, x), x, axis=-1),
        add(b, "CONCATENATION", x, x, axis=1),
        add(b, "TILE", x, integers(1, 2, 1, 3)),
        add(b, "PACK", x, convolved(b, x), axis=1, values_count=2),
    ],
    "slices": lambda b, x: [
        add(b, "SLICE", convolved(b, x), integers(0, 1, 2, 0), integers(1, 3, 4, 4)),
        add(
            b, "STRIDED_SLICE", x, integers(0, -1, 1, 0), integers(1, 0, 8, 2),
            integers(1, -2, 3, 1), begin_mask=1, end_mask=2, shrink_axis_mask=8,
        ),
        *several(b, "SPLIT", np.array(2 - 3, np.int32), convolved(b, x), num_splits=2),
    ],
    "rows": lambda b, x: [
        add(b, "FULLY_CONNECTED", add(b, "RESHAPE", x, integers(54, 4)), floats(5, 4), floats(5)),
        add(
            b, "FULLY_CONNECTED", x, floats(5, 4), None, keep_num_dims=True,
            fused_activation_function="RELU",
        ),
        add(b, "BATCH_MATMUL", x, convolved(b, x), adj_y=True),
    ],
    "gathered": lambda b, x: [add(b, "GATHER", convolved(b, x), integers(3, 0, 3), axis=2)],
}  # fmt: skip


def model_of(build: Build) -> TfliteModel:
    """Read the model that ``build`` adds to an input of shape (1, 6, 9, 4)."""
    builder = TfliteBuilder("float")
    x = builder.input("x", (1, 6, 9, 4), dtype=np.float32)
    return read_tflite(builder.model(*build(builder, x)), "float.tflite")


def compare(model: TfliteModel, within: float = 2e-6) -> None:
    """Compare every output of the ONNX model with LiteRT's, relative to the largest element."""
    feed = {"x": floats(1, 6, 9, 4)}
    wanted = run_float(model, [feed])
    assert wanted is not None
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    for one, other in zip(wanted[0], session.run(None, feed), strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() <= within * max(np.abs(one).max(), 1)


@pytest.mark.parametrize("case", CASES)
def test_operators_compute_what_litert_computes(case: str) -> None:
    model = model_of(CASES[case])
    assert is_float(model)
    compare(model)


def test_every_converter_of_planes_and_functions_has_a_case() -> None:
    """Operators without a case are conversions of types, and forms of one that has a case."""
    seen = {operator.kind for build in CASES.values() for operator in model_of(build).operators}
    seen.add("IF")
    assert CONVERTERS.keys() - seen == {
        "ARG_MAX", "ARG_MIN", "BROADCAST_TO", "CAST", "DEQUANTIZE", "EXPAND_DIMS", "POW",
        "REDUCE_PROD", "SPLIT_V", "SQUEEZE", "UNPACK",
    }  # fmt: skip


def with_branches(content: bytes, *branches: bytes) -> bytes:
    """Turn the operator POW (condition, x, weights) into an IF with two branches."""
    schema = litert.schema()
    whole, *others = (schema.ModelT.InitFromPackedBuf(one, 0) for one in (content, *branches))
    for other in others:
        (graph,) = other.subgraphs
        for operator in graph.operators:
            operator.opcodeIndex += len(whole.operatorCodes)
        for tensor in graph.tensors:
            tensor.buffer += len(whole.buffers)
        whole.operatorCodes += other.operatorCodes
        whole.buffers += other.buffers
        whole.subgraphs.append(graph)
    kind = schema.BuiltinOperator
    place = [code.builtinCode for code in whole.operatorCodes].index(kind.POW)
    code = whole.operatorCodes[place]
    code.builtinCode = code.deprecatedBuiltinCode = kind.IF
    (operator,) = [one for one in whole.subgraphs[0].operators if one.opcodeIndex == place]
    names = [tensor.name for tensor in whole.subgraphs[0].tensors]
    operator.inputs = [names.index(name) for name in (b"condition", b"x", b"weights")]
    operator.builtinOptionsType = schema.BuiltinOptions.IfOptions
    operator.builtinOptions = schema.IfOptionsT()
    operator.builtinOptions.thenSubgraphIndex = 1
    operator.builtinOptions.elseSubgraphIndex = 2
    return litert.pack_model(whole)


def conditional() -> bytes:
    """An IF, whose branches have different operators; one reads constant weights from outside."""
    branches = []
    for kind in ("TANH", "NEG"):
        builder = TfliteBuilder(kind)
        x = builder.input("x", (1, 6, 9, 4), dtype=np.float32)
        weights = builder.input("weights", (4, 4), dtype=np.float32)
        y = builder.operator(kind, [x], dtype=np.float32)
        branches.append(
            builder.model(
                builder.operator(
                    "FULLY_CONNECTED", [y, weights, None], dtype=np.float32, keep_num_dims=True
                )
                if kind == "TANH"
                else y
            )
        )
    builder = TfliteBuilder("conditional")
    x = builder.input("x", (1, 6, 9, 4), dtype=np.float32)
    builder.constant("weights", floats(4, 4))
    mean = add(builder, "MEAN", x, integers(0, 1, 2, 3))
    limit = builder.constant("limit", np.array(0, np.float32))
    builder.operator("GREATER_EQUAL", [mean, limit], dtype=np.bool_, name="condition")
    result = builder.operator("POW", [x, x], dtype=np.float32)
    return with_branches(builder.model(add(builder, "LOGISTIC", result)), *branches)


def test_a_branch_that_litert_takes_is_selected(tmp_path: Path) -> None:
    """The accelerator computes both branches, and equals LiteRT with either condition."""
    content = conditional()
    file = tmp_path / "net.tflite"
    file.write_bytes(content)
    model = read_tflite(content, "net")
    samples = np.concatenate([np.abs(floats(8, 1, 6, 9, 4)), -np.abs(floats(8, 1, 6, 9, 4))])
    for sample in (samples[0], samples[-1]):
        found = dla.run(file, inputs={"x": sample}, calibration={"x": samples}, cache=False)
        assert found.report.check.mismatches == 0
        wanted = run_float(model, [{"x": sample}])
        assert wanted is not None
        (ours,) = found.outputs.values()
        assert np.abs(ours - wanted[0][0]).max() < 0.03
    assert np.abs(wanted[0][0] - 0.5).max() > 0.2


def network(weights: str) -> bytes:
    """A small CNN whose weights are float32, float16, or int8 with a scale for each filter."""
    builder = TfliteBuilder("small")
    x = builder.input("x", (1, 6, 9, 4), dtype=np.float32)
    filters = floats(8, 3, 3, 4)
    if weights == "float16":
        stored = builder.constant("w", filters.astype(np.float16))
        taken = builder.operator("DEQUANTIZE", [stored], dtype=np.float32)
    elif weights == "int8":
        scales = np.abs(filters).max((1, 2, 3)) / 127
        data = np.rint(filters / scales[:, None, None, None]).astype(np.int8)
        taken = builder.constant("w", data, Quantisation(tuple(scales.tolist())))
    else:
        taken = builder.constant("w", filters)
    bias = builder.constant("b", floats(8))
    y = builder.operator("CONV_2D", [x, taken, bias], dtype=np.float32, padding="SAME")
    mean = add(builder, "MEAN", add(builder, "RELU", y), integers(1, 2))
    return builder.model(add(builder, "FULLY_CONNECTED", mean, floats(5, 8), floats(5)))


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
def test_a_network_runs_and_equals_the_file(weights: str, tmp_path: Path) -> None:
    """The accelerator equals ONNX Runtime's integers, and the float model equals LiteRT's.

    LiteRT quantises the activations in front of int8 weights at run time, so these may differ.
    """
    file = tmp_path / "net.tflite"
    file.write_bytes(network(weights))
    samples = {"x": floats(16, 1, 6, 9, 4)}
    result = dla.run(file, calibration=samples, cache=False)
    assert result.report.check.mismatches == 0
    assert result.report.check.regions == 1
    fidelity = result.report.fidelity
    assert fidelity is not None
    assert fidelity.calibration is not None
    assert fidelity.calibration.samples == 16
    assert fidelity.file is not None
    assert fidelity.file.elements == 15
    if weights != "int8":
        assert fidelity.file.beyond == 0
    assert min(fidelity.noise.values()) > 25
    assert any(layer.name.startswith("CONV_2D:") for layer in result.report.layers)


def test_a_wrong_conversion_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check compares with LiteRT, not with the converted model."""
    monkeypatch.setitem(CONVERTERS, "RELU", CONVERTERS["ABS"])
    file = tmp_path / "net.tflite"
    file.write_bytes(network("float32"))
    fidelity = dla.run(file, cache=False).report.fidelity
    assert fidelity is not None
    assert fidelity.file is not None
    assert fidelity.file.beyond > 0


def test_operators_without_an_onnx_form_are_all_named() -> None:
    model = model_of(
        lambda b, x: [add(b, "CUMSUM", add(b, "L2_NORMALIZATION", x), np.array(1, np.int32))]
    )
    with pytest.raises(InputError) as caught:
        to_onnx(model)
    assert str(caught.value) == (
        "it is a float model, and CUMSUM, L2_NORMALIZATION cannot be "
        "converted to ONNX; convert the model with full integer quantisation, or export it as ONNX"
    )


def test_a_float_model_with_state(tmp_path: Path) -> None:
    builder = TfliteBuilder("float")
    x, s = (builder.input(name, (1, 8), dtype=np.float32) for name in ("x", "s"))
    t = builder.operator("LOGISTIC", [add(builder, "SUB", x, s)], dtype=np.float32, name="t")
    file, content = tmp_path / "net.tflite", builder.model(t)
    file.write_bytes(content)
    frames = floats(20, 1, 8)
    found = dla.run(file, state={"s": "t"}, steps=20, inputs=frames, calibration={"x": frames})
    assert found.report.check.mismatches == 0
    state = np.zeros((1, 8), np.float32)
    for frame, ours in zip(frames, found.outputs["t"], strict=True):
        made = run_float(read_tflite(content, "net"), [{"x": frame, "s": state}])
        assert made is not None
        state = made[0][0]
        assert np.abs(ours - state).max() < 0.05


@pytest.mark.parametrize("first", [0.0, -1.0])
def test_variables_of_a_float_model_pass_from_step_to_step(first: float, tmp_path: Path) -> None:
    """The state begins with the file's values, also with ones that no result reaches."""
    builder = TfliteBuilder("float")
    x, s = (builder.input(name, (1, 8), dtype=np.float32) for name in ("x", "s"))
    t = builder.operator("LOGISTIC", [add(builder, "SUB", x, s)], dtype=np.float32, name="t")
    content = builder.model(t)
    state = np.linspace(first, 0, 8, dtype=np.float32).reshape(1, 8)
    file = tmp_path / "net.tflite"
    file.write_bytes(with_variables(content, [State("s", s, t, state)]))
    frames = floats(20, 1, 8)
    found = dla.run(file, steps=20, inputs=frames, calibration={"x": frames}, cache=False)
    assert found.report.check.mismatches == 0
    fidelity = found.report.fidelity
    assert fidelity is not None
    assert fidelity.file is not None
    assert fidelity.file.beyond == 0
    model = read_tflite(file.read_bytes(), "net")
    session = LiteRTModel(model.content, "builtin")
    for number, (frame, ours) in enumerate(zip(frames, found.outputs["t"], strict=True)):
        made = session.run({model.inputs[0]: frame}, model.outputs, carry=number > 0)
        assert np.abs(ours - made[model.outputs[0]]).max() < 0.02


def with_custom(content: bytes) -> bytes:
    """The model with MediaPipe's custom operator in place of TRANSPOSE_CONV."""
    schema = litert.schema()
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    number = schema.BuiltinOperator.TRANSPOSE_CONV
    (place,) = (n for n, code in enumerate(model.operatorCodes) if code.builtinCode == number)
    model.operatorCodes[place].customCode = TRANSPOSED
    model.operatorCodes[place].builtinCode = schema.BuiltinOperator.CUSTOM
    model.operatorCodes[place].deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    for one in model.subgraphs[0].operators:
        if one.opcodeIndex == place:
            given = one.builtinOptions
            one.builtinOptionsType, one.builtinOptions = 0, None
            one.customOptions = np.array(
                [given.padding + 1, given.strideW, given.strideH], "<i4"
            ).view(np.uint8)
            one.inputs = [one.inputs[2], one.inputs[1], one.inputs[3]]
    return litert.pack_model(model)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_transposed_convolutions_of_mediapipe_run(padding: str, tmp_path: Path) -> None:
    """The report says that LiteRT ran TRANSPOSE_CONV; its results are the oracle here too."""
    shape = (12, 18) if padding == "SAME" else (13, 19)

    def build(b: TfliteBuilder, x: Tensor) -> list[Tensor]:
        y = add(
            b, "TRANSPOSE_CONV", integers(1, *shape, 5), floats(5, 3, 3, 4), convolved(b, x),
            floats(5), padding=padding, stride_h=2, stride_w=2,
        )  # fmt: skip
        return [add(b, "LOGISTIC", y)]

    builder = TfliteBuilder("float")
    given = builder.model(*build(builder, builder.input("x", (1, 6, 9, 4), dtype=np.float32)))
    file, frames = tmp_path / "net.tflite", floats(4, 1, 6, 9, 4)
    file.write_bytes(with_custom(given))
    found = dla.run(file, calibration={"x": frames}, inputs=frames[0], cache=False)
    assert found.report.check.mismatches == 0
    assert {entry.region for entry in found.report.placement if entry.on == "dla"} == {0}
    fidelity = found.report.fidelity
    assert fidelity is not None
    assert fidelity.file is not None
    assert fidelity.file.beyond == 0
    assert fidelity.file.message().endswith(f"with TRANSPOSE_CONV in place of {TRANSPOSED}")
    assert min(fidelity.noise.values()) > 25
    wanted = run_float(read_tflite(given, "net"), [{"x": frames[0]}])
    assert wanted is not None
    made = to_onnx(write_builtins(read_tflite(file.read_bytes(), "net")))
    session = onnxruntime.InferenceSession(made.SerializeToString())
    np.testing.assert_allclose(session.run(None, {"x": frames[0]})[0], wanted[0][0], atol=2e-6)
