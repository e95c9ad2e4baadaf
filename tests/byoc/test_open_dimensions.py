"""Dimensions of -1, which PaddlePaddle's exporter writes for unknown ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from byoc.frontend.onnx.file import load_model, open_dimensions
from byoc.frontend.onnx.rewriting.constants import fix_inputs
from byoc.frontend.onnx.rewriting.shapes import set_batch
from experiments.running.inference import run
from isa.errors import InputError

node = helper.make_node
info = helper.make_tensor_value_info


def model_of(dims: Sequence[Any]) -> ModelProto:
    """A convolution behind a branch that data choose.

    What the file declares of inner values has -1, too.
    """
    branches = {
        name: helper.make_graph(
            [node("Mul", ["x", one], [f"{name}_y"])],
            name,
            [],
            [info(f"{name}_y", TensorProto.FLOAT, [-1, 3, -1, -1])],
        )
        for name, one in (("then_branch", "half"), ("else_branch", "two"))
    }
    nodes = [
        node("If", ["flag"], ["chosen"], "choice", **branches),
        node("Conv", ["chosen", "w"], ["c"], "conv"),
        node("Relu", ["c"], ["y"], "relu"),
    ]
    arrays = {"w": np.ones((4, 3, 1, 1), np.float32), "half": np.float32(0.5), "two": np.float32(2)}
    graph = helper.make_graph(
        nodes,
        "paddle",
        [info("x", TensorProto.FLOAT, dims), info("flag", TensorProto.BOOL, [])],
        [info("y", TensorProto.FLOAT, [-1, 4, -1, -1])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
        value_info=[info("c", TensorProto.FLOAT, [-1, 4, -1, -1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


DIMS = [[-1, 3, 8, 8], [-1, 3, -1, -1], [-1, 3, "h", "w"]]


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("in_memory", [False, True])
def test_they_run_with_a_shape(dims: Sequence[Any], in_memory: bool, tmp_path: Path) -> None:
    model: Any = model_of(dims)
    if not in_memory:
        onnx.save(model, tmp_path / "m.onnx")
        model = tmp_path / "m.onnx"
    report = run(model, shapes={"x": (1, 3, 8, 8)}, fixed={"flag": 1}).report
    assert report.check.mismatches == 0
    assert report.check.elements


@pytest.mark.parametrize("batch", [-1, "N"])
def test_an_open_batch_alone_is_one_and_the_result_says_so(batch: Any, tmp_path: Path) -> None:
    onnx.save(model_of([batch, 3, 8, 8]), tmp_path / "m.onnx")
    done = run(tmp_path / "m.onnx", fixed={"flag": 1})
    assert {name: array.shape for name, array in done.outputs.items()} == {"y": (1, 4, 8, 8)}
    assert done.report.fidelity is not None
    assert done.report.fidelity.opened == ("x",)
    assert "because the first dimension of 'x' is open" in str(done)
    given = run(tmp_path / "m.onnx", fixed={"flag": 1}, shapes={"x": (1, 3, 8, 8)}).report
    assert given.fidelity is not None
    assert given.fidelity.opened == ()


def test_inputs_with_one_batch_get_the_same_number() -> None:
    model = model_of(["N", 3, 8, 8])
    for name, dims in (("z", ["N", 2]), ("w2", ["M", 2]), ("s", ["N", "k"]), ("t", None)):
        model.graph.input.append(info(name, TensorProto.FLOAT, dims))
    assert set_batch(model, {"x": (5, 3, 8, 8)}) == {
        "x": (5, 3, 8, 8),
        "z": (5, 2),
        "w2": (1, 2),
    }


def test_without_a_shape_the_message_gives_an_example(tmp_path: Path) -> None:
    onnx.save(model_of([-1, 3, -1, 8]), tmp_path / "m.onnx")
    expected = (
        r"input 'x' has the dynamic shape \(\?, 3, \?, 8\): "
        r"fix it, for example with shapes=\{'x': \(1, 3, 224, 8\)\}"
    )
    with pytest.raises(InputError, match=expected):
        run(tmp_path / "m.onnx")


def test_an_input_of_unknown_size_cannot_become_a_constant() -> None:
    with pytest.raises(
        InputError,
        match=r"^--fix x=1: the shape of the input is open; fix it as well, with --shape",
    ):
        fix_inputs(open_dimensions(model_of([-1, 3, 8, 8])), {"x": 1})


def test_other_negative_dimensions_are_refused(tmp_path: Path) -> None:
    onnx.save(model_of([-2, 3, 8, 8]), tmp_path / "m.onnx")
    with pytest.raises(
        InputError, match=r"inconsistent ONNX model \(value 'x' has the shape \[-2, 3, 8, 8\]\)"
    ):
        load_model(tmp_path / "m.onnx")


def test_the_model_of_a_caller_is_left_alone() -> None:
    given = model_of([-1, 3, 8, 8])
    before = given.SerializeToString()
    opened = open_dimensions(given)
    assert given.SerializeToString() == before
    assert opened is not given
    assert open_dimensions(opened) is opened
