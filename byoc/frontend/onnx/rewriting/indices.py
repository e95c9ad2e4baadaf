"""Write run-time indices as products and comparisons, which the accelerator computes.

A matrix of one-hot rows times a table selects rows of the table. Its transpose adds rows to the
positions that indices name. The CPU makes the matrix from an identity matrix; it moves only bytes.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
from onnx import NodeProto, TensorProto

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, write_operators
from byoc.runtimes.protobuf import attributes

MOST_SELECTED = 64
"""Largest table of which a product selects rows.

Cycles of a graph network with products, relative to a look-up on the CPU, by the end-to-end
estimate: on the array {4, 16} 0.83 with 32 rows, 0.95 with 48, 1.06 with 64 and 1.40 with 128; on
{16, 16} 0.67 with 64. The import does not know the machine, so 64 is a compromise.
"""
MOST_ADDED = 320
"""Largest number of rows to which a product adds.

As above, on {4, 16}: 0.50 of the cycles with 64 rows, 0.72 with 200, 0.89 with 300, 1.03 with 384.
"""
MOST_SUMMED = 256
"""Largest dimension along which a product accumulates."""
MOST_RANKS = 4
"""Largest number of maxima that are searched one after another."""
_SPREADERS = ("Expand", "Tile")
_VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


@write_operators("Gather", "GatherElements", "ScatterElements", "ScatterND")
def multiply_by_indices(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Write a Gather of few rows and a scatter that adds rows as products.

    Indices of a Gather are known at run time only. The result of a Gather is exact, because the
    matrix has one 1 in each row.
    """
    shape = graph.shapes.get(node.input[0])
    if not shape or graph.types.get(node.output[0]) != TensorProto.FLOAT or not prod(shape):
        return None
    if node.op_type.startswith("Gather"):
        return _select_rows(graph, node, shape)
    return _add_rows(graph, node, shape)


def _select_rows(
    graph: GraphView, node: NodeProto, shape: tuple[int, ...]
) -> Sequence[NodeProto] | None:
    """Write a selection of rows as a product, or a GatherElements of whole rows as a Gather."""
    axis = int(attributes(node).get("axis", 0)) % len(shape)
    table, indices = node.input
    chosen = graph.shapes.get(indices, ())
    whole = node.op_type == "GatherElements"
    if whole:
        result = (*shape[:axis], *chosen[axis : axis + 1], *shape[axis + 1 :])
        spread = None if chosen != result else _find_spread(graph, indices, axis)
        if spread is None:
            return None
        indices, chosen = spread, chosen[axis : axis + 1]
    if table in graph.constants or indices in graph.constants or indices not in graph.shapes:
        return None
    rows = shape[axis]
    if prod(shape[:axis]) > 1 or rows < 2 or not prod(chosen):
        return None
    w = NodeWriter(graph, node)
    result = (*shape[:axis], *chosen, *shape[axis + 1 :])
    if rows <= MOST_SELECTED:
        hot = _add_hot_rows(w, graph, rows, indices)
        sizes = [rows, prod(shape[axis + 1 :])]
        matrix = w.add("Reshape", table, w.constant(sizes, np.int64))
        found = w.add("MatMul", hot, matrix, label=node.name)
    elif whole:
        found = w.add("Gather", table, _find_viewed(graph, indices), axis=axis, label=node.name)
    else:
        return None
    w.add("Reshape", found, w.constant(result, np.int64))
    return w.finish()


def _find_viewed(graph: GraphView, indices: str) -> str:
    """Return the tensor with the same indices in order, before changes of its shape.

    The CPU then selects at once; a change of the selection's shape is free on the accelerator.
    """
    while (maker := graph.maker(indices, *_VIEWS)) is not None and maker.input[0] in graph.shapes:
        indices = maker.input[0]
    return indices


def _add_hot_rows(w: NodeWriter, graph: GraphView, size: int, indices: str) -> str:
    """Write a matrix with a one-hot row of ``size`` for each index; return its name.

    The CPU looks up all rows of a matrix of indices at once, such as sources and targets of edges.
    """
    indices = _find_viewed(graph, indices)
    maker = graph.maker(indices, "Gather")
    if maker is not None and _is_read_by_rows(graph, maker):
        hot = w.add("Gather", _identity(graph, size), maker.input[0], axis=0)
        hot = w.add("Gather", hot, maker.input[1], axis=0)
    else:
        hot = w.add("Gather", _identity(graph, size), indices, axis=0)
    return w.add("Reshape", hot, w.constant([-1, size], np.int64))


