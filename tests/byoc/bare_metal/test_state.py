"""A network with state carries it in the arena from run to run, as the runtime does."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from byoc.bare_metal.bundle import plan_bundle, write_bundle
from dla_sim.presets import load_hardware
from experiments.running.given import Given
from experiments.running.inference import open_runtime
from experiments.running.network import load, network_batch
from tests.byoc.bare_metal.images import build_bundle
from tests.byoc.bare_metal.served import Served

STEPS = 3


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


def test_state_passes_from_run_to_run(tmp_path: Path) -> None:
    save_cell(tmp_path / "cell.onnx")
    network = load(Given(model=str(tmp_path / "cell.onnx"), state={"h": "y"}))
    compiled, runtime = open_runtime(network, load_hardware(None))
    plan = plan_bundle(compiled)
    write_bundle(tmp_path, "cell", plan, [])
    library = build_bundle(tmp_path)
    code = ctypes.CDLL(str(library))
    described = NetworkFields.in_dll(code, "network_cell")
    places = {port.name: plan.offsets[port.buffer] for port in (*plan.inputs, *plan.outputs)}
    state = {}
    port = Served().open_port(code)
    arena = ctypes.addressof(ctypes.c_uint8.in_dll(code, "dla_arena"))
    described.reset(arena)
    for given in network_batch(network, None, 0, compiled.options, STEPS).feeds:
        feeds = {**given, **state}
        outputs = runtime.run(feeds).outputs
        ctypes.memmove(arena + places["x"], feeds["x"].tobytes(), 32)
        assert described.run(ctypes.addressof(port), arena, None) == 0
        assert ctypes.string_at(arena + places["y"], 32) == outputs["y"].tobytes()
        state = compiled.interface.next_state(feeds, outputs)
    assert np.any(state["h"])
