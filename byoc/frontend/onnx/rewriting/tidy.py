"""Tidying: nodes that do nothing go, default attributes that trouble others go too,
and every node gets a name."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, defs, helper

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    add_constant,
    attributes,
    copy_model,
    keep_nodes,
    names_of,
    rename_uses,
    shapes_of,
    standard,
    unused,
    use_counts,
)


def remove_identities(model: ModelProto) -> ModelProto:
    """A copy without Identity, Dropout in inference form and Sum: of one operand it is none, of more it is Add nodes.

    A node whose result is a graph output stays (it gives the output its name); the mask of a Dropout that drops nothing
    is constant.
    """
    result = copy_model(model)
    graph = result.graph
    _add_in_turn(graph)
    shapes, uses = shapes_of(graph), use_counts(graph)
    for node in filter(standard, list(graph.node)):
        masked = node.op_type == "Dropout" and len(node.output) > 1 and bool(uses[node.output[1]])
        if not _passes_through(node, graph) or (masked and node.input[0] not in shapes):
            continue
        if masked:
            whole = add_constant(graph, f"{node.output[1]}_whole", np.ones(shapes[node.input[0]], np.bool_))
            graph.node.insert(0, helper.make_node("Identity", [whole], [node.output[1]]))
        _make_identity(node)
    outputs = {output.name for output in graph.output}
    identities = [node for node in graph.node if node.op_type == "Identity" and standard(node)]
    gone = {node.output[0]: node.input[0] for node in identities if node.output[0] not in outputs}
    rename_uses(graph, gone)
    keep_nodes(graph, lambda node: node.output[0] not in gone)
    return result


def _add_in_turn(graph: GraphProto) -> None:
    """Let Add nodes make what Sum nodes of several operands make, in the order in which ONNX Runtime adds them."""
    taken, nodes = names_of(graph), list(graph.node)
    del graph.node[:]
    for node in nodes:
        if not standard(node) or node.op_type != "Sum" or len(node.input) < 2:
            graph.node.append(node)
            continue
        first, *others = node.input
        for number, other in enumerate(others, start=2):
            last = number == len(node.input)
            name, result = node.name, node.output[0]
            if not last:
                name, result = (unused(f"{text}_{number}", taken) for text in (name, result))
            graph.node.append(helper.make_node("Add", [first, other], [result], name))
            first = result


def _passes_through(node: NodeProto, graph: GraphProto) -> bool:
    """Whether a Sum or a Dropout hands on what it gets."""
    return (node.op_type == "Sum" and len(node.input) == 1) or (
        node.op_type == "Dropout" and not _training(node, graph)
    )


def _training(node: NodeProto, graph: GraphProto) -> bool:
    """Whether a Dropout may drop: its third operand is there and not the constant false, its second not 0."""
    if len(node.input) < 3 or not node.input[2]:
        return bool(attributes(node).get("is_test", 1) == 0)
    known = ConstantArrays(graph, lambda tensor: not tensor.dims)
    return all(name not in known or bool(known[name]) for name in (node.input[2], node.input[1]))


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


def drop_unread_outputs(model: ModelProto) -> ModelProto:
    """A copy in which no node has an optional last output that nobody reads, such as where a MaxPool's maxima lie."""
    result = copy_model(model)
    graph = result.graph
    uses = use_counts(graph)
    for node in graph.node:
        while len(node.output) > 1 and not uses[node.output[-1]] and _optional(node, len(node.output) - 1):
            del node.output[-1]
    return result


def _optional(node: NodeProto, index: int) -> bool:
    """Whether a node of the standard operators may go without an output; one in training must have its statistics."""
    if not standard(node) or not defs.has(node.op_type) or attributes(node).get("training_mode"):
        return False
    outputs = defs.get_schema(node.op_type).outputs
    return index < len(outputs) and outputs[index].option == defs.OpSchema.FormalParameterOption.Optional


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
