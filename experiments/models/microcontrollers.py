"""Networks for microcontrollers: keyword spotting, wake words and person detection.

Keyword spotting (a DS-CNN), visual wake words (MobileNetV1 0.25) and the streaming wake word are
those of MLPerf Tiny (Banbury et al., 2021), person detection and micro speech the examples of
TensorFlow Lite for Microcontrollers. Shapes, strides and padding are those of the TensorFlow Lite
files; biases replace the folded batch normalisation.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from experiments.models.builder import NetworkBuilder, Row
from experiments.models.classifiers import BLOCKS

if TYPE_CHECKING:
    from onnx import ModelProto

_layer = partial(NetworkBuilder.add_biased, auto_pad="SAME_UPPER")
"""Convolution with bias, padded as in TensorFlow, and an activation."""


def _separable(
    net: NetworkBuilder,
    name: str,
    source: str,
    channels: tuple[int, int],
    stride: int = 1,
    activation: str = "relu",
) -> str:
    """Add a depthwise layer and a pointwise layer."""
    inner = channels[0], channels[0]
    value = _layer(
        net, f"{name}_dw", source, inner, 3, stride, activation=activation, groups=inner[0]
    )
    return _layer(net, f"{name}_pw", value, channels, 1, activation=activation)


def keyword_spotting(seed: int = 0) -> ModelProto:
    """Return a network for keyword spotting with depthwise-separable convolutions.

    The input is ``spectrum`` (1, 1, 49, 10), the output ``logits`` (1, 12). It has 2,656,768 MACs.
    """
    net = NetworkBuilder("keyword-spotting", "spectrum", (1, 1, 49, 10), seed)
    rows: list[Row] = [("conv0", partial(_layer, kernel=(10, 4), stride=2), 64)]
    rows += [(f"conv{index}", _separable, 64) for index in range(1, 5)]
    return net.classifier(net.stack("spectrum", 1, rows)[-1], (64, 12))


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
    rows: list[Row] = [("conv0", partial(_layer, kernel=3, stride=2, activation=activation), 8)]
    for index, (outputs, stride) in enumerate(BLOCKS, start=1):
        add = partial(_separable, stride=stride, activation=activation)
        rows.append((f"conv{index}", add, outputs // 4))
    return net.classifier(net.stack("image", channels, rows)[-1], (256, 2))


def streaming_wake_word(seed: int = 0) -> ModelProto:
    """Return the streaming wake word: input ``spectrum`` (1, 40, 30, 1), output ``logits`` (1, 3).

    The input has features first, then time. Four depthwise convolutions over time (3, 5, 10 and 15
    steps, no padding), each followed by a pointwise convolution with ReLU, leave one step.
    """
    net = NetworkBuilder("streaming-wake-word", "spectrum", (1, 40, 30, 1), seed)
    rows = [
        (f"conv{index}", partial(_add_over_time, steps=steps), outputs)
        for index, (steps, outputs) in enumerate(((3, 128), (5, 128), (10, 128), (15, 32)))
    ]
    value = net.node("Flatten", "flatten", net.stack("spectrum", 40, rows)[-1], axis=1)
    return net.logits(value, (32, 3))


def _add_over_time(
    net: NetworkBuilder, name: str, source: str, channels: tuple[int, int], steps: int
) -> str:
    """Add a depthwise convolution over ``steps`` and a pointwise layer."""
    inputs = channels[0]
    how: dict[str, Any] = {"groups": inputs, "gain": 1.0, "pads": [0] * 4}
    inner = inputs, inputs
    value = net.add_biased(f"{name}_dw", source, inner, (steps, 1), activation="linear", **how)
    return _layer(net, f"{name}_pw", value, channels, 1)


def micro_speech(seed: int = 0) -> ModelProto:
    """Return micro speech, a network with one convolution.

    It maps ``spectrum`` (1, 1, 49, 40) to ``logits`` (1, 4) and has 336,000 MACs.
    """
    net = NetworkBuilder("micro-speech", "spectrum", (1, 1, 49, 40), seed)
    value = net.node(
        "Flatten", "flatten", _layer(net, "conv", "spectrum", (1, 8), (10, 8), 2), axis=1
    )
    return net.logits(value, (25 * 20 * 8, 4))
