"""Moves Relu and Clip in front of the operators they commute with, next to whatever they can be fused into.

``Relu(MaxPool(x))`` becomes ``MaxPool(Relu(x))``, ``Relu(Concat(a, b))`` becomes ``Concat(Relu(a), Relu(b))``. Equal
to the bit, and after it quantised pooling and concatenation have equal quantisation on both sides.
"""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto

from byoc.frontend.onnx.rewriting.edit import constants, copy_model, names_of, set_nodes, standard, unused, use_counts

_ONE_OPERAND = frozenset({"DepthToSpace", "MaxPool", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def hoist_activations(model: ModelProto) -> ModelProto:
    """A copy in which no Relu or Clip (with constant limits) is the only reader of a MaxPool, Concat or reshape.

    Exact because these operators only choose and move elements, and a clamp is monotone.
    """
    result = copy_model(model)
    while _hoist_one(result.graph):
        pass
    return result


def _hoist_one(graph: GraphProto) -> bool:
    producers = {output: index for index, node in enumerate(graph.node) for output in node.output}
    uses, constant = use_counts(graph), set(constants(graph))
    for index, node in enumerate(graph.node):
        clamps = node.op_type in ("Relu", "Clip") and standard(node)
        mover = producers.get(node.input[0]) if clamps else None
        if mover is None or any(name and name not in constant for name in node.input[1:]):
            continue
        if uses[node.input[0]] == 1 and _commutes(graph.node[mover], constant):
            _swap(graph, mover, index)
            return True
    return False


def _commutes(node: NodeProto, constant: set[str]) -> bool:
    if not standard(node) or len([name for name in node.output if name]) != 1:
        return False
    if node.op_type == "Concat":
        return constant.isdisjoint(node.input)
    return node.op_type in _ONE_OPERAND


def _swap(graph: GraphProto, mover: int, activation: int) -> None:
    """Put copies of the activation before each moved operand; its own output becomes the mover's."""
    old, node = graph.node[activation], NodeProto()
    node.CopyFrom(graph.node[mover])
    count = len(node.input) if node.op_type == "Concat" else 1
    hoisted, taken = [], names_of(graph)
    for index in range(count):
        copy = NodeProto()
        copy.CopyFrom(old)
        suffix = f"_{index}" if count > 1 else ""
        copy.name = f"{old.name}{suffix}" if old.name else ""
        copy.input[0] = node.input[index]
        copy.output[0] = unused(f"{old.output[0]}_before_{node.op_type}{suffix}", taken)
        node.input[index] = copy.output[0]
        hoisted.append(copy)
    node.output[0] = old.output[0]
    nodes = list(graph.node)
    nodes[activation : activation + 1] = []
    nodes[mover : mover + 1] = [*hoisted, node]
    set_nodes(graph, nodes)
