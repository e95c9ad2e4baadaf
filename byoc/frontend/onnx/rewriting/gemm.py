"""Normalise matrix products to MatMul, or to Gemm with a per-column bias and no other factor."""

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, write_operators
from byoc.operators.onnx_view import DEQUANTIZE
from byoc.runtimes.protobuf import attributes, copy_node, set_attributes


@write_operators("Gemm", "MatMul", "Add")
def canonicalise_gemm(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite float32 layers as ``Gemm(x, weights, bias)`` with constant weights, alpha = beta = 1.

    Gemm: a Transpose before it transposes the data. alpha is multiplied into constant weights, beta
    into the bias, and the bias is broadcast to ``(N,)``. A bias that is computed, has several rows,
    or belongs to computed weights becomes an Add after it.

    MatMul: weights of shape (1, ..., K, N) become a matrix. A MatMul whose only consumer adds a
    constant row becomes one Gemm with it, between two Reshapes if the data has more than two
    dimensions. Products with alpha and beta of 1 keep their exact bits.
    """
    if node.op_type == "MatMul":
        return _flatten_weights(graph, node)
    if node.op_type == "Add":
        product, other = _product_before(graph, node)
        weights = None if product is None else graph.floats.get(product.input[1])
        if (
            product is None
            or weights is None
            or weights.ndim != 2
            or product.input[0] in graph.floats
        ):
            return None
        return _write_biased_gemm(graph, product, node, other, weights.shape[1])
    # Passes before this one create only float32 tensors that have no type yet.
    if graph.types.get(node.input[0], TensorProto.FLOAT) != TensorProto.FLOAT:
        return None
    w = NodeWriter(graph, node)
    made = _normalise_flags(node)
    _fold_factors(w, made)
    _turn(w, made)
    nodes = [*w.nodes, *_separate_bias(w, made)]
    return None if nodes == [node] else nodes


@write_operators("Gemm", "MatMul", "Add")
def join_biases(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Merge a MatMul and an Add of a float bias to its result into a Gemm, in quantised models.

    ONNX Runtime does the same. The bias is one row. Both operands of the MatMul must be
    dequantised, the second from a constant matrix, possibly with leading dimensions of 1. A Gemm
    with transposed data gets a Transpose before it. Its alpha and beta go into a constant bias and
    the scale of the weights.
    """
    if node.op_type == "MatMul":
        return _flatten_integer_weights(graph, node)
    if node.op_type == "Add":
        product, other = _product_before(graph, node)
        head, source = (
            graph.maker(name, DEQUANTIZE) for name in (product.input if product else ("", ""))
        )
        weights = None if head is None or source is None else graph.constants.get(source.input[0])
        if product is None or weights is None or weights.ndim != 2 or not weights.shape[1]:
            return None
        return _write_biased_gemm(graph, product, node, other, weights.shape[1])
    w = NodeWriter(graph, node)
    made = copy_node(node)
    _turn(w, made)
    _scale(w, made)
    nodes = [*w.nodes, made]
    return None if nodes == [node] else nodes


# MatMul and Add.


def _product_before(graph: GraphView, add: NodeProto) -> tuple[NodeProto | None, str]:
    """Return the MatMul whose result an Add alone reads, and the Add's other operand."""
    for name, other in (add.input, reversed(add.input)):
        product = graph.maker(name, "MatMul")
        if product is not None and graph.only_reader(name) is add and not graph.is_shown(name):
            return product, other
    return None, ""


def _write_biased_gemm(
    graph: GraphView, node: NodeProto, add: NodeProto, bias: str, columns: int
) -> list[NodeProto] | None:
    """Replace a MatMul and an Add of a constant row by a Gemm whose data are flattened to rows."""
    data = node.input[0]
    row = graph.floats.get(bias)
    shape = graph.shapes.get(data, ())
    if len(shape) < 2 or row is None or row.ndim > len(shape) or not _is_row(row.shape, columns):
        return None
    w = NodeWriter(graph, add)
    biases = w.constant(np.broadcast_to(row.reshape(-1), (columns,)), part="bias")
    if len(shape) == 2:
        w.add("Gemm", data, node.input[1], biases, label=node.name)
        return w.finish()
    flat = w.add("Reshape", data, w.constant([prod(shape[:-1]), shape[-1]], np.int64))
    product = w.add("Gemm", flat, node.input[1], biases, label=node.name)
    w.add("Reshape", product, w.constant([*shape[:-1], columns], np.int64))
    return w.finish()


def _flatten_weights(graph: GraphView, node: NodeProto) -> list[NodeProto] | None:
    """Rewrite a MatMul with weights (1, ..., K, N) to use (K, N), if the data's rank allows."""
    weights = graph.floats.get(node.input[1])
    if weights is None or not _is_flat(graph, node, weights):
        return None
    made = copy_node(node)
    made.input[1] = graph.constant(f"{node.output[0]}_weight", weights.reshape(weights.shape[-2:]))
    return [made]


def _flatten_integer_weights(graph: GraphView, node: NodeProto) -> list[NodeProto] | None:
    """Rewrite a MatMul with quantised weights (1, ..., K, N) to use (K, N).

    Only the MatMul may read the dequantised weights; see :func:`_flatten_weights`.
    """
    source = graph.maker(node.input[1], DEQUANTIZE)
    weights = None if source is None else graph.constants.get(source.input[0])
    if source is None or weights is None or not _is_flat(graph, node, weights):
        return None
    along = (
        {int(attributes(source).get("axis", 1)) % weights.ndim}
        if graph.shapes.get(source.input[1])
        else set()
    )
    blocked = bool(attributes(source).get("block_size", 0))
    if not graph.alone(source.output[0], node) or along - {weights.ndim - 1} or blocked:
        return None
    w = NodeWriter(graph, node)
    made = copy_node(node)
    flat = w.constant(weights.reshape(weights.shape[-2:]), part="weight")
    made.input[1] = w.add(DEQUANTIZE, flat, *source.input[1:], axis=1)
    return [*w.nodes, made]


def _is_flat(graph: GraphView, node: NodeProto, weights: NDArray[np.generic]) -> bool:
    """Return True if weights have shape (1, ..., K, N) and no more dimensions than the data."""
    return (
        2 < weights.ndim <= len(graph.shapes.get(node.input[0], ()))
        and prod(weights.shape[:-2]) == 1
    )


def _is_row(shape: tuple[int, ...], columns: int) -> bool:
    """Return True if a bias is one number or one per column; a bias per row is different."""
    return all(size == 1 for size in shape[:-1]) and (not shape or shape[-1] in (1, columns))


# Gemm.


def _normalise_flags(node: NodeProto) -> NodeProto:
    """Return a copy of a Gemm whose transposition flags are 0 or 1.

    ONNX Runtime accepts any nonzero number for 1; its quantiser does not.
    """
    made = copy_node(node)
    for item in made.attribute:
        if item.name in ("transA", "transB"):
            item.i = int(bool(item.i))
    return made


def _turn(w: NodeWriter, node: NodeProto) -> None:
    """Replace a Gemm's flag to transpose its data by a Transpose node, in place."""
    if attributes(node).get("transA", 0) and len(w.graph.shapes.get(node.input[0], (0, 0))) == 2:
        node.input[0] = w.add("Transpose", node.input[0], perm=[1, 0])
        set_attributes(node, "transA")


def _fold_factors(w: NodeWriter, node: NodeProto) -> None:
    """Fold alpha and beta of a Gemm into its constant weights and bias, in place.

    The bias becomes a row.
    """
    options = attributes(node)
    weights = w.graph.floats.get(node.input[1])
    if weights is None or weights.ndim != 2:
        return  # computed weights, or not a valid product
    columns = weights.shape[0 if options.get("transB", 0) else 1]
    alpha, beta = (np.float32(options.get(name, 1.0)) for name in ("alpha", "beta"))
    if w.input(2):
        bias = w.graph.floats.get(node.input[2])
        if bias is None or not _is_row(bias.shape, columns):
            return
        if beta != 1 or bias.shape != (columns,):
            node.input[2] = w.constant(
                np.broadcast_to(bias.reshape(-1) * beta, (columns,)), part="bias"
            )
    if alpha != 1:
        node.input[1] = w.constant(weights * alpha, part="weight")
    set_attributes(node, "alpha", "beta")


def _separate_bias(w: NodeWriter, node: NodeProto) -> list[NodeProto]:
    """Return a Gemm, followed by an Add for a bias that is not one constant per column."""
    bias = w.input(2) and node.input[2]
    floats = w.graph.floats
    if not bias or (bias in floats and node.input[1] in floats and floats[bias].ndim == 1):
        return [node]
    beta = np.float32(w.options.get("beta", 1.0)) if "beta" in attributes(node) else np.float32(1)
    node.output[0] = w.tensor("product")
    del node.input[2:]
    set_attributes(node, "beta")
    behind = NodeWriter(w.graph, w.node)
    if beta != 1 and bias in floats:
        bias = behind.constant(floats[bias] * beta, part="bias")
    elif beta != 1:
        bias = behind.add("Mul", bias, behind.constant(beta))
    behind.add("Add", node.output[0], bias)
    return [node, *behind.finish()]


def _scale(w: NodeWriter, node: NodeProto) -> None:
    """Fold alpha and beta of a Gemm into its dequantised constant weights and its bias.

    The bias becomes a row.
    """
    graph = w.graph
    options = attributes(node)
    source = graph.maker(node.input[1], DEQUANTIZE)
    bias = graph.floats.get(w.input(2))
    if source is None or bias is None:
        return
    steps = graph.constants.get(source.input[0])
    scale = graph.constants.get(source.input[1])
    alpha, beta = (np.float32(options.get(name, 1.0)) for name in ("alpha", "beta"))
    columns = (
        0 if steps is None or steps.ndim != 2 else steps.shape[0 if options.get("transB", 0) else 1]
    )
    if not columns or scale is None or not alpha > 0 or not _is_row(bias.shape, columns):
        return
    if beta != 1 or bias.shape != (columns,):
        node.input[2] = w.constant(
            np.broadcast_to(bias.reshape(-1) * beta, (columns,)), part="bias"
        )
    if alpha != 1:
        operands = [source.input[0], w.constant(scale * alpha, part="scale"), *source.input[2:]]
        node.input[1] = w.add(DEQUANTIZE, *operands, **attributes(source))
    set_attributes(node, "alpha", "beta")
