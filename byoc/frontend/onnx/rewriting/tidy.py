"""Tidying: nodes that do nothing go, default attributes that trouble others too, and every node gets a name."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto, helper

from byoc.frontend.onnx.rewriting.edit import (
    attributes,
    constants,
    copy_model,
    keep_nodes,
    rename_uses,
    standard,
    unused,
    use_counts,
)


def remove_identities(model: ModelProto) -> ModelProto:
    """A copy without Identity, Dropout in inference form and Sum of one operand; Sum of two becomes Add.

    A node whose result is a graph output stays (it gives the output its name), as does a Dropout whose mask is used.
    Sums of three and more stay.
    """
    result = copy_model(model)
    graph = result.graph
    for node in filter(standard, graph.node):
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
        if node.op_type in ("Sum", "Dropout") and _passes_through(node, graph):
            _make_identity(node)
    outputs = {output.name for output in graph.output}
    identities = [node for node in graph.node if node.op_type == "Identity" and standard(node)]
    gone = {node.output[0]: node.input[0] for node in identities if node.output[0] not in outputs}
    rename_uses(graph, gone)
    keep_nodes(graph, lambda node: node.output[0] not in gone)
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


def drop_unit_dilations(model: ModelProto) -> ModelProto:
    """A copy in which no AveragePool spells out dilations of 1, which are the default.

    ONNX Runtime's integer operator does not know the attribute.
    """
    result = copy_model(model)
    for node in result.graph.node:
        if node.op_type == "AveragePool" and standard(node) and set(attributes(node).get("dilations", ())) <= {1}:
            kept = [attribute for attribute in node.attribute if attribute.name != "dilations"]
            del node.attribute[:]
            node.attribute.extend(kept)
    return result


def separate_outputs(model: ModelProto) -> ModelProto:
    """A copy in which no output is an input too: an Identity stands between, under another name for the output.

    Quantisers and session makers take such a model for a circle. The output's place tells what it was.
    """
    inputs = {value.name for value in model.graph.input}
    if inputs.isdisjoint(value.name for value in model.graph.output):
        return model
    result = copy_model(model)
    taken = inputs | {name for node in result.graph.node for name in (*node.input, *node.output)}
    for output in result.graph.output:
        if output.name in inputs:
            source, output.name = output.name, unused(f"{output.name}_output", taken)
            result.graph.node.append(helper.make_node("Identity", [source], [output.name], output.name))
    return result


def name_nodes(model: ModelProto) -> ModelProto:
    """A copy in which every node has a unique name: its own, or that of its first output where missing or taken.

    Reports, exclusions and provenance are by name.
    """
    result = copy_model(model)
    taken: set[str] = set()
    for node in result.graph.node:
        name = node.name
        if not name or name in taken:
            name = next((output for output in node.output if output), node.op_type)
        base, count = name, 1
        while name in taken:
            name, count = f"{base}_{count}", count + 1
        node.name = name
        taken.add(name)
    return result
