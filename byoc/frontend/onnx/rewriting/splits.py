"""Rewrite movement with several results or operands: Split as Slices, scatters as a Gather."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, write_operators
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.runtimes.protobuf import attributes

_ELEMENTS = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8)


@write_operators("Split")
def slice_splits(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Replace a Split by one Slice for each output in use; None if its sizes are unknown.

    In a quantised model, every output must be quantised by its only consumer. A DequantizeLinear
    before it moves down through slices but not through a Split
    (:mod:`byoc.frontend.onnx.rewriting.integers`), which would turn other operators into integer
    ones.
    """
    sizes = _split_sizes(graph, node)
    read = {number: name for number, name in enumerate(node.output) if name and graph.is_read(name)}
    if (
        sizes is None
        or not read
        or not all(graph.types.get(name) in _ELEMENTS for name in read.values())
    ):
        return None
    names = list(read.values())
    if graph.quantises and graph.types[names[0]] == TensorProto.FLOAT:
        alone = [[] if graph.is_shown(name) else list(graph.readers(name)) for name in names]
        if not all(len(readers) == 1 and readers[0].op_type == QUANTIZE for readers in alone):
            return None
    axis = int(attributes(node).get("axis", 0))
    nodes = []
    for number, name in read.items():
        start = sum(sizes[:number])
        ends = {"start": start, "end": start + sizes[number], "axis": axis}
        bounds = [graph.constant(f"{name}_{key}", np.array([n])) for key, n in ends.items()]
        label = f"{node.name}_{number}" if node.name else ""
        nodes.append(helper.make_node("Slice", [node.input[0], *bounds], [name], label))
    return nodes


def _split_sizes(graph: GraphView, node: NodeProto) -> list[int] | None:
    """Return the length of every output of a Split along its axis.

    Returns None if it is only known at run time.
    """
    shape = graph.shapes.get(node.input[0])
    if shape is None:
        return None
    if len(node.input) > 1 and node.input[1]:
        given = graph.constants.get(node.input[1])
        return None if given is None else [int(size) for size in given.reshape(-1)]
    length = shape[int(attributes(node).get("axis", 0))]
    most = -(-length // len(node.output))
    return [max(min(most, length - number * most), 0) for number in range(len(node.output))]


@write_operators("PRelu")
def turn_slopes(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite a PRelu with slopes along one axis as a per-channel PRelu between Transposes.

    The values do not change, so quantised models are rewritten too. Returns None for slopes along
    several axes.
    """
    shape = graph.shapes.get(node.input[0], ())
    slope = graph.shapes.get(node.input[1], ())
    aligned = (*[1] * (len(shape) - len(slope)), *slope)
    along = [axis for axis, size in enumerate(aligned) if size != 1]
    if len(shape) < 2 or len(along) != 1 or along == [1]:
        return None
    perm = list(range(len(shape)))
    perm[1] = along[0]
    perm[along[0]] = 1
    w = NodeWriter(graph, node)
    turned = w.add("Transpose", node.input[0], perm=perm)
    channels = w.constant([-1, *[1] * (len(shape) - 2)], np.int64)
    function = w.add("PRelu", turned, w.add("Reshape", node.input[1], channels), label=node.name)
    w.add("Transpose", function, perm=perm)
    return w.finish()


SCATTERINGS = ("ScatterND", "ScatterElements")


@write_operators(*SCATTERINGS)
def gather_scatters(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite a ScatterND or ScatterElements with constant indices as a Gather.

    The Gather reads the concatenation of data and updates. The scatter stays if several updates
    have the same position, or if updates are combined with the data. In a quantised model the
    gathered tensor has the quantisation of the result, which changes no value. Needs folded
    constants.
    """
    data, indices, updates = node.input
    known = (
        graph.types.get(node.output[0]) in _ELEMENTS
        and data in graph.shapes
        and indices in graph.constants
    )
    if (
        not known
        or attributes(node).get("reduction", b"none") != b"none"
        or not graph.constants[indices].size
    ):
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
    w = NodeWriter(graph, node)
    row = w.constant([-1, math.prod(shape[depth:])], np.int64)
    both = w.add("Concat", w.add("Reshape", data, row), w.add("Reshape", updates, row), axis=0)
    if reader is not None:  # data and updates already have the result's quantisation
        both = w.add(DEQUANTIZE, w.add(QUANTIZE, both, *reader.input[1:]), *reader.input[1:])
    chosen = w.add("Gather", both, w.constant(rows), axis=0)
    w.add("Reshape", chosen, w.constant(shape, np.int64), label=node.name)
    return w.finish()


def _quantisation_behind(graph: GraphView, name: str) -> NodeProto | None:
    """Return the only consumer of ``name`` if it is a QuantizeLinear with one zero point."""
    reader = None if graph.is_shown(name) else graph.only_reader(name)
    if reader is None or reader.op_type != QUANTIZE or len(reader.input) < 3:
        return None
    return (
        reader
        if reader.input[2] in graph.constants and graph.constants[reader.input[2]].size == 1
        else None
    )


def _places(
    node: NodeProto, indices: NDArray[np.int64], shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return the flat index of the row or element that each update of a scatter replaces."""
    if node.op_type == "ScatterND":
        leading = shape[: indices.shape[-1]]
        parts = [
            found.reshape(-1) % size
            for found, size in zip(np.moveaxis(indices, -1, 0), leading, strict=True)
        ]
        return np.asarray(np.ravel_multi_index(parts, leading))
    axis = int(attributes(node).get("axis", 0)) % len(shape)
    parts = [part.reshape(-1) for part in np.indices(indices.shape)]
    parts[axis] = indices.reshape(-1) % shape[axis]
    return np.asarray(np.ravel_multi_index(parts, shape))
