"""Cut a long model into pieces, because ONNX Runtime's time to create a session is not linear."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple

from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from byoc.operators.onnx_view import DEQUANTIZE, MATRIX_PRODUCTS, QUANTIZE, UNFUSED
from byoc.runtimes.protobuf import (
    byte_size,
    copy_fields,
    is_sharable,
    types_of,
    use_counts_of,
)
from byoc.runtimes.session import Feeds

Run = Callable[[Feeds], dict[str, NDArray[Any]]]

NODES_PER_PIECE = 250
"""Least number of nodes of a piece."""
MIN_NODES = 2000
"""Least number of nodes of a model that is cut."""
BYTES_PER_PIECE = 1 << 27
"""Least size in bytes of the large constants of a piece of a model that is cut by size."""
KEPT_RUNS = 4
"""Number of runs after which the sessions of such pieces stay open."""
_STORED = (TensorProto.INT8, TensorProto.UINT8)


class _ModelPiece(NamedTuple):
    """Indices of a piece's nodes, and the names of the tensors that it reads and computes."""

    nodes: list[int]
    inputs: list[str]
    outputs: list[str]


def run_in_pieces(
    model: ModelProto,
    shown: Collection[str],
    passed: Collection[str],
    make_run: Callable[[ModelProto], Run],
    by_size: bool = False,
) -> Run:
    """Return a function from a model's inputs to its outputs and the tensors ``shown``, by name.

    ``make_run`` returns such a function for a piece of :func:`cut_model`. If the model is cut, the
    inputs and the results that only other pieces read are returned too. A model that is cut for the
    size of its constants has one piece open at a time in its first runs, because sessions of ONNX
    Runtime copy the weights of products.
    """
    pieces = list(cut_model(model, shown, passed, by_size))
    inputs = [{value.name for value in piece.graph.input} for piece in pieces]
    late = by_size and len(pieces) > 1 and len(model.graph.node) < MIN_NODES
    opened = [_keep_late(piece, make_run) if late else make_run(piece) for piece in pieces]

    def run(feed: Feeds) -> dict[str, NDArray[Any]]:
        known = dict(feed)
        for names, run_piece in zip(inputs, opened, strict=True):
            known |= run_piece({name: known[name] for name in names & known.keys()})
        return known

    return run if len(pieces) > 1 else opened[0]


def _keep_late(piece: ModelProto, make_run: Callable[[ModelProto], Run]) -> Run:
    """Return a function that opens a piece at each of its first KEPT_RUNS runs, then once."""
    numbers = count()
    keep = cache(lambda: make_run(piece))
    return lambda feed: (keep() if next(numbers) >= KEPT_RUNS else make_run(piece))(feed)


