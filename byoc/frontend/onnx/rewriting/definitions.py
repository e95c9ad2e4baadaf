"""What makes ONNX Runtime an exact oracle, and the host's parts equal: what it computes in float is written otherwise.

Fused activations become integer clamps. ONNX Runtime drops a Relu or Clip in front of QuantizeLinear where the
quantised range already ends there; the group is then one integer operator. Elsewhere it keeps a fused float operator
that errs in the last bit. Such a group is rewritten as the integer operator followed by a Clip of its integers: what it
means and what the accelerator does.

Units whose instruction has a definition of its own are computed by that definition. ONNX Runtime computes them in
float, in an order that depends on the processor. What it makes of each unit stays in the model beside the definition,
so that differences can be counted.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc.frontend.onnx.rewriting.edit import copy_model, names_of, opset_of, set_nodes, unused
from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.definition import Definition
from byoc.operators.registry import check, installed
from isa.errors import InputError

# Clamps. ------------------------------------------------------------------------------------------------------------

CLIP_OPSET = 12  # the first opset whose Clip takes 8-bit integers


def integer_clamps(model: onnx.ModelProto, graph: Graph) -> tuple[onnx.ModelProto, int]:
    """A model in which every activation that ONNX Runtime would compute in float is an integer Clip, and their number.

    ``graph`` is the canonical graph of ``model``. Tensors keep their names and meaning; ``model`` is not changed.
    """
    kept = [
        node for node in graph.nodes if node.integer and "activation" in node.attributes and _stays_float(graph, node)
    ]
    if not kept:
        return model, 0
    opset = opset_of(model)
    if opset < CLIP_OPSET:
        raise InputError(f"the model has opset {opset}; convert it to opset {CLIP_OPSET} or later")
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    producers = {name: node for node in rewritten.graph.node for name in node.output}
    taken = names_of(rewritten.graph)
    for node in kept:
        _rewrite(rewritten.graph, producers, graph, node, taken)
    return rewritten, len(kept)


def _stays_float(graph: Graph, node: Node) -> bool:
    """Whether the quantised range goes beyond the activation, so that ONNX Runtime keeps it."""
    result = graph.values[node.outputs[0]]
    if result.quantization is None or not result.quantization.per_tensor or result.dtype not in domain.INT8:
        return False
    output = domain.affine(result)
    ends = np.asarray([-128 - output.stored_zero_point, 127 - output.stored_zero_point], np.float32) * output.scale
    bounds = domain.activation_bounds(node)
    return bounds is not None and bool(ends[0] < bounds[0] or ends[1] > bounds[1])


def _rewrite(
    graph: onnx.GraphProto, producers: dict[str, onnx.NodeProto], canonical: Graph, node: Node, taken: set[str]
) -> None:
    """Let the QuantizeLinear of one group read the operator itself, and clip its integers."""
    name = node.outputs[0]
    quantize = producers[name]
    activation = producers[quantize.input[0]]
    result = canonical.values[name]
    output = domain.affine(result)
    limits = np.asarray(domain.clamp(node, output)) + output.offset
    low, high, unclamped = (unused(f"{name}:{part}", taken) for part in ("low", "high", "unclamped"))
    bounds = [low, high]
    for bound, limit in zip(bounds, limits, strict=True):
        graph.initializer.append(numpy_helper.from_array(np.asarray(limit, result.dtype), bound))
    quantize.input[0] = activation.input[0]
    quantize.output[0] = unclamped
    clip = helper.make_node("Clip", [quantize.output[0], *bounds], [name], name=f"{node.name}:clamp")
    graph.node.insert(_position(graph, quantize.output[0]) + 1, clip)
    del graph.node[_position(graph, activation.output[0])]


def _position(graph: onnx.GraphProto, output: str) -> int:
    """Index of the node that makes ``output``."""
    return next(index for index, node in enumerate(graph.node) if output in node.output)


# Definitions. -------------------------------------------------------------------------------------------------------

_KEY = "onnxruntime:"
"""What a key of a model's metadata begins with: a unit's result, of which the value is ONNX Runtime's own."""


def define(model: onnx.ModelProto, graph: Graph) -> onnx.ModelProto:
    """A model in which units with definitions are computed by them; tensors keep their names and types.

    ``graph`` is the canonical graph of ``model``, which is not changed.
    """
    found: dict[str, Definition] = {}
    for node in graph.nodes:
        family = next(iter(installed().by_operator.get(node.op_type, ())), None) if node.integer else None
        runs = family is not None and check(family, graph, node) is None
        definition = family.definition(graph, node) if family is not None and runs else None
        if definition is not None:
            found[node.outputs[0]] = definition
    if not found and not defined(model):
        return model
    result = copy_model(model)
    kept = [entry for entry in result.metadata_props if not entry.key.startswith(_KEY)]
    del result.metadata_props[:]
    result.metadata_props.extend(kept)
    nodes, taken = list[onnx.NodeProto](), names_of(result.graph)
    for proto in result.graph.node:
        nodes.append(proto)
        if proto.output and proto.output[0] in found:
            name = proto.output[0]
            proto.output[0] = unused(f"{name}:onnxruntime", taken)
            result.metadata_props.add(key=f"{_KEY}{name}", value=proto.output[0])
            nodes += _steps(result.graph, name, found[name], taken)
    set_nodes(result.graph, nodes)
    return result


def _steps(graph: onnx.GraphProto, result: str, definition: Definition, taken: set[str]) -> list[onnx.NodeProto]:
    """The nodes of a definition; their constants are added to ``graph``."""
    keys = (*definition.constants, *(step.output for step in definition.steps))
    own = {key: unused(f"{result}:{key}", taken) for key in keys}
    own[definition.steps[-1].output] = result
    for key, array in definition.constants.items():
        graph.initializer.append(numpy_helper.from_array(array, own[key]))
    made = []
    for step in definition.steps:
        attributes = dict(step.attributes)
        if "to" in attributes:
            attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(attributes["to"]))
        inputs = [own.get(name, name) for name in step.inputs]
        made.append(helper.make_node(step.op_type, inputs, [own[step.output]], own[step.output], **attributes))
    return made


def defined(model: onnx.ModelProto) -> dict[str, str]:
    """Results of units that definitions compute, and the names of those that ONNX Runtime makes its own way."""
    own = (entry for entry in model.metadata_props if entry.key.startswith(_KEY))
    return {entry.key.removeprefix(_KEY): entry.value for entry in own}
