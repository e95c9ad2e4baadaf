"""Common parts of operators on whole rows (reductions, softmax, normalisations), and softmax.

Softmax works along one axis, like ONNX Runtime's QLinearSoftmax.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.definition import Definition
from byoc.operators.elementwise import SINGLE
from byoc.operators.forms import Form, Kinds, QLinear, Written, integer, numeric, several
from byoc.operators.geometry import Geometry
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.operator import Layouts, Operator
from byoc.operators.records import ChannelConstants, Loops, Operand, Registers, Settings, Traits
from byoc.operators.rules import Constraint, Finding, Requirement, finding, rule
from byoc.options import Target
from isa import numerics
from isa.arch import Arch
from isa.layout import Layout
from isa.numerics import float32_bits


def fold_axes(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int] | None:
    """Return (outer, elements per row, inner) sizes of a tensor whose rows are along ``axes``.

    Returns None if other axes longer than 1 are between them.
    """
    rows = [axis for axis in axes if shape[axis] > 1] or list(axes[:1])
    if not rows:
        return math.prod(shape), 1, 1
    first = min(rows)
    last = max(rows)
    if any(shape[axis] > 1 and axis not in axes for axis in range(first, last + 1)):
        return None
    return (
        math.prod(shape[:first]),
        math.prod(shape[first : last + 1]),
        math.prod(shape[last + 1 :]),
    )


@rule("the axes of a row are adjacent")
def adjacent_axes(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if the axes of a row are not adjacent, or None.

    The elements of a row must be evenly spaced in memory.
    """
    shape = graph.values[node.inputs[0]].shape
    axes = node.attributes["axes"]
    return (
        None
        if fold_axes(shape, axes)
        else finding("axes {axes} of shape {shape}", axes=axes, shape=shape)
    )


@rule("rows and their elements fit the instruction's fields")
def fits_fields(record: RowsOperator | tuple[RowsOperator, ...], target: Target) -> Finding | None:
    """Return a finding if a row operation's count exceeds its register field, or None."""
    first = record[0] if isinstance(record, tuple) else record
    nest = first.loops.nest
    sizes = {"rows": nest.rows, "elements": nest.input_columns, "channels": nest.channels}
    sizes["elements"] = max(sizes["elements"], nest.input_channels)
    found = (domain.check_size(label, size, target.channel_limit) for label, size in sizes.items())
    return next((one for one in found if one is not None), None)


def misfit_axes(graph: Graph, node: Node) -> str | None:
    """Return a message if a node's axes are invalid.

    They may be invalid in a package, which can come from any source.
    """
    shape = graph.values[node.inputs[0]].shape
    axes = node.attributes["axes"]
    right = len(set(axes)) == len(axes) and all(axis < len(shape) for axis in axes)
    return None if right else f"'{node.name}' has the axes {axes} for shape {shape}"


