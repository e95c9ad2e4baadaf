"""LSTM, GRU and RNN, step by step, equal ONNX Runtime's own.

Corresponding tensors of all steps share one scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.frontend.onnx.rewriting.recurrent import unroll
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.quantisation.quantize import quantise
from byoc.runtimes.protobuf import step_family

STEPS = 4
BATCH = 2
INPUTS = 3
HIDDEN = 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def network(
    kind: str, *, states: bool = False, bias: bool = True, **attributes: Any
) -> onnx.ModelProto:
    """One layer with all of its outputs."""
    random = np.random.default_rng(len(attributes))
    both = attributes.get("direction") == "bidirectional"
    turned = attributes.get("layout", 0)
    directions = 1 + both
    gates = GATES[kind]
    shape = (BATCH, STEPS, INPUTS) if turned else (STEPS, BATCH, INPUTS)
    state = (BATCH, directions, HIDDEN) if turned else (directions, BATCH, HIDDEN)
    constants = {
        "w": random.standard_normal((directions, gates * HIDDEN, INPUTS)),
        "r": random.standard_normal((directions, gates * HIDDEN, HIDDEN)),
    }
    names = ["x", "w", "r"]
    if bias or states:
        constants["b"] = random.standard_normal((directions, 2 * gates * HIDDEN)) * bias
        names.append("b")
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if states:
        names += ["", "h0"] + (["c0"] if kind == "LSTM" else [])
        values += [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, state) for name in names[5:]
        ]
    outputs = ["y", "h"] + (["c"] if kind == "LSTM" else [])
    node = helper.make_node(kind, names, outputs, "layer", hidden_size=HIDDEN, **attributes)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    tensors = [
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()
    ]
    graph = helper.make_graph([node], "layer", values, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def results(model: onnx.ModelProto) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    random = np.random.default_rng(1)
    return list(
        session.run(
            None,
            {
                i.name: random.standard_normal(i.shape).astype(np.float32)
                for i in session.get_inputs()
            },
        )
    )


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no bias": {"bias": False},
    "states": {"states": True},
    "reverse": {"direction": "reverse", "states": True},
    "both": {"direction": "bidirectional", "states": True},
    "both without states": {"direction": "bidirectional"},
    "clipped": {"clip": 0.7, "states": True},
}


def check(kind: str, **options: Any) -> None:
    model = network(kind, **options)
    after = unroll(infer_shapes(model))
    assert kind not in {node.op_type for node in after.graph.node}
    for before, made in zip(results(model), results(after), strict=True):
        assert before.shape == made.shape
        np.testing.assert_allclose(made, before, atol=2e-6)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("form", FORMS)
def test_steps_are_the_layer(kind: str, form: str) -> None:
    check(kind, **FORMS[form])


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("states", [False, True])
def test_gru_resets_before_or_behind_the_product(before: int, states: bool) -> None:
    check("GRU", linear_before_reset=before, states=states, direction="bidirectional")


def test_any_activations() -> None:
    check("RNN", activations=["Relu"])
    check("RNN", activations=["LeakyRelu"], activation_alpha=[0.3])
    check("RNN", activations=["Affine"], activation_alpha=[0.5], activation_beta=[0.1])
    check(
        "RNN",
        activations=["ScaledTanh"],
        activation_alpha=[0.5],
        activation_beta=[1.5],
        states=True,
    )
    check("RNN", activations=["Softsign", "Softplus"], direction="bidirectional")
    check("GRU", activations=["HardSigmoid", "Tanh"], activation_alpha=[0.3], activation_beta=[0.4])
    check("LSTM", activations=["Sigmoid", "Relu", "Tanh"])


def test_what_is_not_known_stays() -> None:
    model = network("LSTM", input_forget=1)
    assert [node.op_type for node in unroll(infer_shapes(model)).graph.node] == ["LSTM"]


@pytest.mark.parametrize("kind", GATES)
def test_corresponding_tensors_of_all_steps_share_one_scale(kind: str) -> None:
    quantised = quantise(prepare(network(kind)))
    scales: dict[str, set[float]] = {}
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantised.graph.initializer}
    for node in quantised.graph.node:
        if node.op_type == "QuantizeLinear" and step_family(node.input[0]):
            scales.setdefault(step_family(node.input[0]), set()).add(float(known[node.input[1]]))
    assert scales
    assert all(len(found) == 1 for found in scales.values())
