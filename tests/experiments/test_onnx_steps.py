"""ONNX networks with state: pairs of an input and an output, carried as ONNX Runtime would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import dla
from byoc.frontend.onnx.state import find_state
from tests.experiments.command_line import dla as command

pytestmark = pytest.mark.usefixtures("fresh_folder")

Capture = pytest.CaptureFixture[str]
Arrays = dict[str, NDArray[Any]]
FEATURES, UNITS = 8, 12


def weights(name: str, *shape: int) -> onnx.TensorProto:
    """Drawn float weights."""
    random = np.random.default_rng([len(name), *map(ord, name)])
    return numpy_helper.from_array(
        (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name
    )


def numbers(name: str, *values: int) -> onnx.TensorProto:
    """A constant of integers."""
    return numpy_helper.from_array(np.array(values, np.int64), name)


def network(
    nodes: list[tuple[str, str, str]],
    given: Mapping[str, list[int]],
    made: Mapping[str, list[int]],
    constants: list[onnx.TensorProto],
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of nodes: operator, inputs and outputs, and attributes of the operator."""
    real = TensorProto.FLOAT
    parts = [
        helper.make_node(kind, read.split(" "), written.split(" "), written.split(" ")[0],
                         **attributes.get(kind, {}))
        for kind, read, written in nodes
    ]  # fmt: skip
    graph = helper.make_graph(
        parts,
        "steps",
        [helper.make_tensor_value_info(name, real, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info(name, real, shape) for name, shape in made.items()],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def gated() -> onnx.ModelProto:
    """A gated cell: h and hn."""
    return network(
        [("Concat", "x h", "both"), ("MatMul", "both wg", "g"), ("Sigmoid", "g", "gate"),
         ("MatMul", "both wn", "n"), ("Tanh", "n", "new"), ("Sub", "new h", "change"),
         ("Mul", "gate change", "step"), ("Add", "h step", "hn"), ("MatMul", "hn wo", "y")],
        {"x": [1, FEATURES], "h": [1, UNITS]},
        {"y": [1, 4], "hn": [1, UNITS]},
        [weights("wg", 20, UNITS), weights("wn", 20, UNITS), weights("wo", UNITS, 4)],
        Concat={"axis": 1},
    )  # fmt: skip


def ring() -> onnx.ModelProto:
    """A convolution over a ring: cache_in and cache_out."""
    return network(
        [("Concat", "cache_in x", "all"), ("Slice", "all from to axis", "cache_out"),
         ("Conv", "all w", "conv"), ("Relu", "conv", "relu"), ("GlobalAveragePool", "relu", "y")],
        {"x": [1, FEATURES, 1], "cache_in": [1, FEATURES, 4]},
        {"y": [1, 16, 1], "cache_out": [1, FEATURES, 4]},
        [weights("w", 16, FEATURES, 5), numbers("from", 1), numbers("to", 5), numbers("axis", 2)],
        Concat={"axis": 2},
    )  # fmt: skip


def lstm() -> onnx.ModelProto:
    """An LSTM of one time step: h0 and hn, c0 and cn."""
    return network(
        [("LSTM", "x w r b  h0 c0", "steps hn cn"), ("Squeeze", "hn axis", "last"),
         ("MatMul", "last wo", "y")],
        {"x": [1, 1, FEATURES], "h0": [1, 1, UNITS], "c0": [1, 1, UNITS]},
        {"y": [1, 4], "hn": [1, 1, UNITS], "cn": [1, 1, UNITS]},
        [weights("w", 1, 4 * UNITS, FEATURES), weights("r", 1, 4 * UNITS, UNITS),
         weights("b", 1, 8 * UNITS), weights("wo", UNITS, 4), numbers("axis", 0)],
        LSTM={"hidden_size": UNITS},
    )  # fmt: skip


def elman() -> onnx.ModelProto:
    """A cell with ReLU whose state has names that tell nothing: s and t."""
    return network(
        [("MatMul", "x w1", "a"), ("MatMul", "s w2", "b"), ("Add", "a b", "c"), ("Relu", "c", "t"),
         ("MatMul", "t wo", "y")],
        {"x": [1, FEATURES], "s": [1, UNITS]},
        {"y": [1, 4], "t": [1, UNITS]},
        [weights("w1", FEATURES, UNITS), weights("w2", UNITS, UNITS), weights("wo", UNITS, 4)],
    )  # fmt: skip


KINDS: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, str]]] = {
    "gated": (gated, {"h": "hn"}),
    "ring": (ring, {"cache_in": "cache_out"}),
    "lstm": (lstm, {"h0": "hn", "c0": "cn"}),
    "elman": (elman, {"s": "t"}),
}


