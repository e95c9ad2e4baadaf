"""Layers of a network as the limits and formulas of a machine description see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Quantization
from byoc.operators.registry import load_installed_families
from experiments.machines.description import LayerWork, PoolWork, Shape

_POOLING = ("max_pooling", "average_pooling")
"""Operator families of pools."""


def describe_work(graph: Graph, nodes: Sequence[Node]) -> LayerWork:
    """Return the layer of a chain of nodes."""
    made = {name for node in nodes for name in node.outputs}
    read = [
        name
        for node in nodes
        for name in node.inputs
        if name not in made and graph.values[name].constant is None
    ]
    window = next((node for node in nodes if node.macs and "kernel" in node.attributes), None)
    pool = next((node for node in nodes if _is_pool(node)), None)
    weights = [
        (constant, graph.values[name].quantization)
        for node in nodes
        if node.macs
        for name in node.inputs[1:2]
        if (constant := graph.values[name].constant) is not None
    ]
    work = LayerWork(
        name=nodes[0].name,
        op_types=tuple(node.op_type for node in nodes),
        nodes=tuple(nodes),
        inputs=tuple(_shape(graph, name) for name in read),
        output=_shape(graph, nodes[-1].outputs[0]),
        macs=sum(node.macs for node in nodes),
        weight_bytes=sum(constant.nbytes for constant, _ in weights),
        weight_bits=max((_count_bits(*one) for one in weights), default=8),
        pool=None if pool is None else _describe_pool(graph, pool),
    )
    if window is None:
        return work
    kernel, stride, dilation = (
        _pair(window.attributes[name]) for name in ("kernel", "strides", "dilations")
    )
    return LayerWork(
        **{
            **vars(work),
            "kernel": kernel,
            "stride": stride,
            "dilation": dilation,
            "padding": _sides(window.attributes["pads"]),
            "groups": int(window.attributes.get("group", 1)),
        }
    )


def _count_bits(weights: NDArray[Any], quantization: Quantization | None) -> int:
    """Return the fewest bits, a power of two, that hold all weights minus their zero point."""
    if not np.issubdtype(weights.dtype, np.integer):
        return 8 * weights.dtype.itemsize
    zeros = np.zeros(1, np.int32) if quantization is None else quantization.zero_point
    low, high = int(zeros.min()), int(zeros.max())
    ends = (int(weights.min(initial=high)) - high, int(weights.max(initial=low)) - low)
    bits = 1 + max((~end if end < 0 else end).bit_length() for end in ends)
    return 1 << (bits - 1).bit_length()


def _shape(graph: Graph, name: str) -> Shape:
    """Return a tensor's shape without a leading axis of one."""
    shape = graph.values[name].shape
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def _is_pool(node: Node) -> bool:
    """Return whether a node belongs to an operator family of pools."""
    families = load_installed_families().by_operator.get(node.op_type, ())
    return any(family.family in _POOLING for family in families)


def _describe_pool(graph: Graph, node: Node) -> PoolWork:
    """Return the pooling of a node; the window of a global pool is the whole plane."""
    output = _shape(graph, node.outputs[0])
    plane = _pair(_shape(graph, node.inputs[0])[1:])
    attributes = node.attributes
    return PoolWork(
        node.op_type,
        _pair(attributes.get("kernel", plane)),
        _pair(attributes.get("strides", plane)),
        _sides(attributes.get("pads", (0, 0, 0, 0))),
        output,
    )


def _pair(values: Sequence[int]) -> tuple[int, int]:
    """Return height and width of a window of one or two dimensions."""
    two = (*(1,) * (2 - len(values)), *values)
    return int(two[0]), int(two[1])


def _sides(pads: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the padding above, left, below and right of a window of one or two dimensions."""
    if len(pads) == 2:
        return 0, int(pads[0]), 0, int(pads[1])
    top, left, bottom, right = map(int, pads)
    return top, left, bottom, right
