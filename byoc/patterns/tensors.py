"""What the families share: the accelerator's int8 domain, folded biases, output clamps, common requirements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Value
from byoc.operations import Operand, Requantise
from byoc.target import Target
from isa.numerics.integers import accumulator_bound
from isa.numerics.requantising import requantise_scale

INT8 = ("int8", "uint8")
ACCUMULATOR_LIMIT = 2**31


@dataclass(frozen=True)
class Affine:
    """Per-tensor quantisation: ``zero_point`` of the ONNX type, ``offset`` (0, or 128 for uint8) to the int8 domain."""

    scale: np.float32
    zero_point: int
    offset: int

    @property
    def stored_zero_point(self) -> int:
        """Zero point in the accelerator's int8 domain."""
        return self.zero_point - self.offset


def affine(value: Value) -> Affine:
    """Quantisation of a tensor that is quantised per tensor."""
    assert value.quantization is not None
    quantization = value.quantization
    offset = 128 if value.dtype == "uint8" else 0
    return Affine(np.float32(quantization.scale.reshape(())), int(quantization.zero_point.reshape(())), offset)


def stored(data: NDArray[np.int8] | NDArray[np.uint8]) -> NDArray[np.int8]:
    """Integers in the accelerator's int8 domain: int8 unchanged, uint8 moved by 128."""
    if data.dtype == np.uint8:
        return (data ^ np.uint8(128)).view(np.int8)
    return data.astype(np.int8, copy=False)


def fold_zero_point(
    bias: NDArray[np.int32] | None, weight_sums: NDArray[np.int64], zero_point: int
) -> NDArray[np.int64]:
    """``bias - zero_point * sum(weights)`` of every output channel, in int64."""
    start = np.zeros_like(weight_sums) if bias is None else bias.astype(np.int64)
    return start - zero_point * weight_sums


def largest_accumulator(weights: NDArray[np.int8], bias: NDArray[np.int64]) -> int:
    """Upper bound of the accumulators of all channels (rows): a cheap one, or the exact one where that is too large."""
    cheap = int(np.abs(bias).max(initial=0)) + 128 * 128 * weights.shape[1]
    return cheap if cheap < ACCUMULATOR_LIMIT else int(accumulator_bound(weights, bias).max())


def clamp(node: Node, output: Affine) -> tuple[int, int]:
    """Limits of the stored int8 result that a fused Relu or Clip leaves."""
    activation = node.attributes.get("activation")
    if activation is None:
        return -128, 127
    bounds = (0.0, float("inf")) if activation == "Relu" else tuple(activation[1:])
    return quantised_bounds((bounds[0], bounds[1]), output)


def quantised_bounds(bounds: tuple[float, float], output: Affine) -> tuple[int, int]:
    """Real bounds as stored int8 limits: ``rint(bound / scale) + zero point``, saturated, the upper one deciding."""
    with np.errstate(over="ignore"):
        steps = np.rint(np.asarray(bounds, np.float32) / output.scale) + np.float32(output.stored_zero_point)
    low, high = (int(limit) for limit in np.clip(steps, -128, 127))
    return min(low, high), high


def requantisation(node: Node, data: Value, weights: Value, result: Value, channels: int) -> Requantise:
    """Requantisation of the products of ``data`` and ``weights`` to ``result``, with its fused activation.

    The scale has one element for each of the ``channels`` output channels, also where the weights have only one.
    """
    assert weights.quantization is not None
    output = affine(result)
    low, high = clamp(node, output)
    scale = requantise_scale(affine(data).scale, weights.quantization.scale, output.scale)
    spread = np.broadcast_to(np.atleast_1d(scale), (channels,)).copy()
    return Requantise(scale=spread, zero_point=output.stored_zero_point, low=low, high=high)


def plane(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(C, H, W) of an (N, C, spatial…) tensor with the batch folded into the channels; one dimension becomes W."""
    channels = int(np.prod(shape[:2]))
    spatial = (1,) * (4 - len(shape)) + tuple(shape[2:])
    return channels, spatial[0], spatial[1]


def elementwise_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """At most three dimensions, at least one, leading ones folded."""
    if len(shape) <= 3:
        return shape or (1,)
    return (int(np.prod(shape[:-2])), *shape[-2:])


def whole(value: Value, shape: tuple[int, ...]) -> Operand:
    """The whole tensor as an operand of another shape."""
    return Operand(value.name, shape, dtype="int32" if value.dtype == "int32" else "int8")


# Requirements that several families use. ---------------------------------------------------------------------------


def eight_bit_input(graph: Graph, node: Node) -> str | None:
    """only int8 and uint8 tensors run on the accelerator"""
    for name in node.inputs[:1] if node.op_type in ("Conv", "MatMul") else node.inputs:
        if graph.values[name].dtype not in INT8:
            return f"input '{name}' has element type {graph.values[name].dtype}"
    return None


def eight_bit_output(graph: Graph, node: Node) -> str | None:
    """results are int8 or uint8, or int32 of an integer product"""
    value = graph.values[node.outputs[0]]
    allowed = (*INT8, "int32") if "zero_points" in node.attributes else INT8
    return None if value.dtype in allowed else f"output '{value.name}' has element type {value.dtype}"


def per_tensor(graph: Graph, node: Node) -> str | None:
    """activations have one scale and one zero point a tensor"""
    operands = node.inputs[:1] if node.op_type in ("Conv", "MatMul") else node.inputs
    for name in (*operands, *node.outputs):
        quantization = graph.values[name].quantization
        if quantization is not None and not quantization.per_tensor:
            return f"tensor '{name}' is quantised per channel along axis {quantization.axis}"
    return None


def usable_scales(graph: Graph, node: Node) -> str | None:
    """scales are positive and finite"""
    for name in (*node.inputs, *node.outputs):
        quantization = graph.values[name].quantization
        if quantization is not None and not (np.isfinite(quantization.scale) & (quantization.scale > 0)).all():
            return f"tensor '{name}' has the scale {float(np.min(quantization.scale)):g}"
    return None


def not_empty(graph: Graph, node: Node) -> str | None:
    """tensors have at least one element"""
    for name in (*node.inputs, *node.outputs):
        if graph.values[name].elements == 0:
            return f"tensor '{name}' of shape {graph.values[name].shape} is empty"
    return None


def variable_input(graph: Graph, node: Node) -> str | None:
    """the first operand is computed at run time"""
    name = node.inputs[0]
    return f"input '{name}' is constant" if graph.values[name].constant is not None else None


def oversized(label: str, size: int, limit: int) -> str | None:
    """Detail of a size that does not fit its register; None where it does."""
    return f"{label} {size} does not fit a field below {limit}" if size >= limit else None


def too_large(record_shapes: tuple[tuple[int, ...], ...], target: Target) -> str | None:
    """Detail of the first (C, H, W) or (rows, columns) shape with a dimension outside the target's fields."""
    for shape in record_shapes:
        for position, size in enumerate(shape):
            limit = target.spatial_limit if len(shape) == 3 and position > 0 else target.channel_limit
            label = ("channels", "height", "width")[position] if len(shape) == 3 else "dimension"
            detail = oversized(label, size, limit)
            if detail is not None:
                return detail
    return None
