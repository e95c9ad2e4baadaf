"""Classifiers of sixteen frames, three-dimensional convolutions, with seeded weights.

C3D (Tran et al., 2015, figure 3) and R(2+1)D with 18 layers (Tran et al., 2018, as torchvision builds it): there a
3×3×3 convolution is one over the plane and one over time, with as many weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.models.builder import NetworkBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

FRAMES = 16


def c3d(seed: int = 0, size: int = 112, width: int = 64, hidden: int = 4096, classes: int = 487) -> ModelProto:
    """Input ``video`` (1, 3, 16, ``size``, ``size``), output ``logits`` (1, ``classes``)."""
    net = NetworkBuilder("c3d", "video", (1, 3, FRAMES, size, size), seed)
    value, channels, plane = "video", 3, size
    for block, (factor, count) in enumerate(((1, 1), (2, 1), (4, 2), (8, 2), (8, 2)), start=1):
        for index in range(count):
            name, outputs = f"conv{block}{'ab'[index]}", factor * width
            gain = 2.0 if channels > 3 else 1.0
            value = net.convolution(name, value, (channels, outputs), (3, 3, 3), gain=gain, bias=0.1)
            value, channels = net.relu(f"{name}_relu", value), outputs
        sizes = [1 if block == 1 else 2, 2, 2]
        plane = -(-plane // 2) if block == 5 else plane // 2
        pads = [0, plane * 2 - (size >> 4), plane * 2 - (size >> 4)] if block == 5 else [0] * 3
        value = net.node("MaxPool", f"pool{block}", value, kernel_shape=sizes, strides=sizes, pads=[0] * 3 + pads)
    value, features = net.node("Flatten", "flatten", value, axis=1), channels * plane * plane
    for name in ("fc6", "fc7"):
        value, features = net.relu(f"{name}_relu", net.fully_connected(name, value, (features, hidden))), hidden
    return net.model(net.fully_connected("logits", value, (features, classes)), (1, classes))


def r2plus1d(seed: int = 0, size: int = 112, width: int = 64, classes: int = 400) -> ModelProto:
    """Input ``video`` (1, 3, 16, ``size``, ``size``), output ``logits`` (1, ``classes``)."""
    net = NetworkBuilder("r2plus1d", "video", (1, 3, FRAMES, size, size), seed)
    middle = 45 * width // 64
    value = net.layer("stem_plane", "video", (3, middle), (1, 7, 7), (1, 2, 2), gain=1.0)
    value, channels = net.layer("stem_time", value, (middle, width), (3, 1, 1)), width
    for stage in range(4):
        for index in range(2):
            outputs = width << stage
            value = _block(net, f"stage{stage}{'ab'[index]}", value, (channels, outputs))
            channels = outputs
    return net.classifier(value, (channels, classes))


def _block(net: NetworkBuilder, name: str, source: str, channels: tuple[int, int]) -> str:
    """A residual block; where the number of channels changes, it halves plane and time and projects the shortcut."""
    inputs, outputs = channels
    stride = 1 if inputs == outputs else 2
    middle = inputs * outputs * 27 // (inputs * 9 + 3 * outputs)
    value, shortcut = source, source
    for part, width, step, scale in (("a", inputs, stride, 1.0), ("b", outputs, 1, 0.5)):
        value = net.layer(f"{name}{part}_plane", value, (width, middle), (1, 3, 3), (1, step, step))
        activation = "relu" if part == "a" else "linear"
        layer = f"{name}{part}_time"
        value = net.layer(layer, value, (middle, outputs), (3, 1, 1), (step, 1, 1), activation=activation, scale=scale)
    if stride == 2:
        shortcut = net.layer(f"{name}_shortcut", source, channels, (1, 1, 1), (2, 2, 2), activation="linear")
    return net.relu(f"{name}_relu", net.node("Add", f"{name}_add", value, shortcut))
