"""Half-precision models become float32 ones: that is what is quantised, and what ONNX Runtime's CPU computes in."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from byoc.frontend.onnx.rewriting.edit import all_graphs, all_nodes, copy_model, standard, without_large_constants

_HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_TYPES = frozenset({"to", "dtype", "output_dtype", "stash_type"})
"""Attributes that name an element type."""


def widen(model: ModelProto) -> ModelProto:
    """The model with float32 in place of float16 and bfloat16, inputs and outputs included; itself where it has none.

    Constants keep their values. Casts between what were two types and is one now are gone.
    """
    if not _has_half(model):
        return model
    result = copy_model(model)
    for graph in all_graphs(result.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type.tensor_type
            if kind.elem_type in _HALF:
                kind.elem_type = TensorProto.FLOAT
        for tensor in (*graph.initializer, *(item.values for item in graph.sparse_initializer)):
            _widen_tensor(tensor)
        for node in graph.node:
            _widen_attributes(node)
    for function in result.functions:
        for node in function.node:
            _widen_attributes(node)
    _drop_casts(result)
    return result


def _has_half(model: ModelProto) -> bool:
    for graph in all_graphs(model.graph):
        types = {tensor.data_type for tensor in graph.initializer}
        types |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
        types |= {item.i for node in graph.node for item in node.attribute if item.name in _TYPES}
        types |= {item.t.data_type for node in graph.node for item in node.attribute if item.HasField("t")}
        if types & _HALF:
            return True
    return False


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _HALF:
        array: Any = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(array, np.float32), tensor.name))


def _widen_attributes(node: NodeProto) -> None:
    for item in node.attribute:
        if item.name in _TYPES and item.i in _HALF:
            item.i = TensorProto.FLOAT
        if item.HasField("t"):
            _widen_tensor(item.t)
        for tensor in item.tensors:
            _widen_tensor(tensor)


def _drop_casts(model: ModelProto) -> None:
    """Make an Identity of every Cast to float32 of what is float32, in place."""
    typed = without_large_constants(model, onnx.shape_inference.infer_shapes)
    known = {
        value.name: value.type.tensor_type.elem_type
        for graph in all_graphs(typed.graph)
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    known |= {tensor.name: tensor.data_type for graph in all_graphs(model.graph) for tensor in graph.initializer}
    for node in all_nodes(model.graph):
        targets = [item.i for item in node.attribute if item.name == "to"]
        same = targets == [TensorProto.FLOAT] and known.get(node.input[0]) == TensorProto.FLOAT
        if node.op_type == "Cast" and standard(node) and same:
            node.op_type = "Identity"
            del node.attribute[:]
