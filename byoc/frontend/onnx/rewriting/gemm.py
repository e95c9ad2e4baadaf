"""Brings fully connected layers to one form: Gemm, constant weights, alpha and beta folded, a bias of one dimension."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    add_constant,
    attributes,
    copy_model,
    is_float32,
    remove_dead_code,
    shapes_of,
    standard,
    use_counts,
)


def canonicalise_gemm(model: ModelProto) -> ModelProto:
    """A copy in which float32 layers with constant weights read ``Gemm(x, weights, bias)`` with alpha = beta = 1.

    Gemm: alpha is multiplied into the weights, beta into the bias, and the bias is broadcast to ``(N,)``. MatMul of a
    2-D value by 2-D weights followed by an Add of a constant row that nobody else reads becomes one Gemm. Products
    with alpha and beta of 1 are untouched to the bit.
    """
    result = copy_model(model)
    graph = result.graph
    arrays = ConstantArrays(graph, is_float32)
    shapes, uses = shapes_of(graph), use_counts(graph)
    readers = {name: node for node in graph.node for name in node.input}
    absorbed: set[str] = set()
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.output[0] in absorbed:
            continue
        following = readers.get(node.output[0]) if uses[node.output[0]] == 1 else None
        if node.op_type == "Gemm" and standard(node):
            _fold_factors(node, graph, arrays)
        elif following is not None and _is_biased_product(node, following, arrays, shapes):
            absorbed.add(following.output[0])
            node = _biased_gemm(node, following, graph, arrays)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    remove_dead_code(graph)
    return result


def _fold_factors(node: NodeProto, graph: GraphProto, arrays: ConstantArrays) -> None:
    """Fold alpha, beta and the bias's shape of one Gemm, in place; nothing if its weights are not constant."""
    options = attributes(node)
    if node.input[1] not in arrays:
        return
    weights = arrays[node.input[1]]
    if weights.ndim != 2:
        return  # no product that anybody can run
    columns = weights.shape[0 if options.get("transB", 0) else 1]
    alpha, beta = np.float32(options.get("alpha", 1.0)), np.float32(options.get("beta", 1.0))
    biased = len(node.input) == 3 and bool(node.input[2])
    if biased and (node.input[2] not in arrays or not _is_row(arrays[node.input[2]].shape, columns)):
        return
    if biased and (beta != 1 or arrays[node.input[2]].shape != (columns,)):
        bias = np.broadcast_to(arrays[node.input[2]].reshape(-1) * beta, (columns,))
        node.input[2] = add_constant(graph, f"{node.output[0]}_bias", bias)
    if alpha != 1:
        node.input[1] = add_constant(graph, f"{node.output[0]}_weight", weights * alpha)
    kept = [item for item in node.attribute if item.name not in ("alpha", "beta")]
    del node.attribute[:]
    node.attribute.extend(kept)


def _is_row(shape: tuple[int, ...], columns: int) -> bool:
    """Whether a bias is one number, or one a column: a column of numbers, one a row, is something else."""
    return all(size == 1 for size in shape[:-1]) and (not shape or shape[-1] in (1, columns))


def _is_biased_product(
    node: NodeProto, add: NodeProto, arrays: ConstantArrays, shapes: dict[str, tuple[int, ...]]
) -> bool:
    """Whether ``add`` adds a constant row to the product ``node`` of a 2-D value and constant 2-D weights."""
    if (node.op_type, add.op_type) != ("MatMul", "Add") or not (standard(node) and standard(add)):
        return False
    if node.input[1] not in arrays:
        return False
    weights = arrays[node.input[1]]
    if weights.ndim != 2 or len(shapes.get(node.input[0], ())) != 2:
        return False
    other = next((name for name in add.input if name != node.output[0]), "")
    return other in arrays and arrays[other].shape in {(weights.shape[1],), (1, weights.shape[1])}


def _biased_gemm(node: NodeProto, add: NodeProto, graph: GraphProto, arrays: ConstantArrays) -> NodeProto:
    other = next(name for name in add.input if name != node.output[0])
    bias = add_constant(graph, f"{add.output[0]}_bias", arrays[other].reshape(-1))
    return helper.make_node("Gemm", [*node.input, bias], list(add.output), node.name)
