"""A network with state carries it in the arena from run to run, as the runtime does."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from byoc.bare_metal.bundle import plan_bundle, write_bundle
from dla_sim.presets import load_hardware
from experiments.cli.main import main
from experiments.running.given import Given
from experiments.running.inference import open_runtime
from experiments.running.network import load, network_batch
from tests.byoc.bare_metal.images import build_bundle
from tests.byoc.bare_metal.served import Served
from tests.tflite.streaming import INPUT, Network

STEPS = 4
SETTINGS: dict[str, dict[str, str]] = {"cell": {}, "shifts": {"numerics": "fixed"}}


class NetworkFields(ctypes.Structure):
    """``struct dla_network``."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("numbers", ctypes.c_uint32 * 5), ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p), ("samples", ctypes.c_void_p),
        ("reset", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("run", ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * 3)),
    )  # fmt: skip


def save_cell(path: Path) -> None:
    """Save a recurrent cell with the state ``h``, whose next value is ``y``."""
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("MatMul", ["x", "wx"], ["a"], name="a"),
        helper.make_node("MatMul", ["h", "wh"], ["b"], name="b"),
        helper.make_node("Add", ["a", "b"], ["c"], name="c"),
        helper.make_node("Tanh", ["c"], ["y"], name="y"),
    ]
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.4, (8, 8)).astype(np.float32), name)
        for name in ("wx", "wh")
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xhy"]
    graph = helper.make_graph(nodes, "cell", ends[:2], ends[2:], weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def save_shifts(path: Path) -> None:
    """Save a network whose state ``older`` becomes the state ``old``, which becomes the input."""
    net = Network("shifts")
    newest = net.features()
    old, older = (net.state(name, newest.shape, INPUT) for name in ("old", "older"))
    net.assign("old", old, newest)
    net.assign("older", older, old)
    frames = net.builder.operator("CONCATENATION", [older, old, newest], INPUT, axis=1)
    path.write_bytes(net.score(net.conv(frames, 16)))


@pytest.mark.parametrize("name", ["cell", "shifts"])
def test_state_passes_from_run_to_run(name: str, tmp_path: Path) -> None:
    if name == "cell":
        save_cell(tmp_path / "cell.onnx")
        given = Given(model=str(tmp_path / "cell.onnx"), state={"h": "y"})
    else:
        save_shifts(tmp_path / "shifts.tflite")
        given = Given(model=str(tmp_path / "shifts.tflite"))
    network = load(given)
    compiled, runtime = open_runtime(network, load_hardware(None, settings=SETTINGS[name]))
    plan = plan_bundle(compiled)
    write_bundle(tmp_path, name, plan, [])
    code = ctypes.CDLL(str(build_bundle(tmp_path)))
    described = NetworkFields.in_dll(code, f"network_{name}")
    port = Served({"settings": SETTINGS[name]}).open_port(code)
    arena = ctypes.addressof(ctypes.c_uint8.in_dll(code, "dla_arena"))
    described.reset(arena)
    kept = {one.input for one in compiled.graph.state}
    state = compiled.graph.initial_state
    for drawn in network_batch(network, None, 0, compiled.options, STEPS).feeds:
        feeds = compiled.interface.take_arrays({**drawn, **state})
        outputs = runtime.run(feeds).outputs
        for one in plan.inputs:
            if one.name not in kept:
                place = arena + plan.offsets[one.buffer]
                ctypes.memmove(place, feeds[one.name].tobytes(), feeds[one.name].nbytes)
        assert described.run(ctypes.addressof(port), arena, None) == 0
        for one in plan.outputs:
            place = arena + plan.offsets[one.buffer]
            found = ctypes.string_at(place, outputs[one.name].nbytes)
            assert found == outputs[one.name].tobytes(), one.name
        state = compiled.interface.next_state(feeds, outputs)
        for one in plan.inputs:
            if one.name in kept:
                place = arena + plan.offsets[one.buffer]
                array = state[one.name]
                assert ctypes.string_at(place, array.nbytes) == array.tobytes(), one.name
    assert all(np.any(array) for array in state.values())


def test_state_with_two_scales_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_cell(tmp_path / "cell.onnx")
    words = ["export", "--bare-metal", str(tmp_path / "cell.onnx"), "--state", "h=y"]
    assert main([*words, "--integer-io", "-o", str(tmp_path / "made")]) == 2
    assert "state 'h' has integers of two scales with --integer-io" in capsys.readouterr().err
