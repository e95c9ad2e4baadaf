"""Normalisation of rows with constant gains and biases.

The operators are layer, root mean square, instance and group normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain, product_rules
from byoc.operators.definition import Definition
from byoc.operators.forms import Form, Kinds, Written, integer, numeric
from byoc.operators.geometry import Geometry
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.onnx_view import OnnxNode
from byoc.operators.operator import Operator
from byoc.operators.records import ChannelConstants, Loops, Operand, Registers, Settings, Traits
from byoc.operators.rows import RowsOperator, divide_constants, fits_fields
from byoc.operators.rules import Constraint, Finding, Requirement, finding, rule
from byoc.options import Target
from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits
from isa.numerics.rows import FRACTION_BITS, GAIN_BITS

_ROOT_MEAN_SQUARE = "RMSNormalization"


def layout(graph: Graph, node: Node) -> tuple[int, int, int]:
    """Return the (rows, channels, elements per channel) of a normalisation node.

    Each row is normalised; each channel has one gain and one bias.
    """
    shape = graph.values[node.inputs[0]].shape
    groups = node.attributes.get("groups")
    if groups is None:
        axis = node.attributes["axis"]
        return int(np.prod(shape[:axis])), int(np.prod(shape[axis:])), 1
    return shape[0] * groups, shape[1] // groups, int(np.prod(shape[2:]))


def compute_gains(graph: Graph, node: Node) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the gains and biases of a normalisation, with one row or one for each data row.

    The shape is (1, channels) if all rows share them, else (rows, channels).
    """
    channels = layout(graph, node)[1]
    data = graph.values[node.inputs[0]].shape
    found = [graph.values[name].constant for name in node.inputs[1:]]
    numbers = [np.asarray(array, np.float64) for array in found] + [np.zeros(())] * (2 - len(found))
    if "groups" not in node.attributes:
        shape = data[node.attributes["axis"] :]
        return _pair(np.broadcast_to(part, shape).reshape(1, channels) for part in numbers)
    images = data[0]
    groups = node.attributes["groups"]
    spread = [part.reshape(groups, -1) for part in numbers]
    return _pair(np.tile(np.broadcast_to(part, (groups, channels)), (images, 1)) for part in spread)


