"""Reductions larger than the scratchpad, alone and followed by an element-wise operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper, save

from experiments import run


def _boundary(kind: str, source: str, target: str) -> list[NodeProto]:
    return [helper.make_node(kind, [source, "scale", "zero"], [target], name=f"{target}-node")]


@pytest.mark.parametrize("isa", ["v4", "v5"])
@pytest.mark.parametrize("reduction", ["ReduceMean", "GlobalAveragePool"])
@pytest.mark.parametrize("following", [None, "Sigmoid", "Relu", "Add"])
def test_a_reduction_larger_than_the_scratchpad(
    reduction: str, following: str | None, isa: str, tmp_path: Path
) -> None:
    """An element-wise operator does not share bands that split atoms of v5.

    Bands of the reduction's result do.
    """
    nodes = _boundary("DequantizeLinear", "x", "real")
    nodes += [
        helper.make_node(
            reduction, ["real"] if reduction[0] == "G" else ["real", "axes"], ["mean"], name="mean"
        )
    ]
    nodes += [
        *_boundary("QuantizeLinear", "mean", "first"),
        *_boundary("DequantizeLinear", "first", "read"),
    ]
    outputs = ["first"]
    if following is not None:
        sources = ["read", "read"] if following == "Add" else ["read"]
        nodes += [helper.make_node(following, sources, ["other"], name="other")]
        nodes += _boundary("QuantizeLinear", "other", "second")
        outputs.append("second")
    constants = {"scale": np.float32(0.02), "zero": np.int8(0), "axes": np.array([2, 3])}
    graph = helper.make_graph(
        nodes,
        "reduced",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 48, 20, 24])],
        [helper.make_tensor_value_info(name, TensorProto.INT8, [1, 48, 1, 1]) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    save(model, tmp_path / "model.onnx")
    found = run(tmp_path / "model.onnx", isa=isa, settings={"sram_bytes": "16KiB"})
    assert {placed.on for placed in found.report.placement} <= {"dla"}
    assert found.report.check.mismatches == 0
    assert found.report.check.elements == 48 * len(outputs)
