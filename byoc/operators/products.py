"""What convolutions and matrix products share: constant int8 weights, int32 biases, accumulators, requantisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.forms import Written
from byoc.operators.onnx_view import OnnxNode, OnnxView
from byoc.operators.operator import Operand, Operator, Settings
from byoc.operators.requantisation import Requantisation, Requantise
from byoc.operators.rules import Finding, finding, rule
from byoc.target import Target
from isa.arch import Arch
from isa.numerics.integers import accumulator_bound

ACCUMULATOR_LIMIT = 2**31


@dataclass(frozen=True, eq=False, kw_only=True)
class Product(Operator):
    """Products of one input with constant int8 ``weights``, int32 ``bias`` (channels,), requantised or int32.

    The input's zero point is folded into the bias: ``bias - zx * sum(weights)``. ``requantise`` None means an int32
    result.
    """

    arity: ClassVar[tuple[int, int]] = (2, 3)

    weights: NDArray[np.int8]
    bias: NDArray[np.int32]
    requantise: Requantise | None

    @classmethod
    def float_reason(cls, view: OnnxView, node: OnnxNode) -> str:
        """Computed weights, or a bias that is not one number a channel."""
        weights, bias = node.input(1), node.input(2)
        if not view.is_constant(weights):
            return f"its operand '{weights}' is computed; only constant weights run on the accelerator"
        if bias and not view.is_constant(bias):
            return f"its bias '{bias}' is computed; only a constant bias runs on the accelerator"
        shape = view.shape(bias) if bias else ()
        if len(shape) > 1 and shape[0] > 1:
            return f"its bias '{bias}' has shape {shape}; only one number a channel runs on the accelerator"
        return ""

    @classmethod
    def unfused(cls, view: OnnxView, operands: tuple[str, ...], result: str) -> str:
        """Products of one element type with a result of another are no integer operators of ONNX Runtime."""
        source, target = view.element_type(operands[0]), view.element_type(result)
        if source == target:
            return ""
        return f"its input is {source} and its result {target}; ONNX Runtime fuses only equal types"

    @classmethod
    def stays_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Products of two computed values stay in float."""
        return any(name not in constants for name in node.inputs[1:] if name)

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any]:
        """None of its own."""
        return {}

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """A product of bare integers knows its zero points."""
        if node.attributes.get("plain") and "zero_points" not in node.attributes:
            return f"'{node.name}' has neither scales nor zero points"
        return super().misfit(graph, node)

    def settings(self, arch: Arch) -> Settings:
        """Clamp and fields of fused requantisation; a lower limit at the zero point is the ``relu`` field."""
        requantise = self.requantise
        if requantise is None:
            unclamped = {"EX_OUTPUT_ZERO_POINT": 0, "EX_CLAMP_LOW": -128, "EX_CLAMP_HIGH": 127}
            return Settings(unclamped, {"requantise": 0, "relu": 0})
        relu = requantise.low == requantise.zero_point
        registers = {
            "EX_OUTPUT_ZERO_POINT": requantise.zero_point,
            "EX_CLAMP_LOW": -128 if relu else requantise.low,
            "EX_CLAMP_HIGH": requantise.high,
        }
        return Settings(registers, {"requantise": 1, "relu": int(relu)})

    @property
    def channel_scales(self) -> NDArray[np.float32]:
        """Scales of the channel records. An int32 result needs none; 1 is as good as any."""
        return np.ones(1, np.float32) if self.requantise is None else self.requantise.scale

    def split(self) -> tuple[Operator, ...]:
        """Accumulation into an int32 value of its own, and its requantising."""
        if self.requantise is None:
            return (self,)
        # Every byte is written once, so the slice that a product writes names its accumulator.
        name = f"{self.output.value}@{self.output.offset}:accumulator"
        middle = Operand(name, self.output.shape, 0, "int32")
        second = Requantisation(
            name=f"{self.name}:requantise",
            kind="REQUANT",
            inputs=(middle,),
            output=self.output,
            onnx_nodes=self.onnx_nodes,
            requantise=self.requantise,
        )
        return replace(self, output=middle, requantise=None), second


def fold_zero_point(
    bias: NDArray[np.int32] | None, weight_sums: NDArray[np.int64], zero_point: int
) -> NDArray[np.int64]:
    """``bias - zero_point * sum(weights)`` of every output channel, in int64."""
    start = np.zeros_like(weight_sums) if bias is None else bias.astype(np.int64)
    return start - zero_point * weight_sums


def input_zero_point(graph: Graph, node: Node) -> int:
    """Zero point of the first operand in the int8 domain."""
    value = graph.values[node.inputs[0]]
    if "zero_points" in node.attributes:
        return int(node.attributes["zero_points"][0][0]) - (128 if value.dtype == "uint8" else 0)
    return domain.affine(value).stored_zero_point


def overflow(weights: NDArray[np.int8], bias: NDArray[np.int64]) -> Finding | None:
    """That an accumulator of some channel (row of ``weights``) could leave int32: a cheap bound, then the exact one."""
    bound = int(np.abs(bias).max(initial=0)) + 128 * 128 * weights.shape[1]
    if bound >= ACCUMULATOR_LIMIT:
        bound = int(accumulator_bound(weights, bias).max())
    return finding("an accumulator could reach {bound}", bound=bound) if bound >= ACCUMULATOR_LIMIT else None


