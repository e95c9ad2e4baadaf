"""ResNeXt-11 (Xie et al., 2017, in small): residual blocks whose 3×3 convolutions have sixteen groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.models.builder import NetworkBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

GROUPS = 16


def resnext_11(seed: int = 0) -> ModelProto:
    """Groups of 4, 8 and 16 channels: input ``image`` (1, 3, 32, 32), output ``logits`` (1, 10)."""
    net = NetworkBuilder("resnext-11", "image", (1, 3, 32, 32), seed)
    value = _layer(net, "stem", "image", (3, 32), 3)
    for index, (channels, stride) in enumerate((((32, 64), 1), ((64, 128), 2), ((128, 256), 2)), start=1):
        value = _block(net, f"block{index}", value, channels, stride)
    value = net.node("Flatten", "flatten", net.node("GlobalAveragePool", "pool", value), axis=1)
    return net.model(net.fully_connected("logits", value, (256, 10)), (1, 10))


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


def _block(net: NetworkBuilder, name: str, source: str, channels: tuple[int, int], stride: int) -> str:
    """Widen, convolve in groups, mix the groups, add the projected shortcut."""
    inner = channels[1], channels[1]
    value = _layer(net, f"{name}_widen", source, channels, 1)
    value = _layer(net, f"{name}_grouped", value, inner, 3, stride, GROUPS)
    value = net.batch_norm(f"{name}_mix_bn", net.convolution(f"{name}_mix", value, inner, 1), channels[1], gain=0.5)
    shortcut = net.convolution(f"{name}_shortcut", source, channels, 1, stride)
    shortcut = net.batch_norm(f"{name}_shortcut_bn", shortcut, channels[1])
    return net.relu(f"{name}_relu", net.node("Add", f"{name}_add", value, shortcut))
