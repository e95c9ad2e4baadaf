"""A small float network with operators of networks since 2018, for tests of whole programs.

Every instruction of ``v4`` but OP_RESIZE is there: convolution with SiLU, squeeze-and-excite, what
repeats added, subtracted, compared and divided by, a split, a slope a channel and a concatenation,
an upsampled path that is pooled again, then tokens: layer normalisation, one attention head, a
residual sum, the mean of the tokens, a classifier.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.e2e.graph_builder import GraphBuilder
from tests.e2e.graph_steps import Tensor

CHANNELS = 8
SIZE = 6
CLASSES = 5


def modern_network() -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """The model, opset 21, and an input for it."""
    builder = GraphBuilder(0)
    image = Tensor("image", (1, 3, SIZE, SIZE))
    builder.inputs = [image]
    builder.tensors = [image]
    plane = _convolutional(builder, image)
    result = _tokens(builder, plane)
    graph = helper.make_graph(
        builder.nodes,
        "modern",
        [helper.make_tensor_value_info(image.name, TensorProto.FLOAT, image.shape)],
        [helper.make_tensor_value_info(result.name, TensorProto.FLOAT, result.shape)],
        builder.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, {image.name: builder.random.standard_normal(image.shape).astype(np.float32)}


def _convolutional(builder: GraphBuilder, image: Tensor) -> Tensor:
    shape = (1, CHANNELS, SIZE, SIZE)
    (x,) = builder.node(
        "Conv", [image, builder.normal(CHANNELS, 3, 3, 3, scale=0.2)], shape, pads=[1, 1, 1, 1]
    )
    (gate,) = builder.node("Sigmoid", [x], shape)
    (x,) = builder.node("Mul", [x, gate], shape)
    one = (1, CHANNELS, 1, 1)
    (squeezed,) = builder.node("GlobalAveragePool", [x], one)
    (squeezed,) = builder.node(
        "Conv", [squeezed, builder.normal(CHANNELS, CHANNELS, 1, 1, scale=0.3)], one
    )
    (excited,) = builder.node("HardSigmoid", [squeezed], one)
    (x,) = builder.node("Mul", [x, excited], shape)
    (x,) = builder.node("Sub", [x, squeezed], shape)
    (x,) = builder.node("Add", [excited, x], shape)
    (x,) = builder.node("Max", [x, squeezed], shape)
    (divisor,) = builder.node("Sigmoid", [squeezed], one)
    (x,) = builder.node("Div", [x, divisor], shape)
    half = (1, CHANNELS // 2, SIZE, SIZE)
    left, right = builder.node("Split", [x, builder.integers(4, 4)], half, half, axis=1)
    (right,) = builder.node("Conv", [right, builder.normal(4, 4, 1, 1, scale=0.5)], half)
    (right,) = builder.node("PRelu", [right, builder.normal(4, 1, 1)], half)
    (x,) = builder.node("Concat", [right, left], shape, axis=1)
    (x,) = builder.node("HardSwish", [x], shape)
    scales = builder.constant(np.array([1, 1, 2, 2], np.float32))
    (large,) = builder.node(
        "Resize", [x, "", scales], (1, CHANNELS, 2 * SIZE, 2 * SIZE), mode="nearest"
    )
    (x,) = builder.node("MaxPool", [large], shape, kernel_shape=[2, 2], strides=[2, 2])
    return x


def _tokens(builder: GraphBuilder, plane: Tensor) -> Tensor:
    count = SIZE * SIZE
    shape = (1, count, CHANNELS)
    x = builder.reshaped(plane, (1, CHANNELS, count))
    (x,) = builder.node("Transpose", [x], shape, perm=[0, 2, 1])
    parameters: list[Tensor | str] = [builder.normal(CHANNELS), builder.normal(CHANNELS)]
    (normal,) = builder.node("LayerNormalization", [x, *parameters], shape, axis=-1)
    queries, keys, values = (
        builder.node("MatMul", [normal, builder.normal(CHANNELS, CHANNELS, scale=0.4)], shape)[0]
        for _ in range(3)
    )
    (turned,) = builder.node("Transpose", [keys], (1, CHANNELS, count), perm=[0, 2, 1])
    (scores,) = builder.node("MatMul", [queries, turned], (1, count, count))
    (scores,) = builder.node("Mul", [scores, builder.constant(CHANNELS**-0.5)], (1, count, count))
    (shares,) = builder.node("Softmax", [scores], (1, count, count), axis=-1)
    (mixed,) = builder.node("MatMul", [shares, values], shape)
    (x,) = builder.node("Add", [x, mixed], shape)
    (x,) = builder.node("ReduceMean", [x, builder.integers(1)], (1, CHANNELS), keepdims=0)
    return builder.node("MatMul", [x, builder.normal(CHANNELS, CLASSES)], (1, CLASSES))[0]