AXES: Kinds = {"axes": several(integer(0))}
"""Attribute check of nodes whose rows extend along axes."""
REQUIREMENTS = (*SINGLE, adjacent_axes)
"""Requirements of operators with one operand whose rows extend along axes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RowsOperator(Operator):
    """Operation on the rows of a matrix.

    The matrix is (rows, elements), or (elements, rows) with ``across``. A row ``across`` has one
    element per plane. Tiles are rows. In banked memory elements are channels, so all rows are
    ``across``.
    """

    traits: ClassVar[Traits] = Traits(banded=True, by_position=True)

    across: bool = False

    @property
    def loops(self) -> Loops:
        """Loops of an operation over rows, as rows of one channel or as positions of channels.

        In the second case (``across``) planes have one column and all channels are in one tile.
        """
        elements, rows = self.inputs[0].shape if self.across else self.inputs[0].shape[::-1]
        if self.across:
            channels = self.output.shape[0]
            return Loops(
                LoopNest(channels, rows, 1, elements, rows, 1, channel_step=channels), planes=True
            )
        return Loops(LoopNest(1, rows, self.output.shape[1], 1, rows, elements))

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        nest = geometry.nest
        rows = tile.output.rows.size
        if nest.channel_step:
            return {"EX_ROWS": 1, "EX_INPUT_CHANNELS": nest.input_channels, "EX_LENGTH": rows}
        return {"EX_ROWS": rows, "EX_INPUT_CHANNELS": nest.input_columns, "EX_LENGTH": 1}

    @property
    def spacing(self) -> dict[str, int]:
        """Registers of the plane sizes, which are equal for all tiles of dense rows."""
        return {} if self.across else {"EX_INPUT_PLANE": 0, "EX_OUTPUT_PLANE": 0}

    def layouts(self, atom: int) -> Layouts | Finding:
        """Return layouts in banked memory in which row elements are channels.

        Rows are positions.
        """
        shapes = [
            one.shape if self.across else one.shape[::-1] for one in (self.inputs[0], self.output)
        ]
        return tuple(
            Layout(elements, rows, atom, by_row=not self.across) for elements, rows in shapes
        )

    def on_channels(self) -> Operator:
        """Return the operation with the elements of its rows as channels."""
        if self.across:
            return self
        (source,) = self.inputs
        result = self.output
        turned, made = (replace(operand, shape=operand.shape[::-1]) for operand in (source, result))
        return replace(self, inputs=(turned,), output=made, across=True)


def slices(
    node: Node, source: str, target: str, shape: tuple[int, int, int], kind: str, results: int
) -> tuple[dict[str, Any], ...]:
    """Return keyword arguments for operations on rows, one operation for each dense slice.

    Each operation reads rows of ``source``, computes ``results`` elements per row and writes
    ``target``. ``shape`` is (outer, elements per row, inner). If the elements of each row are
    adjacent, one operation has all rows. Otherwise (``across``) there is one operation per outer
    index.
    """
    outer, count, inner = shape
    common = {"name": node.name, "kind": kind, "onnx_nodes": node.onnx_nodes}
    if inner == 1:
        return (
            {
                **common,
                "inputs": (Operand(source, (outer, count)),),
                "output": Operand(target, (outer, results)),
            },
        )
    found = []
    for index in range(outer):
        operand = Operand(source, (count, inner), index * count * inner)
        result = Operand(target, (results, inner), index * results * inner)
        found.append({**common, "inputs": (operand,), "output": result, "across": True})
    return tuple(found)


def divide_constants(data: NDArray[Any], channels: int) -> NDArray[np.int8]:
    """Return constants as bytes that are divided over ``channels`` channels.

    Every tile needs all of them, and has all channels.
    """
    raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
    padded = np.zeros((channels, -(-raw.size // channels)), np.uint8)
    padded.reshape(-1)[: raw.size] = raw
    return padded.view(np.int8)


_LEGACY = 13
"""Opset before which Softmax included all axes from its axis on, by default the second."""


@rule("each exponential divided by the scale of the result is finite in float32")
def finite_numerators(record: tuple[Softmax, ...], target: Target) -> Finding | None:
    """Return a finding if a softmax numerator may be infinite, or None.

    ONNX Runtime's result for infinite numerators depends on the processor. Only rows of one element
    can have them.
    """
    first = record[0]
    if target.numerics == "fixed" or first.finite:
        return None
    found = "rows along the axis have {count} elements, the scale is {scale:g}"
    return finding(found, count=first.count, scale=first.output_scale)


@rule(
    "with numerics fixed, the scale of the result is above 2^-16, and rows have at most 4,095 "
    "elements"
)
def small_sums(record: tuple[Softmax, ...], target: Target) -> Finding | None:
    """Return a finding if a softmax needs too large a factor or sum, or None.

    The factor must be below 2^24, and the sum of a row must fit int32. The rule applies only to
    numerics ``fixed``.
    """
    first = record[0]
    if target.numerics != "fixed" or (first.output_scale > 2.0**-16 and first.count < 4096):
        return None
    return finding(
        "the scale is {scale:g}, the elements are {count}",
        scale=first.output_scale,
        count=first.count,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Softmax(RowsOperator):
    """Softmax of dense rows of ``count`` elements.

    Scales are float32, the zero point is in the int8 domain.

    ``beta`` multiplies the exponents with numerics ``fixed``; only TensorFlow Lite has it.
    """

    family: ClassVar[str] = "softmax"
    forms: ClassVar[tuple[Form, ...]] = (
        Form(
            "Softmax",
            attributes=("axes",),
            integer=(QLinear("QLinearSoftmax", ((0, 1, 2),), (3, 4)),),
            limits=(0.0, 1.0),
        ),
    )
    instructions: ClassVar[tuple[str, ...]] = ("OP_SOFTMAX",)
    arity: ClassVar[tuple[int, int]] = (1, 1)
    requirements: ClassVar[tuple[Requirement, ...]] = REQUIREMENTS
    kinds: ClassVar[Kinds] = {**AXES, "beta": numeric}
    constraints: ClassVar[tuple[Constraint, ...]] = (fits_fields, finite_numerators, small_sums)
    traits: ClassVar[Traits] = RowsOperator.traits._replace(constants_name="exponentials")

    count: int
    input_scale: float
    output_scale: float
    output_zero_point: int
    beta: float = 1.0
    fixed: bool = False

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any]:
        """Return the axes of the rows that a Softmax node normalises."""
        source = written.node.attributes
        rank = len(written.operand_shape())
        legacy = int(source.get("opset", _LEGACY)) < _LEGACY
        axis = int(source.get("axis", 1 if legacy else -1)) % max(rank, 1)
        return {"axes": tuple(range(axis, rank)) if legacy else (axis,)}

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        source, result = (value.shape for value in graph.ends(node))
        shapes = None if source == result else f"'{node.name}' makes {result} of {source}"
        return shapes or misfit_axes(graph, node)

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> tuple[Softmax, ...]:
        source, result = graph.ends(node)
        shape = fold_axes(source.shape, node.attributes["axes"])
        assert shape is not None
        after = domain.affine(result)
        numbers: dict[str, Any] = {
            "count": shape[1],
            "input_scale": float(domain.affine(source).scale),
            "output_scale": float(after.scale),
            "output_zero_point": after.stored_zero_point,
            "beta": float(node.attributes.get("beta", 1.0)),
        }
        return tuple(
            cls(**fields, **numbers)
            for fields in slices(node, node.inputs[0], node.outputs[0], shape, "ACT", shape[1])
        )

    @property
    def finite(self) -> bool:
        """True if the largest exponential divided by the result's scale is finite in float32."""
        largest = numerics.softmax_table(self.input_scale, self.count)[255]
        with np.errstate(over="ignore"):
            return bool(np.isfinite(largest * numerics.softmax_factor(self.output_scale)))

    @classmethod
    def definition(cls, graph: Graph, node: Node) -> Definition | None:
        """Return the softmax of `isa.numerics.softmax` as ONNX nodes.

        The result is None if a numerator may be infinite. ONNX Runtime's own rounding changed
        between 1.31 and 1.32 in some rows with several equal maxima.
        """
        record = cls.parse(graph, node)[0]
        made = Definition()
        if not record.finite:
            return None
        source, result = graph.ends(node)
        shape = fold_axes(source.shape, node.attributes["axes"])
        assert shape is not None
        folds = made.add("Reshape", made.cast(source.name, "float32"), np.array(shape, np.int64))
        rows = made.add("Transpose", folds, perm=(0, 2, 1))
        # equal in every opset, unlike ReduceMax
        distance = made.add("Sub", rows, made.add("GlobalMaxPool", rows))
        index = made.add("Add", made.cast(distance, "int64"), np.int64(255))
        value = made.add("Gather", numerics.softmax_table(record.input_scale, record.count), index)
        # summed in order, which ReduceSum does not guarantee
        sums = made.add("CumSum", value, np.int64(2))
        total = made.add("Gather", sums, np.array([shape[1] - 1], np.int64), axis=2)
        numerator = made.add("Mul", value, numerics.softmax_factor(record.output_scale))
        quotient = made.add("Transpose", made.add("Div", numerator, total), perm=(0, 2, 1))
        return made.finish(quotient, result)

    @classmethod
    def operations(cls, record: tuple[Softmax, ...], target: Target) -> tuple[Operator, ...]:
        """Return softmax operations with the exponentials of the target's numerics."""
        return tuple(replace(one, fixed=target.numerics == "fixed") for one in record)

    def settings(self, arch: Arch) -> Settings:
        """Return the registers for the zero point and scale factor of a softmax result."""
        fixed = arch.numerics == "fixed"
        scale = self.output_scale
        factor = (
            numerics.softmax_factor_fixed(scale)
            if fixed
            else float32_bits(numerics.softmax_factor(scale))
        )
        return Settings(
            {**self.spacing, "EX_OUTPUT_ZERO_POINT": self.output_zero_point, "EX_SCALE_Y": factor},
            {},
        )

    def constants(self) -> ChannelConstants:
        """Return the exponentials of a softmax as constants, one set for all rows."""
        scale = self.input_scale
        table = (
            numerics.softmax_table_fixed(scale, self.beta)
            if self.fixed
            else numerics.softmax_table(scale, self.count)
        )
        return ChannelConstants(weights=divide_constants(table, self.loops.nest.channels))
