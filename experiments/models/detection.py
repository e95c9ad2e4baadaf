"""Detectors with seeded weights, up to the inputs of non-maximum suppression.

SSD with MobileNetV1 (Howard et al., 2017, table 13) has six feature maps and 1,917 boxes as in the
TensorFlow object detection models. YOLOv8n (Ultralytics, 2023) has C2f and SPPF blocks, SiLU, and
distances as distributions over 16 bins. PointPillars starts after its pillar encoder (Lang et al.,
2019, figure 2 and section 2.2, at the size of KITTI).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from experiments.models.builder import GAINS, NetworkBuilder
from experiments.models.classifiers import MOBILENET_V1

if TYPE_CHECKING:
    from onnx import ModelProto

SSD_CLASSES = 91
# (narrow, out) of the feature maps after the backbone; each is half as wide as the previous one.
SSD_EXTRA = ((256, 512), (128, 256), (128, 256), (64, 128))


def ssd_mobilenet_v1(seed: int = 0, size: int = 300) -> ModelProto:
    """Return SSD with a MobileNet v1 backbone for square images.

    The input is ``image`` (1, 3, ``size``, ``size``), the outputs are ``boxes`` (1, N, 4) and
    ``scores`` (1, N, 91). At size 300, N is 1,917.
    """
    net = NetworkBuilder("ssd-mobilenet-v1", "image", (1, 3, size, size), seed)
    activated = partial(NetworkBuilder.layer, activation="relu6")
    rows = list(MOBILENET_V1)
    for index, (narrow, outputs) in enumerate(SSD_EXTRA, start=1):
        rows.append((f"extra{index}_narrow", partial(activated, kernel=1), narrow))
        rows.append((f"extra{index}", partial(activated, kernel=3, stride=2), outputs))
    values = net.stack("image", 3, rows)
    maps = [(values[place], rows[place][-1]) for place in (11, 13, 15, 17, 19, 21)]
    planes = [-(-size // (16 << level)) for level in range(len(maps))]
    boxes = []
    scores = []
    for index, ((source, width), side) in enumerate(zip(maps, planes, strict=True)):
        anchors = 6 if index else 3
        boxes.append(_ssd_head(net, f"boxes{index}", source, width, anchors, side, 4))
        scores.append(_ssd_head(net, f"scores{index}", source, width, anchors, side, SSD_CLASSES))
    count = sum((6 if index else 3) * side * side for index, side in enumerate(planes))
    net.concat("boxes", *boxes)
    net.node("Sigmoid", "scores", net.concat("logits", *scores))
    return net.model("boxes", (1, count, 4), scores=(1, count, SSD_CLASSES))


def _ssd_head(
    net: NetworkBuilder, name: str, source: str, width: int, anchors: int, side: int, depth: int
) -> str:
    """Add a 1×1 convolution and reshape its result to one row for every anchor of every place."""
    value = net.convolution(name, source, (width, anchors * depth), 1, bias=0.0)
    value = net.node("Transpose", f"{name}_nhwc", value, perm=[0, 2, 3, 1])
    return net.reshape(f"{name}_rows", value, (1, anchors * side * side, depth))


YOLO_CLASSES = 80
YOLO_BINS = 16
SILU = GAINS["silu"]
silu = partial(NetworkBuilder.layer, activation="silu", gain=SILU)


def yolo_v8n(seed: int = 0, size: int = 640) -> ModelProto:
    """Return YOLOv8n for square images.

    The input is ``images`` (1, 3, ``size``, ``size``), with ``size`` a multiple of 32. The output
    is ``output0`` (1, 84, N): boxes, then scores.
    """
    net = NetworkBuilder("yolo-v8n", "images", (1, 3, size, size), seed)
    value = silu(net, "conv0", "images", (3, 16), 3, 2, gain=1.0)
    value = silu(net, "conv1", value, (16, 32), 3, 2)
    value = _c2f(net, "c2f2", value, (32, 32), 1, shortcut=True)
    value = silu(net, "conv3", value, (32, 64), 3, 2)
    eighth = _c2f(net, "c2f4", value, (64, 64), 2, shortcut=True)
    value = silu(net, "conv5", eighth, (64, 128), 3, 2)
    sixteenth = _c2f(net, "c2f6", value, (128, 128), 2, shortcut=True)
    value = silu(net, "conv7", sixteenth, (128, 256), 3, 2)
    value = _c2f(net, "c2f8", value, (256, 256), 1, shortcut=True)
    deep = _sppf(net, "sppf9", value, 256)

    value = net.concat("concat11", _add_upsampled(net, "up10", deep), sixteenth)
    middle = _c2f(net, "c2f12", value, (384, 128), 1)
    value = net.concat("concat14", _add_upsampled(net, "up13", middle), eighth)
    small = _c2f(net, "c2f15", value, (192, 64), 1)
    value = net.concat("concat17", silu(net, "conv16", small, (64, 64), 3, 2), middle)
    medium = _c2f(net, "c2f18", value, (192, 128), 1)
    value = net.concat("concat20", silu(net, "conv19", medium, (128, 128), 3, 2), deep)
    large = _c2f(net, "c2f21", value, (384, 256), 1)
    return _yolo_head(
        net, ((small, 64, size // 8), (medium, 128, size // 16), (large, 256, size // 32)), size
    )


def _c2f(
    net: NetworkBuilder,
    name: str,
    source: str,
    channels: tuple[int, int],
    count: int,
    *,
    shortcut: bool = False,
) -> str:
    """Add a C2f block: a split, a chain of ``count`` bottlenecks, and a mix of all parts.

    The chain starts at the second half of the split.
    """
    half = channels[1] // 2
    parts = net.split(
        f"{name}_split",
        silu(net, f"{name}_first", source, (channels[0], 2 * half), 1),
        (half, half),
    )
    for index in range(count):
        value = silu(net, f"{name}_{index}_a", parts[-1], (half, half), 3)
        value = silu(
            net, f"{name}_{index}_b", value, (half, half), 3, scale=0.5 if shortcut else 1.0
        )
        parts.append(
            net.node("Add", f"{name}_{index}_add", parts[-1], value) if shortcut else value
        )
    return silu(
        net,
        f"{name}_last",
        net.concat(f"{name}_concat", *parts),
        ((2 + count) * half, channels[1]),
        1,
    )


def _sppf(net: NetworkBuilder, name: str, source: str, channels: int) -> str:
    """Add an SPPF block: three 5×5 maximum poolings in a chain, concatenated with their input."""
    parts = [silu(net, f"{name}_first", source, (channels, channels // 2), 1)]
    for index in range(3):
        pooled = net.node(
            "MaxPool",
            f"{name}_pool{index}",
            parts[-1],
            kernel_shape=[5, 5],
            strides=[1, 1],
            pads=[2] * 4,
        )
        parts.append(pooled)
    return silu(
        net, f"{name}_last", net.concat(f"{name}_concat", *parts), (2 * channels, channels), 1
    )


def _add_upsampled(net: NetworkBuilder, name: str, source: str) -> str:
    scales = net.constant("twice", np.array([1.0, 1.0, 2.0, 2.0]))
    how = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return net.node("Resize", name, source, "", scales, **how)


def _yolo_head(
    net: NetworkBuilder, maps: tuple[tuple[str, int, int], ...], size: int
) -> ModelProto:
    """Add the YOLOv8 head: box distances and class scores for every place of every map.

    Distances become boxes in pixels.
    """
    rows = []
    centres = []
    strides = []
    hidden = max(maps[0][1], YOLO_CLASSES)
    for index, (source, width, side) in enumerate(maps):
        parts = []
        for name, inner, outputs in (("box", 64, 4 * YOLO_BINS), ("class", hidden, YOLO_CLASSES)):
            value = silu(net, f"{name}{index}_a", source, (width, inner), 3)
            value = silu(net, f"{name}{index}_b", value, (inner, inner), 3)
            parts.append(
                net.convolution(f"{name}{index}", value, (inner, outputs), 1, gain=SILU, bias=0.0)
            )
        both = net.concat(f"head{index}", *parts)
        rows.append(
            net.reshape(f"rows{index}", both, (1, 4 * YOLO_BINS + YOLO_CLASSES, side * side))
        )
        grid = np.stack(np.meshgrid(np.arange(side) + 0.5, np.arange(side) + 0.5))
        centres.append(grid.reshape(2, side * side))
        strides.append(np.full(side * side, size // side))
    count = sum(side * side for _, _, side in maps)
    every = net.concat("rows", *rows, axis=2)
    distances, classes = net.split("parts", every, (4 * YOLO_BINS, YOLO_CLASSES))
    value = net.reshape("bins", distances, (1, 4, YOLO_BINS, count))
    value = net.node("Transpose", "bins_first", value, perm=[0, 2, 1, 3])
    value = net.node("Softmax", "bins_softmax", value, axis=1)
    expected = net.constant(
        "bins_weight", np.arange(YOLO_BINS, dtype=np.float32).reshape(1, YOLO_BINS, 1, 1)
    )
    value = net.reshape(
        "distances",
        net.node("Conv", "bins_mean", value, expected, kernel_shape=[1, 1]),
        (1, 4, count),
    )
    before, after = net.split("ends", value, (2, 2))
    anchors = net.constant("anchors", np.concatenate(centres, axis=1)[np.newaxis])
    low = net.node("Sub", "low", anchors, before)
    high = net.node("Add", "high", anchors, after)
    half = net.constant("half", np.array(0.5))
    middle = net.node("Mul", "middle", net.node("Add", "both", low, high), half)
    cells = net.concat("cells", middle, net.node("Sub", "extent", high, low))
    boxes = net.node(
        "Mul",
        "boxes",
        cells,
        net.constant("strides", np.concatenate(strides).reshape(1, 1, count) * 1.0),
    )
    net.concat("output0", boxes, net.node("Sigmoid", "scores", classes))
    return net.model("output0", (1, 4 + YOLO_CLASSES, count))


def point_pillars(seed: int = 0, size: tuple[int, int] = (496, 432)) -> ModelProto:
    """Return PointPillars without its encoder, whose scatter produces the input.

    The input is ``pillars`` (1, 64, H, W). The outputs have half that height and width: ``classes``
    (1, 18, ...), ``boxes`` (1, 42, ...) and ``directions`` (1, 12, ...), for six anchors per place.
    """
    net = NetworkBuilder("point-pillars", "pillars", (1, 64, *size), seed)
    value = "pillars"
    channels = 64
    maps = []
    for block, (outputs, count) in enumerate(((64, 4), (128, 6), (256, 6)), start=1):
        rows = [
            (
                f"block{block}_{index}",
                partial(NetworkBuilder.layer, kernel=3, stride=stride),
                outputs,
            )
            for index, stride in enumerate((2, *[1] * (count - 1)))
        ]
        value = net.stack(value, channels, rows)[-1]
        channels = outputs
        raised = net.add_transposed(f"up{block}", value, (channels, 128), 1 << block - 1)
        maps.append(net.relu(f"up{block}_relu", net.batch_norm(f"up{block}_bn", raised, 128)))
    value = net.concat("features", *maps)
    shapes = {}
    for name, outputs in (("classes", 18), ("boxes", 42), ("directions", 12)):
        net.convolution(name, value, (384, outputs), 1, bias=0.0)
        shapes[name] = (1, outputs, size[0] // 2, size[1] // 2)
    return net.model("classes", shapes.pop("classes"), **shapes)
