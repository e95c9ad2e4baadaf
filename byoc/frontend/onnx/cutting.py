"""Cutting a part out of an ONNX model by tensor names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import onnx
from onnx import helper

from byoc.frontend.onnx.reading import captured_names
from byoc.frontend.onnx.rewriting.definitions import defined
from byoc.graph import Graph, Value
from isa.errors import InputError


def cut_model(model: onnx.ModelProto, graph: Graph, inputs: Iterable[str], outputs: Iterable[str]) -> onnx.ModelProto:
    """The nodes of ``model`` between the tensors ``inputs`` and ``outputs``, as a model of its own.

    Both are tensors of ``graph``, which gives their shapes and element types; constants come along. The order of the
    nodes is kept, so equal cuts make equal models. Float results that ONNX Runtime must not fuse are outputs as well.
    """
    sources, results = list(inputs), list(outputs)
    units = {own: name for name, own in defined(model).items()}
    _check_inputs(model, graph)
    nodes = _nodes_between(model.graph, set(sources), set(results))
    used = {name for node in nodes for name in (*node.input, *captured_names(node))} | set(results)
    part = helper.make_graph(
        nodes,
        model.graph.name or "network",
        [_information(model, graph.values[name], name) for name in sources],
        [_information(model, graph.values[units.get(name, name)], name) for name in results]
        + [_float(name) for name in unfusable(model, nodes)],
        [tensor for tensor in model.graph.initializer if tensor.name in used and tensor.name not in sources],
    )
    cut = helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)
    cut.functions.extend(model.functions)
    return cut


def _check_inputs(model: onnx.ModelProto, graph: Graph) -> None:
    """Raises InputError where a package's graph has an input otherwise than its model."""
    for value in model.graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        known = graph.values.get(value.name)
        if known is not None and not known.open and list(known.shape) != dims:
            raise InputError(
                f"the package's graph has input '{value.name}' of shape {list(known.shape)}, its model of {dims}; "
                "compile the model again"
            )


def _nodes_between(graph: onnx.GraphProto, sources: set[str], results: set[str]) -> list[onnx.NodeProto]:
    """Nodes that ``results`` depend on, not looking behind ``sources``."""
    needed = results - sources
    chosen = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            chosen.append(node)
            needed.update(name for name in (*node.input, *captured_names(node)) if name and name not in sources)
    return chosen[::-1]


def unfusable(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """Float results of operators that ONNX Runtime fuses into integer operators which then refuse to run.

    They are average pooling with dilations and products with stacks of matrices quantised per channel. An operator
    whose result is an output of the model is not fused.
    """
    part = list(nodes)
    asked = [node for node in part if node.op_type in ("AveragePool", "MatMul")]
    if not asked:  # most parts of a network with many: the whole is not looked through for each
        return []
    sizes = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    dequantized = {node.output[0]: node for node in part if node.op_type == "DequantizeLinear"}
    found = []
    for node in asked:
        if node.op_type == "AveragePool":
            broken = any(a.name == "dilations" and max(a.ints, default=1) > 1 for a in node.attribute)
        elif node.input[1] in dequantized:
            weights, scale = dequantized[node.input[1]].input[:2]
            broken = len(sizes.get(weights, [])) > 2 and bool(sizes.get(scale))
        else:
            continue
        if broken and node.input[0] in dequantized:
            found.append(node.output[0])
    return found


def _float(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)


def _information(model: onnx.ModelProto, value: Value, name: str) -> onnx.ValueInfoProto:
    if value.dtype not in _element_types():  # a sequence: onnx knows its type
        inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
        return next((found for found in inferred if found.name == value.name), onnx.ValueInfoProto(name=value.name))
    if value.open:
        return helper.make_tensor_value_info(name, _element_types()[value.dtype], None)
    return helper.make_tensor_value_info(name, _element_types()[value.dtype], list(value.shape))


@cache
def _element_types() -> dict[str, int]:
    """ONNX element types by the NumPy name that the importer gives them."""
    elements = [number for number in onnx.TensorProto.DataType.values() if number != onnx.TensorProto.UNDEFINED]
    return {helper.tensor_dtype_to_np_dtype(element).name: element for element in elements}
