"""Units whose instruction has a definition of its own are computed by that definition, for host parts and oracle, too.

ONNX Runtime computes them in float, in an order that depends on the processor. What it makes of each unit stays in the
model beside the definition, so that differences can be counted.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc.frontend.onnx.rewriting.edit import copy_model, set_nodes
from byoc.graph import Graph
from byoc.operators.definition import Definition
from byoc.operators.registry import installed

OWN = ":onnxruntime"
"""What the name of a unit's result ends in where ONNX Runtime computes it its own way."""


def define(model: onnx.ModelProto, graph: Graph) -> onnx.ModelProto:
    """A model in which units with definitions are computed by them; tensors keep their names and types.

    ``graph`` is the canonical graph of ``model``, which is not changed.
    """
    found: dict[str, Definition] = {}
    for node in graph.nodes:
        family = next(iter(installed().by_operator.get(node.op_type, ())), None) if node.integer else None
        runs = family is not None and family.check(graph, node) is None
        definition = family.definition(graph, node) if family is not None and runs else None
        if definition is not None:
            found[node.outputs[0]] = definition
    if not found:
        return model
    result = copy_model(model)
    nodes: list[onnx.NodeProto] = []
    for proto in result.graph.node:
        nodes.append(proto)
        if proto.output and proto.output[0] in found:
            name = proto.output[0]
            proto.output[0] = f"{name}{OWN}"
            nodes += _steps(result.graph, name, found[name])
    set_nodes(result.graph, nodes)
    return result


def _steps(graph: onnx.GraphProto, result: str, definition: Definition) -> list[onnx.NodeProto]:
    """The nodes of a definition; their constants are added to ``graph``."""
    own = {key: f"{result}:{key}" for key in (*definition.constants, *(step.output for step in definition.steps))}
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


def defined(model: onnx.ModelProto) -> tuple[str, ...]:
    """Results of units that definitions compute."""
    made = (name for node in model.graph.node for name in node.output)
    return tuple(name.removesuffix(OWN) for name in made if name.endswith(OWN))
