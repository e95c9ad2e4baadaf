"""Built-in networks with seeded weights: MobileNetV1, ResNet-8 and ResNet-18, ResNeXt-11.

MobileNetV1 is 1.0/224 (Howard et al., 2017, table 1) without the final softmax; the residual networks are those of He
et al. (2015), ResNeXt (Xie et al., 2017) in small: the 3×3 convolutions of its blocks have sixteen groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.models.builder import NetworkBuilder

if TYPE_CHECKING:
    from onnx import ModelProto


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
