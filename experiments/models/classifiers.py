"""Classifiers of images and videos with seeded weights, as published, without the final softmax.

MobileNetV1 is 1.0/224 (Howard et al., 2017, table 1). The residual networks are those of He et al.
(2015). ResNeXt (Xie et al., 2017) is a small version: the 3×3 convolutions of its blocks have
sixteen groups. MobileNetV2 (Sandler et al., 2018, table 2), MobileNetV3 (Howard et al., 2019,
tables 1 and 2), EfficientNet-B0 (Tan and Le, 2019, table 1), SqueezeNet 1.1 (Iandola et al., 2016)
and ShuffleNetV2 1.0 (Ma et al., 2018, table 5) have exactly the parameters of torchvision.

Networks for sixteen frames have three-dimensional convolutions: C3D (Tran et al., 2015, figure 3)
and R(2+1)D with 18 layers (Tran et al., 2018, as in torchvision). R(2+1)D replaces a 3×3×3
convolution by one over the plane and one over time, with as many weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from experiments.models.builder import GAINS, NetworkBuilder, Row

if TYPE_CHECKING:
    from onnx import ModelProto

layer = NetworkBuilder.layer
biased = NetworkBuilder.add_biased

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


def separable(
    net: NetworkBuilder, name: str, source: str, channels: tuple[int, int], stride: int = 1
) -> str:
    """Add a depthwise layer and a pointwise layer."""
    inputs = channels[0]
    value = net.layer(f"{name}_dw", source, (inputs, inputs), 3, stride, inputs)
    return net.layer(f"{name}_pw", value, channels, 1)


def _residual(net: NetworkBuilder, name: str, source: str, channels: tuple[int, int]) -> str:
    """Add a ResNet basic block of two 3×3 convolutions and a residual sum.

    If the number of channels changes, it halves the plane and projects the shortcut.
    """
    inputs, outputs = channels
    stride = 1 if inputs == outputs else 2
    value = net.layer(f"{name}_conv1", source, channels, 3, stride)
    value = net.layer(f"{name}_conv2", value, (outputs, outputs), 3, activation="linear", scale=0.5)
    if stride == 2:
        source = net.layer(f"{name}_shortcut", source, channels, 1, stride, activation="linear")
    return net.relu(f"{name}_relu", net.node("Add", f"{name}_add", value, source))


GROUPS = 16


def _add_grouped(
    net: NetworkBuilder, name: str, source: str, channels: tuple[int, int], stride: int = 2
) -> str:
    """Add a block of grouped convolutions with a projected shortcut.

    The block widens, convolves in groups, mixes the groups, and adds the shortcut.
    """
    inner = channels[1], channels[1]
    value = net.layer(f"{name}_widen", source, channels, 1)
    value = net.layer(f"{name}_grouped", value, inner, 3, stride, GROUPS)
    value = net.layer(f"{name}_mix", value, inner, 1, activation="linear", scale=0.5)
    shortcut = net.layer(f"{name}_shortcut", source, channels, 1, stride, activation="linear")
    return net.relu(f"{name}_relu", net.node("Add", f"{name}_add", value, shortcut))


@dataclass(frozen=True)
class Inverted:
    """Inverted residual block.

    ``squeezed`` is the number of squeeze-and-excite channels, 0 for none; ``inner`` is its first
    activation, ``gate`` its last. ``gain`` is the weight gain that suits the block's input.
    """

    activation: str
    kernel: int
    expanded: int
    stride: int
    squeezed: int = 0
    _: KW_ONLY
    inner: str = "relu"
    gate: str = "HardSigmoid"
    gain: float = 1.0

    def __call__(
        self, net: NetworkBuilder, name: str, source: str, channels: tuple[int, int]
    ) -> str:
        """Add the block."""
        inputs, outputs = channels
        kind = self.activation
        wide = self.expanded
        gain = self.gain
        value = source
        if wide != inputs:
            value = net.layer(f"{name}_widen", value, (inputs, wide), 1, activation=kind, gain=gain)
            gain = GAINS[kind]
        value = net.layer(
            f"{name}_dw",
            value,
            (wide, wide),
            self.kernel,
            self.stride,
            wide,
            activation=kind,
            gain=gain,
        )
        if self.squeezed:
            value = self._squeeze_excite(net, f"{name}_se", value)
        shortcut = self.stride == 1 and outputs == inputs
        value = net.layer(
            f"{name}_narrow",
            value,
            (wide, outputs),
            1,
            activation="linear",
            gain=GAINS[kind],
            scale=0.5 if shortcut else 1.0,
        )
        return net.node("Add", f"{name}_add", value, source) if shortcut else value

    def _squeeze_excite(self, net: NetworkBuilder, name: str, source: str) -> str:
        """Add squeeze-and-excite: scale every channel by a computed factor from 0 to 1.

        The factors are computed from the means of all channels. The biases keep most factors near
        1, so that the signal does not fade.
        """
        widths = self.expanded, self.squeezed
        value = net.node("GlobalAveragePool", f"{name}_pool", source)
        value = net.convolution(f"{name}_reduce", value, widths, 1, bias=0.0)
        value = net.activation(self.inner, f"{name}_{self.inner}", value)
        value = net.convolution(f"{name}_expand", value, widths[::-1], 1, bias=2.0)
        slope: dict[str, Any] = {"alpha": 1 / 6} if self.gate == "HardSigmoid" else {}
        return net.node(
            "Mul", f"{name}_mul", source, net.node(self.gate, f"{name}_gate", value, **slope)
        )


def _fire(
    net: NetworkBuilder, name: str, source: str, channels: tuple[int, int], squeezed: int
) -> str:
    """Add a fire module: few channels, then many by 1×1 and many by 3×3 in parallel."""
    value = net.add_biased(f"{name}_squeeze", source, (channels[0], squeezed), 1)
    expanded = squeezed, channels[1] // 2
    parts = (net.add_biased(f"{name}_expand{size}", value, expanded, size) for size in (1, 3))
    return net.concat(f"{name}_concat", *parts)


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


def _list_inverted(
    ends: tuple[int, int],
    *blocks: tuple[str, Sequence[tuple[int, ...]]],
    **gate: Any,
) -> tuple[Row, ...]:
    """Return the rows of a network of inverted residual blocks.

    ``ends`` are the channels of the stem and of the last pointwise convolution, which have the
    last activation. ``blocks`` are activations with the kernel, the expanded channels, the output
    channels, the stride and the squeezed channels of blocks. ``gate`` is that of the blocks.
    """
    kind = blocks[-1][0]
    rows = [(activation, row) for activation, several in blocks for row in several]
    gains = [GAINS[kind]] + [1.0] * len(rows)
    return (
        ("stem", partial(layer, kernel=3, stride=2, activation=kind, gain=1.0), ends[0]),
        *(
            (
                f"block{number}",
                Inverted(activation, kernel, expanded, *others, gain=gains[number - 1], **gate),
                outputs,
            )
            for number, (activation, (kernel, expanded, outputs, *others)) in enumerate(
                rows, start=1
            )
        ),
        ("last", partial(layer, kernel=1, activation=kind, gain=1.0), ends[1]),
    )


@dataclass(frozen=True)
class Classifier:
    """Classifier of square colour images: its layers and blocks up to the global average pooling.

    ``activation`` is the last one before the pooling; ``hidden`` is the size of a fully connected
    layer before the classes, 0 for none.
    """

    rows: tuple[Row, ...]
    size: int = 224
    classes: int = 1000
    activation: str = "relu"
    hidden: int = 0


MOBILENET_V1: tuple[Row, ...] = (
    ("conv0", partial(layer, kernel=3, stride=2), 32),
    *(
        (f"conv{number}", partial(separable, stride=stride), outputs)
        for number, (outputs, stride) in enumerate(BLOCKS, start=1)
    ),
)
CLASSIFIERS: Mapping[str, Classifier] = MappingProxyType(
    {
        "mobilenet-v1": Classifier(MOBILENET_V1),
        "resnet-18": Classifier(
            (
                ("stem", partial(layer, kernel=7, stride=2), 64),
                ("stem_pool", partial(NetworkBuilder.max_pool, kernel=3, pads=[1] * 4), 64),
                ("stage1a", _residual, 64),
                ("stage1b", _residual, 64),
                ("stage2a", _residual, 128),
                ("stage2b", _residual, 128),
                ("stage3a", _residual, 256),
                ("stage3b", _residual, 256),
                ("stage4a", _residual, 512),
                ("stage4b", _residual, 512),
            )
        ),
        "resnext-11": Classifier(
            (
                ("stem", partial(layer, kernel=3), 32),
                ("block1", partial(_add_grouped, stride=1), 64),
                ("block2", _add_grouped, 128),
                ("block3", _add_grouped, 256),
            ),
            size=32,
            classes=10,
        ),
        "mobilenet-v2": Classifier(
            _list_inverted(
                (32, 1280),
                (
                    "relu6",
                    (
                        (3, 32, 16, 1),
                        (3, 96, 24, 2),
                        (3, 144, 24, 1),
                        (3, 144, 32, 2),
                        *((3, 192, 32, 1),) * 2,
                        (3, 192, 64, 2),
                        *((3, 384, 64, 1),) * 3,
                        (3, 384, 96, 1),
                        *((3, 576, 96, 1),) * 2,
                        (3, 576, 160, 2),
                        *((3, 960, 160, 1),) * 2,
                        (3, 960, 320, 1),
                    ),
                ),
            ),
            activation="relu6",
        ),
        "mobilenet-v3-small": Classifier(
            _list_inverted(
                (16, 576),
                ("relu", ((3, 16, 16, 2, 8), (3, 72, 24, 2), (3, 88, 24, 1))),
                (
                    "hardswish",
                    (
                        (5, 96, 40, 2, 24),
                        *((5, 240, 40, 1, 64),) * 2,
                        (5, 120, 48, 1, 32),
                        (5, 144, 48, 1, 40),
                        (5, 288, 96, 2, 72),
                        *((5, 576, 96, 1, 144),) * 2,
                    ),
                ),
            ),
            activation="hardswish",
            hidden=1024,
        ),
        "mobilenet-v3-large": Classifier(
            _list_inverted(
                (16, 960),
                (
                    "relu",
                    (
                        (3, 16, 16, 1),
                        (3, 64, 24, 2),
                        (3, 72, 24, 1),
                        (5, 72, 40, 2, 24),
                        *((5, 120, 40, 1, 32),) * 2,
                    ),
                ),
                (
                    "hardswish",
                    (
                        (3, 240, 80, 2),
                        (3, 200, 80, 1),
                        *((3, 184, 80, 1),) * 2,
                        (3, 480, 112, 1, 120),
                        (3, 672, 112, 1, 168),
                        (5, 672, 160, 2, 168),
                        *((5, 960, 160, 1, 240),) * 2,
                    ),
                ),
            ),
            activation="hardswish",
            hidden=1280,
        ),
        "efficientnet-b0": Classifier(
            _list_inverted(
                (32, 1280),
                (
                    "silu",
                    (
                        (3, 32, 16, 1, 8),
                        (3, 96, 24, 2, 4),
                        (3, 144, 24, 1, 6),
                        (5, 144, 40, 2, 6),
                        (5, 240, 40, 1, 10),
                        (3, 240, 80, 2, 10),
                        *((3, 480, 80, 1, 20),) * 2,
                        (5, 480, 112, 1, 20),
                        *((5, 672, 112, 1, 28),) * 2,
                        (5, 672, 192, 2, 28),
                        *((5, 1152, 192, 1, 48),) * 3,
                        (3, 1152, 320, 1, 48),
                    ),
                ),
                inner="silu",
                gate="Sigmoid",
            ),
            activation="silu",
        ),
    }
)
"""Classifiers that end with one fully connected layer, by name."""


def build_classifier(name: str, seed: int = 0, size: int = 0) -> ModelProto:
    """Return a network of :data:`CLASSIFIERS`, for images of its own or the given ``size``.

    Its input is ``image`` (1, 3, ``size``, ``size``), its output ``logits`` (1, classes).
    """
    found = CLASSIFIERS[name]
    side = size or found.size
    net = NetworkBuilder(name, "image", (1, 3, side, side), seed)
    features = found.rows[-1][-1], found.classes
    value = net.stack("image", 3, found.rows)[-1]
    return net.classifier(value, features, found.activation, found.hidden)


def resnet_8(seed: int = 0, width: int = 16) -> ModelProto:
    """Return ResNet-8 of MLPerf Tiny: ``image`` (1, 3, 32, 32) to ``logits`` (1, 10).

    Its stem has ``width`` channels.
    """
    net = NetworkBuilder("resnet-8", "image", (1, 3, 32, 32), seed)
    rows: list[Row] = [("stem", partial(layer, kernel=3), width)]
    rows += [(f"block{number}", _residual, width << number - 1) for number in (1, 2, 3)]
    return net.classifier(net.stack("image", 3, rows)[-1], (4 * width, 10))


def squeezenet(seed: int = 0, size: int = 224) -> ModelProto:
    """Return SqueezeNet 1.1 for images of ``size`` by ``size`` pixels.

    Its input is ``image`` (1, 3, ``size``, ``size``), its output ``logits`` (1, 1000, 1, 1).
    """
    net = NetworkBuilder("squeezenet", "image", (1, 3, size, size), seed)
    rows: list[Row] = [("stem", partial(biased, kernel=3, stride=2, gain=1.0, pads=[0] * 4), 64)]
    for index, squeezed in enumerate((16, 16, 32, 32, 48, 48, 64, 64), start=1):
        if index in (1, 3, 5):
            pool = partial(NetworkBuilder.max_pool, kernel=3, ceil_mode=1)
            rows.append((f"pool{index}", pool, rows[-1][-1]))
        rows.append((f"fire{index}", partial(_fire, squeezed=squeezed), 8 * squeezed))
    rows.append(("last", partial(biased, kernel=1), 1000))
    value = net.stack("image", 3, rows)[-1]
    return net.model(net.node("GlobalAveragePool", "logits", value), (1, 1000, 1, 1))


def shufflenet_v2(seed: int = 0, size: int = 224) -> ModelProto:
    """Return ShuffleNetV2 1.0 for images of ``size`` by ``size`` pixels.

    Its input is ``image`` (1, 3, ``size``, ``size``), its output ``logits`` (1, 1000).
    """
    net = NetworkBuilder("shufflenet-v2", "image", (1, 3, size, size), seed)
    rows: list[Row] = [
        ("stem", partial(layer, kernel=3, stride=2, gain=1.0), 24),
        ("stem_pool", partial(NetworkBuilder.max_pool, kernel=3, pads=[1] * 4), 24),
        *(
            (f"stage{stage}_{index}", partial(_shuffle_unit, plane=size >> stage + 1), outputs)
            for stage, (outputs, count) in enumerate(((116, 4), (232, 8), (464, 4)), start=2)
            for index in range(count)
        ),
        ("last", partial(layer, kernel=1), 1024),
    ]
    return net.classifier(net.stack("image", 3, rows)[-1], (1024, 1000))


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
        add = partial(biased, kernel=(3, 3, 3), gain=1.0 if block == 1 else 2.0)
        outputs = factor * width
        rows = [(f"conv{block}{letter}", add, outputs) for letter in "ab"[:count]]
        value = net.stack(value, channels, rows)[-1]
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
    return net.logits(value, (features, classes))


def r2plus1d(seed: int = 0, size: int = 112, width: int = 64, classes: int = 400) -> ModelProto:
    """Return R(2+1)D for videos of 16 frames.

    Its input is ``video`` (1, 3, 16, ``size``, ``size``), its output ``logits`` (1, ``classes``).
    """
    net = NetworkBuilder("r2plus1d", "video", (1, 3, FRAMES, size, size), seed)
    stem = partial(layer, kernel=(1, 7, 7), stride=(1, 2, 2), gain=1.0)
    rows: list[Row] = [
        ("stem_plane", stem, 45 * width // 64),
        ("stem_time", partial(layer, kernel=(3, 1, 1)), width),
        *(
            (f"stage{stage}{letter}", _space_time_block, width << stage)
            for stage in range(4)
            for letter in "ab"
        ),
    ]
    return net.classifier(net.stack("video", 3, rows)[-1], (8 * width, classes))


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
    for part, width, step, scale in (("a", inputs, stride, 1.0), ("b", outputs, 1, 0.5)):
        value = net.layer(f"{name}{part}_plane", value, (width, middle), (1, 3, 3), (1, step, step))
        value = net.layer(
            f"{name}{part}_time",
            value,
            (middle, outputs),
            (3, 1, 1),
            (step, 1, 1),
            activation="relu" if part == "a" else "linear",
            scale=scale,
        )
    if stride == 2:
        source = net.layer(
            f"{name}_shortcut", source, channels, (1, 1, 1), (2, 2, 2), activation="linear"
        )
    return net.relu(f"{name}_relu", net.node("Add", f"{name}_add", value, source))
