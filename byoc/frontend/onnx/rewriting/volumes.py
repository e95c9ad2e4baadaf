"""Rewrite convolutions and pools of volumes (N, C, D, H, W) as operators on planes.

Dimensions that the window does not span are merged: depth into the channels of a pool, rows into
columns if the window is one pixel wide. A convolution whose window spans all three dimensions
becomes one of planes for every depth. The planes that its taps in depth read are concatenated as
input channels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, write_operators
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.operators.window import window_attributes
from byoc.runtimes.protobuf import attributes, standard

Numbers = tuple[int, ...]
Window = dict[str, Any]
"""Attributes of a window."""


@dataclass(frozen=True)
class _Volume:
    """Shapes, window and padding of a convolution or pool with three spatial dimensions."""

    source: Numbers
    result: Numbers
    kernel: Numbers
    strides: Numbers
    dilations: Numbers
    begins: Numbers
    ends: Numbers

    def still(self, *axes: int) -> bool:
        """Return True if a window has size and stride 1, without padding, along ``axes``."""
        sizes = all(self.kernel[axis] == self.strides[axis] == 1 for axis in axes)
        return sizes and not any(self.begins[axis] or self.ends[axis] for axis in axes)

    def window(self, *axes: int) -> Window:
        """Return kernel, strides, dilations and pads of a window along ``axes`` only."""
        pick = [
            [numbers[axis] for axis in axes]
            for numbers in (self.kernel, self.strides, self.dilations)
        ]
        pads = [numbers[axis] for numbers in (self.begins, self.ends) for axis in axes]
        return {
            **dict(zip(("kernel_shape", "strides", "dilations"), pick, strict=True)),
            "pads": pads,
        }


def _volume(node: NodeProto, shapes: dict[str, Numbers]) -> _Volume | None:
    """Read a convolution or pool of volumes; None for other nodes and unsupported windows."""
    if node.op_type not in _WRITERS or not standard(node):
        return None
    options = attributes(node)
    source = shapes.get(node.input[0], ())
    result = shapes.get(node.output[0], ())
    if len(source) != 5 or len(result) != 5 or 0 in (*source, *result) or any(node.output[1:]):
        return None
    if (
        node.op_type == "AveragePool"
        and options.get("ceil_mode", 0)
        and options.get("count_include_pad", 0)
    ):
        return None
    weights = shapes.get(node.input[1], ()) if len(node.input) > 1 else ()
    kernel = tuple(options.get("kernel_shape") or weights[2:] or source[2:])
    options["auto_pad"] = options.get("auto_pad", b"NOTSET").decode()
    lengths = {len(options.get(name) or (0,) * 3) for name in ("strides", "dilations")}
    if {len(kernel), len(options.get("pads") or (0,) * 6) // 2, *lengths} != {3}:
        return None
    window = window_attributes(options, kernel, source[2:], result[2:], cuts=node.op_type != "Conv")
    strides, dilations, pads = (window[name] for name in ("strides", "dilations", "pads"))
    if (
        min(pads) < 0
        or min(*strides, *dilations) < 1
        or (node.op_type == "AveragePool" and max(dilations) > 1)
    ):
        return None
    return _Volume(source, result, kernel, strides, dilations, pads[:3], pads[3:])


@dataclass(frozen=True, eq=False)
class _Unit:
    """Operator between quantised tensors, with its DequantizeLinear and QuantizeLinear nodes.

    ``head`` is the DequantizeLinear of its operand, ``behind`` the nodes after it, the last one a
    QuantizeLinear. ``weights`` dequantises its constant weights.
    """

    node: NodeProto
    head: NodeProto
    behind: tuple[NodeProto, ...]
    weights: NodeProto | None


def _unit(graph: GraphView, last: NodeProto) -> _Unit | None:
    """Return the operator between quantised tensors that ends in a QuantizeLinear.

    Returns None if operand or result lacks a single scale, or if weights have other scales than one
    or one per filter.
    """
    behind = [last]
    node = graph.maker(last.input[0])
    if node is not None and node.op_type in ("Relu", "Clip"):
        behind = [node, last]
        node = graph.maker(node.input[0])
    if node is None or node.op_type not in _WRITERS:
        return None
    if any(
        graph.is_shown(each.input[0]) or graph.only_reader(each.input[0]) is None for each in behind
    ):
        return None
    head = graph.maker(node.input[0], DEQUANTIZE)
    weights = graph.maker(node.input[1], DEQUANTIZE) if len(node.input) > 1 else None
    if head is None or not all(_single(graph, each) for each in (head, last)):
        return None
    if len(node.input) > 1 and (weights is None or not _is_along_filters(graph, weights)):
        return None
    return _Unit(node, head, tuple(behind), weights)


def _single(graph: GraphView, node: NodeProto) -> bool:
    scale = graph.constants.get(node.input[1])
    return scale is not None and scale.size == 1


def _is_along_filters(graph: GraphView, node: NodeProto) -> bool:
    """Return True if a DequantizeLinear of constants has one scale, or one per filter."""
    if any(name and name not in graph.constants for name in node.input):
        return False
    options = attributes(node)
    return not options.get("block_size", 0) and (
        _single(graph, node) or options.get("axis", 1) == 0
    )


class _VolumeWriter(NodeWriter):
    """Writer of operators on planes that replace a convolution or pool of volumes."""

    fill = ""
    """Name of the padding value; empty for 0."""

    def __init__(self, graph: GraphView, node: NodeProto, name: str = "") -> None:
        super().__init__(graph, node, name)
        self.source = node.input[0]

    def reshape(self, x: str, shape: Sequence[int], last: bool = False) -> str:
        return self.add(
            "Reshape", x, self.constant(shape, np.int64), result=self.name if last else ""
        )

    def compute(self, op_type: str, x: str, *inputs: str, label: str = "", **options: Any) -> str:
        return self.add(op_type, x, *inputs, label=label, **options)

    def weights(self) -> Any:
        """Return the constant weights of a convolution; None if they are computed."""
        return self.graph.constants.get(self.node.input[1])

    def add_weights(self, values: Any) -> str:
        return self.constant(values)

    # Pools.

    def maximum(self, volume: _Volume) -> bool:
        """Write a MaxPool of volumes as a MaxPool over each plane, then one over the depth."""
        return self.pool(volume, {})

    def average(self, volume: _Volume) -> bool:
        """Write an AveragePool of volumes as averages over each plane, then over the depth."""
        return self.pool(
            volume, {"count_include_pad": 1} if self.options.get("count_include_pad", 0) else {}
        )

    def pool(self, volume: _Volume, counted: Window) -> bool:
        (images, channels, depth, *_), (_, _, depths, rows, columns) = volume.source, volume.result
        x = self.source
        if not volume.still(1, 2) or volume.still(0):
            x = self.reshape(x, (images, channels * depth, *volume.source[3:]))
            x = self.planes(x, volume.window(1, 2), counted, last=volume.still(0))
        if not volume.still(0):
            x = self.reshape(x, (images, channels, depth, rows * columns))
            x = self.planes(x, _place_window(volume.window(0)), counted)
        self.reshape(x, (images, channels, depths, rows, columns), last=True)
        return True

    def planes(self, x: str, window: Window, counted: Window, *, last: bool = True) -> str:
        if max(window["dilations"]) == 1:
            window = {name: values for name, values in window.items() if name != "dilations"}
        compute = self.compute if last else self.add
        return compute(
            self.node.op_type, x, label=self.node.name if last else "", **window, **counted
        )

    def whole(self, volume: _Volume) -> bool:
        """Write a global pool of volumes as a global pool of planes with depth · rows rows."""
        images, channels, depth, rows, columns = volume.source
        x = self.reshape(self.source, (images, channels, depth * rows, columns))
        if self.node.op_type == "GlobalMaxPool":
            made = self.compute(
                "MaxPool", x, label=self.node.name, kernel_shape=[depth * rows, columns]
            )
        else:
            made = self.compute(self.node.op_type, x, label=self.node.name)
        self.reshape(made, volume.result, last=True)
        return True

    def pad(self, x: str, pads: list[int]) -> str:
        if not any(pads):
            return x
        return self.add(
            "Pad", x, self.constant(pads, np.int64), *([self.fill] if self.fill else [])
        )

    # Convolutions.

    def convolution(self, volume: _Volume) -> bool:
        weights = self.weights()
        if weights is None or weights.ndim != 5 or weights.shape[2:] != volume.kernel:
            return False
        images, channels, depth, rows, columns = volume.source
        if volume.still(1, 2):
            shape = images, channels, depth, rows * columns
            window = _place_window(volume.window(0))
        elif volume.still(0, 1):
            shape = images, channels, depth * rows, columns
            window = _place_window(volume.window(2), first=False)
        else:
            return self.write_convolution(volume, weights)
        x = self.reshape(self.source, shape)
        flat = weights.reshape(*weights.shape[:2], *window["kernel_shape"])
        self.reshape(self.filter(x, flat, window), volume.result, last=True)
        return True

    def filter(self, x: str, weights: Any, window: Window) -> str:
        inputs = [x, self.add_weights(weights), *self.node.input[2:]]
        return self.compute(
            "Conv", *inputs, label=self.node.name, group=self.options.get("group", 1), **window
        )

    def write_convolution(self, volume: _Volume, weights: Any) -> bool:
        """Write a convolution of volumes as one of planes.

        The planes that the taps in depth read are concatenated as channels.
        """
        groups = int(self.options.get("group", 1))
        images, channels, depth, rows, columns = volume.source
        taps = volume.kernel[0]
        stride = volume.strides[0]
        dilation = volume.dilations[0]
        before = volume.begins[0]
        behind = volume.ends[0]
        results = volume.result[2]
        x = self.pad(self.source, [0, 0, before, 0, 0, 0, 0, behind, 0, 0])
        x = self.add("Transpose", x, perm=[0, 2, 1, 3, 4])
        x = self.reshape(
            x, (images, depth + before + behind, groups, channels // groups * rows * columns)
        )
        reach = (results - 1) * stride + 1
        parts = []
        for tap in range(taps):
            ends = [[tap * dilation], [tap * dilation + reach], [1], [stride]]
            whole = taps == 1 and stride == 1 and reach == depth + before + behind
            parts.append(
                x if whole else self.add("Slice", x, *(self.constant(n, np.int64) for n in ends))
            )
        x = parts[0] if taps == 1 else self.add("Concat", *parts, axis=3)
        x = self.reshape(x, (images * results, channels * taps, rows, columns))
        filters = np.moveaxis(weights, 2, 1).reshape(len(weights), -1, *volume.kernel[1:])
        x = self.filter(x, filters, volume.window(1, 2))
        x = self.reshape(x, (images, results, volume.result[1], *volume.result[3:]))
        self.add("Transpose", x, perm=[0, 2, 1, 3, 4], result=self.name)
        return True


class _IntegerWriter(_VolumeWriter):
    """Writer of operators on planes that replace one on volumes between quantised tensors.

    Data movement copies integers.
    """

    def __init__(self, graph: GraphView, unit: _Unit) -> None:
        super().__init__(graph, unit.node, unit.behind[-1].output[0])
        self._unit = unit
        self.source = unit.head.input[0]
        self.fill = unit.head.input[2] if len(unit.head.input) > 2 else ""

    def compute(self, op_type: str, x: str, *inputs: str, label: str = "", **options: Any) -> str:
        """Add an operator between copies of the quantisation nodes around the replaced one."""
        made = self._copy(self._unit.head, x)
        made = self.add(op_type, made, *inputs, label=label, **options)
        for node in self._unit.behind:
            made = self._copy(node, made)
        return made

    def _copy(self, node: NodeProto, x: str) -> str:
        return self.add(node.op_type, x, *node.input[1:], **attributes(node))

    def weights(self) -> Any:
        return (
            None
            if self._unit.weights is None
            else self.graph.constants[self._unit.weights.input[0]]
        )

    def add_weights(self, values: Any) -> str:
        """Dequantise rearranged weights with their own scales, along the filters."""
        assert self._unit.weights is not None
        return self.add(DEQUANTIZE, self.constant(values), *self._unit.weights.input[1:], axis=0)

    def average(self, volume: _Volume) -> bool:
        """Write an AveragePool of volumes as one AveragePool of planes with reordered rows.

        The rows are copied in the order in which the windows read them.
        An average of averages would round differently. ONNX Runtime also sums integers row by row.
        """
        counted = bool(self.options.get("count_include_pad", 0))
        if volume.still(0) or volume.still(1, 2):
            return super().average(volume)
        if any((*volume.begins, *volume.ends)) and not counted:
            return False
        images, channels, _, _, columns = volume.source
        _, _, depths, rows, width = volume.result
        depth, height, _ = volume.kernel
        down, along, step = volume.strides
        pads = [0, 0, *volume.begins[:2], 0, 0, 0, *volume.ends[:2], 0]
        x = self.pad(self.source, pads)
        high = volume.source[3] + pads[3] + pads[8]
        deep = volume.source[2] + pads[2] + pads[7]
        planes = np.arange(depths)[:, None, None, None] * down + np.arange(depth)[:, None]
        read = planes * high + np.arange(rows)[:, None, None] * along + np.arange(height)
        x = self.reshape(x, (images, channels, deep * high, columns))
        x = self.add("Gather", x, self.constant(read.reshape(-1)), axis=2)
        window: Window = {
            "kernel_shape": [depth * height, volume.kernel[2]],
            "strides": [depth * height, step],
        }
        window |= {"pads": [0, volume.begins[2], 0, volume.ends[2]]}
        x = self.compute(
            "AveragePool", x, label=self.node.name, count_include_pad=int(counted), **window
        )
        self.reshape(x, (images, channels, depths, rows, width), last=True)
        return True


def _place_window(window: Window, first: bool = True) -> Window:
    """Extend a one-dimensional window to two dimensions, along rows or else columns."""
    pair = {
        name: [values[0], 1] if first else [1, values[0]]
        for name, values in window.items()
        if name != "pads"
    }
    begin, end = window["pads"]
    return {**pair, "pads": [begin, 0, end, 0] if first else [0, begin, 0, end]}


_WRITERS: Mapping[str, Callable[[_VolumeWriter, _Volume], bool]] = {
    "Conv": lambda writer, volume: writer.convolution(volume),
    "MaxPool": lambda writer, volume: writer.maximum(volume),
    "AveragePool": lambda writer, volume: writer.average(volume),
    "GlobalAveragePool": lambda writer, volume: writer.whole(volume),
    "GlobalMaxPool": lambda writer, volume: writer.whole(volume),
}


@write_operators(*_WRITERS, rank=5)
def flatten_volumes(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite convolutions and pools of volumes in float models as operators on planes.

    The operators are Conv with constant weights, MaxPool, AveragePool and global pools. The average
    over a volume is the average over the depth of averages over planes. AveragePool with
    dilations, or with counted padding and a size rounded up, stays unchanged.
    """
    volume = _volume(node, graph.shapes)
    writer = _VolumeWriter(graph, node)
    return writer.nodes if volume is not None and _WRITERS[node.op_type](writer, volume) else None


@write_operators(QUANTIZE, rank=5)
def flatten_integer_volumes(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite convolutions and pools of volumes between quantised values, bit-exact.

    Data movement copies integers. An average is written as one pool of rows, in the order in which
    its window reads them. An AveragePool that does not count padding therefore stays unchanged.
    """
    unit = _unit(graph, node)
    volume = None if unit is None else _volume(unit.node, graph.shapes)
    if unit is None or volume is None:
        return None
    writer = _IntegerWriter(graph, unit)
    return writer.nodes if _WRITERS[unit.node.op_type](writer, volume) else None