def cut_model(
    model: ModelProto, shown: Collection[str], passed: Collection[str], by_size: bool = False
) -> Iterator[ModelProto]:
    """Yield consecutive pieces of a model; a model that is short or cannot be cut is the only one.

    With ``by_size``, a model of few nodes with large constants is cut after products, where more
    than BYTES_PER_PIECE of them were read. A model is cut only where every computed tensor that is
    needed later is in ``passed``. The outputs of a piece are these tensors, and the tensors in
    ``shown`` and outputs of the model that the piece computes. Its inputs are the inputs of the
    model and results of earlier pieces. Nodes that depend on constants alone are repeated in every
    piece that reads their results.
    """
    ends = {*shown, *(value.name for value in model.graph.output)}
    pieces = _plan(model, ends, passed, by_size)
    if len(pieces) < 2:
        yield model
        return
    graph = model.graph
    values = {
        name: helper.make_tensor_value_info(name, kind, None)
        for name, kind in _element_types(graph).items()
        if kind
    }
    values |= {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for piece in pieces:
        yield _build(model, piece, values, constants)


def find_unfused(graph: GraphProto) -> set[str]:
    """Return the names of tensors whose producer and consumers ONNX Runtime does not fuse.

    These are the 8-bit tensors, because quantised groups end there, and the tensors that only
    QuantizeLinear, DequantizeLinear and ``UNFUSED`` operators outside of groups compute and read.
    """
    producers = {name: node for node in graph.node for name in node.output}
    consumers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in use_counts_of(node):
            consumers.setdefault(name, []).append(node)

    def is_alone(node: NodeProto) -> bool:
        """Return True if an operator is in no group and ONNX Runtime does not fuse it."""
        users = {user.op_type for user in consumers.get(node.output[0], ())}
        if node.op_type not in UNFUSED or not users <= {*UNFUSED, QUANTIZE}:
            return False
        makers = (producers.get(name) for name in node.input)
        return QUANTIZE not in users or any(
            maker is None or maker.op_type != DEQUANTIZE for maker in makers
        )

    found = {name for name, kind in _element_types(graph).items() if kind in _STORED}
    for name, maker in producers.items():
        alone = is_alone(maker)
        if (alone or maker.op_type == DEQUANTIZE) and all(
            is_alone(user) or (alone and user.op_type == QUANTIZE)
            for user in consumers.get(name, ())
        ):
            found.add(name)
    return found


def _build(
    model: ModelProto,
    piece: _ModelPiece,
    values: Mapping[str, ValueInfoProto],
    constants: Mapping[str, TensorProto],
) -> ModelProto:
    """Return a piece as a model of its own, with the constants that it reads."""
    result = ModelProto()
    copy_fields(model, result, "graph")
    graph = result.graph
    copy_fields(model.graph, graph, "node", "input", "output", "value_info", "initializer")
    graph.node.extend(model.graph.node[index] for index in piece.nodes)
    graph.input.extend(values[name] for name in piece.inputs)
    graph.output.extend(values[name] for name in piece.outputs)
    inner = (name for node in graph.node for name in node.output if name in values)
    outputs = {*piece.outputs}
    graph.value_info.extend(values[name] for name in inner if name not in outputs)
    read = dict.fromkeys(name for node in graph.node for name in use_counts_of(node))
    graph.initializer.extend(constants[name] for name in read if name in constants)
    return result


def _plan(
    model: ModelProto, shown: Collection[str], passed: Collection[str], by_size: bool
) -> list[_ModelPiece]:
    """Return the pieces of a model; none if it is not cut."""
    nodes = model.graph.node
    large = filter(is_sharable, model.graph.initializer if by_size else ())
    sizes = {tensor.name: byte_size(tensor) for tensor in large}
    if len(nodes) < MIN_NODES and sum(sizes.values()) <= 2 * BYTES_PER_PIECE:
        return []
    reads = [set(use_counts_of(node)) for node in nodes]
    constant = _find_constant_nodes(nodes, reads, {one.name for one in model.graph.initializer})
    order = [index for index in range(len(nodes)) if index not in constant]
    made = {name for index in order for name in nodes[index].output if name}
    if not made.issuperset(shown):
        return []
    makers = {name: index for index in constant for name in nodes[index].output}
    known = {value.name for value in model.graph.input}
    pieces: list[_ModelPiece] = []
    for part, needed in _parts(model, order, reads, passed, sizes):
        taken = _add_makers(part, reads, makers)
        own = {name for index in part for name in nodes[index].output}
        inputs = {name for index in taken for name in reads[index]} & known
        pieces.append(_ModelPiece(taken, sorted(inputs), sorted(own & {*shown, *needed} - {""})))
        known |= own
    return pieces


def _parts(
    model: ModelProto,
    order: Sequence[int],
    reads: Sequence[set[str]],
    passed: Collection[str],
    sizes: Mapping[str, int],
) -> Iterator[tuple[list[int], set[str]]]:
    """Yield the nodes of each piece and the computed tensors that later nodes read."""
    nodes, known = model.graph.node, _element_types(model.graph)
    uses = Counter(name for index in order for name in reads[index])
    needed: set[str] = set()
    barred: set[str] = set()
    part: list[int] = []

    def is_full(part: Sequence[int]) -> bool:
        if len(nodes) >= MIN_NODES:
            return len(part) >= NODES_PER_PIECE
        held = sum(sizes.get(name, 0) for index in part for name in reads[index])
        return held > BYTES_PER_PIECE and nodes[part[-1]].op_type in MATRIX_PRODUCTS

    for index in order:
        part.append(index)
        uses.subtract(reads[index])
        new = {name for name in nodes[index].output if uses[name]}
        needed |= new
        barred |= {name for name in new if name not in passed or not known.get(name)}
        for name in reads[index]:
            if not uses[name]:
                needed.discard(name)
                barred.discard(name)
        if is_full(part) and not barred:
            yield part, set(needed)
            part = []
    if part:
        yield part, set()


def _element_types(graph: GraphProto) -> dict[str, int]:
    """Return the declared element types, by name, and those that scales and zero points imply."""
    types = types_of(graph)
    for node in graph.node:
        place = {QUANTIZE: 2, DEQUANTIZE: 1}.get(node.op_type, len(node.input))
        if node.input[place : place + 1]:
            types.setdefault(node.output[0], types.get(node.input[place], 0))
    return types


def _add_makers(
    part: Sequence[int], reads: Sequence[set[str]], makers: Mapping[str, int]
) -> list[int]:
    """Return the nodes of ``part`` and the nodes in ``makers`` whose results they read, sorted."""
    found = set(part)
    waiting = list(part)
    while waiting:
        new = {makers[name] for name in reads[waiting.pop()] if name in makers} - found
        found |= new
        waiting += new
    return sorted(found)


def _find_constant_nodes(
    nodes: Sequence[NodeProto], reads: Sequence[set[str]], known: set[str]
) -> set[int]:
    """Return the nodes that depend only on ``known`` tensors, and add their results to these."""
    found = set()
    for index, node in enumerate(nodes):
        if reads[index] and known.issuperset(reads[index]):
            found.add(index)
            known.update(node.output)
    return found
