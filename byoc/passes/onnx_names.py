"""Gives every node a name of its own: reports, exclusions and provenance are by name."""

from __future__ import annotations

from onnx import ModelProto

from byoc.passes.onnx_edit import copy_model


def name_nodes(model: ModelProto) -> ModelProto:
    """A copy in which every node has a unique name: its own, or that of its first output where missing or taken."""
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
