"""Brings matrix products to one form: MatMul, or Gemm with a bias a column and nothing else to do at run time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

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
    remove_dead_code,
    set_nodes,
    shapes_of,
    standard,
    types_of,
    unused,
    use_counts,
)
from byoc.frontend.onnx.rewriting.law import looking_at

Shapes = dict[str, tuple[int, ...]]


@looking_at("Gemm", "MatMul")
def canonicalise_gemm(model: ModelProto) -> ModelProto:
    """A copy in which float32 layers with constant weights read ``Gemm(x, weights, bias)`` with alpha = beta = 1.

    Gemm: data is transposed by a Transpose before it; alpha is multiplied into constant weights, beta into the bias,
    and the bias is broadcast to ``(N,)``; one that is computed, has several rows, or belongs to computed weights is an
    Add behind it. MatMul: weights of shape (1, ..., K, N) become a matrix; with an Add of a constant row behind it that
    alone reads it, it becomes one Gemm, between two Reshapes where the data has more dimensions than two. Products
    with alpha and beta of 1 are untouched to the bit.
    """
    result = copy_model(model)
    graph = result.graph
    arrays = ConstantArrays(graph, is_float32)
    shapes, uses = shapes_of(graph), use_counts(graph)
    readers = {name: node for node in graph.node for name in node.input}
    absorbed: set[str] = set()
    types, taken = types_of(graph), names_of(graph)
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.output and node.output[0] in absorbed:
            continue
        # Passes before this one make only float32 tensors that have no type yet.
        if (
            node.op_type == "Gemm"
            and standard(node)
            and types.get(node.input[0], TensorProto.FLOAT) == TensorProto.FLOAT
        ):
            _plain_flags(node)
            _fold_factors(node, graph, arrays, shapes)
            nodes += _plain_gemm(node, graph, arrays, shapes, taken)
            continue
        if node.op_type == "MatMul" and standard(node):
            _flatten_weights(node, graph, arrays, shapes)
        following = readers.get(node.output[0]) if node.output and uses[node.output[0]] == 1 else None
        if following is None or not _is_biased_product(node, following, arrays, shapes):
            nodes.append(node)
            continue
        absorbed.add(following.output[0])
        bias = next(name for name in following.input if name != node.output[0])
        columns = arrays[node.input[1]].shape[1]
        row = add_constant(graph, f"{following.output[0]}_bias", np.broadcast_to(arrays[bias].reshape(-1), (columns,)))
        shapes[row] = (columns,)
        nodes += _biased_gemm(node, following, row, graph, shapes, taken)
    set_nodes(graph, nodes)
    remove_dead_code(graph)
    return result


@looking_at("Gemm", "MatMul")
def join_biases(model: ModelProto) -> ModelProto:
    """A copy of a quantised model in which MatMul and Add of a float row are one Gemm, as ONNX Runtime makes them.

    Both operands of the MatMul are dequantised, the second one a constant matrix, or one such with leading ones. Gemm
    that transposes its data reads a Transpose; factors of one with a constant bias go into that and into the scale of
    the weights.
    """
    result = copy_model(model)
    graph = result.graph
    taken = names_of(graph)
    _flatten_integer_weights(graph, taken)
    arrays = ConstantArrays(graph, lambda tensor: True)
    shapes, uses = shapes_of(graph), use_counts(graph)
    readers = {name: node for node in graph.node for name in node.input}
    dequantised = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    absorbed: set[str] = set()
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.output and node.output[0] in absorbed:
            continue
        if node.op_type == "Gemm" and standard(node):
            nodes += [*_turned(node, shapes, taken), *_scaled(node, graph, arrays, dequantised, taken), node]
            continue
        add = readers.get(node.output[0]) if node.output and uses[node.output[0]] == 1 else None
        if add is None or (node.op_type, add.op_type) != ("MatMul", "Add") or not all(map(standard, (node, add))):
            nodes.append(node)
            continue
        row = next((name for name in add.input if name != node.output[0]), "")
        weights = dequantised[node.input[1]].input[0] if node.input[1] in dequantised else ""
        columns = arrays[weights].shape[-1] if weights in arrays and arrays[weights].ndim == 2 else 0
        rank = len(shapes.get(node.input[0], ()))
        joined = row in arrays and arrays[row].dtype == np.float32 and arrays[row].ndim <= rank and columns > 0
        if joined and _is_row(arrays[row].shape, columns) and node.input[0] in dequantised and rank > 1:
            absorbed.add(add.output[0])
            row = _row(add, graph, arrays[row], columns)
            nodes += _biased_gemm(node, add, row, graph, {**shapes, row: (columns,)}, taken)
        else:
            nodes.append(node)
    set_nodes(graph, nodes)
    return result


def _row(node: NodeProto, graph: GraphProto, numbers: NDArray[np.float32], columns: int) -> str:
    """A constant row of ``columns`` numbers, or of one number for all of them."""
    return add_constant(graph, f"{node.output[0]}_bias", np.broadcast_to(numbers.reshape(-1), (columns,)))


def _flatten_integer_weights(graph: GraphProto, taken: set[str]) -> None:
    """Make matrices, in place, of constants (1, ..., K, N) that a MatMul alone reads dequantised, under other names."""
    arrays, uses, shapes = (
        ConstantArrays(graph, lambda tensor: len(tensor.dims) > 2),
        use_counts(graph),
        shapes_of(graph),
    )
    dequantised = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    for node in graph.node:
        source = dequantised.get(node.input[1]) if node.op_type == "MatMul" and standard(node) else None
        if source is None or source.input[0] not in arrays or uses[source.output[0]] != 1:
            continue
        weights = arrays[source.input[0]]
        along = {int(attributes(source).get("axis", 1)) % weights.ndim} if shapes.get(source.input[1]) else set()
        fits = weights.ndim <= len(shapes.get(node.input[0], ())) and prod(weights.shape[:-2]) == 1
        if not fits or along - {weights.ndim - 1} or attributes(source).get("block_size", 0):
            continue
        source.input[0] = add_constant(graph, f"{node.output[0]}_weight", weights.reshape(weights.shape[-2:]))
        source.output[0] = node.input[1] = unused(f"{node.output[0]}_matrix", taken)
        _drop(source, "axis")
        source.attribute.append(helper.make_attribute("axis", 1))


def _scaled(
    node: NodeProto,
    graph: GraphProto,
    arrays: ConstantArrays,
    dequantised: Mapping[str, NodeProto],
    taken: set[str],
) -> Iterator[NodeProto]:
    """Makes alpha and beta 1, and the bias a row, of a Gemm of dequantised constant weights and a constant bias.

    Yields what dequantises the weights from now on, where alpha is in their scale.
    """
    weights, bias = dequantised.get(node.input[1]), node.input[2] if len(node.input) > 2 else ""
    if weights is None or bias not in arrays or arrays[bias].dtype != np.float32:
        return
    options, steps = attributes(node), arrays.get(weights.input[0])
    alpha, beta = (np.float32(options.get(name, 1.0)) for name in ("alpha", "beta"))
    columns = 0 if steps is None or steps.ndim != 2 else steps.shape[0 if options.get("transB", 0) else 1]
    scale = arrays.get(weights.input[1])
    if not columns or scale is None or not alpha > 0 or not _is_row(arrays[bias].shape, columns):
        return
    if beta != 1 or arrays[bias].shape != (columns,):
        node.input[2] = _row(node, graph, arrays[bias] * beta, columns)
    if alpha != 1:
        copy = NodeProto.FromString(weights.SerializeToString())
        copy.input[1] = add_constant(graph, f"{node.output[0]}_scale", scale * alpha)
        copy.name, copy.output[0] = "", unused(f"{node.output[0]}_weight", taken)
        node.input[1] = copy.output[0]
        yield copy
    _drop(node, "alpha", "beta")


def _plain_flags(node: NodeProto) -> None:
    """Write what transposes as 1: ONNX Runtime takes any number but 0 for it, its quantiser 1 alone."""
    for item in node.attribute:
        if item.name in ("transA", "transB"):
            item.i = int(bool(item.i))


def _fold_factors(node: NodeProto, graph: GraphProto, arrays: ConstantArrays, shapes: Shapes) -> None:
    """Fold alpha, beta and the bias's shape of one Gemm, in place; nothing if its weights are not constant."""
    options = attributes(node)
    if node.input[1] not in arrays:
        return
    shape = shapes[node.input[1]]
    if len(shape) != 2:
        return  # no product that anybody can run
    columns = shape[0 if options.get("transB", 0) else 1]
    alpha, beta = np.float32(options.get("alpha", 1.0)), np.float32(options.get("beta", 1.0))
    biased = len(node.input) == 3 and bool(node.input[2])
    if biased and (node.input[2] not in arrays or not _is_row(arrays[node.input[2]].shape, columns)):
        return
    if biased and (beta != 1 or arrays[node.input[2]].shape != (columns,)):
        bias = np.broadcast_to(arrays[node.input[2]].reshape(-1) * beta, (columns,))
        node.input[2] = add_constant(graph, f"{node.output[0]}_bias", bias)
        arrays[node.input[2]] = bias
    if alpha != 1:
        weights = arrays[node.input[1]] * alpha
        node.input[1] = add_constant(graph, f"{node.output[0]}_weight", weights)
        arrays[node.input[1]], shapes[node.input[1]] = weights, weights.shape
    _drop(node, "alpha", "beta")


