"""``digits-cnn``: the small trained network on 8×8 handwritten digits, and its committed data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

MODEL_FILE = "digits-cnn.onnx"
TFLITE_FILE = "digits-cnn.tflite"
DATA_FILE = "digits-data.npz"


def digits_model() -> ModelProto:
    """The committed float network: input ``image`` float32 (1, 1, 8, 8) with values 0..1, output ``logits`` (1, 10)."""
    import onnx

    return onnx.load(Path(__file__).parent / MODEL_FILE)


@cache
def _data() -> Mapping[str, NDArray[np.uint8]]:
    with np.load(Path(__file__).parent / DATA_FILE, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _images(name: str) -> NDArray[np.float32]:
    return (_data()[name].astype(np.float32) / 16.0)[:, np.newaxis]


def held_out_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The 450 images never seen in training, float32 (450, 1, 8, 8) with values 0..1, and their labels int64 (450,)."""
    return _images("images"), _data()["labels"].astype(np.int64)


def calibration_digits() -> NDArray[np.float32]:
    """64 training images, float32 (64, 1, 8, 8) with values 0..1."""
    return _images("calibration")


def digits_graph(parameters: Mapping[str, NDArray[np.float32]]) -> ModelProto:
    """The ONNX network (opset 21) that holds ``parameters`` as named by ``training.initial_parameters``."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        _digits_nodes(),
        "digits-cnn",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 1, 8, 8))],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, (1, 10))],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in parameters.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _digits_nodes() -> list[NodeProto]:
    from onnx import helper

    def node(op_type: str, name: str, inputs: list[str], output: str, **attributes: Any) -> NodeProto:
        return helper.make_node(op_type, inputs, [output], name=name, **attributes)

    def weighted(name: str) -> list[str]:
        return [f"{name}_weight", f"{name}_bias"]

    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    return [
        node("Conv", "conv", ["image", *weighted("conv")], "conv_out", **same),
        node("Relu", "conv_relu", ["conv_out"], "conv_act"),
        node("Conv", "depthwise", ["conv_act", *weighted("depthwise")], "depthwise_out", group=16, **same),
        node("Relu", "depthwise_relu", ["depthwise_out"], "depthwise_act"),
        node("Conv", "pointwise", ["depthwise_act", *weighted("pointwise")], "pointwise_out", kernel_shape=[1, 1]),
        node("Relu", "pointwise_relu", ["pointwise_out"], "pointwise_act"),
        node("MaxPool", "pool", ["pointwise_act"], "pooled", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "flatten", ["pooled"], "features", axis=1),
        node("Gemm", "classifier", ["features", *weighted("classifier")], "logits", transB=1),
    ]
