"""Removes nodes that do nothing in inference: Identity, Dropout, Sum of one; rewrites Sum of two as Add."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto

from byoc.passes.onnx_edit import attributes, constants, copy_model, keep_nodes, rename_uses, use_counts


def remove_identities(model: ModelProto) -> ModelProto:
    """A copy without Identity, Dropout in inference form and Sum of one operand; Sum of two becomes Add.

    A node whose result is a graph output stays (it gives the output its name), as does a Dropout whose mask is used.
    Sums of three and more stay.
    """
    result = copy_model(model)
    graph = result.graph
    for node in graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
        if node.op_type in ("Sum", "Dropout") and _passes_through(node, graph):
            _make_identity(node)
    outputs = {output.name for output in graph.output}
    gone = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Identity" and n.output[0] not in outputs}
    rename_uses(graph, gone)
    keep_nodes(graph, lambda node: not (node.op_type == "Identity" and node.output[0] in gone))
    return result


def _passes_through(node: NodeProto, graph: GraphProto) -> bool:
    if node.op_type == "Sum":
        return len(node.input) == 1
    if len(node.output) > 1 and node.output[1] and use_counts(graph)[node.output[1]]:
        return False
    return not _training(node, graph)


def _training(node: NodeProto, graph: GraphProto) -> bool:
    """Whether a Dropout may drop: its third operand is there and not the constant false."""
    if len(node.input) < 3 or not node.input[2]:
        return bool(attributes(node).get("is_test", 1) == 0)
    mode = constants(graph).get(node.input[2])
    return mode is None or any(mode.raw_data) or any(mode.int32_data)


def _make_identity(node: NodeProto) -> None:
    node.op_type = "Identity"
    del node.attribute[:]
    del node.input[1:]
    del node.output[1:]
