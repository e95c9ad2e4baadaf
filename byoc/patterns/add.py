"""Element-wise addition, the residual connections of a network."""

from __future__ import annotations

from byoc.graph import Graph, Node
from byoc.operations import AddOperation
from byoc.patterns import elementwise, tensors
from byoc.patterns.base import Pattern, as_parsed


def parse(graph: Graph, node: Node) -> AddOperation:
    """The operation that an addition is, once it meets every requirement."""
    first, second, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
    quantizations = [tensors.affine(value) for value in (first, second, result)]
    low, high = tensors.clamp(node, quantizations[2])
    shape = tensors.elementwise_shape(result.shape)
    a, b, y = quantizations
    return AddOperation(
        name=node.name,
        kind="ELTWISE",
        inputs=(tensors.whole(first, shape), tensors.whole(second, shape)),
        output=tensors.whole(result, shape),
        onnx_nodes=node.onnx_nodes,
        scales=(float(a.scale), float(b.scale), float(y.scale)),
        zero_points=(a.zero_point, b.zero_point, y.zero_point),
        offset=y.offset,
        low=low,
        high=high,
    )


def near_scales(graph: Graph, node: Node) -> str | None:
    """an operand's scale is at most 2^100 times that of the result"""
    result = tensors.affine(graph.values[node.outputs[0]])
    for name in node.inputs:
        ratio = float(tensors.affine(graph.values[name]).scale) / float(result.scale)
        if ratio > 2.0**100:
            return f"the scale of '{name}' is {ratio:g} times that of '{node.outputs[0]}'"
    return None


PATTERN: Pattern[AddOperation] = Pattern(
    name="add",
    op_types=("Add",),
    requirements=(*elementwise.BINARY, elementwise.quantised, tensors.per_tensor, tensors.usable_scales, near_scales),
    parse=parse,
    constraints=(),
    operations=as_parsed,
)