def _pair(parts: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    gain, bias = (np.array(part) for part in parts)
    return gain, bias


@rule(
    "gains and biases have one element for each element of a row, each channel or each group, or a "
    "single element"
)
def fitting_parameters(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a gain or bias does not broadcast to a row, or None."""
    try:
        compute_gains(graph, node)
    except ValueError:
        shapes = [graph.values[name].shape for name in node.inputs[1:]]
        axis = node.attributes.get("axis")
        if axis is None:
            return finding("they have the shapes {shapes}", shapes=shapes)
        rows = graph.values[node.inputs[0]].shape[axis:]
        return finding(
            "they have the shapes {shapes}, rows from axis {axis} on {rows}",
            shapes=shapes,
            axis=axis,
            rows=rows,
        )
    return None


@rule("on integers, gains, biases and epsilon are finite, and epsilon is positive")
def finite_numbers(record: Normalisation, target: Target) -> Finding | None:
    """Return a finding if epsilon, a gain or a bias is out of range, or None.

    Epsilon must not allow a division by zero. All numbers must fit their registers.
    """
    fixed = target.numerics == "fixed"
    largest = float(np.abs([record.gain, record.bias]).max())
    with np.errstate(over="ignore"):
        epsilon = record.epsilon if fixed else float(np.float32(record.epsilon))
    fits = (
        epsilon < 1 << 32 and largest < 1 << 15
        if fixed
        else 0 < epsilon < np.inf and largest < 1e30
    )
    return (
        None
        if fits
        else finding("epsilon is {epsilon:g}, a gain {largest:g}", epsilon=epsilon, largest=largest)
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Normalisation(RowsOperator):
    """Layer or root-mean-square normalisation of dense rows.

    All rows share their gains and biases (1, elements). ``gain``, ``bias`` and ``epsilon`` apply to
    integers (:func:`isa.numerics.normalisation_scales`). The oracle is :meth:`definition`, because
    ONNX Runtime sums in float32 in an order that depends on the processor.
    """

    family: ClassVar[str] = "normalisation"
    forms: ClassVar[tuple[Form, ...]] = (
        Form("LayerNormalization", parameters=(1, 2), attributes=("axis", "epsilon")),
        Form("RMSNormalization", parameters=(1,), attributes=("axis", "epsilon")),
        Form("InstanceNormalization", parameters=(1, 2), attributes=("groups", "epsilon")),
        Form("GroupNormalization", parameters=(1, 2), attributes=("groups", "epsilon")),
    )
    instructions: ClassVar[tuple[str, ...]] = ("OP_NORM",)
    arity: ClassVar[tuple[int, int]] = (2, 3)
    requirements: ClassVar[tuple[Requirement, ...]] = (
        domain.variable_input,
        product_rules.eight_bit_input,
        domain.eight_bit_output,
        domain.per_tensor,
        domain.usable_scales,
        domain.not_empty,
        fitting_parameters,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (fits_fields, finite_numbers)
    kinds: ClassVar[Kinds] = {"axis": integer(0), "groups": integer(1), "epsilon": numeric}
    traits: ClassVar[Traits] = RowsOperator.traits._replace(constants_name="gains and biases")

    centred: bool
    gain: NDArray[np.float64]
    bias: NDArray[np.float64]
    epsilon: float
    zero_points: tuple[int, int]
    channels: int
    length: int = 1
    fixed: bool = False

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any] | str:
        """Return the first axis of a row, or the number of channel groups, and epsilon.

        Epsilon is rounded to float32.
        """
        source = written.node.attributes
        shape = written.operand_shape()
        if "groups" in written.form.attributes and len(shape) < 3:
            return f"its input has shape {shape}, without channels and positions"
        epsilon = float(np.float32(source.get("epsilon", 1e-5)))
        if written.form.onnx == "InstanceNormalization":
            return {"groups": shape[1], "epsilon": epsilon}
        if written.form.onnx == "GroupNormalization":
            return {"groups": int(source["num_groups"]), "epsilon": epsilon}
        return {"axis": int(source.get("axis", -1)) % max(len(shape), 1), "epsilon": epsilon}

    @classmethod
    def must_stay_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Return True for computed gains, and if the mean or deviation has a consumer."""
        computed = any(name and name not in constants for name in node.inputs[1:])
        return computed or any(node.outputs[1:])

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if the shapes differ, or if the axis or the groups do not exist."""
        source, result = (value.shape for value in graph.ends(node))
        if source != result:
            return f"'{node.name}' makes {result} of {source}"
        groups = node.attributes.get("groups")
        axis = node.attributes.get("axis")
        if (groups is None) == (axis is None):
            return f"'{node.name}' has axis {axis} and {groups} groups"
        if axis is not None and axis < len(source):
            return None
        right = groups is not None and len(source) > 2 and source[1] % groups == 0
        return (
            None
            if right
            else f"'{node.name}' has axis {axis} and {groups} groups for shape {source}"
        )

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Normalisation:
        source, result = graph.ends(node)
        before = domain.affine(source)
        after = domain.affine(result)
        rows, channels, length = layout(graph, node)
        centred = node.op_type != _ROOT_MEAN_SQUARE
        scales = float(before.scale), float(after.scale)
        gain, bias, factor = numerics.normalisation_scales(
            *compute_gains(graph, node), scales, channels * length, centred
        )
        kind = GroupNormalisation if "groups" in node.attributes else cls
        return kind(
            name=node.name,
            kind="ACT",
            inputs=(Operand(source.name, (rows, channels * length)),),
            output=Operand(result.name, (rows, channels * length)),
            onnx_nodes=node.onnx_nodes,
            centred=centred,
            gain=gain,
            bias=bias,
            epsilon=node.attributes["epsilon"] * factor,
            zero_points=(before.stored_zero_point, after.stored_zero_point),
            channels=channels,
            length=length,
        )

    @classmethod
    def operations(cls, record: Normalisation, target: Target) -> tuple[Operator, ...]:
        """Return one normalisation with the constants of the target's numerics."""
        return (replace(record, fixed=target.numerics == "fixed"),)

    @property
    def loops(self) -> Loops:
        """Loops of a normalisation over rows, which must be dense."""
        return super().loops._replace(planes=False)

    def settings(self, arch: Arch) -> Settings:
        """Return the registers for a normalisation's row shape, zero points and epsilon."""
        registers = dict(
            zip(("EX_INPUT_ZERO_POINT", "EX_OUTPUT_ZERO_POINT"), self.zero_points, strict=True)
        )
        registers |= {"EX_INPUT_CHANNELS": self.channels, "EX_LENGTH": self.length}
        registers["EX_SCALE_A"] = round(self.epsilon) if self.fixed else float32_bits(self.epsilon)
        return Settings(registers, {"centred": int(self.centred), "by_row": int(self.by_row)})

    @property
    def by_row(self) -> bool:
        """True if every normalised row has its own gains and biases."""
        return False

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        return {"EX_ROWS": tile.output.rows.size}

    @property
    def pairs(self) -> NDArray[Any]:
        """Gains and biases of a normalisation as the instruction reads them.

        The shape is (rows or 1, channels, 2).
        """
        both = np.stack([self.gain, self.bias], axis=2)
        units = np.array([1 << GAIN_BITS, 1 << FRACTION_BITS])
        return np.rint(both * units).astype("<i4") if self.fixed else both.astype("<f4")

    def constants(self) -> ChannelConstants:
        """Return the gains and biases of a normalisation, one set for all rows."""
        return ChannelConstants(weights=divide_constants(self.pairs, self.loops.nest.channels))

    @classmethod
    def definition(cls, graph: Graph, node: Node) -> Definition:
        """Return a normalisation as ONNX nodes: integer sums, then float32 steps."""
        record = cls.parse(graph, node)
        made = Definition()
        source, result = graph.ends(node)
        rows, channels, length = layout(graph, node)
        axes = np.array([1, 2], np.int64)
        count = np.int64(channels * length)
        data = made.add(
            "Reshape", made.cast(source.name, "int64"), np.array([rows, channels, length], np.int64)
        )
        if record.centred:
            total = made.add("ReduceSum", data, axes, keepdims=1)
            squares = made.add("ReduceSum", made.add("Mul", data, data), axes, keepdims=1)
            deviation = made.add("Sub", made.add("Mul", data, count), total)
            spread = made.add("Sub", made.add("Mul", squares, count), made.add("Mul", total, total))
        else:
            deviation = made.add("Sub", data, np.int64(domain.affine(source).zero_point))
            spread = made.add("ReduceSum", made.add("Mul", deviation, deviation), axes, keepdims=1)
        root = made.add(
            "Sqrt", made.add("Add", made.cast(spread, "float32"), np.float32(record.epsilon))
        )
        ratio = made.add("Div", made.cast(deviation, "float32"), root)
        pairs = record.pairs
        scaled = made.add("Mul", ratio, pairs[..., :1])
        return made.finish(made.add("Add", scaled, pairs[..., 1:]), result)


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupNormalisation(Normalisation):
    """Instance or group normalisation, with gains and biases for every row.

    Rows are therefore channels of the nest. With banked memory they are positions, all in one tile
    (``across``).
    """

    traits: ClassVar[Traits] = Normalisation.traits._replace(banded=False)

    @property
    def loops(self) -> Loops:
        """Loops of a group normalisation over rows, each of them one plane or one column."""
        if self.across:
            count, rows = self.inputs[0].shape
            return Loops(LoopNest(count, 1, rows, count, 1, rows, channel_step=count))
        rows, elements = self.inputs[0].shape
        return Loops(LoopNest(rows, 1, elements, rows, 1, elements, groups=rows))

    @property
    def by_row(self) -> bool:
        """True, because every row of a group normalisation has its own gains and biases."""
        return True

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        rows = tile.output.columns if geometry.nest.channel_step else tile.output.channels
        return {"EX_ROWS": rows.size}

    def finer(self) -> tuple[Operator, ...]:
        """Return two normalisations of half of the rows each, for rows in one tile."""
        elements, rows = self.inputs[0].shape if self.across else (0, 1)
        if rows == 1:
            return ()
        spans = (0, rows // 2), (rows // 2, rows)
        return tuple(self._cut(elements, first, end) for first, end in spans)

    def _cut(self, elements: int, first: int, end: int) -> GroupNormalisation:
        """Return the normalisation of some rows of ``elements`` elements."""
        (source,), result = self.inputs, self.output
        begin = first * elements
        operand, made = (
            Operand(one.value, (end - first, elements), one.offset + begin)
            for one in (source, result)
        )
        rows = slice(first, end)
        return replace(
            self, inputs=(operand,), output=made, gain=self.gain[rows], bias=self.bias[rows],
            across=False,
        )  # fmt: skip

    def constants(self) -> ChannelConstants:
        """Return the gains and biases of a group normalisation, one set per row."""
        pairs = self.pairs
        if self.across:
            return ChannelConstants(weights=divide_constants(pairs, self.output.shape[0]))
        return ChannelConstants(
            weights=np.ascontiguousarray(pairs).view(np.int8).reshape(len(pairs), -1)
        )
