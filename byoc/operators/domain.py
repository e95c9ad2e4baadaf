"""Common parts of the families: int8 domain, output clamps, operand shapes and requirements."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Value
from byoc.operators.rules import Finding, finding, rule
from byoc.options import Target
from isa.numerics import steps

INT8 = ("int8", "uint8")
FLAGS = "bool"
"""Element type of flags: 0 and 1 in the accelerator's int8 domain."""
INDEX = "int64"
INDEX_OFFSET = 128
"""Offset of stored indices: an index is below 256 and is stored as index minus 128."""
STORED = (*INT8, FLAGS)
"""Element types that the accelerator stores as int8."""


@dataclass(frozen=True)
class Affine:
    """Per-tensor quantisation of a tensor in the ONNX type and in the int8 domain.

    ``zero_point`` has the ONNX type. ``offset`` is its distance to the int8 domain: 0, or 128 for
    uint8.
    """

    scale: np.float32
    zero_point: int
    offset: int

    @property
    def stored_zero_point(self) -> int:
        """Zero point in the accelerator's int8 domain."""
        return self.zero_point - self.offset


def affine(value: Value) -> Affine:
    """Return the quantisation of a tensor with one scale.

    Flags are the numbers 0 and 1.
    """
    if value.dtype == FLAGS:
        return Affine(np.float32(1), 0, 0)
    assert value.quantization is not None
    quantization = value.quantization
    offset = 128 if value.dtype == "uint8" else 0
    return Affine(
        np.float32(quantization.scale.reshape(())), int(quantization.zero_point.reshape(())), offset
    )


def same_steps(one: Value, other: Value) -> bool:
    """Return whether equal stored integers of two tensors represent equal numbers.

    The tensors may have different types, int8 and uint8.
    """
    first = affine(one)
    second = affine(other)
    return (first.scale, first.stored_zero_point) == (second.scale, second.stored_zero_point)


def numbers(node: Node, value: Value) -> Affine:
    """Return the quantisation of an operand or result; bare integers have scale 1.

    For other tensors it is :func:`affine`. Bare integers have zero point 0.
    """
    if node.attributes.get("plain"):
        return Affine(np.float32(1), 0, 128 if value.dtype == "uint8" else 0)
    return affine(value)


def to_stored_integers(data: NDArray[Any]) -> NDArray[np.int8]:
    """Convert integers to the accelerator's int8 domain.

    int8 stays unchanged, uint8 is shifted by 128, and flags become 0 and 1.
    """
    if data.dtype == np.uint8:
        return (data ^ np.uint8(128)).view(np.int8)
    return data.astype(np.int8, copy=False)


def constants_of(values: Iterable[Value]) -> dict[str, NDArray[np.int8]]:
    """Return the stored int8 data of the constant tensors among ``values``, by name."""
    return {
        value.name: to_stored_integers(value.constant)
        for value in values
        if value.constant is not None
    }


def clamp(node: Node, output: Affine) -> tuple[int, int]:
    """Return the limits to which a fused Relu or Clip clamps the stored int8 result."""
    bounds = activation_bounds(node)
    return (-128, 127) if bounds is None else quantise_bounds(bounds, output)


def activation_bounds(node: Node) -> tuple[float, float] | None:
    """Return the real limits of the activation fused into a node, or None."""
    activation = node.attributes.get("activation")
    if activation is None:
        return None
    return (0.0, float("inf")) if activation == "Relu" else (activation[1], activation[2])


def quantise_bounds(bounds: tuple[float, float], output: Affine) -> tuple[int, int]:
    """Convert real bounds to stored int8 limits: ``rint(bound / scale) + zero point``, saturated.

    If the lower limit exceeds the upper one, the upper one is used for both.
    """
    low, high = (
        int(each)
        for each in steps(
            np.asarray(bounds, np.float32), output.scale, output.stored_zero_point, np.int8
        )
    )
    return min(low, high), high


