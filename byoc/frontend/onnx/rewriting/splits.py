"""Splits become slices, one an output: an operator of several results is then several operators of one."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.edit import add_constant, attributes, copy_model, set_nodes, shapes_of, standard
from byoc.operators.onnx_view import QUANTIZE

_ELEMENTS = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8)


def slice_splits(model: ModelProto) -> ModelProto:
    """A copy in which a Slice makes each output of a Split of known shapes.

    In a quantised model only where nothing else becomes an integer operator thereby: a DequantizeLinear in front moves
    down through slices, but not through a Split (:mod:`byoc.frontend.onnx.rewriting.integers`).
    """
    result = copy_model(model)
    graph = result.graph
    shapes = shapes_of(graph)
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.input, *graph.output)}
    readers: dict[str, list[str]] = {value.name: [""] for value in graph.output}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.op_type)
    quantised = any(node.op_type == QUANTIZE for node in graph.node)
    nodes: list[NodeProto] = []
    for node in graph.node:
        outputs = [name for name in node.output if name]
        known = node.op_type == "Split" and standard(node) and all(name in shapes for name in outputs)
        known = known and len(outputs) == len(node.output) and all(types.get(name) in _ELEMENTS for name in outputs)
        if known and quantised and types[outputs[0]] == TensorProto.FLOAT:
            known = all(readers.get(name) == [QUANTIZE] for name in outputs)
        if not known:
            nodes.append(node)
            continue
        axis, start = int(attributes(node).get("axis", 0)), 0
        for number, name in enumerate(outputs):
            end = start + shapes[name][axis]
            bounds = [add_constant(graph, f"{name}_{key}", np.array([n])) for key, n in _bounds(start, end, axis)]
            label = f"{node.name}_{number}" if node.name else ""
            nodes.append(helper.make_node("Slice", [node.input[0], *bounds], [name], label))
            start = end
    set_nodes(graph, nodes)
    return result


def _bounds(start: int, end: int, axis: int) -> tuple[tuple[str, int], ...]:
    return ("start", start), ("end", end), ("axis", axis)
