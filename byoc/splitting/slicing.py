"""Slices of nodes: a node that makes some of its output's channels, or rows, from what of its operands that takes.

Nothing is approximated: a slice computes the same elements from the same numbers. A node that cannot be cut so is
named with its reason.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

import numpy as np

from byoc.graph import Graph, Node, Quantization, Value
from byoc.operators.concatenation import joined
from byoc.operators.forms import Positions
from byoc.operators.movement import taken
from byoc.operators.operator import Operator
from byoc.operators.registry import find_family
from byoc.operators.rules import Refusal
from byoc.operators.sharding import AXES, Along, Sharding, Span, is_image

HEIGHT = AXES["rows"]


def sharding_of(graph: Graph, node: Node, along: Along) -> Sharding | str:
    """How ``node`` makes some of its channels, or rows, or why it does not."""
    values = [graph.values[name] for name in (*node.inputs, *node.outputs)]
    if len(node.outputs) != 1 or any(value.layout is not None for value in values):
        return f"{node.op_type}: it has several outputs, or tensors that lie otherwise in the model"
    if along == "rows" and not is_image(values[-1]):
        return f"{node.op_type}: its output is not one image of rows"
    found = find_family(graph, node)
    family = Operator if isinstance(found, Refusal) else found
    sharding = family.divide(graph, node, along)
    if isinstance(sharding, str):
        return f"{node.op_type}: {sharding}"
    computed = (axis for axis, value in zip(sharding.axes, values, strict=False) if value.constant is None)
    if along == "rows" and any(axis != HEIGHT for axis in computed):
        return f"{node.op_type}: it reads an operand otherwise than by its rows"
    return sharding


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


def unit(value: Value, axis: int, burst: int) -> int:
    """The fewest elements along ``axis`` of which every multiple takes whole bursts of so many bytes."""
    return burst // gcd(burst, prod(value.shape[axis + 1 :]))


def part(node: Node, sharding: Sharding, inputs: tuple[str, ...], output: str, span: Span) -> Node:
    """``node`` for a span of its result, on operands of these names."""
    attributes = {**node.attributes, **sharding.attributes(span)}
    macs = node.macs * (span[1] - span[0]) // sharding.size
    return replace(node, inputs=inputs, outputs=(output,), attributes=attributes, macs=macs)


def slice_rows(value: Value, result: str, span: Span) -> Node:
    """A node that takes the rows ``span`` out of a tensor, by their places in it."""
    index = np.arange(value.elements).reshape(value.shape)[:, :, span[0] : span[1]]
    return taken(value, result, Positions(index, None))


def join_rows(first: Value, parts: tuple[str, ...], result: str) -> Node:
    """A node that puts rows one below the other; ``first`` is one of the parts."""
    return joined(first, parts, result, HEIGHT)
