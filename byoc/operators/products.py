"""Common parts of convolutions and matrix products.

These are int8 weights, int32 biases, accumulators and requantisation. Requantisation converts int32
accumulators to int8, fused into their product or as a separate operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Value
from byoc.operators.domain import affine, clamp
from byoc.operators.forms import Form, Written
from byoc.operators.geometry import Geometry
from byoc.operators.movement import Alias
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.onnx_view import OnnxNode, OnnxView
from byoc.operators.operator import Operator
from byoc.operators.records import ChannelConstants, Loops, Operand, Registers, Settings, Traits
from byoc.options import Target
from isa.arch import Arch
from isa.numerics import product_multiplier, real_multiplier, requantise_scale
from isa.ops.requant import ChannelScales
from isa.plugins import variant

FixedRule = Literal["filters", "dense", "activations"]
"""LiteRT reference kernel that numerics ``fixed`` follow.

"filters": convolutions. "dense": FullyConnected, whose scaled products are rounded once.
"activations": BatchMatMul, whose scales are multiplied in float32.
"""


@dataclass(frozen=True, eq=False)
class RequantiseConstants:
    """Requantisation of int32 accumulators to int8 with one scale per channel.

    The result is ``clip(rint(float32(acc) * scale) + zero_point, low, high)``. Numerics ``fixed``
    use the exact scales.
    """

    scales: ChannelScales
    zero_point: int
    low: int = -128
    high: int = 127

    def channels(self, chosen: slice) -> RequantiseConstants:
        return replace(self, scales=self.scales.select_channels(chosen))


def requantisation(
    node: Node,
    data: Value,
    weights: Value,
    result: Value,
    channels: int,
    rule: FixedRule = "filters",
) -> RequantiseConstants:
    """Return the requantisation of the products of ``data`` and ``weights`` to ``result``.

    It includes the node's fused activation. The scale has one element for each of the ``channels``
    output channels, even if the weights have only one scale.
    """
    assert weights.quantization is not None
    output = affine(result)
    low, high = clamp(node, output)
    # multiplied first, as in ONNX Runtime's QGemm
    factor = np.float32(node.attributes.get("alpha", 1.0))
    before = affine(data).scale
    filters = weights.quantization.scale
    rounded = requantise_scale(factor * before, filters, output.scale)
    scale = product_multiplier if rule == "activations" else real_multiplier
    exact = float(factor) * np.asarray(scale(before, filters, output.scale))
    spread, wide = (
        np.broadcast_to(np.atleast_1d(scale), (channels,)).copy() for scale in (rounded, exact)
    )
    return RequantiseConstants(
        ChannelScales(spread, wide, rule == "dense"), output.stored_zero_point, low, high
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Requantisation(Operator):
    """Requantisation of int32 planes (C, H, W) or a matrix (M, N) to int8 of the same shape.

    It has one scale per channel or column. It has no ONNX operator: :func:`separate_requantisation`
    separates it from a product.
    """

    traits: ClassVar[Traits] = Traits(
        in_place=True, whole_planes=True, along_elements=True, mnemonic="OP_REQUANT"
    )

    requantise: RequantiseConstants

    @property
    def loops(self) -> Loops:
        """Loops of a requantisation over independent channels, or columns of a matrix."""
        shape = self.output.shape
        if len(shape) == 2:
            return Loops(
                LoopNest(shape[1], shape[0], 1, shape[1], shape[0], 1, groups=shape[1], matrix=True)
            )
        channels, rows, columns = shape
        return Loops(LoopNest(channels, rows, columns, channels, rows, columns, groups=channels))

    def settings(self, arch: Arch) -> Settings:
        """Return the registers for a requantisation's zero point and output clamp."""
        requantise = self.requantise
        registers = {
            "EX_OUTPUT_ZERO_POINT": requantise.zero_point,
            "EX_CLAMP_LOW": requantise.low,
            "EX_CLAMP_HIGH": requantise.high,
        }
        return Settings(registers, {})

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Return the shape registers: a matrix has rows of single elements, planes are one row."""
        output = tile.output
        rows = output.rows.size
        length = 1
        if not geometry.nest.matrix:
            rows = 1
            length = output.rows.size * output.columns.size
        return {"EX_ROWS": rows, "EX_OUTPUT_CHANNELS": output.channels.size, "EX_LENGTH": length}

    def constants(self) -> ChannelConstants:
        """Return the scales of a requantisation with zero biases.

        The biases are zero because the accumulators include them.
        """
        channels = self.output.shape[1 if len(self.output.shape) == 2 else 0]
        return ChannelConstants(np.zeros(channels, np.int32), self.requantise.scales)


def explain_unfused(view: OnnxView, form: Form, integers: Sequence[str]) -> str:
    """Return the reason why ONNX Runtime computes a quantised product in float, or "".

    ``integers`` names the quantised tensors. The result is empty if ONNX Runtime has an integer
    operator for their element types, and for operators without weights.
    """
    if not form.weights:
        return ""
    source, second, target = (view.element_type(name) for name in (*integers[:2], integers[-1]))
    if source != target:
        return f"its input is {source} and its result {target}; ONNX Runtime fuses only equal types"
    if (source, second) == ("int8", "uint8"):
        return "its operands are int8 and uint8; ONNX Runtime fuses uint8 and int8, but not these"
    return ""


def float_reason(view: OnnxView, form: Form, node: OnnxNode) -> str:
    """Return the reason that keeps a product in float and that no quantiser can remove, or "".

    Reasons are a computed bias, computed filters, or a bias of filters without one number per
    channel.
    """
    filters = form.weights == "filters"
    weights = node.input(1)
    bias = node.input(2)
    if filters and not view.is_constant(weights):
        return f"its operand '{weights}' is computed; only constant weights run on the accelerator"
    if form.weights and bias and not view.is_constant(bias):
        return f"its bias '{bias}' is computed; only a constant bias runs on the accelerator"
    shape = view.shape(bias) if bias and filters else ()
    if len(shape) > 1 and shape[0] > 1:
        return (
            f"its bias '{bias}' has shape {shape}; only one number a channel runs on the "
            "accelerator"
        )
    return ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Requantised(Operator):
    """Operation whose int32 accumulators may be requantised to int8.

    ``requantise`` gives the constants. If it is None, the result is int32.
    """

    requantise: RequantiseConstants | None


@dataclass(frozen=True, eq=False, kw_only=True)
class ProductOperator(Requantised):
    """Product of one input with constant int8 weights and an int32 bias per channel.

    The result is requantised or int32. The bias includes the input's zero point: ``bias - zx *
    sum(weights)``.
    """

    arity: ClassVar[tuple[int, int]] = (2, 3)

    weights: NDArray[np.int8]
    bias: NDArray[np.int32]

    @classmethod
    def must_stay_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        return any(name not in constants for name in node.inputs[1:] if name)

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any] | str:
        """Return an empty dictionary, because a product has no ONNX attributes by default."""
        return {}

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if a product of bare integers has no zero points."""
        if node.attributes.get("plain") and "zero_points" not in node.attributes:
            return f"'{node.name}' has neither scales nor zero points"
        return super().misfit(graph, node)

    def settings(self, arch: Arch) -> Settings:
        """Return a product's output clamp and fields of fused requantisation.

        A lower limit at the zero point sets the ``relu`` field.
        """
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
    def channel_scales(self) -> ChannelScales:
        """Requantisation scales in the channel records of a product.

        They are 1 for an int32 result, which does not use them.
        """
        return (
            ChannelScales.make_exact(np.ones(1, np.float32))
            if self.requantise is None
            else self.requantise.scales
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class WideAdd(Operator):
    """Sum of two int32 tensors of partial products, which has no ONNX operator."""

    traits: ClassVar[Traits] = Traits(flat=True, mnemonic="OP_E32_ADD")


def separate_requantisation(operation: Operator, arch: Arch) -> tuple[Operator, ...]:
    """Return a product with int32 result and a separate requantisation, as in the published system.

    Other operations, and all products of an ISA without OP_REQUANT, are returned unchanged.
    """
    able = Requantisation.traits.mnemonic in variant(arch.isa).mnemonics
    if not able or not isinstance(operation, Requantised) or operation.requantise is None:
        return (operation,)
    middle = accumulator(operation.output, "accumulator")
    return replace(operation, output=middle, requantise=None), _requantisation(
        operation, middle, operation.requantise
    )


def accumulator(output: Operand, label: str) -> Operand:
    """Return an int32 value for the accumulators of a result.

    Its name contains the slice that the product writes, so it is unique.
    """
    return Operand(f"{output.value}@{output.offset}:{label}", output.shape, 0, "int32")


def _requantisation(
    product: Operator, source: Operand, requantise: RequantiseConstants
) -> Requantisation:
    return Requantisation(
        name=f"{product.name}:requantise",
        kind="REQUANT",
        inputs=(source,),
        output=product.output,
        onnx_nodes=product.onnx_nodes,
        requantise=requantise,
    )


def int8_parts(weights: NDArray[np.int8] | NDArray[np.int16]) -> tuple[NDArray[np.int8], ...]:
    """Return one, two or three int8 arrays whose sum is ``weights``.

    No elements of the arrays have opposite signs. Weights minus a zero point need nine bits; those
    of most models need eight.
    """
    if weights.dtype == np.int8:
        return (weights.astype(np.int8, copy=False),)
    parts: list[NDArray[np.int8]] = []
    rest = weights
    while not parts or rest.any():
        parts.append(np.clip(rest, -128, 127).astype(np.int8))
        rest = rest - parts[-1]
    return tuple(parts)


def has_repeated_input(parts: Sequence[NDArray[np.int8]], target: Target) -> bool:
    """Return whether a product reads its input once for each int8 part of its weights.

    It does so if the machine has no sum of int32 tensors.
    """
    return len(parts) > 1 and WideAdd.traits.mnemonic not in target.instructions


def split_weights(
    whole: ProductOperator, parts: Sequence[NDArray[np.int8]], target: Target
) -> tuple[Operator, ...]:
    """Return the operations of a product whose weights are the sum of int8 ``parts``.

    The result is exact. Two parts take twice the work. The int32 products with each part are added.
    Without an instruction for that sum, one product has the parts side by side, and reads its input
    once for each. The accumulator bound is valid for each partial sum.
    """
    if has_repeated_input(parts, target):
        return _concatenate_parts(whole, parts)
    return add_terms(whole, [replace(whole, weights=part) for part in parts])


def _concatenate_parts(
    whole: ProductOperator, parts: Sequence[NDArray[np.int8]]
) -> tuple[Operator, ...]:
    """Return one product with concatenated weight parts and a repeated input."""
    (source,), matrix, count = whole.inputs, whole.loops.nest.matrix, len(parts)
    rows = source.shape[0] if matrix else whole.loops.nest.groups
    size, (first, *others) = source.elements // rows, source.shape
    shape = (first, count * others[0]) if matrix else (count * first, *others)
    repeated = Operand(f"{whole.output.value}@{whole.output.offset}:repeated", shape)
    starts = [source.offset + row * size for row in range(rows) for _ in parts]
    copied = Alias(
        name=whole.name,
        kind="DMA",
        inputs=tuple(Operand(source.value, (size,), start) for start in starts),
        output=repeated,
        offsets=tuple(range(0, repeated.elements, size)),
        onnx_nodes=whole.onnx_nodes,
    )
    weights = np.concatenate(parts, axis=0 if matrix else 1)
    return copied, replace(whole, inputs=(repeated,), weights=weights)


def add_terms(whole: ProductOperator, terms: Sequence[ProductOperator]) -> tuple[Operator, ...]:
    """Return the operations that compute a product as the int32 sum of several products.

    They compute ``whole`` from ``terms``. The bias is that of the first term.
    """
    first, *others = terms
    if not others:
        return (first,)
    total = accumulator(whole.output, "part0")
    found: list[Operator] = [replace(first, output=total, requantise=None)]
    for number, part in enumerate(others, 1):
        term = accumulator(whole.output, f"part{number}")
        last = number == len(others) and whole.requantise is None
        found.append(replace(part, bias=np.zeros_like(whole.bias), output=term, requantise=None))
        result = whole.output if last else accumulator(whole.output, f"sum{number}")
        flat = (replace(item, shape=(item.elements,)) for item in (total, term, result))
        a, b, y = flat
        found.append(
            WideAdd(
                name=f"{whole.name}:sum",
                kind="ELTWISE",
                inputs=(a, b),
                output=y,
                onnx_nodes=whole.onnx_nodes,
            )
        )
        total = result
    if whole.requantise is not None:
        found.append(_requantisation(whole, total, whole.requantise))
    return tuple(found)


def fold_zero_point(
    bias: NDArray[np.int32] | None, weight_sums: NDArray[np.int64], zero_point: int
) -> NDArray[np.int64]:
    """Return ``bias - zero_point * sum(weights)`` for every output channel, in int64."""
    start = np.zeros_like(weight_sums) if bias is None else bias.astype(np.int64)
    return start - zero_point * weight_sums


def subtract_zeros(
    stored: NDArray[np.int8], zeros: NDArray[np.int64]
) -> NDArray[np.int8] | NDArray[np.int16]:
    """Return weights minus their zero points.

    ``zeros`` has shape (1,), or one zero point per index of the first axis. The weights are
    unchanged if all are 0.
    """
    if not zeros.any():
        return stored
    return stored - zeros.astype(np.int16).reshape(-1, *(1,) * (stored.ndim - 1))


# Requirements
