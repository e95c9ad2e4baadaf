"""Rewrite units that ONNX Runtime computes inexactly in float as exact operators.

ONNX Runtime is then an exact oracle of the model, and agrees with the parts on the CPU.

Fused activations become integer clamps. ONNX Runtime drops a Relu or Clip before QuantizeLinear if
the quantised range already ends there; the group is then one integer operator. Otherwise it keeps a
fused float operator with errors in the last bit. Such a group is rewritten as the integer operator
followed by a Clip of its integers, which is what the accelerator computes.

Units whose instruction has its own definition are computed by that definition, because ONNX Runtime
computes them in float, in a processor-dependent order. ONNX Runtime's own result of each unit stays
in the model too, so that differences can be counted.
"""

from collections.abc import Callable, Collection
from functools import partial

import numpy as np
from onnx import ModelProto, NodeProto, helper

from byoc.frontend.onnx.rewriting.law import GraphView, walk_model
from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.definition import Definition
from byoc.operators.registry import check, load_installed_families
from byoc.runtimes.protobuf import (
    OWN_KEY,
    copy_model,
    copy_node,
    opset_of,
    read_defined_results,
    set_items,
)
from isa.errors import InputError

# Clamps.

CLIP_OPSET = 12  # first opset whose Clip accepts 8-bit integers


def _is_producer_of(names: Collection[str]) -> Callable[[NodeProto], bool]:
    return lambda node: any(name in names for name in node.output[:1])


def integer_clamps(model: ModelProto, graph: Graph) -> tuple[ModelProto, int]:
    """Replace every activation that ONNX Runtime would compute in float by an integer Clip.

    Returns the model and the number of such activations. ``graph`` is the canonical graph of
    ``model``, which is not changed. Tensors keep their names and meaning.
    """
    kept = [
        node
        for node in graph.nodes
        if node.integer and "activation" in node.attributes and _has_wider_range(graph, node)
    ]
    if not kept:
        return model, 0
    opset = opset_of(model)
    if opset < CLIP_OPSET:
        raise InputError(f"the model has opset {opset}; convert it to opset {CLIP_OPSET} or later")
    clamped = {node.outputs[0]: node for node in kept}

    def write(view: GraphView, quantize: NodeProto) -> list[NodeProto]:
        return _clamp_group(view, quantize, graph, clamped[quantize.output[0]])

    return walk_model(model, lambda view: partial(write, view), _is_producer_of(clamped)), len(kept)


def _has_wider_range(graph: Graph, node: Node) -> bool:
    """Return True if a quantised range exceeds an activation's, so the clamp has an effect."""
    result = graph.values[node.outputs[0]]
    if (
        result.quantization is None
        or not result.quantization.per_tensor
        or result.dtype not in domain.INT8
    ):
        return False
    output = domain.affine(result)
    ends = (
        np.asarray([-128 - output.stored_zero_point, 127 - output.stored_zero_point], np.float32)
        * output.scale
    )
    bounds = domain.activation_bounds(node)
    return bounds is not None and bool(ends[0] < bounds[0] or ends[1] > bounds[1])


def _clamp_group(view: GraphView, quantize: NodeProto, graph: Graph, node: Node) -> list[NodeProto]:
    """Replace the float activation of an operator by a Clip of its quantised result."""
    activation = view.maker(quantize.input[0])
    name = node.outputs[0]
    assert activation is not None
    result = graph.values[name]
    output = domain.affine(result)
    low, high = (
        view.constant(f"{name}:{part}", np.asarray(limit + output.offset, result.dtype))
        for part, limit in zip(("low", "high"), domain.clamp(node, output), strict=True)
    )
    made = copy_node(quantize)
    made.input[0] = activation.input[0]
    made.output[0] = view.name(f"{name}:unclamped")
    return [
        made,
        helper.make_node("Clip", [made.output[0], low, high], [name], f"{node.name}:clamp"),
    ]


# Definitions.


def define(model: ModelProto, graph: Graph) -> ModelProto:
    """Replace integer units of a model by the exact operators that define their results.

    ``graph`` is the canonical graph of ``model``, which is not changed.
    """
    found: dict[str, Definition] = {}
    for node in graph.nodes:
        family = (
            next(iter(load_installed_families().by_operator.get(node.op_type, ())), None)
            if node.integer
            else None
        )
        runs = family is not None and check(family, graph, node) is None
        definition = family.definition(graph, node) if family is not None and runs else None
        if definition is not None:
            found[node.outputs[0]] = definition
    if not found and not read_defined_results(model):
        return model
    own: dict[str, str] = {}

    def write(view: GraphView, node: NodeProto) -> list[NodeProto]:
        name = node.output[0]
        made = copy_node(node)
        own[name] = made.output[0] = view.name(f"{name}:onnxruntime")
        view.show(own[name])
        return [made, *_steps(view, name, found[name])]

    result = walk_model(model, lambda view: partial(write, view), _is_producer_of(found))
    result = copy_model(model) if result is model else result
    entries = result.metadata_props
    set_items(entries, (entry for entry in entries if not entry.key.startswith(OWN_KEY)))
    for name, value in own.items():
        result.metadata_props.add(key=f"{OWN_KEY}{name}", value=value)
    return result


def _steps(view: GraphView, result: str, definition: Definition) -> list[NodeProto]:
    """Return ONNX nodes that compute a unit by its definition, and add their constants."""
    own = {
        key: view.constant(f"{result}:{key}", array) for key, array in definition.constants.items()
    }
    own |= {step.output: view.name(f"{result}:{step.output}") for step in definition.steps}
    own[definition.steps[-1].output] = result
    made = []
    for step in definition.steps:
        attributes = dict(step.attributes)
        if "to" in attributes:
            attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(attributes["to"]))
        inputs = [own.get(name, name) for name in step.inputs]
        made.append(
            helper.make_node(
                step.op_type, inputs, [own[step.output]], own[step.output], **attributes
            )
        )
    return made
