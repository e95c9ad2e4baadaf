"""Find the nodes of a float model that the quantiser leaves in float."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnx import ModelProto, NodeProto, TensorProto

from byoc.frontend.onnx.closures import Closure, float_closures
from byoc.frontend.onnx.reading import build_view, read_node
from byoc.frontend.onnx.rewriting.shapes import tensor_types
from byoc.operators.registry import load_installed_families
from byoc.runtimes.protobuf import ConstantArrays, types_of


def find_quantised_closures(model: ModelProto) -> tuple[Closure, ...]:
    """Return the closures that start at a quantised tensor, an input, or another closure's end."""
    found = float_closures(build_view(model, *tensor_types(model)))
    results = set(found)
    while True:
        stay_float = set(list_float_nodes(model, results))
        known = {value.name for value in model.graph.input} | results
        for node in model.graph.node:
            if _is_quantised_operator(node) and node.name not in stay_float:
                known.update(node.output)
        kept = {name for name in results if found[name].source in known}
        if kept == results:
            return tuple(closure for name, closure in found.items() if name in kept)
        results = kept


def is_quantised_whole(model: ModelProto) -> bool:
    """Return True if the quantiser leaves no node of a model in float."""
    kinds = types_of(model.graph)
    quantised = TensorProto.FLOAT, TensorProto.BOOL
    closures = [
        closure
        for closure in find_quantised_closures(model)
        if kinds.get(closure.result) in quantised
    ]
    inside = {node.outputs[0] for closure in closures for node in closure.nodes}
    stay_float = set(list_float_nodes(model, {closure.result for closure in closures}))
    others = (node for node in model.graph.node if node.output[0] not in inside)
    return all(_is_quantised_operator(node) and node.name not in stay_float for node in others)


def list_float_nodes(model: ModelProto, closed: Collection[str]) -> list[str]:
    """Return the names of nodes that the quantiser leaves in float.

    These are nodes whose family requires it, nodes that only pass on results of float operators,
    and nodes with an empty tensor, which no instruction supports. ``closed`` are results of
    closures, which are quantised.
    """
    constants = ConstantArrays(model.graph, lambda tensor: True)
    producers = {
        output: node for node in model.graph.node for output in node.output if output not in closed
    }
    empty = {tensor.name for tensor in model.graph.initializer if 0 in tensor.dims} | {
        value.name
        for value in (*model.graph.value_info, *model.graph.output)
        if any(
            dim.HasField("dim_value") and not dim.dim_value
            for dim in value.type.tensor_type.shape.dim
        )
    }
    return [
        node.name
        for node in model.graph.node
        if _must_stay_float(node, constants, producers) or not empty.isdisjoint(_data(node))
    ]


def _data(node: NodeProto) -> list[str]:
    """Return the names of a node's results and data operands, without parameter operands."""
    found = load_installed_families().forms.get(node.op_type)
    return [
        *node.output,
        *node.input[: None if found is None else 2 if found[1].weights else found[1].operands],
    ]


def _must_stay_float(
    node: NodeProto, constants: ConstantArrays, producers: Mapping[str, NodeProto]
) -> bool:
    forms = load_installed_families().forms
    if node.op_type not in forms:
        return False
    if all(name in constants for name in node.input if name):
        return True
    family, form = forms[node.op_type]
    if form.passive:
        if form.operands == 1 and node.input[0] in constants:
            # rows of a constant table by run-time indices: no quantised tensor passes through
            return True
        made_by = [producers.get(name) for name in node.input if name not in constants]
        if all(maker is not None and not _is_quantised_operator(maker) for maker in made_by):
            return True
    return family.must_stay_float(read_node(node, node.name), constants)


def _is_quantised_operator(node: NodeProto) -> bool:
    found = load_installed_families().forms.get(node.op_type)
    return found is not None and found[1].quantise
