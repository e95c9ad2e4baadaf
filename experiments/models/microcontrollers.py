"""Networks for microcontrollers: keyword spotting, wake words and person detection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.models.builder import NetworkBuilder
from experiments.models.classifiers import BLOCKS, _layer, _separable

if TYPE_CHECKING:
    from onnx import ModelProto


def keyword_spotting(seed: int = 0) -> ModelProto:
    """Return a network for keyword spotting with depthwise-separable convolutions.

    The input is ``spectrum`` (1, 1, 49, 10), the output ``logits`` (1, 12). It has 2,656,768 MACs.
    """
    net = NetworkBuilder("keyword-spotting", "spectrum", (1, 1, 49, 10), seed)
    value = _layer(net, "conv0", "spectrum", (1, 64), (10, 4), 2)
    for index in range(1, 5):
        value = _separable(net, f"conv{index}", value, (64, 64), 1)
    return net.classifier(value, (64, 12))


def visual_wake_words(seed: int = 0) -> ModelProto:
    """Return a network for visual wake words on colour images.

    The input is ``image`` (1, 3, 96, 96), the output ``logits`` (1, 2). It has 7,489,664 MACs.
    """
    return _quarter_mobilenet("visual-wake-words", seed, 3, "relu")


def person_detection(seed: int = 0) -> ModelProto:
    """Return a network for person detection on grey images.

    The input is ``image`` (1, 1, 96, 96), the output ``logits`` (1, 2). It has 7,157,888 MACs.
    """
    return _quarter_mobilenet("person-detection", seed, 1, "relu6")


def _quarter_mobilenet(name: str, seed: int, channels: int, activation: str) -> ModelProto:
    """Return MobileNetV1 with a quarter of the channels, on 96 × 96 pixels."""
    net = NetworkBuilder(name, "image", (1, channels, 96, 96), seed)
    value = _layer(net, "conv0", "image", (channels, 8), 3, 2, activation=activation)
    inputs = 8
    for index, (outputs, stride) in enumerate(BLOCKS, start=1):
        value = _separable(net, f"conv{index}", value, (inputs, outputs // 4), stride, activation)
        inputs = outputs // 4
    return net.classifier(value, (inputs, 2))


def streaming_wake_word(seed: int = 0) -> ModelProto:
    """Return the streaming wake word: input ``spectrum`` (1, 40, 30, 1), output ``logits`` (1, 3).

    The input has features first, then time. Four depthwise convolutions over time (3, 5, 10 and 15
    steps, no padding), each followed by a pointwise convolution with ReLU, leave one step.
    """
    net = NetworkBuilder("streaming-wake-word", "spectrum", (1, 40, 30, 1), seed)
    value = "spectrum"
    inputs = 40
    for index, (steps, outputs) in enumerate(((3, 128), (5, 128), (10, 128), (15, 32))):
        name = f"conv{index}"
        value = net.convolution(
            f"{name}_dw",
            value,
            (inputs, inputs),
            (steps, 1),
            groups=inputs,
            gain=1.0,
            bias=0.1,
            pads=[0, 0, 0, 0],
        )
        value = _layer(net, f"{name}_pw", value, (inputs, outputs), 1)
        inputs = outputs
    value = net.node("Flatten", "flatten", value, axis=1)
    return net.model(net.add_fully_connected("logits", value, (inputs, 3)), (1, 3))


def micro_speech(seed: int = 0) -> ModelProto:
    """Return micro speech, a network with one convolution.

    It maps ``spectrum`` (1, 1, 49, 40) to ``logits`` (1, 4) and has 336,000 MACs.
    """
    net = NetworkBuilder("micro-speech", "spectrum", (1, 1, 49, 40), seed)
    value = net.node(
        "Flatten", "flatten", _layer(net, "conv", "spectrum", (1, 8), (10, 8), 2), axis=1
    )
    return net.model(net.add_fully_connected("logits", value, (25 * 20 * 8, 4)), (1, 4))