def _drop(node: NodeProto, *names: str) -> None:
    kept = [item for item in node.attribute if item.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


def _plain_gemm(
    node: NodeProto, graph: GraphProto, arrays: ConstantArrays, shapes: Shapes, taken: set[str]
) -> Iterator[NodeProto]:
    """A Gemm that transposes no data, its bias an Add behind it where it is not one constant number a column."""
    yield from _turned(node, shapes, taken)
    bias, result = node.input[2] if len(node.input) == 3 else "", node.output[0]
    if not bias or (bias in arrays and node.input[1] in arrays and arrays[bias].ndim == 1):
        yield node
        return
    beta = np.float32(attributes(node).get("beta", 1.0))
    node.output[0] = unused(f"{result}_product", taken)
    del node.input[2:]
    _drop(node, "beta")
    yield node
    if beta != 1 and bias in arrays:
        bias = add_constant(graph, f"{result}_bias", arrays[bias] * beta)
    elif beta != 1:
        scale = add_constant(graph, f"{result}_beta", np.array(beta))
        bias, given = unused(f"{result}_bias", taken), bias
        yield helper.make_node("Mul", [given, scale], [bias])
    yield helper.make_node("Add", [node.output[0], bias], [result])


def _turned(node: NodeProto, shapes: Shapes, taken: set[str]) -> Iterator[NodeProto]:
    """The Transpose of a Gemm's data, where it transposes that, which the Gemm reads from now on."""
    if attributes(node).get("transA", 0) and len(shapes.get(node.input[0], (0, 0))) == 2:
        turned = unused(f"{node.output[0]}_transposed", taken)
        yield helper.make_node("Transpose", [node.input[0]], [turned], perm=[1, 0])
        node.input[0] = turned
        _drop(node, "transA")


def _is_row(shape: tuple[int, ...], columns: int) -> bool:
    """Whether a bias is one number, or one a column: a column of numbers, one a row, is something else."""
    return all(size == 1 for size in shape[:-1]) and (not shape or shape[-1] in (1, columns))


def _flatten_weights(node: NodeProto, graph: GraphProto, arrays: ConstantArrays, shapes: Shapes) -> None:
    """Make a matrix of the weights (1, ..., K, N) of one MatMul, in place, where the data has as many dimensions."""
    weights = arrays.get(node.input[1])
    rank = 0 if weights is None else weights.ndim
    if weights is None or not 2 < rank <= len(shapes.get(node.input[0], ())) or prod(weights.shape[:-2]) != 1:
        return
    flat = weights.reshape(weights.shape[-2:])
    node.input[1] = add_constant(graph, f"{node.output[0]}_weight", flat)
    arrays[node.input[1]] = flat


def _is_biased_product(node: NodeProto, add: NodeProto, arrays: ConstantArrays, shapes: Shapes) -> bool:
    """Whether ``add`` adds a constant row to the product ``node`` of a value and a constant matrix."""
    if (node.op_type, add.op_type) != ("MatMul", "Add") or not (standard(node) and standard(add)):
        return False
    if node.input[1] not in arrays or arrays[node.input[1]].ndim != 2:
        return False
    rank = len(shapes.get(node.input[0], ()))
    other = next((name for name in add.input if name != node.output[0]), "")
    if rank < 2 or node.input[0] in arrays or other not in arrays or arrays[other].ndim > rank:
        return False
    return _is_row(arrays[other].shape, arrays[node.input[1]].shape[1])


def _biased_gemm(
    node: NodeProto, add: NodeProto, row: str, graph: GraphProto, shapes: Shapes, taken: set[str]
) -> Iterator[NodeProto]:
    """The Gemm of a product and a row of its columns, of rows as many as the data has altogether."""
    data, result, shape = node.input[0], add.output[0], shapes[node.input[0]]
    if len(shape) == 2:
        yield helper.make_node("Gemm", [data, node.input[1], row], [result], node.name)
        return
    rows = add_constant(graph, f"{result}_rows", np.array([prod(shape[:-1]), shape[-1]], np.int64))
    whole = add_constant(graph, f"{result}_shape", np.array([*shape[:-1], shapes[row][-1]], np.int64))
    flat, product = unused(f"{result}_data", taken), unused(f"{result}_product", taken)
    yield helper.make_node("Reshape", [data, rows], [flat])
    yield helper.make_node("Gemm", [flat, node.input[1], row], [product], node.name)
    yield helper.make_node("Reshape", [product, whole], [result])
