"""Slices of nodes: a node that makes some of its output's channels, or rows, from what of its operands that takes.

Nothing is approximated: a slice computes the same elements from the same numbers. A node that cannot be cut so is
named with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd, lcm, prod

import numpy as np

from byoc.graph import Graph, Node, Quantization, Value
from byoc.operators.convolution import Convolution
from byoc.operators.elementwise import Elementwise
from byoc.operators.forms import Positions
from byoc.operators.matmul import MatMul
from byoc.operators.movement import movement_attributes
from byoc.operators.pooling import Pool
from byoc.operators.registry import find_family

CHANNELS, HEIGHT = 1, 2
Span = tuple[int, int]
"""A half-open interval of channels or rows."""


def family_of(graph: Graph, node: Node) -> type:
    """The operator family of a node, or ``object`` for one without."""
    found = find_family(graph, node)
    return found if isinstance(found, type) else object


def sliced(value: Value, name: str, axis: int, span: Span) -> Value:
    """The elements of ``value`` in ``span`` along ``axis``, with their scales."""
    start, stop = span
    window = (slice(None),) * axis + (slice(start, stop),)
    scales = value.quantization
    if scales is not None and not scales.per_tensor and scales.axis == axis:
        scales = Quantization(scales.scale[start:stop], scales.zero_point[start:stop], axis)
    constant = None if value.constant is None else np.ascontiguousarray(value.constant[window])
    shape = (*value.shape[:axis], stop - start, *value.shape[axis + 1 :])
    return Value(name, shape, value.dtype, scales, constant)


# Channels. ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChannelCut:
    """How a node of ``channels`` output channels is cut: ``axes`` by operand; None for one that is read whole."""

    channels: int
    axes: tuple[int | None, ...]


def channel_cut(graph: Graph, node: Node) -> ChannelCut | str:
    """How the output channels of ``node`` are shared, or why they are not."""
    family, result = family_of(graph, node), graph.values[node.outputs[0]]
    operands = [graph.values[name] for name in node.inputs]
    if len(node.outputs) != 1 or any(value.layout is not None for value in (*operands, result)):
        return f"{node.op_type}: it has several outputs, or tensors that lie otherwise in the model"
    if issubclass(family, Convolution):
        return _convolution_cut(node, operands, result)
    if issubclass(family, MatMul):
        return _product_cut(node, operands, result)
    if not issubclass(family, Elementwise | Pool):
        return f"{node.op_type}: its channels are not independent"
    if len(result.shape) != 4 or result.shape[0] != 1:
        return f"{node.op_type}: its output is not one image of channels"
    channels = result.shape[CHANNELS]
    axes = [_operand_axis(value, result, CHANNELS, pools=issubclass(family, Pool)) for value in operands]
    if -1 in axes:
        return f"{node.op_type}: an operand has another shape than the output"
    return ChannelCut(channels, tuple(axes))


def _operand_axis(value: Value, result: Value, axis: int, *, pools: bool) -> int | None:
    """The operand's axis along which it is cut as the result is; None: it is the same for all; -1: it cannot be."""
    if value.constant is None:
        same = value.shape == result.shape or (pools and value.shape[:2] == result.shape[:2] and len(value.shape) == 4)
        return axis if same else -1
    own = len(value.shape) - len(result.shape) + axis
    if own < 0 or value.shape[own] == 1:
        return None
    return own if value.shape[own] == result.shape[axis] else -1


def _convolution_cut(node: Node, operands: list[Value], result: Value) -> ChannelCut | str:
    groups = node.attributes.get("group", 1)
    source = operands[0]
    if len(result.shape) != 4 or result.shape[0] != 1 or any(value.constant is None for value in operands[1:]):
        return f"{node.op_type}: it is no convolution of one image by constant weights"
    channels = result.shape[CHANNELS]
    if any(value.shape[:1] != (channels,) for value in operands[1:]):
        return f"{node.op_type}: its constants are not by output channel"
    if groups != 1 and not groups == channels == source.shape[CHANNELS]:
        return f"{node.op_type}: it has {groups} groups of several channels"
    return ChannelCut(channels, (None if groups == 1 else CHANNELS, *(0 for _ in operands[1:])))


def _product_cut(node: Node, operands: list[Value], result: Value) -> ChannelCut | str:
    constant = len(operands) in (2, 3) and all(value.constant is not None for value in operands[1:])
    if not constant or len(operands[1].shape) != 2 or prod(result.shape[:-1]) != 1:
        return f"{node.op_type}: it is no product of one row by a constant matrix"
    channels = result.shape[-1]
    axes = [None, *(len(value.shape) - 1 for value in operands[1:])]
    if any(value.shape[-1] != channels for value in operands[1:]):
        return f"{node.op_type}: its constants are not by output channel"
    return ChannelCut(channels, tuple(axes))


