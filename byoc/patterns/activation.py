"""Functions of one quantised tensor that stand alone: Relu, Clip, LeakyRelu, Abs."""

from __future__ import annotations

from typing import Literal

import numpy as np

from byoc.graph import Graph, Node, Value
from byoc.operations import UnaryOperation
from byoc.patterns import elementwise, tensors
from byoc.patterns.base import Pattern, as_parsed

Function = Literal["relu", "leaky_relu", "abs"]
# Clip, and a bare change of quantisation, is a leaky Relu of slope 1 within limits.
_FUNCTIONS: dict[str, Function] = {
    "Relu": "relu",
    "LeakyRelu": "leaky_relu",
    "Abs": "abs",
    "Clip": "leaky_relu",
    "Requantize": "leaky_relu",
}


def parse(graph: Graph, node: Node) -> UnaryOperation:
    """The operation that an activation is, once it meets every requirement."""
    source, result = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
    before, after = _quantizations(node, source, result)
    low, high = tensors.quantised_bounds(node.attributes.get("bounds", (-np.inf, np.inf)), after)
    shape = tensors.elementwise_shape(result.shape)
    return UnaryOperation(
        name=node.name,
        kind="ELTWISE" if node.op_type == "Abs" else "ACT",
        inputs=(tensors.whole(source, shape),),
        output=tensors.whole(result, shape),
        onnx_nodes=node.onnx_nodes,
        function=_FUNCTIONS[node.op_type],
        input_scale=float(before.scale),
        output_scale=float(after.scale),
        input_zero_point=before.stored_zero_point,
        output_zero_point=after.stored_zero_point,
        alpha=float(node.attributes.get("alpha", 1.0)) if _FUNCTIONS[node.op_type] == "leaky_relu" else 0.0,
        low=low,
        high=high,
    )


def _quantizations(node: Node, source: Value, result: Value) -> tuple[tensors.Affine, tensors.Affine]:
    """Both quantisations; an operator on bare integers takes each integer for itself."""
    if node.attributes.get("plain"):
        bare = tensors.Affine(np.float32(1), 0, 128 if source.dtype == "uint8" else 0)
        return bare, bare
    return tensors.affine(source), tensors.affine(result)


def constant_bounds(graph: Graph, node: Node) -> str | None:
    """the bounds of a Clip are constant"""
    return "its bounds are computed at run time" if node.op_type == "Clip" and "bounds" not in node.attributes else None


def finite_slope(graph: Graph, node: Node) -> str | None:
    """the slope of a LeakyRelu is finite"""
    alpha = node.attributes.get("alpha", 1.0)
    return None if np.isfinite(alpha) else f"alpha is {alpha}"


PATTERN: Pattern[UnaryOperation] = Pattern(
    name="activation",
    op_types=tuple(_FUNCTIONS),
    requirements=(
        *elementwise.UNARY,
        tensors.per_tensor,
        tensors.usable_scales,
        constant_bounds,
        finite_slope,
    ),
    parse=parse,
    constraints=(),
    operations=as_parsed,
)
