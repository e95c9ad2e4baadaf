"""Classifiers of images and videos with seeded weights, as published, without the final softmax.

MobileNetV1 is 1.0/224 (Howard et al., 2017, table 1). The residual networks are those of He et al.
(2015). ResNeXt (Xie et al., 2017) is a small version: the 3×3 convolutions of its blocks have
sixteen groups. MobileNetV2 (Sandler et al., 2018, table 2), MobileNetV3 (Howard et al., 2019,
tables 1 and 2), EfficientNet-B0 (Tan and Le, 2019, table 1), SqueezeNet 1.1 (Iandola et al., 2016)
and ShuffleNetV2 1.0 (Ma et al., 2018, table 5) have exactly the parameters of torchvision.

Networks for sixteen frames have three-dimensional convolutions: C3D (Tran et al., 2015, figure 3)
and R(2+1)D with 18 layers (Tran et al., 2018, as in torchvision). R(2+1)D replaces a 3×3×3
convolution by one over the plane and one over time, with as many weights.

Networks for microcontrollers are keyword spotting (a DS-CNN), visual wake words (MobileNetV1 0.25)
and the streaming wake word of MLPerf Tiny (Banbury et al., 2021), and person detection and micro
speech from the examples of TensorFlow Lite for Microcontrollers. Shapes, strides and padding are
those of the TensorFlow Lite files; biases replace the folded batch normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.models.builder import GAINS, NetworkBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

# (output channels, stride) of the thirteen depthwise-separable blocks.
BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *((512, 1),) * 5,
    (1024, 2),
    (1024, 1),
)


def mobilenet_v1(seed: int = 0) -> ModelProto:
    """Return MobileNetV1, a network of 568,740,352 MACs.

    Its input is ``image`` (1, 3, 224, 224), its output ``logits`` (1, 1000).

    It has 28 layers; every convolution is followed by BatchNormalization and ReLU. The softmax is
    left out, as in the published system, so that the accelerator returns the last fully connected
    layer.
    """
    net = NetworkBuilder("mobilenet-v1", "image", (1, 3, 224, 224), seed)
    return net.classifier(mobilenet_v1_blocks(net, "image")[-1], (1024, 1000))


def mobilenet_v1_blocks(net: NetworkBuilder, source: str) -> list[str]:
    """Return the outputs of the thirteen depthwise-separable blocks after the first convolution."""
    value = net.layer("conv0", source, (3, 32), 3, 2)
    channels = 32
    found = []
    for index, (outputs, stride) in enumerate(BLOCKS, start=1):
        value = net.layer(f"conv{index}_dw", value, (channels, channels), 3, stride, channels)
        value = net.layer(f"conv{index}_pw", value, (channels, outputs), 1)
        channels = outputs
        found.append(value)
    return found


def resnet_8(seed: int = 0, width: int = 16) -> ModelProto:
    """Return ResNet-8 of MLPerf Tiny: input ``image`` (1, 3, 32, 32), output ``logits`` (1, 10).

    Its large form has a ``width`` of 40 channels.
    """
    net = NetworkBuilder("resnet-8", "image", (1, 3, 32, 32), seed)
    value = net.layer("stem", "image", (3, width), 3)
    for index, channels in enumerate(
        ((width, width), (width, 2 * width), (2 * width, 4 * width)), start=1
    ):
        value = _basic_block(net, f"block{index}", value, channels)
    return net.classifier(value, (4 * width, 10))


def resnet_18(seed: int = 0) -> ModelProto:
    """Return ResNet-18: input ``image`` (1, 3, 224, 224), output ``logits`` (1, 1000)."""
    net = NetworkBuilder("resnet-18", "image", (1, 3, 224, 224), seed)
    value = net.layer("stem", "image", (3, 64), 7, 2)
    value = net.node(
        "MaxPool", "stem_pool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    for index, channels in enumerate(((64, 64), (64, 128), (128, 256), (256, 512)), start=1):
        value = _basic_block(net, f"stage{index}a", value, channels)
        value = _basic_block(net, f"stage{index}b", value, (channels[1], channels[1]))
    return net.classifier(value, (512, 1000))


def _basic_block(net: NetworkBuilder, name: str, source: str, channels: tuple[int, int]) -> str:
    """Add a ResNet basic block of two 3×3 convolutions and a residual sum.

    If the number of channels changes, it halves the plane and projects the shortcut.
    """
    changes = channels[0] != channels[1]
    stride = 2 if changes else 1
    value = net.layer(f"{name}_conv1", source, channels, 3, stride)
    value = net.convolution(f"{name}_conv2", value, (channels[1], channels[1]), 3)
    value = net.batch_norm(f"{name}_conv2_bn", value, channels[1], gain=0.5)
    shortcut = source
    if changes:
        shortcut = net.convolution(f"{name}_shortcut", source, channels, 1, stride)
        shortcut = net.batch_norm(f"{name}_shortcut_bn", shortcut, channels[1])
    return net.relu(f"{name}_relu", net.node("Add", f"{name}_add", value, shortcut))


GROUPS = 16


def resnext_11(seed: int = 0) -> ModelProto:
    """Return ResNeXt-11, with groups of 4, 8 and 16 channels.

    Its input is ``image`` (1, 3, 32, 32), its output ``logits`` (1, 10).
    """
    net = NetworkBuilder("resnext-11", "image", (1, 3, 32, 32), seed)
    value = net.layer("stem", "image", (3, 32), 3)
    for index, (channels, stride) in enumerate(
        (((32, 64), 1), ((64, 128), 2), ((128, 256), 2)), start=1
    ):
        value = _add_grouped_block(net, f"block{index}", value, channels, stride)
    return net.classifier(value, (256, 10))


def _add_grouped_block(
    net: NetworkBuilder, name: str, source: str, channels: tuple[int, int], stride: int
) -> str:
    """Add a block of grouped convolutions with a projected shortcut.

    The block widens, convolves in groups, mixes the groups, and adds the shortcut.
    """
    inner = channels[1], channels[1]
    value = net.layer(f"{name}_widen", source, channels, 1)
    value = net.layer(f"{name}_grouped", value, inner, 3, stride, GROUPS)
    value = net.batch_norm(
        f"{name}_mix_bn", net.convolution(f"{name}_mix", value, inner, 1), channels[1], gain=0.5
    )
    shortcut = net.convolution(f"{name}_shortcut", source, channels, 1, stride)
    shortcut = net.batch_norm(f"{name}_shortcut_bn", shortcut, channels[1])
    return net.relu(f"{name}_relu", net.node("Add", f"{name}_add", value, shortcut))


@dataclass(frozen=True)
class Inverted:
    """Channels, kernel and options of one inverted residual block.

    ``squeezed`` is the number of squeeze-and-excite channels, 0 for none; ``inner`` is its first
    activation, ``gate`` its last.
    """

    kernel: int
    expanded: int
    outputs: int
    stride: int
    activation: str
    squeezed: int = 0
    inner: str = "relu"
    gate: str = "HardSigmoid"


def mobilenet_v2(seed: int = 0, size: int = 224) -> ModelProto:
    """Return MobileNetV2 for images of ``size`` by ``size`` pixels.

    Its input is ``image`` (1, 3, ``size``, ``size``), its output ``logits`` (1, 1000). It has
    300,774,272 MACs at 224.
    """
    blocks = []
    channels = 32
    for factor, outputs, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for index in range(count):
            blocks.append(Inverted(3, factor * channels, outputs, 1 if index else stride, "relu6"))
            channels = outputs
    return _build_inverted_network("mobilenet-v2", seed, size, "relu6", (32, 1280), blocks)


def mobilenet_v3(size_name: str, seed: int = 0, size: int = 224) -> ModelProto:
    """Return MobileNetV3 ``large`` or ``small`` for images of ``size`` by ``size`` pixels.

    Its input is ``image`` (1, 3, ``size``, ``size``), its output ``logits`` (1, 1000).
    """
    large = size_name == "large"
    hard = "hardswish"
    rows = (
        (
            (3, 16, 16, 1, "relu", False),
            (3, 64, 24, 2, "relu", False),
            (3, 72, 24, 1, "relu", False),
            (5, 72, 40, 2, "relu", True),
            *((5, 120, 40, 1, "relu", True),) * 2,
            (3, 240, 80, 2, hard, False),
            (3, 200, 80, 1, hard, False),
            *((3, 184, 80, 1, hard, False),) * 2,
            (3, 480, 112, 1, hard, True),
            (3, 672, 112, 1, hard, True),
            (5, 672, 160, 2, hard, True),
            *((5, 960, 160, 1, hard, True),) * 2,
        )
        if large
        else (
            (3, 16, 16, 2, "relu", True),
            (3, 72, 24, 2, "relu", False),
            (3, 88, 24, 1, "relu", False),
            (5, 96, 40, 2, hard, True),
            *((5, 240, 40, 1, hard, True),) * 2,
            (5, 120, 48, 1, hard, True),
            (5, 144, 48, 1, hard, True),
            (5, 288, 96, 2, hard, True),
            *((5, 576, 96, 1, hard, True),) * 2,
        )
    )
    blocks = [Inverted(*row[:5], squeezed=_divisible(row[1] // 4) if row[5] else 0) for row in rows]
    channels, hidden = (960, 1280) if large else (576, 1024)
    return _build_inverted_network(
        f"mobilenet-v3-{size_name}", seed, size, hard, (16, channels), blocks, hidden
    )


def _divisible(channels: int) -> int:
    """Return the nearest multiple of eight that is at least nine tenths of ``channels``."""
    nearest = max(8, (channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def efficientnet_b0(seed: int = 0, size: int = 224) -> ModelProto:
    """Return EfficientNet-B0 with SiLU activations.

    Its input is ``image`` (1, 3, ``size``, ``size``), its output ``logits`` (1, 1000).
    """
    blocks = []
    channels = 32
    for factor, kernel, stride, outputs, count in (
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ):
        for index in range(count):
            step = 1 if index else stride
            squeezed = channels // 4
            blocks.append(
                Inverted(
                    kernel, factor * channels, outputs, step, "silu", squeezed, "silu", "Sigmoid"
                )
            )
            channels = outputs
    return _build_inverted_network("efficientnet-b0", seed, size, "silu", (32, 1280), blocks)


def _build_inverted_network(
    name: str,
    seed: int,
    size: int,
    activation: str,
    ends: tuple[int, int],
    blocks: list[Inverted],
    hidden: int = 0,
) -> ModelProto:
    """Return a network of inverted residual blocks.

    Its parts are stem, blocks, last pointwise convolution, pooling, optional hidden layer, and
    classifier.
    """
    net = NetworkBuilder(name, "image", (1, 3, size, size), seed)
    value = net.layer("stem", "image", (3, ends[0]), 3, 2, activation=activation, gain=1.0)
    channels = ends[0]
    gain = GAINS[activation]
    for index, block in enumerate(blocks, start=1):
        value = _add_inverted(net, f"block{index}", value, channels, block, gain)
        channels = block.outputs
        gain = GAINS["linear"]
    value = net.layer("last", value, (channels, ends[1]), 1, activation=activation, gain=gain)
    if not hidden:
        return net.classifier(value, (ends[1], 1000), GAINS[activation])
    value = net.node("Flatten", "flatten", net.node("GlobalAveragePool", "pool", value), axis=1)
    value = net.add_fully_connected("hidden", value, (ends[1], hidden), GAINS[activation])
    value = net.activation(activation, "hidden_activation", value)
    return net.model(
        net.add_fully_connected("logits", value, (hidden, 1000), GAINS[activation]), (1, 1000)
    )


def _add_inverted(
    net: NetworkBuilder, name: str, source: str, channels: int, block: Inverted, gain: float
) -> str:
    """Add one inverted residual block; ``gain`` is the weight gain that suits its input signal."""
    kind = block.activation
    wide = block.expanded
    value = source
    if wide != channels:
        value = net.layer(f"{name}_widen", value, (channels, wide), 1, activation=kind, gain=gain)
        gain = GAINS[kind]
    value = net.layer(
        f"{name}_dw",
        value,
        (wide, wide),
        block.kernel,
        block.stride,
        wide,
        activation=kind,
        gain=gain,
    )
    if block.squeezed:
        value = _squeeze_excite(net, f"{name}_se", value, wide, block)
    shortcut = block.stride == 1 and block.outputs == channels
    scale = 0.5 if shortcut else 1.0
    value = net.layer(
        f"{name}_narrow",
        value,
        (wide, block.outputs),
        1,
        activation="linear",
        gain=GAINS[kind],
        scale=scale,
    )
    return net.node("Add", f"{name}_add", value, source) if shortcut else value


def _squeeze_excite(
    net: NetworkBuilder, name: str, source: str, channels: int, block: Inverted
) -> str:
    """Add squeeze-and-excite: scale every channel by a computed factor from 0 to 1.

    The factors are computed from the means of all channels. The biases keep most factors near 1,
    so that the signal does not fade.
    """
    value = net.node("GlobalAveragePool", f"{name}_pool", source)
    value = net.convolution(f"{name}_reduce", value, (channels, block.squeezed), 1, bias=0.0)
    value = net.activation(block.inner, f"{name}_{block.inner}", value)
    value = net.convolution(f"{name}_expand", value, (block.squeezed, channels), 1, bias=2.0)
    if block.gate == "HardSigmoid":
        gate = net.node("HardSigmoid", f"{name}_gate", value, alpha=1 / 6)
    else:
        gate = net.node(block.gate, f"{name}_gate", value)
    return net.node("Mul", f"{name}_mul", source, gate)


def squeezenet(seed: int = 0, size: int = 224) -> ModelProto:
    """Return SqueezeNet 1.1 for images of ``size`` by ``size`` pixels.

    Its input is ``image`` (1, 3, ``size``, ``size``), its output ``logits`` (1, 1000, 1, 1).
    """
    net = NetworkBuilder("squeezenet", "image", (1, 3, size, size), seed)
    value = net.convolution("stem", "image", (3, 64), 3, 2, gain=1.0, bias=0.1, pads=[0] * 4)
    value = net.relu("stem_relu", value)
    channels = 64
    for index, (squeezed, expanded) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)),
        start=1,
    ):
        if index in (1, 3, 5):
            value = net.node(
                "MaxPool", f"pool{index}", value, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1
            )
        value = _fire(net, f"fire{index}", value, channels, squeezed, expanded)
        channels = 2 * expanded
    value = net.relu("last_relu", net.convolution("last", value, (channels, 1000), 1, bias=0.1))
    return net.model(net.node("GlobalAveragePool", "logits", value), (1, 1000, 1, 1))


def _fire(
    net: NetworkBuilder, name: str, source: str, channels: int, squeezed: int, expanded: int
) -> str:
    """Add a fire module: few channels, then many by 1×1 and many by 3×3 in parallel."""

    def convolution(part: str, value: str, channels: tuple[int, int], kernel: int) -> str:
        value = net.convolution(f"{name}_{part}", value, channels, kernel, bias=0.1)
        return net.relu(f"{name}_{part}_relu", value)

    value = convolution("squeeze", source, (channels, squeezed), 1)
    parts = (convolution(f"expand{size}", value, (squeezed, expanded), size) for size in (1, 3))
    return net.concat(f"{name}_concat", *parts)


def shufflenet_v2(seed: int = 0, size: int = 224) -> ModelProto:
    """Return ShuffleNetV2 1.0 for images of ``size`` by ``size`` pixels.

    Its input is ``image`` (1, 3, ``size``, ``size``), its output ``logits`` (1, 1000).
    """
    net = NetworkBuilder("shufflenet-v2", "image", (1, 3, size, size), seed)
    value = net.layer("stem", "image", (3, 24), 3, 2, gain=1.0)
    value = net.node(
        "MaxPool", "stem_pool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
    )
    channels = 24
    plane = size // 4
    for stage, (outputs, count) in enumerate(((116, 4), (232, 8), (464, 4)), start=2):
        plane //= 2
        for index in range(count):
            value = _shuffle_unit(net, f"stage{stage}_{index}", value, (channels, outputs), plane)
            channels = outputs
    return net.classifier(net.layer("last", value, (channels, 1024), 1), (1024, 1000))


def _shuffle_unit(
    net: NetworkBuilder, name: str, source: str, channels: tuple[int, int], plane: int
) -> str:
    """Add a unit in which half of the channels pass unchanged, and shuffle the two halves.

    If the plane halves, each half is computed by a branch that reads all channels.
    """
    inputs = channels[0]
    half = channels[1] // 2
    if inputs != channels[1]:
        first = net.layer(
            f"{name}_left_dw", source, (inputs, inputs), 3, 2, inputs, activation="linear"
        )
        first = net.layer(f"{name}_left", first, (inputs, half), 1, gain=1.0)
        second = source
        stride = 2
        width = inputs
    else:
        first, second = net.split(f"{name}_split", source, (half, half))
        stride = 1
        width = half
    second = net.layer(f"{name}_widen", second, (width, half), 1)
    second = net.layer(f"{name}_dw", second, (half, half), 3, stride, half, activation="linear")
    second = net.layer(f"{name}_mix", second, (half, half), 1, gain=1.0)
    value = net.reshape(
        f"{name}_groups", net.concat(f"{name}_concat", first, second), (1, 2, half, plane, plane)
    )
    value = net.node("Transpose", f"{name}_shuffle", value, perm=[0, 2, 1, 3, 4])
    return net.reshape(f"{name}_out", value, (1, 2 * half, plane, plane))


FRAMES = 16


def c3d(
    seed: int = 0, size: int = 112, width: int = 64, hidden: int = 4096, classes: int = 487
) -> ModelProto:
    """Return C3D for videos of 16 frames.

    Its input is ``video`` (1, 3, 16, ``size``, ``size``), its output ``logits`` (1, ``classes``).
    """
    net = NetworkBuilder("c3d", "video", (1, 3, FRAMES, size, size), seed)
    value = "video"
    channels = 3
    plane = size
    for block, (factor, count) in enumerate(((1, 1), (2, 1), (4, 2), (8, 2), (8, 2)), start=1):
        for index in range(count):
            name = f"conv{block}{'ab'[index]}"
            outputs = factor * width
            gain = 2.0 if channels > 3 else 1.0
            value = net.convolution(
                name, value, (channels, outputs), (3, 3, 3), gain=gain, bias=0.1
            )
            value = net.relu(f"{name}_relu", value)
            channels = outputs
        sizes = [1 if block == 1 else 2, 2, 2]
        plane = -(-plane // 2) if block == 5 else plane // 2
        pads = [0, plane * 2 - (size >> 4), plane * 2 - (size >> 4)] if block == 5 else [0] * 3
        value = net.node(
            "MaxPool", f"pool{block}", value, kernel_shape=sizes, strides=sizes, pads=[0] * 3 + pads
        )
    value = net.node("Flatten", "flatten", value, axis=1)
    features = channels * plane * plane
    for name in ("fc6", "fc7"):
        value = net.relu(f"{name}_relu", net.add_fully_connected(name, value, (features, hidden)))
        features = hidden
    return net.model(net.add_fully_connected("logits", value, (features, classes)), (1, classes))


def r2plus1d(seed: int = 0, size: int = 112, width: int = 64, classes: int = 400) -> ModelProto:
    """Return R(2+1)D for videos of 16 frames.

    Its input is ``video`` (1, 3, 16, ``size``, ``size``), its output ``logits`` (1, ``classes``).
    """
    net = NetworkBuilder("r2plus1d", "video", (1, 3, FRAMES, size, size), seed)
    middle = 45 * width // 64
    value = net.layer("stem_plane", "video", (3, middle), (1, 7, 7), (1, 2, 2), gain=1.0)
    value = net.layer("stem_time", value, (middle, width), (3, 1, 1))
    channels = width
    for stage in range(4):
        for index in range(2):
            outputs = width << stage
            value = _space_time_block(net, f"stage{stage}{'ab'[index]}", value, (channels, outputs))
            channels = outputs
    return net.classifier(value, (channels, classes))


def _space_time_block(
    net: NetworkBuilder, name: str, source: str, channels: tuple[int, int]
) -> str:
    """Add a residual block of convolutions in the plane and in time.

    If the number of channels changes, it halves plane and time and projects the shortcut.
    """
    inputs, outputs = channels
    stride = 1 if inputs == outputs else 2
    middle = inputs * outputs * 27 // (inputs * 9 + 3 * outputs)
    value = source
    shortcut = source
    for part, width, step, scale in (("a", inputs, stride, 1.0), ("b", outputs, 1, 0.5)):
        value = net.layer(f"{name}{part}_plane", value, (width, middle), (1, 3, 3), (1, step, step))
        activation = "relu" if part == "a" else "linear"
        layer = f"{name}{part}_time"
        value = net.layer(
            layer,
            value,
            (middle, outputs),
            (3, 1, 1),
            (step, 1, 1),
            activation=activation,
            scale=scale,
        )
    if stride == 2:
        shortcut = net.layer(
            f"{name}_shortcut", source, channels, (1, 1, 1), (2, 2, 2), activation="linear"
        )
    return net.relu(f"{name}_relu", net.node("Add", f"{name}_add", value, shortcut))


# Networks for microcontrollers.


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
    """Add a convolution with bias, padded as in TensorFlow, and an activation."""
    value = net.convolution(
        name, source, channels, kernel, stride, groups=groups, bias=0.1, auto_pad="SAME_UPPER"
    )
    return net.activation(activation, f"{name}_{activation}", value)


def _separable(
    net: NetworkBuilder,
    name: str,
    source: str,
    channels: tuple[int, int],
    stride: int,
    activation: str = "relu",
) -> str:
    """Add a depthwise layer and a pointwise layer."""
    inner = channels[0], channels[0]
    value = _layer(net, f"{name}_dw", source, inner, 3, stride, channels[0], activation)
    return _layer(net, f"{name}_pw", value, channels, 1, activation=activation)
