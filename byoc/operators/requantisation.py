"""Requantisation: int32 accumulators become int8, fused into the product that makes them or as an operation apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from byoc.graph import Node, Value
from byoc.operators.domain import affine, clamp
from byoc.operators.nest import Nest, Tile
from byoc.operators.operator import ChannelConstants, Geometry, Operator, Registers, Settings
from isa.arch import Arch
from isa.numerics import product_multiplier, real_multiplier, requantise_scale
from isa.ops.requant import ChannelScales

FixedRule = Literal["filters", "dense", "activations"]
"""Which of LiteRT's reference kernels numerics fixed follows: those of convolutions, FullyConnected, whose scaled
products are rounded once, or BatchMatMul, whose scales are multiplied in float32."""


@dataclass(frozen=True, eq=False)
class Requantise:
    """int32 accumulator to int8: ``clip(rint(float32(acc) * scale) + zero_point, low, high)``, scale per channel.

    With numerics fixed the exact scales are what is multiplied by.
    """

    scales: ChannelScales
    zero_point: int
    low: int = -128
    high: int = 127

    def channels(self, chosen: slice) -> Requantise:
        """The requantisation of some of the channels."""
        return replace(self, scales=self.scales.chosen(chosen))


def requantisation(
    node: Node, data: Value, weights: Value, result: Value, channels: int, rule: FixedRule = "filters"
) -> Requantise:
    """Requantisation of the products of ``data`` and ``weights`` to ``result``, with its fused activation.

    The scale has one element for each of the ``channels`` output channels, also where the weights have only one.
    """
    assert weights.quantization is not None
    output = affine(result)
    low, high = clamp(node, output)
    factor = np.float32(node.attributes.get("alpha", 1.0))  # ONNX Runtime's QGemm multiplies from the left
    before, filters = affine(data).scale, weights.quantization.scale
    rounded = requantise_scale(factor * before, filters, output.scale)
    scale = product_multiplier if rule == "activations" else real_multiplier
    exact = float(factor) * np.asarray(scale(before, filters, output.scale))
    spread, wide = (np.broadcast_to(np.atleast_1d(scale), (channels,)).copy() for scale in (rounded, exact))
    return Requantise(ChannelScales(spread, wide, rule == "dense"), output.stored_zero_point, low, high)


@dataclass(frozen=True, eq=False, kw_only=True)
class Requantisation(Operator):
    """int32 planes (C, H, W) or matrix (M, N) to int8 of the same shape, one scale a channel or column.

    No ONNX operator: what :meth:`Operator.split` takes off a product.
    """

    in_place: ClassVar[bool] = True
    whole_planes: ClassVar[bool] = True

    requantise: Requantise

    @property
    def mnemonic(self) -> str:
        """The one instruction."""
        return "OP_REQUANT"

    def nest(self) -> Nest:
        """Every channel, or column of a matrix, by itself."""
        shape = self.output.shape
        if len(shape) == 2:
            return Nest(shape[1], shape[0], 1, shape[1], shape[0], 1, groups=shape[1], matrix=True)
        channels, rows, columns = shape
        return Nest(channels, rows, columns, channels, rows, columns, groups=channels)

    def settings(self, arch: Arch) -> Settings:
        """Zero point and clamp."""
        requantise = self.requantise
        registers = {
            "EX_OUTPUT_ZERO_POINT": requantise.zero_point,
            "EX_CLAMP_LOW": requantise.low,
            "EX_CLAMP_HIGH": requantise.high,
        }
        return Settings(registers, {})

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """A matrix has rows of single elements, planes are one row of so many elements."""
        output = tile.output
        rows, length = output.rows.size, 1
        if not geometry.nest.matrix:
            rows, length = 1, output.rows.size * output.columns.size
        return {"EX_ROWS": rows, "EX_OUTPUT_CHANNELS": output.channels.size, "EX_LENGTH": length}

    @classmethod
    def parallel_channels(cls, geometry: Geometry, arch: Arch) -> int:
        """The lanes run along the elements of one channel."""
        return 1

    def constants(self) -> ChannelConstants:
        """The scales; biases are in the accumulators already."""
        channels = self.output.shape[1 if len(self.output.shape) == 2 else 0]
        return ChannelConstants(np.zeros(channels, np.int32), self.requantise.scales)