def _is_read_by_rows(graph: GraphView, row: NodeProto) -> bool:
    """Return True if Gathers of constant rows, as ``row`` is one, read all of a matrix.

    The result is also True if the matrix is looked up already.
    """
    matrix = row.input[0]
    rows = graph.shapes.get(matrix, (0,))[0]
    read = set[int]()
    for node in graph.readers(matrix):
        places = graph.constants.get(node.input[1]) if node.op_type == "Gather" else None
        if node.op_type == "Gather" and node.input[1] == matrix:
            return True
        if places is None or attributes(node).get("axis", 0):
            return False
        read.update(int(place) % rows for place in places.flat)
    return 0 < len(read) == rows


def _find_spread(graph: GraphView, indices: str, axis: int) -> str | None:
    """Return the tensor whose elements, one for each row, fill the rows of ``indices``."""
    maker = graph.maker(indices, *_SPREADERS)
    source = () if maker is None else graph.shapes.get(maker.input[0], ())
    shape = graph.shapes[indices]
    along = tuple(size if place == axis else 1 for place, size in enumerate(shape))
    return maker.input[0] if maker is not None and source == along else None


def _add_rows(
    graph: GraphView, node: NodeProto, shape: tuple[int, ...]
) -> Sequence[NodeProto] | None:
    data, _, updates = node.input
    added = graph.shapes.get(updates)
    if attributes(node).get("reduction", b"none") != b"add" or added is None or not prod(added):
        return None
    if added[1:] != shape[1:] or len(shape) < 2 or shape[0] > MOST_ADDED:
        return None
    rows = _find_rows(graph, node, added)
    if rows is None:
        return None
    w = NodeWriter(graph, node)
    width = prod(shape[1:])
    if rows in graph.constants:
        eye = np.eye(shape[0], dtype=np.float32)
        hot = w.constant(eye[:, graph.constants[rows].reshape(-1)])
    else:
        if shape[0] > MOST_SELECTED:
            flat = w.add("Reshape", rows, w.constant([-1], np.int64))
            hot = w.add("Gather", _identity(graph, shape[0]), flat, axis=1)
        else:  # shared with selections by the same indices
            hot = w.add("Transpose", _add_hot_rows(w, graph, shape[0], rows))
    matrix = w.add("Reshape", updates, w.constant([added[0], width], np.int64))
    product = w.add("MatMul", hot, matrix, label=node.name)
    total = w.add("Reshape", product, w.constant(shape, np.int64))
    if data not in graph.constants or graph.constants[data].any():
        w.add("Add", total, data)
    return w.finish()


def _identity(graph: GraphView, size: int) -> str:
    """Return the name of an identity matrix; equal selections then become one."""
    name = f"identity_{size}"
    eye = np.eye(size, dtype=np.float32)
    known = graph.constants.get(name)
    return name if known is not None and np.array_equal(known, eye) else graph.constant(name, eye)


def _find_rows(graph: GraphView, node: NodeProto, added: tuple[int, ...]) -> str | None:
    """Return the tensor with the row to which a scatter adds each row of its updates."""
    indices = node.input[1]
    shape = graph.shapes.get(indices, ())
    if node.op_type == "ScatterND":
        return indices if shape == (added[0], 1) else None
    if attributes(node).get("axis", 0) % len(added) or shape != added:
        return None
    array = graph.constants.get(indices)
    if array is not None:
        rows = array.reshape(len(array), -1)
        same = bool((rows == rows[:, :1]).all())
        return graph.constant(f"{indices}_rows", rows[:, 0]) if same else None
    return _find_spread(graph, indices, 0)


