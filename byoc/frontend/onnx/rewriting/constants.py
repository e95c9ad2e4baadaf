"""Folds what is constant: initialisers listed as inputs become pure, constant nodes become initialisers."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, helper, numpy_helper

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    all_graphs,
    array_of,
    attributes,
    bodies,
    byte_size,
    copy_model,
    keep_nodes,
    shapes_of,
)
from byoc.frontend.onnx.rewriting.opset import TARGET_OPSET
from isa import memory
from isa.errors import InputError

MAXIMUM_BYTES = 1 << 30
_SMALL = 1024
"""Elements of a constant that may decide about shapes."""

# Quantised constants stay behind their DequantizeLinear; what is random stays random.
_NEVER = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "RandomNormal", "RandomUniform"}
    | {"RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)


def drop_initializer_inputs(model: ModelProto) -> ModelProto:
    """A copy in which no initialiser is also a graph input (files of IR version 3 list every weight as one)."""
    result = copy_model(model)
    names = {tensor.name for tensor in result.graph.initializer}
    kept = [value for value in result.graph.input if value.name not in names]
    del result.graph.input[:]
    result.graph.input.extend(kept)
    return result


def write_out_sparse(model: ModelProto) -> ModelProto:
    """The model with sparse constants, those of bodies included, as dense ones of their names; itself without any."""
    if not any(graph.sparse_initializer for graph in all_graphs(model.graph)):
        return model
    result = copy_model(model)
    for graph in all_graphs(result.graph):
        graph.initializer.extend(_dense(sparse) for sparse in graph.sparse_initializer)
        del graph.sparse_initializer[:]
    return result


def _dense(sparse: SparseTensorProto) -> TensorProto:
    """Places are numbers in row-major order, or a row of coordinates each."""
    values, places = array_of(sparse.values), array_of(sparse.indices)
    memory.require(prod(sparse.dims) * values.itemsize, f"sparse constant '{sparse.values.name}', written out")
    array = np.zeros(prod(sparse.dims), values.dtype)
    if (places < 0).any() or (places >= (array.size if places.ndim == 1 else sparse.dims)).any():
        raise InputError(f"sparse constant '{sparse.values.name}' has a place outside of its shape {[*sparse.dims]}")
    array[places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), tuple(sparse.dims))] = values
    return numpy_helper.from_array(array.reshape(sparse.dims), sparse.values.name)


def fold_constants(model: ModelProto) -> ModelProto:
    """A copy in which nodes with constant operands only, and ``Shape`` and ``Size`` of static shapes, are initialisers.

    Nodes that quantise or draw random numbers, contain bodies, come from other domains or would make a constant above
    1 GiB stay. Wants shapes inferred.
    """
    result = copy_model(model)
    graph = result.graph
    shapes = shapes_of(graph)
    known = ConstantArrays(graph, lambda tensor: byte_size(tensor) <= MAXIMUM_BYTES)
    outputs = {output.name for output in graph.output}
    folded: set[str] = set()
    for node in graph.node:
        values = _fold(node, known, shapes) if outputs.isdisjoint(node.output) else None
        if values is not None:
            for name, value in zip(node.output, values, strict=True):
                known[name] = value
            folded.update(node.output)
    _replace(graph, folded, known)
    return result


def _replace(graph: GraphProto, folded: set[str], known: ConstantArrays) -> None:
    keep_nodes(graph, lambda node: folded.isdisjoint(node.output))
    used = {name for node in graph.node for name in node.input}
    if any(True for node in graph.node for _ in bodies(node)):
        used = folded  # a body may read anything of the outer graph
    graph.initializer.extend(numpy_helper.from_array(known[name], name) for name in sorted(folded & used))


def _fold(node: NodeProto, known: ConstantArrays, shapes: dict[str, tuple[int, ...]]) -> list[NDArray[Any]] | None:
    """The node's results if it can be folded, else None."""
    if node.op_type in _NEVER or node.domain not in ("", "ai.onnx") or any(True for _ in bodies(node)):
        return None
    if node.op_type == "Shape" and node.input[0] in shapes:
        options = attributes(node)
        dims = shapes[node.input[0]][options.get("start", 0) : options.get("end")]
        return [np.array(dims, np.int64)]
    if node.op_type == "Size" and node.input[0] in shapes:
        return [np.array(prod(shapes[node.input[0]]), np.int64)]
    if any(name and name not in known for name in node.input):
        return None
    if node.op_type == "ConstantOfShape":
        return _constant_of_shape(node, known)
    return None if _is_too_large(node, known) else evaluate(node, known)


def _is_too_large(node: NodeProto, known: ConstantArrays) -> bool:
    """Whether the results would be above the limit, as far as onnx can tell before they are made."""
    operands = {name: known[name] for name in node.input if name}
    types = {
        name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in operands.items()
    }
    small = {name: numpy_helper.from_array(array) for name, array in operands.items() if array.size <= _SMALL}
    try:
        schema = onnx.defs.get_schema(node.op_type, TARGET_OPSET)
        results = onnx.shape_inference.infer_node_outputs(schema, node, types, small)
    except Exception:  # of the C++ library, without a common base: what it does not know the evaluator may refuse
        return False
    for result in results.values():
        dims = result.tensor_type.shape.dim
        if 8 * prod(dim.dim_value for dim in dims if dim.HasField("dim_value")) > MAXIMUM_BYTES:
            return True
    return False


def _constant_of_shape(node: NodeProto, known: ConstantArrays) -> list[NDArray[Any]] | None:
    dims = [int(dim) for dim in known[node.input[0]]]
    tensor = attributes(node).get("value")
    fill = np.zeros(1, np.float32) if tensor is None else array_of(tensor)
    if fill.itemsize * int(np.prod(dims, dtype=np.float64)) > MAXIMUM_BYTES:
        return None
    return [np.full(dims, fill.reshape(-1)[0], fill.dtype)]


def evaluate(node: NodeProto, known: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]] | None:
    """Run one node on onnx's reference evaluator; None if it cannot or the result is no plain array."""
    from onnx.reference import ReferenceEvaluator

    feeds = {name: known[name] for name in node.input if name}
    alone = NodeProto()
    alone.CopyFrom(node)  # an evaluator lives on in a circle, and a node of the model would keep all of that
    try:
        results = ReferenceEvaluator(alone).run(None, feeds)
    except Exception:  # whatever the evaluator cannot do simply stays a node
        return None
    plain = all(isinstance(value, (np.ndarray, np.generic)) for value in results)
    if not plain or sum(np.asarray(value).nbytes for value in results) > MAXIMUM_BYTES:
        return None
    return [np.asarray(value) for value in results]
