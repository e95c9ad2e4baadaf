"""Element-wise operators: one or two int8 tensors to one of equal shape, element by element; what they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.operator import Operand, Operator
from byoc.operators.rules import Finding, finding, rule


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(Operator):
    """Tiles are lengths: the instruction finds its operands at EX_INPUT_ADDRESS and EX_OPERAND_ADDRESS, EX_LENGTH
    elements, its result at EX_OUTPUT_ADDRESS.
    """

    flat: ClassVar[bool] = True


def layer_of(graph: Graph, node: Node, kind: str = "ELTWISE") -> dict[str, Any]:
    """The fields that every operator has, for whole tensors: name, account, operands, result."""
    *sources, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
    shape = domain.elementwise_shape(result.shape)
    inputs: tuple[Operand, ...] = tuple(domain.whole(source, shape) for source in sources)
    return {
        "name": node.name,
        "kind": kind,
        "inputs": inputs,
        "output": domain.whole(result, shape),
        "onnx_nodes": node.onnx_nodes,
    }


@rule("element-wise operators have two operands")
def two_operands(graph: Graph, node: Node) -> Finding | None:
    """The instruction has two."""
    return None if len(node.inputs) == 2 else finding("it has {count} operands", count=len(node.inputs))


@rule("all operands are computed at run time")
def computed_operands(graph: Graph, node: Node) -> Finding | None:
    """No operand is a constant."""
    for name in node.inputs:
        if graph.values[name].constant is not None:
            return finding("input '{name}' is constant", name=name)
    return None


@rule("operands are not broadcast")
def equal_shapes(graph: Graph, node: Node) -> Finding | None:
    """All operands have one shape."""
    shapes = tuple(dict.fromkeys(graph.values[name].shape for name in node.inputs))
    if len(shapes) == 1:
        return None
    listed = " and ".join(f"{{shapes[{number}]}}" for number in range(len(shapes)))
    return finding(f"operands have the shapes {listed}", shapes=shapes)


@rule("operands and result have the same element type")
def equal_types(graph: Graph, node: Node) -> Finding | None:
    """All are int8, or all are uint8."""
    types = tuple(graph.values[name].dtype for name in (*node.inputs, *node.outputs))
    listed = ", ".join(f"{{types[{number}]}}" for number in range(len(types)))
    return None if len(set(types)) == 1 else finding(f"element types are {listed}", types=types)


@rule("operands and result have a scale")
def quantised(graph: Graph, node: Node) -> Finding | None:
    """None is a bare integer."""
    for name in (*node.inputs, *node.outputs):
        if graph.values[name].quantization is None:
            return finding("tensor '{name}' has no scale", name=name)
    return None


UNARY = (computed_operands, domain.eight_bit_input, domain.eight_bit_output, domain.not_empty)
BINARY = (two_operands, equal_shapes, *UNARY, equal_types)
