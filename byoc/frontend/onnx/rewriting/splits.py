"""Movement of several results or operands as movement of one: a Split is slices, a scattering a gathering of both."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.law import View, Writer, written
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.protobuf import attributes

_ELEMENTS = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8)


@written("Split")
def slice_splits(graph: View, node: NodeProto) -> Sequence[NodeProto] | None:
    """A Slice for each output of a Split of known shapes.

    In a quantised model only where nothing else becomes an integer operator thereby: a DequantizeLinear in front moves
    down through slices, but not through a Split (:mod:`byoc.frontend.onnx.rewriting.integers`).
    """
    outputs = [name for name in node.output if name]
    known = len(outputs) == len(node.output) and all(name in graph.shapes for name in outputs)
    if not known or not all(graph.types.get(name) in _ELEMENTS for name in outputs):
        return None
    if graph.quantises and graph.types[outputs[0]] == TensorProto.FLOAT:
        alone = [[] if graph.shown(name) else list(graph.readers(name)) for name in outputs]
        if not all(len(readers) == 1 and readers[0].op_type == QUANTIZE for readers in alone):
            return None
    axis, start, nodes = int(attributes(node).get("axis", 0)), 0, []
    for number, name in enumerate(outputs):
        end = start + graph.shapes[name][axis]
        bounds = [graph.constant(f"{name}_{key}", np.array([n])) for key, n in _bounds(start, end, axis)]
        label = f"{node.name}_{number}" if node.name else ""
        nodes.append(helper.make_node("Slice", [node.input[0], *bounds], [name], label))
        start = end
    return nodes


def _bounds(start: int, end: int, axis: int) -> tuple[tuple[str, int], ...]:
    return ("start", start), ("end", end), ("axis", axis)


SCATTERINGS = ("ScatterND", "ScatterElements")


@written(*SCATTERINGS)
def gather_scatters(graph: View, node: NodeProto) -> Sequence[NodeProto] | None:
    """A ScatterND or ScatterElements of known indices as a Gather of rows of its data and its updates.

    Where several updates go to one place, and where they are combined with what is there, it stays. In a quantised
    model what is gathered has the quantisation of the result, which changes none of it. Wants constants folded.
    """
    data, indices, updates = node.input
    known = graph.types.get(node.output[0]) in _ELEMENTS and data in graph.shapes and indices in graph.constants
    if not known or attributes(node).get("reduction", b"none") != b"none" or not graph.constants[indices].size:
        return None
    between = graph.quantises and graph.types[node.output[0]] == TensorProto.FLOAT
    reader = _quantisation_behind(graph, node.output[0]) if between else None
    if between and reader is None:
        return None
    shape = graph.shapes[data]
    depth = graph.constants[indices].shape[-1] if node.op_type == "ScatterND" else len(shape)
    places = _places(node, graph.constants[indices], shape)
    if len(np.unique(places)) < len(places):
        return None
    rows = np.arange(math.prod(shape[:depth]))
    rows[places] = len(rows) + np.arange(len(places))
    w = Writer(graph, node)
    row = w.constant([-1, math.prod(shape[depth:])], np.int64)
    both = w.add("Concat", w.add("Reshape", data, row), w.add("Reshape", updates, row), axis=0)
    if reader is not None:  # they already have its quantisation
        both = w.add(DEQUANTIZE, w.add(QUANTIZE, both, *reader.input[1:]), *reader.input[1:])
    chosen = w.add("Gather", both, w.constant(rows), axis=0)
    w.add("Reshape", chosen, w.constant(shape, np.int64), label=node.name)
    return w.finished()


def _quantisation_behind(graph: View, name: str) -> NodeProto | None:
    """The QuantizeLinear of one zero point that is all that reads ``name``."""
    reader = None if graph.shown(name) else graph.only_reader(name)
    if reader is None or reader.op_type != QUANTIZE or len(reader.input) < 3:
        return None
    return reader if reader.input[2] in graph.constants and graph.constants[reader.input[2]].size == 1 else None


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
