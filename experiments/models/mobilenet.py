"""MobileNetV1 1.0/224 (Howard et al., 2017, table 1) with seeded weights and without the final softmax."""

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
