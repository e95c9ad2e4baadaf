"""Iterate over the nodes, bodies and tensors of an ONNX model, including nested ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
)


def list_nested_graphs(nodes: Iterable[NodeProto]) -> Iterator[tuple[NodeProto, GraphProto]]:
    """Yield the bodies of control-flow nodes, without the bodies nested in them."""
    for node in nodes:
        for attribute in node.attribute:
            bodies = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
            yield from ((node, body) for body in bodies)


def list_stored_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every constant of a model: of graphs, bodies, functions and attributes."""
    yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)


def _tensors_of_graph(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t
    for _, body in list_nested_graphs(nodes):
        yield from _tensors_of_graph(body)


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    return list_nested_nodes(graph.node)


def list_nested_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield ``nodes`` and all nodes inside their If, Loop and Scan bodies."""
    yield from nodes
    for _, body in list_nested_graphs(nodes):
        yield from list_nested_nodes(body.node)


def node_label(node: NodeProto) -> str:
    return node.name or f"{node.op_type}:{next(iter(node.output), '')}"
