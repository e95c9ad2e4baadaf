"""The reason why a node stays names what prevents its other form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from byoc.compiler import compile as compile_network
from byoc.importing import import_model
from isa.arch import Arch

RANDOM = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


LSTM = {"W": _normal(1, 8, 3), "R": _normal(1, 8, 2)}
GRU = {"W": _normal(1, 6, 3), "R": _normal(1, 6, 2)}
STEPS = {"x": (4, 1, 3)}
HEADS = {"q": (1, 2, 4, 8), "k": (1, 2, 5, 8), "v": (1, 2, 5, 8)}
PEEPHOLES = {"b": np.zeros((1, 16), np.float32), "n": np.array([4], np.int32)}
PEEPHOLES |= {"h": np.zeros((1, 1, 2), np.float32), "c": np.zeros((1, 1, 2), np.float32), "p": _normal(1, 6)}
RUNNING: Mapping[str, tuple[str, Mapping[str, tuple[int, ...]], Mapping[str, np.ndarray], int, Mapping[str, Any]]] = {
    "LSTM": ("LSTM", STEPS, LSTM, 1, {"hidden_size": 2}),
    "GRU": ("GRU", STEPS, GRU, 1, {"hidden_size": 2}),
    "Attention": ("Attention", HEADS, {}, 1, {}),
    "Einsum": ("Einsum", {"x": (3, 3), "z": (3, 4)}, {}, 1, {"equation": "ij,jk->ik"}),
}
PREVENTED: Mapping[str, tuple[str, Mapping[str, np.ndarray], int, Mapping[str, Any], str]] = {
    "peepholes": ("LSTM", PEEPHOLES, 1, {}, "P (input 'p')"),
    "a diagonal": (
        "Einsum",
        {},
        1,
        {"equation": "ii,ij->j"},
        "attribute equation = ii,ij->j, 'x' float32 [3, 3], 'z' float32 [3, 4]",
    ),
    "products shown": ("Attention", {}, 4, {}, "qk_matmul_output (output 'y3')"),
}
"""What is added to a running node, and what the reason names."""


def _model(
    op_type: str,
    inputs: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, np.ndarray],
    outputs: int,
    attributes: Mapping[str, Any],
) -> ModelProto:
    names = [f"y{number}" if number in (0, outputs - 1) else "" for number in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, [*inputs, *constants], names, name="op", **attributes)],
        "kept",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names if name],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def _reasons(model: ModelProto) -> list[str]:
    found = compile_network(import_model(model, "kept"), Arch(isa="v4")).partition
    return [place.reason or "" for place in found.placement if place.on == "cpu" and "Linear" not in place.op_type]


@pytest.mark.parametrize("name", RUNNING)
def test_a_plain_node_runs_in_another_form(name: str) -> None:
    assert not any("another form" in reason or "no pattern" in reason for reason in _reasons(_model(*RUNNING[name])))


@pytest.mark.parametrize("name", PREVENTED)
def test_the_reason_names_what_was_added(name: str) -> None:
    operator, further, outputs, attributes, named = PREVENTED[name]
    op_type, inputs, constants, _, options = RUNNING[operator]
    model = _model(op_type, inputs, {**constants, **further}, outputs, {**options, **attributes})
    assert f"{op_type} stays in float: it runs in another form, but not with {named}" in _reasons(model)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN", "ConvTranspose"])
def test_the_reason_names_weights_that_are_computed(op_type: str, seed: int) -> None:
    """One operand of a drawn node, which would be constant in a node that runs, is an input of the model."""
    random = np.random.default_rng(seed)
    width, units, steps = (int(size) for size in random.integers(1, 5, 3))
    if op_type == "ConvTranspose":
        operands = {"x": (1, width, 4, 5), "w": (width, units, 2, 2)}
        chosen, options = "w", {}
    else:
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type] * units
        operands = {"x": (steps, 1, width), "w": (1, gates, width), "r": (1, gates, units)}
        chosen, options = str(random.choice(["w", "r"])), {"hidden_size": units}
    names = {"x": "X", "w": "W", "r": "R"}
    inputs = {name: shape for name, shape in operands.items() if name in ("x", chosen)}
    constants = {name: _normal(*shape) for name, shape in operands.items() if name not in inputs}
    model = _model(op_type, {name: inputs[name] for name in inputs}, constants, 1, options)
    node = model.graph.node[0]
    node.input[:] = list(operands)
    assert f"{names[chosen]} (input '{chosen}') computed at run time" in "".join(_reasons(model))
