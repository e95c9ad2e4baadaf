"""Rules that every product follows: operands of eight bits, constant weights, accumulators."""

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.products import RequantiseConstants
from byoc.operators.rules import Finding, finding, rule
from byoc.options import Target
from isa.numerics.requantising import accumulator_bound

ACCUMULATOR_LIMIT = 2**31


def zero_points(graph: Graph, node: Node, number: int) -> NDArray[np.int64]:
    """Return the int8-domain zero points of a product's operand: one, or one per channel."""
    value = graph.values[node.inputs[number]]
    if "zero_points" in node.attributes:
        found = np.asarray(node.attributes["zero_points"][number], np.int64)
    else:
        assert value.quantization is not None
        found = np.atleast_1d(value.quantization.zero_point).astype(np.int64)
    return found - (128 if value.dtype == "uint8" else 0)


def largest(weights: NDArray[np.integer], bias: NDArray[np.int64]) -> int:
    """Return an upper bound of the accumulators of all channels (rows of ``weights``).

    A cheap bound is used if it is within int32, otherwise the exact one.
    """
    bound = int(np.abs(bias).max(initial=0)) + 128 * 255 * weights.shape[1]
    return bound if bound < ACCUMULATOR_LIMIT else int(accumulator_bound(weights, bias).max())


def too_wide(bound: int) -> Finding | None:
    """Return a finding if an accumulator of up to ``bound`` could overflow int32, or None."""
    return (
        finding("an accumulator could reach {bound}", bound=bound)
        if bound >= ACCUMULATOR_LIMIT
        else None
    )


def check_accumulator(
    weights: NDArray[np.integer],
    bias: NDArray[np.int64],
    requantise: RequantiseConstants | None,
    target: Target,
) -> Finding | None:
    """Return a finding if requantising a channel's accumulator overflows int32, or None.

    The finding is possible only with integer requantisation (numerics ``fixed``). A channel is a
    row of ``weights``.
    """
    if target.numerics != "fixed" or requantise is None:
        return None
    scales = np.broadcast_to(requantise.scales.exact, bias.shape)
    growing = np.flatnonzero(scales > 0.5)
    if not growing.size:
        return None
    bounds = accumulator_bound(weights[growing], bias[growing])
    for bound, scale in zip(bounds, scales[growing], strict=True):
        found = domain.check_int32(int(bound), float(scale), target, once=requantise.scales.once)
        if found is not None:
            return found
    return None


@rule(domain.eight_bit_input.text)
def eight_bit_input(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if the data of a product does not have 8 bits, or None.

    Weights and bias have other rules.
    """
    return domain.other_than_eight_bit(graph, node.inputs[:1])


@rule(domain.eight_bit_input.text)
def eight_bit_operands(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if an operand of a product does not have 8 bits, or None.

    A bias has other rules.
    """
    return domain.other_than_eight_bit(graph, node.inputs[:2])


@rule(
    "integers without scales have one zero point per operand; weights may have one per output "
    "channel"
)
def known_zero_points(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a product has a wrong number of zero points, or None.

    The rule applies to products of integers without scales. Each operand has one zero point;
    weights may have one per output channel.
    """
    for number, zeros in enumerate(node.attributes.get("zero_points", ())):
        shape = graph.values[node.inputs[number]].shape
        channels = shape[_channel_axis(graph, node)] if number and shape else 1
        if len(zeros) not in (1, channels):
            return finding(
                "'{name}' has {count} zero points", name=node.inputs[number], count=len(zeros)
            )
    return None


@rule(domain.per_tensor.text)
def per_tensor(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a product's data or result is quantised per channel, or None."""
    return domain.find_per_channel(graph, (node.inputs[0], *node.outputs))


@rule("only constant weights run on the accelerator")
def constant_weights(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if the weights of a product are computed at run time, or None."""
    name = node.inputs[1]
    return (
        finding("weights '{name}' are computed at run time", name=name)
        if graph.values[name].constant is None
        else None
    )


@rule("only int8 and uint8 weights run on the accelerator")
def eight_bit_weights(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if the weights of a product do not have 8 bits, or None."""
    value = graph.values[node.inputs[1]]
    if value.dtype in domain.INT8:
        return None
    return finding("weights '{name}' have element type {type}", name=value.name, type=value.dtype)


@rule("weights have one scale, or one scale per output channel")
def weights_per_output_channel(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if weights have several scales along a wrong axis, or None.

    The only axis that may have several scales is that of the output channels.
    """
    quantization = graph.values[node.inputs[1]].quantization
    if quantization is None or quantization.per_tensor:
        return None
    axis = _channel_axis(graph, node)
    if quantization.axis == axis:
        return None
    values = {"axis": quantization.axis, "wanted": axis}
    return finding(
        "weights are quantised along axis {axis}, output channels are axis {wanted}", **values
    )


def _channel_axis(graph: Graph, node: Node) -> int:
    """Return the axis of output channels in canonical weights.

    It is the first axis for filters, the last for columns.
    """
    return 0 if "kernel" in node.attributes else len(graph.values[node.inputs[1]].shape) - 1


@rule("the bias is a constant int32 tensor with one element per output channel")
def integer_bias(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if channel records cannot contain a product's bias, or None."""
    if len(node.inputs) < 3:
        return None
    value = graph.values[node.inputs[2]]
    if value.constant is None:
        return finding("bias '{name}' is computed at run time", name=value.name)
    if value.dtype != "int32":
        return finding("bias '{name}' has element type {type}", name=value.name, type=value.dtype)
    channels = graph.values[node.outputs[0]].shape[1 if _channel_axis(graph, node) == 0 else -1]
    if value.elements not in (1, channels) or value.elements != (
        value.shape[-1] if value.shape else 1
    ):
        values = {"name": value.name, "shape": value.shape, "channels": channels}
        return finding("bias '{name}' has shape {shape} for {channels} output channels", **values)
    return None


@rule("the bias has zero point 0 and the scale of the accumulators, input scale × weight scale")
def bias_in_accumulator_scale(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a bias must be rescaled before it is added, or None.

    The bias is added to the accumulators, so it must have their scale and zero point 0.
    """
    if len(node.inputs) < 3:
        return None
    source, weights, bias = (graph.values[name].quantization for name in node.inputs[:3])
    if source is None or weights is None or bias is None:
        # the bias of a QLinear operator has the scale of the accumulators by definition
        return None
    if bias.zero_point.any():
        zero_point = int(bias.zero_point.flat[np.flatnonzero(bias.zero_point)[0]])
        return finding("the bias has zero point {zero_point}", zero_point=zero_point)
    wanted = source.scale.astype(np.float32) * weights.scale.astype(np.float32)
    near = np.isclose(bias.scale, wanted, rtol=1e-6, atol=0.0)
    if near.all():
        return None
    channel = int(np.flatnonzero(~np.atleast_1d(near))[0])
    have, want = np.broadcast_arrays(np.atleast_1d(bias.scale), np.atleast_1d(wanted))
    values = {"scale": float(have[channel]), "channel": channel, "wanted": float(want[channel])}
    return finding("the bias has scale {scale:.9g} (channel {channel}), not {wanted:.9g}", **values)


WEIGHTS = (
    eight_bit_weights,
    known_zero_points,
    weights_per_output_channel,
    integer_bias,
    bias_in_accumulator_scale,
)
"""Requirements of weights and biases, in the order in which they are checked."""
