"""Softmax rows with equal maxima, whose quotients are near ties, raise no false alarm.

ONNX Runtime 1.31 and 1.32 round them differently.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import experiments

SCALES = (0.44110316, 0.003929273)
ROW = (20,) * 4 + (-62,) * 11 + (-119,) * 11


def model(shape: tuple[int, ...], axis: int) -> onnx.ModelProto:
    """Make a quantised Softmax along ``axis`` of int8 ``shape``."""
    numbers = {
        "before": np.float32(SCALES[0]), "zero": np.int8(0), "after": np.float32(SCALES[1]),
        "low": np.int8(-128),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "before", "zero"], ["real"]),
        helper.make_node("Softmax", ["real"], ["shares"], axis=axis),
        helper.make_node("QuantizeLinear", ["shares", "after", "low"], ["y"]),
    ]
    ends = (helper.make_tensor_value_info(name, TensorProto.INT8, shape) for name in "xy")
    constants = [
        numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()
    ]
    graph = helper.make_graph(nodes, "softmax", [next(ends)], [next(ends)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_equal_maxima_are_no_false_alarm(tmp_path: Path) -> None:
    """Compare with the definition, whichever version of ONNX Runtime is installed.

    Along rows and across them.
    """
    rng = np.random.default_rng(0)
    rows = np.stack([rng.permutation(ROW) for _ in range(40)]).astype(np.int8)
    for name, data, axis in (("dense", rows, 1), ("across", rows.T, 0)):
        onnx.save(model(data.shape, axis), tmp_path / f"{name}.onnx")
        np.savez(tmp_path / f"{name}.npz", x=np.ascontiguousarray(data))
        report = experiments.run(tmp_path / f"{name}.onnx", inputs=tmp_path / f"{name}.npz").report
        assert report.check.mismatches == 0
        # the definition was compared with ONNX Runtime's own result, and counted
        assert report.check.definitions
        assert not [warning for warning in report.warnings if warning.kind == "file"]
