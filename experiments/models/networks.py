"""Built-in networks with seeded weights, and what builds them layer by layer.

MobileNetV1 is 1.0/224 (Howard et al., 2017, table 1) without the final softmax; the residual networks are those of He
et al. (2015), ResNeXt (Xie et al., 2017) in small: the 3×3 convolutions of its blocks have sixteen groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import ModelProto


OPSET = 21
IR_VERSION = 10
BATCH_NORM_EPSILON = 1e-3


class NetworkBuilder:
    """Collects nodes and initialisers; each method adds one layer and returns the name of its output.

    Weights are He-normal (standard deviation ``sqrt(2 / fan_in)``), drawn from ``seed`` in the order of the calls. Each
    filter that reads more than one channel has mean zero: the inputs behind a ReLU are positive, and without this
    deep layers would see little but their mean. Batch normalisation then finds a variance near one, and its statistics
    say so: mean 0 ± 0.1, variance 0.8..1.25, gamma 0.9..1.1, beta 0.1 ± 0.1.
    """

    def __init__(self, name: str, input_name: str, shape: tuple[int, ...], seed: int) -> None:
        from onnx import TensorProto, helper

        self._name = name
        self._random = np.random.default_rng(seed)
        self._input = helper.make_tensor_value_info(input_name, TensorProto.FLOAT, shape)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def _constant(self, name: str, array: NDArray[Any]) -> str:
        from onnx import numpy_helper

        self._constants.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(self, op_type: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Add one ONNX node called ``name`` whose output is ``name`` too."""
        from onnx import helper

        self._nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def convolution(
        self,
        name: str,
        source: str,
        channels: tuple[int, int],
        kernel: int,
        stride: int = 1,
        *,
        groups: int = 1,
    ) -> str:
        """A Conv without bias, ``channels`` (in, out), padded by ``kernel // 2``."""
        inputs, outputs = channels
        weights = self._random.standard_normal((outputs, inputs // groups, kernel, kernel), np.float32)
        if inputs > groups:
            weights -= weights.mean(axis=(1, 2, 3), keepdims=True)
        weights *= np.sqrt(2.0 / weights[0].size)
        return self.node(
            "Conv",
            name,
            source,
            self._constant(f"{name}_weight", weights),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=groups,
        )

    def batch_norm(self, name: str, source: str, channels: int, gain: float = 1.0) -> str:
        """Batch normalisation in inference form; ``gain`` scales gamma (below 1 it keeps residual sums small)."""
        uniform, normal = self._random.uniform, self._random.normal
        parameters = {
            "gamma": gain * uniform(0.9, 1.1, channels),
            "beta": normal(0.1, 0.1, channels),
            "mean": normal(0.0, 0.1, channels),
            "variance": uniform(0.8, 1.25, channels),
        }
        names = [self._constant(f"{name}_{key}", value) for key, value in parameters.items()]
        return self.node("BatchNormalization", name, source, *names, epsilon=BATCH_NORM_EPSILON)

    def relu(self, name: str, source: str) -> str:
        """ReLU."""
        return self.node("Relu", name, source)

    def fully_connected(self, name: str, source: str, features: tuple[int, int]) -> str:
        """Gemm with transposed weights (out, in) and a bias; ``features`` (in, out)."""
        inputs, outputs = features
        weights = self._random.standard_normal((outputs, inputs), np.float32)
        weights -= weights.mean(axis=1, keepdims=True)
        return self.node(
            "Gemm",
            name,
            source,
            self._constant(f"{name}_weight", weights * np.sqrt(2.0 / inputs)),
            self._constant(f"{name}_bias", self._random.normal(0.0, 0.1, outputs)),
            transB=1,
        )

    def model(self, output: str, shape: tuple[int, ...]) -> ModelProto:
        """The finished network (opset 21) with one output."""
        from onnx import TensorProto, helper

        value = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self._nodes, self._name, [self._input], [value], self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


# (output channels, stride) of the thirteen depthwise-separable blocks.
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


def mobilenet_v1(seed: int = 0) -> ModelProto:
    """28 layers, 568,740,352 multiply-accumulates: input ``image`` (1, 3, 224, 224), output ``logits`` (1, 1000).

    Every convolution is followed by BatchNormalization and ReLU. The softmax is left off, as in the published system,
    so that the last fully connected layer is what the accelerator returns.
    """
    net = NetworkBuilder("mobilenet-v1", "image", (1, 3, 224, 224), seed)
    value, channels = _layer(net, "conv0", "image", (3, 32), 3, 2), 32
    for index, (outputs, stride) in enumerate(BLOCKS, start=1):
        value = _layer(net, f"conv{index}_dw", value, (channels, channels), 3, stride, channels)
        value = _layer(net, f"conv{index}_pw", value, (channels, outputs), 1)
        channels = outputs
    value = net.node("GlobalAveragePool", "pool", value)
    value = net.node("Flatten", "flatten", value, axis=1)
    return net.model(net.fully_connected("logits", value, (channels, 1000)), (1, 1000))


def _layer(
    net: NetworkBuilder,
    name: str,
    source: str,
    channels: tuple[int, int],
    kernel: int,
    stride: int = 1,
    groups: int = 1,
) -> str:
    value = net.convolution(name, source, channels, kernel, stride, groups=groups)
    return net.relu(f"{name}_relu", net.batch_norm(f"{name}_bn", value, channels[1]))


def resnet_8(seed: int = 0) -> ModelProto:
    """The image-classification network of MLPerf Tiny: input ``image`` (1, 3, 32, 32), output ``logits`` (1, 10)."""
    net = NetworkBuilder("resnet-8", "image", (1, 3, 32, 32), seed)
    value = _layer(net, "stem", "image", (3, 16), 3)
    for index, channels in enumerate(((16, 16), (16, 32), (32, 64)), start=1):
        value = _basic_block(net, f"block{index}", value, channels)
    return _classifier(net, value, (64, 10))


def resnet_18(seed: int = 0) -> ModelProto:
    """ResNet-18: input ``image`` (1, 3, 224, 224), output ``logits`` (1, 1000)."""
    net = NetworkBuilder("resnet-18", "image", (1, 3, 224, 224), seed)
    value = _layer(net, "stem", "image", (3, 64), 7, 2)
    value = net.node("MaxPool", "stem_pool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for index, channels in enumerate(((64, 64), (64, 128), (128, 256), (256, 512)), start=1):
        value = _basic_block(net, f"stage{index}a", value, channels)
        value = _basic_block(net, f"stage{index}b", value, (channels[1], channels[1]))
    return _classifier(net, value, (512, 1000))


def _basic_block(net: NetworkBuilder, name: str, source: str, channels: tuple[int, int]) -> str:
    """A basic block; where the number of channels changes it halves the plane and projects the shortcut."""
    changes = channels[0] != channels[1]
    stride = 2 if changes else 1
    value = _layer(net, f"{name}_conv1", source, channels, 3, stride)
    value = net.convolution(f"{name}_conv2", value, (channels[1], channels[1]), 3)
    value = net.batch_norm(f"{name}_conv2_bn", value, channels[1], gain=0.5)
    shortcut = source
    if changes:
        shortcut = net.convolution(f"{name}_shortcut", source, channels, 1, stride)
        shortcut = net.batch_norm(f"{name}_shortcut_bn", shortcut, channels[1])
    return net.relu(f"{name}_relu", net.node("Add", f"{name}_add", value, shortcut))


def _classifier(net: NetworkBuilder, source: str, features: tuple[int, int]) -> ModelProto:
    value = net.node("GlobalAveragePool", "pool", source)
    value = net.node("Flatten", "flatten", value, axis=1)
    return net.model(net.fully_connected("logits", value, features), (1, features[1]))


GROUPS = 16


def resnext_11(seed: int = 0) -> ModelProto:
    """Groups of 4, 8 and 16 channels: input ``image`` (1, 3, 32, 32), output ``logits`` (1, 10)."""
    net = NetworkBuilder("resnext-11", "image", (1, 3, 32, 32), seed)
    value = _layer(net, "stem", "image", (3, 32), 3)
    for index, (channels, stride) in enumerate((((32, 64), 1), ((64, 128), 2), ((128, 256), 2)), start=1):
        value = _grouped_block(net, f"block{index}", value, channels, stride)
    value = net.node("Flatten", "flatten", net.node("GlobalAveragePool", "pool", value), axis=1)
    return net.model(net.fully_connected("logits", value, (256, 10)), (1, 10))


def _grouped_block(net: NetworkBuilder, name: str, source: str, channels: tuple[int, int], stride: int) -> str:
    """Widen, convolve in groups, mix the groups, add the projected shortcut."""
    inner = channels[1], channels[1]
    value = _layer(net, f"{name}_widen", source, channels, 1)
    value = _layer(net, f"{name}_grouped", value, inner, 3, stride, GROUPS)
    value = net.batch_norm(f"{name}_mix_bn", net.convolution(f"{name}_mix", value, inner, 1), channels[1], gain=0.5)
    shortcut = net.convolution(f"{name}_shortcut", source, channels, 1, stride)
    shortcut = net.batch_norm(f"{name}_shortcut_bn", shortcut, channels[1])
    return net.relu(f"{name}_relu", net.node("Add", f"{name}_add", value, shortcut))
