"""Linear interpolation of planes: Resize that computes values between elements.

Resize that only copies elements, such as nearest-neighbour, is data movement. This family reads
both from models and leaves copies to :class:`byoc.operators.movement.Movement`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.elementwise import SINGLE
from byoc.operators.forms import Form, Kinds, Positions, Written, numeric, several
from byoc.operators.geometry import Geometry
from byoc.operators.movement import Movement
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.onnx_view import OnnxNode
from byoc.operators.operator import Operator
from byoc.operators.records import ChannelConstants, Loops, Operand, Registers, Settings, Traits
from byoc.operators.rows import divide_constants
from byoc.operators.rules import Constraint, Finding, Requirement, rule
from byoc.options import Target
from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits

INTERPOLATION = "Interpolation"
"""Canonical type of a linear Resize.

``rows`` and ``columns`` are coordinates of the result's rows and columns in the operand.
"""
Coordinates = NDArray[np.float32]
_ROW_BYTES = 2048
"""Maximum bytes of a row of the result and of the operand rows that it needs.

The bytes are those of all channels of an operation.
"""
_CROPPED = "tf_crop_and_resize"
_MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "asymmetric",
    "align_corners",
    _CROPPED,
)
_PLAIN: Mapping[str, Any] = {"antialias": 0, "keep_aspect_ratio_policy": "stretch"}
"""Attributes that must have their default value."""


def coordinates(written: Written) -> tuple[Coordinates, Coordinates] | str:
    """Return the row and column coordinates at which a linear Resize reads its input.

    If they are unknown, return a text with the reason. The formulas are those of ONNX Runtime 1.31
    (onnxruntime/core/providers/cpu/tensor/upsamplebase.h). Each step is float32, except the last
    ones of half_pixel_symmetric.
    """
    node = written.node
    view = written.view
    shape = written.operand_shape()
    result = written.result_shape
    odd = [name for name, usual in _PLAIN.items() if node.attributes.get(name, usual) != usual]
    if (
        node.attributes.get("mode") != "linear"
        or odd
        or view.element_type(node.inputs[0]) != "float32"
    ):
        return "it computes what is between elements, other than linearly in float"
    if len(shape) != 4 or shape[:2] != result[:2]:
        return (
            f"it interpolates {shape} to {result}; only rows and columns of (N, C, H, W) run on "
            "the accelerator"
        )
    region, *given = (view.constants.get(name) for name in (*node.inputs[1:], ""))
    sizes = [number for number in given if number is not None]
    axes = [int(axis) % 4 for axis in node.attributes.get("axes", range(4))]
    if len(sizes) != 1 or len(sizes[0]) != len(axes):
        return "its scales or sizes are computed at run time"
    scales = np.array(result, np.float32) / np.array(shape, np.float32)
    if sizes[0].dtype == np.float32:
        scales[axes] = sizes[0]
    ends = np.array([0] * 4 + [1] * 4, np.float32)
    mode = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    if mode not in _MODES:
        return f"it places elements by {mode}, which no rule is known for"
    if mode == _CROPPED:
        if region is None or len(region) != 2 * len(axes):
            return "its region of interest is computed at run time"
        ends[[*axes, *(axis + 4 for axis in axes)]] = region
    found = [
        _compute_coordinates(mode, shape[axis], result[axis], scales[axis], ends[[axis, axis + 4]])
        for axis in (2, 3)
    ]
    highest = np.array(shape[2:], np.float32) - 1
    if mode == _CROPPED and any(
        line.min() < 0 or line.max() > end for line, end in zip(found, highest, strict=True)
    ):
        return "its region of interest reaches beyond the operand"
    rows, columns = (np.clip(line, 0, end) for line, end in zip(found, highest, strict=True))
    return rows, columns


def _compute_coordinates(
    mode: str, size: int, count: int, scale: np.float32, region: Coordinates
) -> Coordinates:
    """Return the input coordinates of ``count`` resized elements along one dimension.

    The input has ``size`` elements. ``region`` is the (start, end) of a crop.
    """
    place = np.arange(count, dtype=np.float32)
    half = np.float32(0.5)
    last = np.float32(size - 1)
    end = np.float32(count - 1)
    found: Coordinates = (place + half) / scale - half
    if scale == 1 or (mode in ("align_corners", "pytorch_half_pixel") and count == 1):
        found = place
    elif mode == "asymmetric":
        found = place / scale
    elif mode == "align_corners":
        found = place * last / end
    elif mode == _CROPPED and count == 1:
        found = np.array([0.5 * float(region[0] + region[1]) * float(last)], np.float32)
    elif mode == _CROPPED:
        found = region[0] * last + place * (region[1] - region[0]) * last / end
    elif mode == "half_pixel_symmetric":
        left_over = np.float32(1) - np.float32(count) / (scale * np.float32(size))
        offset = np.float64(np.float32(size) * half * left_over)
        found = (offset + (place.astype(np.float64) + 0.5) / np.float64(scale) - 0.5).astype(
            np.float32
        )
    return found


def _count_channels(image: Interpolation, atom: int) -> int:
    """Return how many channels of an image one interpolation computes.

    It is a multiple of ``atom``, unless the image has fewer channels.
    """
    row = 2 * image.inputs[0].shape[2] + image.output.shape[2]
    return min(max(_ROW_BYTES // row // atom, 1) * atom, image.output.shape[0])


@rule("sizes fit the instruction's fields")
def fits_fields(record: tuple[Interpolation, ...], target: Target) -> Finding | None:
    """Return a finding if a size of an interpolation exceeds its register field, or None."""
    first = record[0]
    block = _count_channels(first, 1)
    planes = first.inputs[0].shape[1:], first.output.shape[1:]
    return domain.too_large(tuple((block, *plane) for plane in planes), target)


@rule(domain.FIXED)
def scales_in_int32(record: tuple[Interpolation, ...], target: Target) -> Finding | None:
    """Return a finding if rescaling an interpolated value overflows int32, or None.

    The value is at most 255 steps with all fraction bits of the weights.
    """
    first = record[0]
    return domain.check_int32(255 << 20, first.scales[0] / first.scales[1] / (1 << 20), target)


@dataclass(frozen=True, eq=False, kw_only=True)
class Interpolation(Operator):
    """Linear interpolation of the channels (C, H, W) of an image at given coordinates.

    The coordinates are ``rows`` and ``columns``. Zero points are those of the int8 domain. The
    result equals ONNX Runtime's Resize between DequantizeLinear and QuantizeLinear: 0 of 2,069,472
    elements of 2,300 random cases differ, in every mode, by sizes and by scales, enlarging and
    reducing, including ties.
    """

    family: ClassVar[str] = "interpolation"
    forms: ClassVar[tuple[Form, ...]] = (
        Form(
            "Resize",
            canonical=INTERPOLATION,
            attributes=("rows", "columns"),
            plain=True,
            passive=True,
            ranges="first",
            traced=True,
        ),
    )
    instructions: ClassVar[tuple[str, ...]] = ("OP_RESIZE",)
    arity: ClassVar[tuple[int, int]] = (1, 1)
    traits: ClassVar[Traits] = Traits(banded=True, constants_name="coordinates")
    requirements: ClassVar[tuple[Requirement, ...]] = SINGLE
    constraints: ClassVar[tuple[Constraint, ...]] = (fits_fields, scales_in_int32)
    kinds: ClassVar[Kinds] = {"rows": several(numeric), "columns": several(numeric)}

    rows: Coordinates
    columns: Coordinates
    scales: tuple[float, float]
    zero_points: tuple[int, int]

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any] | str:
        """Return the coordinates of an interpolation, or the strided copies of a data movement."""
        if isinstance(written.positions, Positions):
            return Movement.attributes(written)
        found = coordinates(written)
        if isinstance(found, str):
            return found
        return {
            name: tuple(line.tolist())
            for name, line in zip(("rows", "columns"), found, strict=True)
        }

    @classmethod
    def must_stay_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Return True if :class:`Movement` keeps this Resize in float.

        Linear interpolation is such a case: float models express it as matrix products, which run
        on any machine.
        """
        return Movement.must_stay_float(node, constants)

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if a Resize lacks the coordinate of a result row or column."""
        source, result = (graph.values[name].shape for name in (*node.inputs, *node.outputs))
        lines = node.attributes["rows"], node.attributes["columns"]
        if len(source) != 4 or source[:2] != result[:2] or tuple(map(len, lines)) != result[2:]:
            return (
                f"'{node.name}' interpolates {source} to {result} at {len(lines[0])} by "
                f"{len(lines[1])} places"
            )
        within = all(
            0 <= number <= size - 1
            for line, size in zip(lines, source[2:], strict=True)
            for number in line
        )
        return None if within else f"'{node.name}' reads beyond '{node.inputs[0]}'"

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> tuple[Interpolation, ...]:
        """Return the interpolations of a Resize, one per image."""
        source, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
        before = domain.affine(source)
        after = domain.affine(result)
        images, *shape = source.shape
        _, *made = result.shape
        return tuple(
            cls(
                name=node.name,
                kind="POOL",
                inputs=(Operand(source.name, (*shape,), image * prod(shape)),),
                output=Operand(result.name, (*made,), image * prod(made)),
                onnx_nodes=node.onnx_nodes,
                rows=np.array(node.attributes["rows"], np.float32),
                columns=np.array(node.attributes["columns"], np.float32),
                scales=(float(before.scale), float(after.scale)),
                zero_points=(before.stored_zero_point, after.stored_zero_point),
            )
            for image in range(images)
        )

    @classmethod
    def operations(
        cls, record: tuple[Interpolation, ...], target: Target
    ) -> tuple[Interpolation, ...]:
        """Return interpolations of so few channels that a row fits a small scratchpad.

        In banked memory, the first channel of each begins an atom.
        """
        return tuple(part for image in record for part in image.split_channels(target.memory.atom))

    def split_channels(self, atom: int) -> Iterator[Interpolation]:
        """Yield interpolations of a few channels each, which together compute this one.

        The first channel of each is a multiple of ``atom``.
        """
        (source,), result = self.inputs, self.output
        count = _count_channels(self, atom)
        for first in range(0, source.shape[0], count):
            operand, made = (
                replace(
                    one,
                    shape=(min(count, one.shape[0] - first), *one.shape[1:]),
                    offset=one.offset + first * prod(one.shape[1:]),
                )
                for one in (source, result)
            )
            yield replace(self, inputs=(operand,), output=made)

    @property
    def loops(self) -> Loops:
        """Loops of an interpolation over independent channels, all in one tile.

        A row reads the operand rows around its coordinate.
        """
        channels, rows, columns = self.output.shape
        _, height, width = self.inputs[0].shape
        below = self.rows.astype(np.int64)
        reads = tuple(zip(below.tolist(), np.minimum(below + 2, height).tolist(), strict=True))
        nest = LoopNest(
            channels,
            rows,
            columns,
            channels,
            height,
            width,
            groups=channels,
            channel_step=channels,
            reads=reads,
        )
        return Loops(nest, planes=True)

    def settings(self, arch: Arch) -> Settings:
        """Return the registers for the zero points and scales of an interpolation.

        Scales are float32 bits, or multiplier and shift with numerics ``fixed``.
        """
        registers = dict(
            zip(("EX_INPUT_ZERO_POINT", "EX_OUTPUT_ZERO_POINT"), self.zero_points, strict=True)
        )
        if arch.numerics == "fixed":
            ratio = self.scales[0] / self.scales[1]
            registers["EX_SCALE_A"], registers["EX_SHIFT_A"] = numerics.quantise_multiplier(ratio)
        else:
            registers["EX_SCALE_A"], registers["EX_SCALE_Y"] = map(float32_bits, self.scales)
        return Settings(registers, {})

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Return the registers for the sizes and first rows of a tile's input and output."""
        sizes = {
            f"EX_{side}_{name}": span.size
            for side, box in (("INPUT", tile.input), ("OUTPUT", tile.output))
            for name, span in zip(("CHANNELS", "HEIGHT", "WIDTH"), box, strict=True)
        }
        return {
            **sizes,
            "EX_FIRST_ROW": tile.output.rows.start,
            "EX_FIRST_INPUT_ROW": tile.input.rows.start,
        }

    def constants(self) -> ChannelConstants:
        """Return a Resize's column and row coordinates, one set for all channels."""
        return ChannelConstants(
            weights=divide_constants(
                np.concatenate([self.columns, self.rows]).astype("<f4"), self.output.shape[0]
            )
        )
