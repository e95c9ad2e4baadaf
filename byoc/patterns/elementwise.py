"""Requirements that element-wise operators share."""

from __future__ import annotations

from byoc.graph import Graph, Node
from byoc.patterns import tensors


def two_operands(graph: Graph, node: Node) -> str | None:
    """element-wise operators have two operands"""
    return None if len(node.inputs) == 2 else f"it has {len(node.inputs)} operands"


def computed_operands(graph: Graph, node: Node) -> str | None:
    """all operands are computed at run time"""
    for name in node.inputs:
        if graph.values[name].constant is not None:
            return f"input '{name}' is constant"
    return None


def equal_shapes(graph: Graph, node: Node) -> str | None:
    """operands are not broadcast"""
    shapes = {name: graph.values[name].shape for name in node.inputs}
    if len(set(shapes.values())) == 1:
        return None
    return "operands have the shapes " + " and ".join(str(shape) for shape in shapes.values())


def equal_types(graph: Graph, node: Node) -> str | None:
    """operands and result have the same element type"""
    types = [graph.values[name].dtype for name in (*node.inputs, *node.outputs)]
    return None if len(set(types)) == 1 else f"element types are {', '.join(types)}"


def quantised(graph: Graph, node: Node) -> str | None:
    """operands and result have a scale"""
    for name in (*node.inputs, *node.outputs):
        if graph.values[name].quantization is None:
            return f"tensor '{name}' has no scale"
    return None


UNARY = (computed_operands, tensors.eight_bit_input, tensors.eight_bit_output, tensors.not_empty)
BINARY = (two_operands, equal_shapes, *UNARY, equal_types)
