"""Writes convolutions and pools of volumes (N, C, D, H, W) as those of planes, and movement, in float models.

What the window does not look across is folded away: depth into the channels of a pool, rows into columns where the
window is one pixel wide. A convolution whose window goes across all three dimensions becomes one of planes for every
depth: the planes that its taps in depth read stand side by side as input channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    add_constant,
    attributes,
    copy_model,
    remove_dead_code,
    shapes_of,
    standard,
)

Numbers = tuple[int, ...]
Window = dict[str, Any]
"""Attributes of a window."""


def flatten_volumes(model: ModelProto) -> ModelProto:
    """A copy in which Conv of constant weights, MaxPool, AveragePool and global pools of three spatial dimensions are
    those of two. Wants shapes inferred.

    Averages across depth and planes are averages of averages; those that leave padding out of the count, and what is
    written with ``auto_pad`` or ``ceil_mode``, stay as they are.
    """
    result = copy_model(model)
    graph = result.graph
    shapes, arrays = shapes_of(graph), ConstantArrays(graph, lambda tensor: True)
    nodes: list[NodeProto] = []
    for node in graph.node:
        volume = _volume(node, shapes) if standard(node) and node.op_type in _WRITERS else None
        writer = _Writer(graph, node, arrays)
        if volume is not None and _WRITERS[node.op_type](writer, volume):
            nodes += writer.nodes
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    remove_dead_code(graph)
    return result


@dataclass(frozen=True)
class _Volume:
    """Shapes of input and result, and the window (depth, rows, columns); pads at the begin and end of each."""

    source: Numbers
    result: Numbers
    kernel: Numbers
    strides: Numbers
    dilations: Numbers
    begins: Numbers
    ends: Numbers

    def still(self, *axes: int) -> bool:
        """Whether the window is one position wide, and goes over every position, along these dimensions."""
        sizes = all(self.kernel[axis] == self.strides[axis] == 1 for axis in axes)
        return sizes and not any(self.begins[axis] or self.ends[axis] for axis in axes)

    def window(self, *axes: int) -> Window:
        """The attributes of the window along these dimensions only."""
        pick = [[numbers[axis] for axis in axes] for numbers in (self.kernel, self.strides, self.dilations)]
        pads = [numbers[axis] for numbers in (self.begins, self.ends) for axis in axes]
        return {**dict(zip(("kernel_shape", "strides", "dilations"), pick, strict=True)), "pads": pads}


def _volume(node: NodeProto, shapes: dict[str, Numbers]) -> _Volume | None:
    options = attributes(node)
    source, result = shapes.get(node.input[0], ()), shapes.get(node.output[0], ())
    if len(source) != 5 or len(result) != 5 or 0 in (*source, *result) or any(node.output[1:]):
        return None
    if options.get("auto_pad", b"NOTSET") != b"NOTSET" or options.get("ceil_mode", 0):
        return None
    weights = shapes.get(node.input[1], ()) if len(node.input) > 1 else ()
    kernel = tuple(options.get("kernel_shape") or weights[2:] or source[2:])
    strides, dilations = (tuple(options.get(name) or (1, 1, 1)) for name in ("strides", "dilations"))
    pads = tuple(options.get("pads") or (0,) * 6)
    if {len(kernel), len(strides), len(dilations), len(pads) // 2} != {3} or min(pads) < 0 or min(strides) < 1:
        return None
    return _Volume(source, result, kernel, strides, dilations, pads[:3], pads[3:])


class _Writer:
    """Nodes in place of one node; the last one makes its result."""

    def __init__(self, graph: GraphProto, node: NodeProto, arrays: ConstantArrays) -> None:
        self.graph, self.node, self.arrays = graph, node, arrays
        self.options = attributes(node)
        self.nodes: list[NodeProto] = []

    def constant(self, values: Any) -> str:
        return add_constant(self.graph, f"{self.node.output[0]}_constant", values)

    def add(self, op_type: str, *inputs: str, last: bool = False, name: str = "", **options: Any) -> str:
        made = self.node.output[0] if last else f"{self.node.output[0]}_volume_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [made], name, **options))
        return made

    def reshape(self, x: str, shape: Sequence[int], last: bool = False) -> str:
        return self.add("Reshape", x, self.constant(np.array(shape, np.int64)), last=last)

    # Pools. ---------------------------------------------------------------------------------------------------------

    def pool(self, volume: _Volume) -> bool:
        """Every plane of every channel, then every column of depths."""
        average = self.node.op_type == "AveragePool"
        counted: Window = {"count_include_pad": 1} if average and self.options.get("count_include_pad", 0) else {}
        padded = any((*volume.begins, *volume.ends))
        if average and padded and not counted:
            return False
        (images, channels, depth, *_), (_, _, depths, rows, columns) = volume.source, volume.result
        x = self.node.input[0]
        if not volume.still(1, 2):
            x = self.reshape(x, (images, channels * depth, *volume.source[3:]))
            x = self.planes(x, volume.window(1, 2), counted)
        if not volume.still(0):
            x = self.reshape(x, (images, channels, depth, rows * columns))
            x = self.planes(x, _beside(volume.window(0)), counted)
        self.reshape(x, (images, channels, depths, rows, columns), last=True)
        return True

    def planes(self, x: str, window: Window, counted: Window) -> str:
        if max(window["dilations"]) == 1:
            window = {name: values for name, values in window.items() if name != "dilations"}
        return self.add(self.node.op_type, x, name=self.node.name if len(self.nodes) < 2 else "", **window, **counted)

    def whole(self, volume: _Volume) -> bool:
        """A global pool is one of planes as high as the volume is deep and high."""
        images, channels, depth, rows, columns = volume.source
        x = self.reshape(self.node.input[0], (images, channels, depth * rows, columns))
        if self.node.op_type == "GlobalMaxPool":
            made = self.add("MaxPool", x, name=self.node.name, kernel_shape=[depth * rows, columns])
        else:
            made = self.add(self.node.op_type, x, name=self.node.name)
        self.reshape(made, volume.result, last=True)
        return True

    # Convolutions. --------------------------------------------------------------------------------------------------

    def convolution(self, volume: _Volume) -> bool:
        weights = self.arrays.get(self.node.input[1])
        if weights is None or weights.ndim != 5 or weights.shape[2:] != volume.kernel:
            return False
        images, channels, depth, rows, columns = volume.source
        if volume.still(1, 2):
            shape = images, channels, depth, rows * columns
            window = _beside(volume.window(0))
        elif volume.still(0, 1):
            shape = images, channels, depth * rows, columns
            window = _beside(volume.window(2), first=False)
        else:
            return self.across(volume, weights)
        x = self.reshape(self.node.input[0], shape)
        flat = weights.reshape(*weights.shape[:2], *window["kernel_shape"])
        self.reshape(self.filtered(x, flat, window), volume.result, last=True)
        return True

    def filtered(self, x: str, weights: Any, window: Window) -> str:
        inputs = [x, self.constant(weights), *self.node.input[2:]]
        return self.add("Conv", *inputs, name=self.node.name, group=self.options.get("group", 1), **window)

    def across(self, volume: _Volume, weights: Any) -> bool:
        """Planes in order of depth, those that a result's taps in depth read side by side as its channels."""
        groups = int(self.options.get("group", 1))
        images, channels, depth, rows, columns = volume.source
        taps, stride, dilation = volume.kernel[0], volume.strides[0], volume.dilations[0]
        before, behind, results = volume.begins[0], volume.ends[0], volume.result[2]
        x = self.node.input[0]
        if before or behind:
            pads = self.constant(np.array([0, 0, before, 0, 0, 0, 0, behind, 0, 0], np.int64))
            x = self.add("Pad", x, pads)
        x = self.add("Transpose", x, perm=[0, 2, 1, 3, 4])
        x = self.reshape(x, (images, depth + before + behind, groups, channels // groups * rows * columns))
        reach = (results - 1) * stride + 1
        parts = []
        for tap in range(taps):
            ends = [[tap * dilation], [tap * dilation + reach], [1], [stride]]
            whole = taps == 1 and stride == 1 and reach == depth + before + behind
            parts.append(x if whole else self.add("Slice", x, *(self.constant(np.array(n, np.int64)) for n in ends)))
        x = parts[0] if taps == 1 else self.add("Concat", *parts, axis=3)
        x = self.reshape(x, (images * results, channels * taps, rows, columns))
        filters = np.moveaxis(weights, 2, 1).reshape(len(weights), -1, *volume.kernel[1:])
        x = self.filtered(x, filters, volume.window(1, 2))
        x = self.reshape(x, (images, results, volume.result[1], *volume.result[3:]))
        self.add("Transpose", x, perm=[0, 2, 1, 3, 4], last=True)
        return True


def _beside(window: Window, first: bool = True) -> Window:
    """A window along one dimension, that of rows or else columns, as one of planes."""
    pair = {name: [values[0], 1] if first else [1, values[0]] for name, values in window.items() if name != "pads"}
    begin, end = window["pads"]
    return {**pair, "pads": [begin, 0, end, 0] if first else [0, begin, 0, end]}


_WRITERS = {
    "Conv": _Writer.convolution,
    "MaxPool": _Writer.pool,
    "AveragePool": _Writer.pool,
    "GlobalAveragePool": _Writer.whole,
    "GlobalMaxPool": _Writer.whole,
}