@write_operators("CumSum")
def multiply_by_triangle(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Write a CumSum along a short last dimension as a product with a triangle of ones."""
    shape = graph.shapes.get(node.input[0])
    if not shape or graph.types.get(node.output[0]) != TensorProto.FLOAT or not prod(shape):
        return None
    axis = graph.constants.get(node.input[1])
    last = axis is not None and int(axis.reshape(-1)[0]) % len(shape) == len(shape) - 1
    if not last or node.input[0] in graph.constants or shape[-1] > MOST_SUMMED:
        return None
    w = NodeWriter(graph, node)
    ones = np.triu(np.ones((shape[-1], shape[-1]), np.float32), int(w.options.get("exclusive", 0)))
    w.add("MatMul", node.input[0], w.constant(ones.T if w.options.get("reverse", 0) else ones))
    return w.finish()


@write_operators("TopK")
def search_in_turn(graph: GraphView, node: NodeProto) -> None:
    """Write a TopK of at most :data:`MOST_RANKS` numbers as maxima and comparisons.

    Applies if its indices are only used to scatter along the same dimension, as the gates of a
    mixture of experts are. Equal numbers keep their order: the first of them is taken first.
    """
    shape = graph.shapes.get(node.input[0], ())
    count = graph.constants.get(node.input[1])
    options = attributes(node)
    values, indices = node.output
    if count is None or not shape or not 1 < shape[-1] <= MOST_SELECTED or not prod(shape):
        return
    ranks = int(count.reshape(-1)[0])
    ordered = options.get("largest", 1) and options.get("sorted", 1)
    last = int(options.get("axis", -1)) % len(shape) == len(shape) - 1
    readers = list(graph.readers(indices))
    able = all(_is_scatter_along_last(graph, reader, indices, shape) for reader in readers)
    if not (0 < ranks <= min(MOST_RANKS, shape[-1]) and ordered and last and able):
        return
    if graph.is_shown(indices) or graph.types.get(values) != TensorProto.FLOAT:
        return
    w = NodeWriter(graph, node)
    masks, maxima = _search(w, node.input[0], shape[-1], ranks)
    if ranks == 1:
        w.add("Identity", maxima[0], label=node.name)
    else:
        w.add("Concat", *maxima, axis=len(shape) - 1, label=node.name)
    nodes = w.finish()
    scatterings = [(reader, _write_scatter(graph, reader, masks)) for reader in readers]
    for reader, written in scatterings:
        graph.replace(reader, written)
    for name in masks:
        graph.shapes[name] = shape
    graph.replace(node, nodes)


def _is_scatter_along_last(
    graph: GraphView, node: NodeProto, indices: str, shape: tuple[int, ...]
) -> bool:
    """Return True if a node scatters to a tensor of ``shape`` along its last dimension."""
    options = attributes(node)
    return (
        node.op_type == "ScatterElements"
        and node.input[1] == indices
        and list(node.input).count(indices) == 1
        and options.get("reduction", b"none") == b"none"
        and options.get("axis", 0) in (-1, len(shape) - 1)
        and graph.shapes.get(node.input[0]) == shape
        and graph.shapes.get(node.input[2]) == graph.shapes.get(indices)
        and graph.types.get(node.output[0]) == TensorProto.FLOAT
    )


def _search(w: NodeWriter, x: str, size: int, ranks: int) -> tuple[list[str], list[str]]:
    """Write the search of the largest numbers of each row, one after another.

    Returns a mask of the number's position and the number, for each rank. Numbers that were found
    are replaced by the row's minimum, and are no longer candidates.
    """
    axes = w.constant([-1], np.int64)
    order = w.constant(np.arange(size, 0, -1), np.float32)
    zero = w.constant(0, np.float32)
    masks = list[str]()
    maxima = list[str]()
    left, taken = x, ""
    for rank in range(ranks):
        most = w.add("ReduceMax", left, axes, keepdims=1)
        candidates = w.add("Equal", left, most)
        if taken:
            candidates = w.add("And", candidates, w.add("Not", taken))
        keys = w.add("Where", candidates, order, zero)
        found = w.add("Equal", keys, w.add("ReduceMax", keys, axes, keepdims=1))
        masks.append(found)
        maxima.append(most)
        taken = w.add("Or", taken, found) if taken else found
        if rank < ranks - 1:
            left = w.add("Where", taken, w.add("ReduceMin", x, axes, keepdims=1), x)
    return masks, maxima


def _write_scatter(graph: GraphView, node: NodeProto, masks: Sequence[str]) -> list[NodeProto]:
    """Return the nodes that select updates by masks in place of a ScatterElements."""
    w = NodeWriter(graph, node)
    result = node.input[0]
    for rank, mask in enumerate(masks):
        starts, ends = w.constant([rank], np.int64), w.constant([rank + 1], np.int64)
        update = w.add("Slice", node.input[2], starts, ends, w.constant([-1], np.int64))
        result = w.add("Where", mask, update, result)
    return w.finish()
