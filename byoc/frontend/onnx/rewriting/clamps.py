"""Fused activations as integer clamps: what makes ONNX Runtime an exact oracle for Conv–Relu–QuantizeLinear groups.

ONNX Runtime drops a Relu or Clip in front of QuantizeLinear where the quantised range already ends there; the group is
then one integer operator. Elsewhere it keeps a fused float operator that errs in the last bit. Such a group is
rewritten as the integer operator followed by a Clip of its integers: what it means and what the accelerator does.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from byoc.graph import Graph, Node
from byoc.operators import domain
from isa.errors import InputError

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
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset < CLIP_OPSET:
        raise InputError(f"the model has opset {opset}; convert it to opset {CLIP_OPSET} or later")
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    producers = {name: node for node in rewritten.graph.node for name in node.output}
    for node in kept:
        _rewrite(rewritten.graph, producers, graph, node)
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


def _rewrite(graph: onnx.GraphProto, producers: dict[str, onnx.NodeProto], canonical: Graph, node: Node) -> None:
    """Let the QuantizeLinear of one group read the operator itself, and clip its integers."""
    name = node.outputs[0]
    quantize = producers[name]
    activation = producers[quantize.input[0]]
    result = canonical.values[name]
    output = domain.affine(result)
    limits = np.asarray(domain.clamp(node, output)) + output.offset
    bounds = [f"{name}:low", f"{name}:high"]
    for bound, limit in zip(bounds, limits, strict=True):
        graph.initializer.append(numpy_helper.from_array(np.asarray(limit, result.dtype), bound))
    quantize.input[0] = activation.input[0]
    quantize.output[0] = f"{name}:unclamped"
    clip = helper.make_node("Clip", [quantize.output[0], *bounds], [name], name=f"{node.name}:clamp")
    graph.node.insert(_position(graph, quantize.output[0]) + 1, clip)
    del graph.node[_position(graph, activation.output[0])]


def _position(graph: onnx.GraphProto, output: str) -> int:
    """Index of the node that makes ``output``."""
    return next(index for index, node in enumerate(graph.node) if output in node.output)
