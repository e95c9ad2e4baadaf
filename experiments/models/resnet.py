"""Residual networks with seeded weights: ResNet-8 for 32×32 images, ResNet-18 for 224×224 (He et al., 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.models.builder import NetworkBuilder

if TYPE_CHECKING:
    from onnx import ModelProto


def resnet_8(seed: int = 0) -> ModelProto:
    """The image-classification network of MLPerf Tiny: input ``image`` (1, 3, 32, 32), output ``logits`` (1, 10)."""
    net = NetworkBuilder("resnet-8", "image", (1, 3, 32, 32), seed)
    value = _layer(net, "stem", "image", (3, 16), 3)
    for index, channels in enumerate(((16, 16), (16, 32), (32, 64)), start=1):
        value = _block(net, f"block{index}", value, channels)
    return _classifier(net, value, (64, 10))


def resnet_18(seed: int = 0) -> ModelProto:
    """ResNet-18: input ``image`` (1, 3, 224, 224), output ``logits`` (1, 1000)."""
    net = NetworkBuilder("resnet-18", "image", (1, 3, 224, 224), seed)
    value = _layer(net, "stem", "image", (3, 64), 7, 2)
    value = net.node("MaxPool", "stem_pool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for index, channels in enumerate(((64, 64), (64, 128), (128, 256), (256, 512)), start=1):
        value = _block(net, f"stage{index}a", value, channels)
        value = _block(net, f"stage{index}b", value, (channels[1], channels[1]))
    return _classifier(net, value, (512, 1000))


def _layer(net: NetworkBuilder, name: str, source: str, channels: tuple[int, int], kernel: int, stride: int = 1) -> str:
    value = net.convolution(name, source, channels, kernel, stride)
    return net.relu(f"{name}_relu", net.batch_norm(f"{name}_bn", value, channels[1]))


def _block(net: NetworkBuilder, name: str, source: str, channels: tuple[int, int]) -> str:
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