def carried(model: bytes, frames: NDArray[Any], state: Mapping[str, str]) -> Arrays:
    """The outputs of ONNX Runtime on a model, which gets its own outputs as state."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    forms = {value.name: value.shape for value in session.get_inputs()}
    feeds = {name: np.zeros(forms[name], np.float32) for name in state}
    names = [value.name for value in session.get_outputs()]
    found: list[list[NDArray[Any]]] = []
    for frame in frames:
        made = dict(zip(names, session.run(None, {"x": frame, **feeds}), strict=True))
        feeds = {source: made[result] for source, result in state.items()}
        found.append([made[name] for name in names])
    return {
        name: np.stack(arrays) for name, arrays in zip(names, zip(*found, strict=True), strict=True)
    }


def frames_of(model: onnx.ModelProto, count: int) -> NDArray[np.float32]:
    """Drawn inputs x of a model, along a first axis."""
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(7).standard_normal((count, *shape)).astype(np.float32)


@pytest.mark.parametrize("integer_io", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_equals_onnx_runtime(kind: str, integer_io: bool) -> None:
    build, state = KINDS[kind]
    model = build()
    frames = frames_of(model, 50)
    given = state if kind == "elman" else None
    found = dla.run(model, state=given, steps=50, inputs=frames, integer_io=integer_io)
    report = found.report
    assert (report.check.mismatches, report.steps is not None and report.steps.count) == (0, 50)
    assert report.check.outputs is not None
    assert report.check.outputs.differences == 0
    wanted = carried(found.package.model.SerializeToString(), frames, state)  # type: ignore[union-attr]
    scales = {port.name: port for port in report.interface}
    for name, array in wanted.items():
        port = scales[name]
        ours = found.outputs[name]
        if port.integer:
            ours = (ours.astype(np.int32) - port.zero_point) * np.float32(port.scale or 0)
        assert np.array_equal(ours.astype(np.float32), array), name
        assert len(np.unique(array)) > 5


@pytest.mark.parametrize("kind", KINDS)
def test_both_ends_of_a_state_have_one_scale(kind: str) -> None:
    build, state = KINDS[kind]
    package = dla.import_model(build(), state=state)
    graph = package.graph
    assert {one.input: one.output for one in graph.state} == state
    read = {node.inputs[0]: graph.values[node.outputs[0]].quantization
            for node in graph.nodes if node.op_type == "QuantizeLinear"}  # fmt: skip
    made = {node.outputs[0]: graph.values[node.inputs[0]].quantization
            for node in graph.nodes if node.op_type == "DequantizeLinear"}  # fmt: skip
    for source, result in state.items():
        one, other = read[source], made[result]
        assert one is not None
        assert other is not None
        assert one.same_as(other), source


def test_a_quantised_file_with_state() -> None:
    """The scales of the file are kept; this one has no float parts that ``dla`` would quantise."""
    model = elman()
    onnx.save(model, "float.onnx")
    frames = frames_of(model, 40)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            state = np.random.default_rng(1).uniform(-1, 1, (40, 1, UNITS)).astype(np.float32)
            self.feeds = iter([{"x": x, "s": s} for x, s in zip(frames, state, strict=True)])

        def get_next(self) -> Any:
            return next(self.feeds, None)

    int8 = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static("float.onnx", "net.onnx", Reader(), QuantFormat.QDQ, **int8)
    found = dla.run("net.onnx", steps=40, inputs=frames, state={"s": "t"})
    assert (found.report.check.mismatches, found.report.fidelity is None) == (0, False)
    wanted = carried(Path("net.onnx").read_bytes(), frames, {"s": "t"})
    assert np.array_equal(found.outputs["t"], wanted["t"])
    assert np.array_equal(found.outputs["y"], wanted["y"])


def test_samples_without_state_are_consecutive() -> None:
    model = gated()
    frames = frames_of(model, 30)
    state = carried(model.SerializeToString(), frames, {"h": "hn"})["hn"]
    before = np.concatenate([np.zeros((1, 1, UNITS), np.float32), state[:-1]])
    given = dla.import_model(model, calibration={"x": frames, "h": before})
    for calibration in ({"x": frames}, frames, list(frames)):
        assert dla.import_model(model, calibration=calibration).digest == given.digest
    np.savez("samples.npz", x=frames)
    onnx.save(model, "net.onnx")
    found = dla.import_model("net.onnx", calibration="samples.npz", cache=False)
    assert found.sha256 == given.sha256


def test_a_session_of_an_onnx_network() -> None:
    model = gated()
    frames = frames_of(model, 5)
    session = dla.Session(model, calibration=frames)
    first = [session.step({"x": frame})["y"] for frame in frames]
    last = session.state["h"]
    session.reset()
    assert [session.step(frame)["y"].tolist() for frame in frames] == [y.tolist() for y in first]
    assert session.inputs == ("x", "h")
    again = session.step({"x": frames[0], "h": last})["y"]
    assert not np.array_equal(again, first[0])
    with pytest.raises(dla.InputError, match="one at a time"):
        session.step(frames)


def test_names_of_state() -> None:
    shape = [1, 4]
    pairs = {
        "state": "stateN", "h": "hn", "c0": "cn", "h_0": "h_n", "cache": "new_cache",
        "past_key_values.0.key": "present.0.key", "past_value_1": "present_value_1",
        "conv_in": "conv_out", "in_lstm": "out_lstm", "prev_mem": "next_mem",
    }  # fmt: skip
    outputs = {**dict.fromkeys(pairs.values(), shape), "hidden_out": [1, 5]}
    given = {**dict.fromkeys(pairs, shape), "hidden_in": shape, "x": shape}
    model = network([], given, outputs, [])
    assert find_state(model, {}) == pairs
    assert find_state(model, {"x": "stateN"})["x"] == "stateN"


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [(("image", "scale"), ("image_out",)), (("state",), ("stateN",)), (("h", "x"), ("y",))],
)
def test_tensors_that_are_not_named_as_state_are_not_state(
    inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    """A network with state has another input, too."""
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in names]
        for names in (inputs, outputs)
    ]
    node = helper.make_node("Relu", inputs[:1], outputs)
    assert find_state(helper.make_model(helper.make_graph([node], "g", *ends)), {}) == {}


def test_pairs_that_do_not_fit_are_refused(capsys: Capture) -> None:
    onnx.save(elman(), "net.onnx")
    for pair, reason in {
        "s=q": "the model has no output 'q'; its outputs are y, t",
        "q=t": "the model has no input 'q'; its inputs are x, s",
        "s=y": "the input has shape [1, 12] and the output [1, 4], or their types differ",
        "s": "write it as INPUT=OUTPUT, once for each input",
    }.items():
        found = command(capsys, "run", "net.onnx", "--steps", 2, "--state", pair)
        assert (found.status, found.err.count("\n")) == (2, 1)
        assert reason in found.err
    words = ("run", "net.onnx", "--steps", 2, "--state", "s=t", "--json", "r.json", "--no-advice")
    found = command(capsys, *words)
    assert found.status == 0, found.err
    assert "s from t" in " ".join(found.out.split())
