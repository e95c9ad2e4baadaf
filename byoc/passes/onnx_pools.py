"""Takes ``dilations`` of 1 off AveragePool: ONNX Runtime's integer operator does not know the attribute."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from byoc.passes.onnx_edit import attributes, copy_model


def dilated(node: NodeProto) -> bool:
    """Whether a pool or convolution has a dilation other than 1."""
    return any(step != 1 for step in attributes(node).get("dilations", ()))


def drop_unit_dilations(model: ModelProto) -> ModelProto:
    """A copy in which no AveragePool spells out dilations of 1, which are the default."""
    result = copy_model(model)
    for node in result.graph.node:
        if node.op_type == "AveragePool" and not dilated(node):
            kept = [attribute for attribute in node.attribute if attribute.name != "dilations"]
            del node.attribute[:]
            node.attribute.extend(kept)
    return result
