"""Helpers for tests of the ``dla`` command: run it in process, and save a small model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from experiments.cli.main import main


class Outcome(NamedTuple):
    """Exit status and everything printed."""

    status: int
    out: str
    err: str


def dla(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Outcome:
    """Run one command line of ``dla``."""
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Outcome(status, captured.out, captured.err)


def without_progress(text: str) -> str:
    """Remove the lines of progress from what a command printed, as a fast computer prints none."""
    return re.sub(r"^\d+ s: .*\n", "", text, flags=re.MULTILINE)


def tiny_model(
    *, opset: int = 21, dims: tuple[int | str, ...] = (1, 3, 8, 8), softmax: bool = False
) -> onnx.ModelProto:
    """Return a float convolution of ``image`` to ``result`` (1, 4, 8, 8) with a ReLU.

    With ``softmax`` a Hardmax follows.
    """
    generator = np.random.default_rng(7)
    weights = numpy_helper.from_array(
        generator.standard_normal((4, 3, 3, 3)).astype(np.float32), "weights"
    )
    nodes = [
        helper.make_node("Conv", ["image", "weights"], ["sums"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["sums"], ["rectified" if softmax else "result"], name="relu"),
    ]
    if softmax:
        nodes.append(helper.make_node("Hardmax", ["rectified"], ["result"], name="softmax", axis=1))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, (dims[0], 4, *dims[2:]))],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def save_tiny(folder: Path, name: str = "tiny.onnx", **changes: Any) -> Path:
    """The file of :func:`tiny_model`."""
    path = folder / name
    onnx.save(tiny_model(**changes), path)
    return path
