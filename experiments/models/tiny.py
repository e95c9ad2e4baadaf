"""Networks for microcontrollers with seeded weights: what MLPerf Tiny and TensorFlow Lite for Microcontrollers ship.

Keyword spotting (a DS-CNN), visual wake words (MobileNetV1 0.25) and the streaming wake word of MLPerf Tiny (Banbury et
al., 2021); person detection and micro speech of the latter's examples. Shapes, strides and padding are those of the
TensorFlow Lite files, biases stand for the folded batch normalisation, and the final softmax is left off. MLPerf Tiny's
residual networks are in ``classifiers``, its autoencoder in ``imaging``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.models.builder import NetworkBuilder
from experiments.models.classifiers import BLOCKS

if TYPE_CHECKING:
    from onnx import ModelProto


def keyword_spotting(seed: int = 0) -> ModelProto:
    """Input ``spectrum`` (1, 1, 49, 10), output ``logits`` (1, 12); 2,656,768 MACs."""
    net = NetworkBuilder("keyword-spotting", "spectrum", (1, 1, 49, 10), seed)
    value = _layer(net, "conv0", "spectrum", (1, 64), (10, 4), 2)
    for index in range(1, 5):
        value = _separable(net, f"conv{index}", value, (64, 64), 1)
    return net.classifier(value, (64, 12))


def visual_wake_words(seed: int = 0) -> ModelProto:
    """Input ``image`` (1, 3, 96, 96), output ``logits`` (1, 2); 7,489,664 MACs."""
    return _quarter_mobilenet("visual-wake-words", seed, 3, "relu")


def person_detection(seed: int = 0) -> ModelProto:
    """Input ``image`` (1, 1, 96, 96), grey, output ``logits`` (1, 2); 7,157,888 MACs."""
    return _quarter_mobilenet("person-detection", seed, 1, "relu6")


def _quarter_mobilenet(name: str, seed: int, channels: int, activation: str) -> ModelProto:
    """MobileNetV1 with a quarter of the channels on 96 × 96 pixels."""
    net = NetworkBuilder(name, "image", (1, channels, 96, 96), seed)
    value, inputs = _layer(net, "conv0", "image", (channels, 8), 3, 2, activation=activation), 8
    for index, (outputs, stride) in enumerate(BLOCKS, start=1):
        value = _separable(net, f"conv{index}", value, (inputs, outputs // 4), stride, activation)
        inputs = outputs // 4
    return net.classifier(value, (inputs, 2))


def streaming_wake_word(seed: int = 0) -> ModelProto:
    """Input ``spectrum`` (1, 40, 30, 1), features first, then time; output ``logits`` (1, 3).

    Four depthwise convolutions over time, 3, 5, 10 and 15 steps long and nothing padded, each in front of a pointwise
    one with a ReLU, until one step is left.
    """
    net = NetworkBuilder("streaming-wake-word", "spectrum", (1, 40, 30, 1), seed)
    value, inputs = "spectrum", 40
    for index, (steps, outputs) in enumerate(((3, 128), (5, 128), (10, 128), (15, 32))):
        name = f"conv{index}"
        value = net.convolution(
            f"{name}_dw", value, (inputs, inputs), (steps, 1), groups=inputs, gain=1.0, bias=0.1, pads=[0, 0, 0, 0]
        )
        value, inputs = _layer(net, f"{name}_pw", value, (inputs, outputs), 1), outputs
    value = net.node("Flatten", "flatten", value, axis=1)
    return net.model(net.fully_connected("logits", value, (inputs, 3)), (1, 3))


def micro_speech(seed: int = 0) -> ModelProto:
    """One convolution: input ``spectrum`` (1, 1, 49, 40), output ``logits`` (1, 4); 336,000 MACs."""
    net = NetworkBuilder("micro-speech", "spectrum", (1, 1, 49, 40), seed)
    value = net.node("Flatten", "flatten", _layer(net, "conv", "spectrum", (1, 8), (10, 8), 2), axis=1)
    return net.model(net.fully_connected("logits", value, (25 * 20 * 8, 4)), (1, 4))


def _layer(
    net: NetworkBuilder,
    name: str,
    source: str,
    channels: tuple[int, int],
    kernel: int | tuple[int, int],
    stride: int = 1,
    groups: int = 1,
    activation: str = "relu",
) -> str:
    """A convolution with a bias, padded as TensorFlow does, and an activation."""
    value = net.convolution(name, source, channels, kernel, stride, groups=groups, bias=0.1, auto_pad="SAME_UPPER")
    return net.activation(activation, f"{name}_{activation}", value)


def _separable(
    net: NetworkBuilder, name: str, source: str, channels: tuple[int, int], stride: int, activation: str = "relu"
) -> str:
    """A depthwise layer and a pointwise one."""
    inner = channels[0], channels[0]
    value = _layer(net, f"{name}_dw", source, inner, 3, stride, channels[0], activation)
    return _layer(net, f"{name}_pw", value, channels, 1, activation=activation)
