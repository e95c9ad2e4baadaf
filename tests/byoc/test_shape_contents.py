"""Contents of shapes are followed by onnx where it comes to an end.

Elsewhere ONNX Runtime is asked for the shape.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

RUN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))  # a loop without end fails soon
from byoc.importing import import_model
print([value.shape for value in map(import_model(sys.argv[1]).graph.values.get, ("z",))])
"""


@pytest.mark.parametrize("made", ["initializer", "Constant", "computed"])
def test_a_step_of_which_32_bits_are_zero(made: str, tmp_path: Path) -> None:
    """Shape inference adds it again and again: 25 GB for a file of 300 bytes.

    The slice has one element.
    """
    arrays = {"m": [-1], "s": [0], "e": [2**62], "a": [0], "half": [2**20], "step": [2**40]}
    tensors = {
        name: numpy_helper.from_array(np.array(values, np.int64), name)
        for name, values in arrays.items()
    }
    nodes = [
        helper.make_node("Reshape", ["x", "m"], ["y"]),
        helper.make_node("Slice", [*"ysea", "step"], ["z"]),
    ]
    if made == "Constant":
        nodes.insert(0, helper.make_node("Constant", [], ["step"], value=tensors.pop("step")))
    if made == "computed":
        del tensors["step"]
        nodes.insert(0, helper.make_node("Mul", ["half", "half"], ["step"]))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 60])
    wanted = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "steps", [given], [wanted], list(tensors.values()))
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
        tmp_path / "m.onnx",
    )
    done = subprocess.run(
        [sys.executable, "-c", RUN, tmp_path / "m.onnx"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[(1,)]\n"), done.stderr