def channel_axis(value: Value) -> int:
    """The axis of a tensor's channels: of a feature vector the last one."""
    return CHANNELS if len(value.shape) == 4 else len(value.shape) - 1


def channel_unit(values: list[Value], burst: int) -> int:
    """The fewest channels whose multiples begin at a multiple of ``burst`` bytes in each of these tensors."""
    bytes_each = [prod(value.shape[channel_axis(value) + 1 :]) for value in values]
    return lcm(*(burst // gcd(burst, size) for size in bytes_each))


def channel_node(node: Node, cut: ChannelCut, inputs: tuple[str, ...], span: Span) -> Node:
    """``node`` for the channels of ``span``, on operands of these names."""
    attributes = dict(node.attributes)
    start, stop = span
    if attributes.get("group", 1) != 1:
        attributes["group"] = stop - start
    macs = node.macs * (stop - start) // cut.channels
    return replace(node, inputs=inputs, attributes=attributes, macs=macs)


# Rows. --------------------------------------------------------------------------------------------------------------


def row_refusal(graph: Graph, node: Node) -> str | None:
    """Why ``node`` cannot make some rows of its output from some rows of its operands; None: it can."""
    family, result = family_of(graph, node), graph.values[node.outputs[0]]
    operands = [graph.values[name] for name in node.inputs]
    if len(node.outputs) != 1 or any(value.layout is not None for value in (*operands, result)):
        return f"{node.op_type}: it has several outputs, or tensors that lie otherwise in the model"
    if len(result.shape) != 4 or result.shape[0] != 1:
        return f"{node.op_type}: its output is not one image of rows"
    computed = [value for value in operands if value.constant is None]
    if issubclass(family, Convolution | Pool) and len(node.attributes.get("kernel", ())) == 2:
        one = len(computed) == 1 and operands[0].constant is None
        return None if one else f"{node.op_type}: its weights are computed"
    if not issubclass(family, Elementwise):
        return f"{node.op_type}: its rows depend on all rows"
    if any(_operand_axis(value, result, HEIGHT, pools=False) not in (HEIGHT, None) for value in computed):
        return f"{node.op_type}: an operand has another shape than the output"
    if any(
        _operand_axis(value, result, HEIGHT, pools=False) is not None for value in operands if value not in computed
    ):
        return f"{node.op_type}: a constant differs from row to row"
    return None


def rows_read(graph: Graph, node: Node, span: Span) -> Span:
    """The rows of its operands that ``node`` reads for the rows ``span`` of its output, without padding."""
    first, last = _window(node, span)
    height = graph.values[node.inputs[0]].shape[HEIGHT] if "kernel" in node.attributes else last
    return max(0, first), min(height, last)


def _window(node: Node, span: Span) -> Span:
    """The rows of its operands for ``span``, padding included."""
    if "kernel" not in node.attributes:
        return span
    stride, kernel = node.attributes["strides"][0], node.attributes["kernel"][0]
    dilation, top = node.attributes["dilations"][0], node.attributes["pads"][0]
    start, stop = span
    return start * stride - top, (stop - 1) * stride - top + (kernel - 1) * dilation + 1


def row_node(graph: Graph, node: Node, inputs: tuple[str, ...], output: str, span: Span) -> Node:
    """``node`` for the rows ``span``, on operands of these names with the rows that it reads."""
    attributes = dict(node.attributes)
    result = graph.values[node.outputs[0]]
    start, stop = span
    if "kernel" in attributes:
        (first, last), height = _window(node, span), graph.values[node.inputs[0]].shape[HEIGHT]
        _, left, _, right = attributes["pads"]
        attributes["pads"] = (max(0, -first), left, max(0, last - height), right)
    macs = node.macs * (stop - start) // result.shape[HEIGHT]
    return replace(node, inputs=inputs, outputs=(output,), attributes=attributes, macs=macs)


def slice_rows(value: Value, result: str, span: Span) -> Node:
    """A node that takes the rows ``span`` out of a tensor, by their places in it."""
    index = np.arange(value.elements).reshape(value.shape)[:, :, span[0] : span[1]]
    attributes = movement_attributes(Positions(index, None), value.elements)
    return Node(f"{result} taken", "Slice", (value.name,), (result,), {**_plain(value), **attributes}, integer=True)


def join_rows(first: Value, parts: tuple[str, ...], result: str) -> Node:
    """A node that puts rows one below the other; ``first`` is one of the parts."""
    return Node(f"{result} joined", "Concat", parts, (result,), {**_plain(first), "axis": HEIGHT}, integer=True)


def _plain(value: Value) -> Mapping[str, bool]:
    """Attributes of a movement between integers that have no scale."""
    return {"plain": True} if value.quantization is None else {}
