"""Requirements on the constants of convolutions and matrix products: int8 symmetric weights, int32 bias."""

from __future__ import annotations

import numpy as np

from byoc.graph import Graph, Node
from byoc.patterns.tensors import INT8


def constant_weights(graph: Graph, node: Node) -> str | None:
    """only constant weights run on the accelerator"""
    name = node.inputs[1]
    return f"weights '{name}' are computed at run time" if graph.values[name].constant is None else None


def eight_bit_weights(graph: Graph, node: Node) -> str | None:
    """only int8 weights, or uint8 weights around 128, run on the accelerator"""
    value = graph.values[node.inputs[1]]
    return None if value.dtype in INT8 else f"weights '{value.name}' have element type {value.dtype}"


def symmetric_weights(graph: Graph, node: Node) -> str | None:
    """only symmetric weights run on the accelerator"""
    value = graph.values[node.inputs[1]]
    middle = 128 if value.dtype == "uint8" else 0
    zero_points = np.atleast_1d(weight_zero_points(graph, node))
    wrong = np.flatnonzero(zero_points != middle)
    if wrong.size == 0:
        return None
    channel = int(wrong[0])
    return f"weights have a zero point: {int(zero_points[channel])} (channel {channel})"


def weight_zero_points(graph: Graph, node: Node) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Zero points of the weights, one or one a channel."""
    if "zero_points" in node.attributes:
        return np.asarray(node.attributes["zero_points"][1], np.int64)
    quantization = graph.values[node.inputs[1]].quantization
    assert quantization is not None
    return quantization.zero_point.astype(np.int64)


def weights_per_output_channel(graph: Graph, node: Node) -> str | None:
    """weights have one scale, or one an output channel"""
    quantization = graph.values[node.inputs[1]].quantization
    if quantization is None or quantization.per_tensor:
        return None
    axis = 0 if node.op_type == "Conv" else len(graph.values[node.inputs[1]].shape) - 1
    if quantization.axis == axis:
        return None
    return f"weights are quantised along axis {quantization.axis}, output channels are axis {axis}"


def integer_bias(graph: Graph, node: Node) -> str | None:
    """the bias is constant, int32, and has one element an output channel"""
    if len(node.inputs) < 3:
        return None
    value = graph.values[node.inputs[2]]
    if value.constant is None:
        return f"bias '{value.name}' is computed at run time"
    if value.dtype != "int32":
        return f"bias '{value.name}' has element type {value.dtype}"
    channels = graph.values[node.outputs[0]].shape[1 if node.op_type == "Conv" else -1]
    if value.elements not in (1, channels) or value.elements != (value.shape[-1] if value.shape else 1):
        return f"bias '{value.name}' has shape {value.shape} for {channels} output channels"
    return None


def bias_in_accumulator_scale(graph: Graph, node: Node) -> str | None:
    """the bias has zero point 0 and the scale of the accumulators, input scale × weight scale"""
    if len(node.inputs) < 3:
        return None
    source, weights, bias = (graph.values[name].quantization for name in node.inputs[:3])
    if source is None or weights is None or bias is None:
        return None  # a QLinear operator: its bias is in the accumulators' scale by definition
    if bias.zero_point.any():
        return f"the bias has zero point {int(bias.zero_point.flat[np.flatnonzero(bias.zero_point)[0]])}"
    wanted = source.scale.astype(np.float32) * weights.scale.astype(np.float32)
    near = np.isclose(bias.scale, wanted, rtol=1e-6, atol=0.0)
    if near.all():
        return None
    channel = int(np.flatnonzero(~np.atleast_1d(near))[0])
    have, want = np.broadcast_arrays(np.atleast_1d(bias.scale), np.atleast_1d(wanted))
    return f"the bias has scale {float(have[channel]):.9g} (channel {channel}), not {float(want[channel]):.9g}"
