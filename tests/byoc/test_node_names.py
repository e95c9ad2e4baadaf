"""Names of nodes are free: a file may omit them or use those that the compiler generates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from byoc.importing import import_model
from experiments.running.inference import run

CONSTANTS = {
    "s": np.float32(0.05),
    "t": np.float32(0.02),
    "z": np.int8(0),
    "axes": np.array([2]),
    "ones": np.ones(8, np.float32),
    "channels": np.ones(6, np.float32),
    "low": np.float32(-1),
    "w": np.eye(8, dtype=np.float32),
}
node = helper.make_node
KINDS: dict[str, Sequence[NodeProto]] = {
    "ReduceMean": [node("ReduceMean", ["f", "axes"], ["g"])],
    "ReduceSum": [node("ReduceSum", ["f", "axes"], ["g"])],
    "LayerNormalization": [node("LayerNormalization", ["f", "ones"], ["g"])],
    "InstanceNormalization": [node("InstanceNormalization", ["f", "channels", "channels"], ["g"])],
    "Softmax": [node("Softmax", ["f"], ["g"])],
    "LogSoftmax": [node("LogSoftmax", ["f"], ["g"])],
    "clamp": [node("Add", ["f", "f"], ["sum"]), node("Clip", ["sum", "low"], ["g"])],
    "table": [node("Sigmoid", ["f"], ["gate"]), node("Mul", ["f", "gate"], ["g"])],
}


def quantised(nodes: Sequence[NodeProto]) -> ModelProto:
    """A QDQ model of ``nodes`` from ``f`` to ``g``, none of which has a name."""
    around = [
        node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        *nodes,
        node("QuantizeLinear", ["g", "t", "z"], ["y"]),
    ]
    used = {name for one in around for name in one.input}
    constants = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in CONSTANTS.items()
        if name in used
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 6, 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT8, None)]
    graph = helper.make_graph(around, "unnamed", values, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def with_names(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """A copy with ``names`` for the first nodes."""
    result = ModelProto.FromString(model.SerializeToString())
    for one, name in zip(result.graph.node, names, strict=False):
        one.name = name
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_quantised_nodes_without_names_run(kind: str) -> None:
    """Every node that the compiler adds gets a name that no other node has."""
    report = run(quantised(KINDS[kind])).report
    assert report.check.mismatches == 0
    assert report.check.elements or kind == "LogSoftmax"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_file_may_use_the_names_that_the_compiler_makes(kind: str, backwards: bool) -> None:
    model = quantised(KINDS[kind])
    embedded = import_model(model).model
    assert isinstance(embedded, ModelProto)
    made = [one.name for one in embedded.graph.node]
    assert len(made) == len(set(made))
    report = run(with_names(model, made[::-1] if backwards else made)).report
    assert report.check.mismatches == 0


def test_the_name_of_a_user_is_kept() -> None:
    """A node without a name does not take the name of one behind it."""
    model = with_names(quantised(KINDS["table"]), ["", "", "", "f"])
    package = import_model(model)
    assert isinstance(package.model, onnx.ModelProto)
    kinds = {one.name: one.op_type for one in package.model.graph.node}
    assert kinds["f"] == "QuantizeLinear"
    assert kinds["f_1"] == "DequantizeLinear"