def leaves_int32(
    weights: NDArray[np.int8], bias: NDArray[np.int64], requantise: Requantise | None, target: Target
) -> Finding | None:
    """That an accumulator of some channel (row of ``weights``) leaves int32 while it is requantised with integers."""
    if target.numerics != "fixed" or requantise is None:
        return None
    scales = np.broadcast_to(requantise.scale, bias.shape)
    growing = np.flatnonzero(scales > 0.5)
    if not growing.size:
        return None
    bounds = accumulator_bound(weights[growing], bias[growing])
    for bound, scale in zip(bounds, scales[growing], strict=True):
        found = domain.leaves_int32(int(bound), float(scale), target)
        if found is not None:
            return found
    return None


# Requirements. ------------------------------------------------------------------------------------------------------


@rule(domain.eight_bit_input.text)
def eight_bit_input(graph: Graph, node: Node) -> Finding | None:
    """The data is of 8 bits; weights and bias have rules of their own."""
    return domain.other_than_eight_bit(graph, node.inputs[:1])


@rule(domain.per_tensor.text)
def per_tensor(graph: Graph, node: Node) -> Finding | None:
    """Data and result are quantised per tensor."""
    return domain.per_channel(graph, (node.inputs[0], *node.outputs))


@rule("only constant weights run on the accelerator")
def constant_weights(graph: Graph, node: Node) -> Finding | None:
    """The weights are constant."""
    name = node.inputs[1]
    return finding("weights '{name}' are computed at run time", name=name) if _computed(graph, name) else None


def _computed(graph: Graph, name: str) -> bool:
    return graph.values[name].constant is None


@rule("only int8 weights, or uint8 weights around 128, run on the accelerator")
def eight_bit_weights(graph: Graph, node: Node) -> Finding | None:
    """The weights are of 8 bits."""
    value = graph.values[node.inputs[1]]
    if value.dtype in domain.INT8:
        return None
    return finding("weights '{name}' have element type {type}", name=value.name, type=value.dtype)


@rule("only symmetric weights run on the accelerator")
def symmetric_weights(graph: Graph, node: Node) -> Finding | None:
    """The weights' zero points are the middle of their type."""
    value = graph.values[node.inputs[1]]
    middle = 128 if value.dtype == "uint8" else 0
    zero_points = np.atleast_1d(_weight_zero_points(graph, node))
    wrong = np.flatnonzero(zero_points != middle)
    if wrong.size == 0:
        return None
    channel = int(wrong[0])
    values = {"zero_point": int(zero_points[channel]), "channel": channel}
    return finding("weights have a zero point: {zero_point} (channel {channel})", **values)


def _weight_zero_points(graph: Graph, node: Node) -> NDArray[np.int64]:
    """Zero points of the weights, one or one a channel."""
    if "zero_points" in node.attributes:
        return np.asarray(node.attributes["zero_points"][1], np.int64)
    quantization = graph.values[node.inputs[1]].quantization
    assert quantization is not None
    return quantization.zero_point.astype(np.int64)


@rule("weights have one scale, or one an output channel")
def weights_per_output_channel(graph: Graph, node: Node) -> Finding | None:
    """Several scales run along the output channels."""
    quantization = graph.values[node.inputs[1]].quantization
    if quantization is None or quantization.per_tensor:
        return None
    axis = _channel_axis(graph, node)
    if quantization.axis == axis:
        return None
    values = {"axis": quantization.axis, "wanted": axis}
    return finding("weights are quantised along axis {axis}, output channels are axis {wanted}", **values)


def _channel_axis(graph: Graph, node: Node) -> int:
    """The axis of canonical weights that is the output channel: filters come first, columns last."""
    return 0 if "kernel" in node.attributes else len(graph.values[node.inputs[1]].shape) - 1


@rule("the bias is constant, int32, and has one element an output channel")
def integer_bias(graph: Graph, node: Node) -> Finding | None:
    """A bias is there for the channel records."""
    if len(node.inputs) < 3:
        return None
    value = graph.values[node.inputs[2]]
    if value.constant is None:
        return finding("bias '{name}' is computed at run time", name=value.name)
    if value.dtype != "int32":
        return finding("bias '{name}' has element type {type}", name=value.name, type=value.dtype)
    channels = graph.values[node.outputs[0]].shape[1 if _channel_axis(graph, node) == 0 else -1]
    if value.elements not in (1, channels) or value.elements != (value.shape[-1] if value.shape else 1):
        values = {"name": value.name, "shape": value.shape, "channels": channels}
        return finding("bias '{name}' has shape {shape} for {channels} output channels", **values)
    return None


@rule("the bias has zero point 0 and the scale of the accumulators, input scale × weight scale")
def bias_in_accumulator_scale(graph: Graph, node: Node) -> Finding | None:
    """The bias can be added to the accumulators as it is."""
    if len(node.inputs) < 3:
        return None
    source, weights, bias = (graph.values[name].quantization for name in node.inputs[:3])
    if source is None or weights is None or bias is None:
        return None  # a QLinear operator: its bias is in the accumulators' scale by definition
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


WEIGHTS = (eight_bit_weights, symmetric_weights, weights_per_output_channel, integer_bias, bias_in_accumulator_scale)
"""The rules for weights and biases, in the order in which they are asked."""
