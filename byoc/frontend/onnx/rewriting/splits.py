"""Movement of several results or operands as movement of one: a Split is slices, a scattering a gathering of both."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    add_constant,
    attributes,
    copy_model,
    is_float32,
    names_of,
    rewrite_nodes,
    set_nodes,
    shapes_of,
    standard,
    types_of,
    unused,
)
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE

_ELEMENTS = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8)


def slice_splits(model: ModelProto) -> ModelProto:
    """A copy in which a Slice makes each output of a Split of known shapes.

    In a quantised model only where nothing else becomes an integer operator thereby: a DequantizeLinear in front moves
    down through slices, but not through a Split (:mod:`byoc.frontend.onnx.rewriting.integers`).
    """
    result = copy_model(model)
    graph = result.graph
    shapes = shapes_of(graph)
    types = types_of(graph)
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


SCATTERINGS = ("ScatterND", "ScatterElements")


def gather_scatters(model: ModelProto) -> ModelProto:
    """A copy in which a ScatterND or ScatterElements of known indices is a Gather of rows of its data and its updates.

    Where several updates go to one place, and where they are combined with what is there, it stays. In a quantised
    model what is gathered has the quantisation of the result, which changes none of it. Wants shapes inferred and
    constants folded.
    """
    result = copy_model(model)
    graph = result.graph
    shapes, integers = shapes_of(graph), ConstantArrays(graph, lambda tensor: not is_float32(tensor))
    types, quantised = types_of(graph), any(node.op_type == QUANTIZE for node in graph.node)
    taken = names_of(graph)

    def gathered(node: NodeProto) -> list[NodeProto] | None:
        known = node.op_type in SCATTERINGS and standard(node) and types.get(node.output[0]) in _ELEMENTS
        known = known and node.input[0] in shapes and node.input[1] in integers
        if not known or attributes(node).get("reduction", b"none") != b"none" or not integers[node.input[1]].size:
            return None
        between = quantised and types[node.output[0]] == TensorProto.FLOAT
        reader = _quantisation_behind(graph, node.output[0], integers) if between else None
        if between and reader is None:
            return None
        shape = shapes[node.input[0]]
        depth = integers[node.input[1]].shape[-1] if node.op_type == "ScatterND" else len(shape)
        places = _places(node, integers[node.input[1]], shape)
        if len(np.unique(places)) < len(places):
            return None
        rows = np.arange(math.prod(shape[:depth]))
        rows[places] = len(rows) + np.arange(len(places))
        return _gathering(graph, node, rows, math.prod(shape[depth:]), shape, reader, taken)

    rewrite_nodes(graph, gathered)
    return result


def _quantisation_behind(graph: GraphProto, name: str, integers: ConstantArrays) -> NodeProto | None:
    """The QuantizeLinear of one zero point that is all that reads ``name``."""
    users = [node for node in graph.node if name in node.input]
    shown = any(value.name == name for value in graph.output)
    if shown or [user.op_type for user in users] != [QUANTIZE] or len(users[0].input) < 3:
        return None
    return users[0] if users[0].input[2] in integers and integers[users[0].input[2]].size == 1 else None


def _gathering(
    graph: GraphProto,
    node: NodeProto,
    rows: NDArray[np.int64],
    size: int,
    shape: tuple[int, ...],
    reader: NodeProto | None,
    taken: set[str],
) -> list[NodeProto]:
    """``rows`` of ``size`` elements of data and updates, one behind the other, in place of a scattering.

    Where a QuantizeLinear is its ``reader``, they already have its quantisation, and the result another name.
    """
    name = node.output[0]
    row = add_constant(graph, f"{name}_row", np.array([-1, size], np.int64))
    index = add_constant(graph, f"{name}_index", rows)
    whole = add_constant(graph, f"{name}_shape", np.array(shape, np.int64))
    parts = "data", "updates", "both", "stored", "chosen", "joined", "gathered"
    data, updates, both, stored, chosen, *quantised = (unused(f"{name}_{part}", taken) for part in parts)
    joined, result, pair = both, name, list[NodeProto]()
    if reader is not None:
        joined, result = quantised
        pair = [
            helper.make_node(QUANTIZE, [joined, *reader.input[1:]], [stored], stored),
            helper.make_node(DEQUANTIZE, [stored, *reader.input[1:]], [both], both),
        ]
        reader.input[0] = result
    return [
        helper.make_node("Reshape", [node.input[0], row], [data], data),
        helper.make_node("Reshape", [node.input[2], row], [updates], updates),
        helper.make_node("Concat", [data, updates], [joined], joined, axis=0),
        *pair,
        helper.make_node("Gather", [both, index], [chosen], chosen, axis=0),
        helper.make_node("Reshape", [chosen, whole], [result], node.name),
    ]


def _places(node: NodeProto, indices: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Where each update goes: its row, of the leading dimensions that the indices count, or its element."""
    if node.op_type == "ScatterND":
        leading = shape[: indices.shape[-1]]
        parts = [found.reshape(-1) % size for found, size in zip(np.moveaxis(indices, -1, 0), leading, strict=True)]
        return np.asarray(np.ravel_multi_index(parts, leading))
    axis = int(attributes(node).get("axis", 0)) % len(shape)
    parts = [part.reshape(-1) for part in np.indices(indices.shape)]
    parts[axis] = indices.reshape(-1) % shape[axis]
    return np.asarray(np.ravel_multi_index(parts, shape))