def plane(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (C, H, W) of a tensor (N, C, spatial…) with the batch folded into the channels.

    A single spatial dimension becomes W.
    """
    channels = int(np.prod(shape[:2]))
    spatial = (1,) * (4 - len(shape)) + tuple(shape[2:])
    return channels, spatial[0], spatial[1]


def elementwise_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a tensor shape reduced to one to three dimensions by folding the leading ones."""
    if len(shape) <= 3:
        return shape or (1,)
    return (int(np.prod(shape[:-2])), *shape[-2:])


# Requirements that several families use


def other_than_eight_bit(graph: Graph, names: Iterable[str]) -> Finding | None:
    """Return a finding for the first input that is not int8, uint8 or flags."""
    for name in names:
        if graph.values[name].dtype not in STORED:
            kind = graph.values[name].dtype
            remedy = ": quantise it to 8 bits" if kind in ("int16", "uint16") else ""
            return finding(
                f"input '{{name}}' has element type {{type}}{remedy}", name=name, type=kind
            )
    return None


def find_per_channel(graph: Graph, names: Iterable[str]) -> Finding | None:
    """Return a finding for the first tensor with several scales."""
    for name in names:
        quantization = graph.values[name].quantization
        if quantization is not None and not quantization.per_tensor:
            axis = quantization.axis
            return finding(
                "tensor '{name}' is quantised per channel along axis {axis}", name=name, axis=axis
            )
    return None


@rule("only int8, uint8 and bool tensors run on the accelerator")
def eight_bit_input(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if an operand does not have 8 bits, or None."""
    return other_than_eight_bit(graph, node.inputs)


@rule("results are int8, uint8 or bool; an integer product may also be int32")
def eight_bit_output(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a result does not have 8 bits, or None.

    An integer operator without scales may also have an int32 result.
    """
    value = graph.values[node.outputs[0]]
    if value.dtype in ((*STORED, "int32") if "zero_points" in node.attributes else STORED):
        return None
    return finding("output '{name}' has element type {type}", name=value.name, type=value.dtype)


@rule("each activation tensor has one scale and one zero point")
def per_tensor(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if an operand or result is quantised per channel, or None."""
    return find_per_channel(graph, (*node.inputs, *node.outputs))


def usable(scale: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return True where a scale gives all 8-bit integers finite and distinct real values."""
    return (scale > 0) & (scale <= np.finfo(np.float32).max / 255)


@rule("scales are positive, and 255 times a scale is finite in float32")
def usable_scales(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a scale is not positive or is too large for float32, or None.

    Zero, negative and NaN scales are not usable. 255 times a scale must be finite.
    """
    for name in (*node.inputs, *node.outputs):
        quantization = graph.values[name].quantization
        if quantization is None:
            continue
        wrong = quantization.scale[~usable(quantization.scale)]
        if wrong.size:
            scale = float(wrong[0])
            return finding("tensor '{name}' has the scale {scale:g}", name=name, scale=scale)
    return None


@rule("the scale of an operand is at most 2^22 times the scale of the result")
def near_scales(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if scaling 255 steps of an operand overflows int32, or None.

    ONNX Runtime computes the sum of the two operands in int32.
    """
    result = affine(graph.values[node.outputs[0]])
    for name in node.inputs:
        ratio = float(affine(graph.values[name]).scale) / float(result.scale)
        if ratio > 2.0**22:
            values = {"name": name, "ratio": ratio, "result": node.outputs[0]}
            return finding("the scale of '{name}' is {ratio:g} times that of '{result}'", **values)
    return None


@rule("tensors have at least one element")
def not_empty(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if an operand or result is empty, or None."""
    for name in (*node.inputs, *node.outputs):
        if graph.values[name].elements == 0:
            shape = graph.values[name].shape
            return finding("tensor '{name}' of shape {shape} is empty", name=name, shape=shape)
    return None


@rule("the first operand is computed at run time")
def variable_input(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if the first input of a node is constant, or None."""
    name = node.inputs[0]
    return (
        finding("input '{name}' is constant", name=name)
        if graph.values[name].constant is not None
        else None
    )


@rule("inputs and output must have the same quantisation")
def moves_integers(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if operands and result are quantised differently, or None.

    The operators with this rule copy integers unchanged.
    """
    if node.attributes.get("plain"):
        return None
    result = graph.values[node.outputs[0]]
    assert result.quantization is not None
    for name in node.inputs:
        source = graph.values[name]
        assert source.quantization is not None
        if not source.quantization.same_as(result.quantization):
            first = affine(source)
            second = affine(result)
            return finding(
                "'{name}' has scale {scale:.9g} and zero point {zero_point}, "
                "'{result}' has scale {result_scale:.9g} and zero point {result_zero_point}",
                name=name,
                scale=float(first.scale),
                zero_point=first.zero_point,
                result=result.name,
                result_scale=float(second.scale),
                result_zero_point=second.zero_point,
            )
    return None


FIXED = (
    "with numerics fixed, no value overflows int32 when its scale changes: choose numerics "
    "onnxruntime"
)


def check_int32(
    magnitude: int, ratio: float, target: Target, *, once: bool = False
) -> Finding | None:
    """Return a finding if scaling by ``ratio`` can overflow int32, or None.

    The finding is possible only with numerics ``fixed``.

    The value to scale is at most ``magnitude``. Integer scaling shifts the value left before the
    multiplication. With ``once`` (rounded only once) the product itself must fit. Outside int32 the
    behaviour of LiteRT's C++ arithmetic is undefined.
    """
    shift = math.frexp(ratio * (1 + 2.0**-31))[1]
    fits = magnitude * ratio < 2.0**31 - 1 if once else magnitude << max(shift, 0) < 1 << 31
    if target.numerics != "fixed" or fits:
        return None
    return finding(
        "a value of {magnitude} is to be multiplied by {ratio:g}", magnitude=magnitude, ratio=ratio
    )


def check_size(label: str, size: int, limit: int) -> Finding | None:
    """Return a finding if ``size`` is not below the limit of its register field, or None."""
    if size < limit:
        return None
    return finding(
        "{label} {size} does not fit a field below {limit}", label=label, size=size, limit=limit
    )


def too_large(record_shapes: tuple[tuple[int, ...], ...], target: Target) -> Finding | None:
    """Return a finding if a dimension exceeds the target's register field, or None.

    Shapes are (C, H, W) or (rows, columns).
    """
    for shape in record_shapes:
        for position, size in enumerate(shape):
            limit = (
                target.spatial_limit if len(shape) == 3 and position > 0 else target.channel_limit
            )
            label = ("channels", "height", "width")[position] if len(shape) == 3 else "dimension"
            found = check_size(label, size, limit)
            if found is not None:
                return found
    return None


def plain_attribute(value: Value) -> dict[str, Any]:
    """Return the attribute that marks a data movement of integers without a scale.

    Other movements have none.
    """
    return {"plain": True} if value.quantization is None else {}
