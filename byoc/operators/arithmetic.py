"""Element-wise addition, subtraction, multiplication, division and comparison of two tensors.

Either operand may be broadcast or constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from byoc.graph import Graph, Node
from byoc.operators import domain, elementwise
from byoc.operators.elementwise import Pair, axes_of, is_turned, pair_of
from byoc.operators.forms import Form, Limits, QLinear, Written
from byoc.operators.onnx_view import OnnxNode
from byoc.operators.operator import Operator
from byoc.operators.records import Operand, Settings
from byoc.operators.rules import Constraint, Finding, Requirement, finding, rule
from byoc.operators.table import TableOperator
from byoc.options import Target
from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits
from isa.numerics.addition import LEFT_SHIFT, SQUARED_SHIFT
from isa.ops.lookup import TABLE_BYTES


@rule("the product of the operands' scales is 2^-100 to 2^15 times the scale of the result")
def near_product(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if the ratio of the scales is out of range, or None.

    The ratio is the product of the operands' scales divided by the scale of the result. The upper
    limit keeps 255 · 255 scaled steps within int32, to which ONNX Runtime rounds the result. The
    lower limit avoids subnormal numbers.
    """
    ratio = float(
        _ratio(*(domain.affine(graph.values[name]).scale for name in (*node.inputs, *node.outputs)))
    )
    if 2.0**-100 <= ratio <= 2.0**15:
        return None
    return finding("it is {ratio:g} times that of '{result}'", ratio=ratio, result=node.outputs[0])


def _add_margin(least: float, most: float, result: Limits) -> Limits:
    """Widen limits by a sixteenth of the result's range, so that rounding does not reach them."""
    margin = (result[1] - result[0]) / 16
    return least - margin, most + margin


def _ratio(a: np.float32, b: np.float32, y: np.float32) -> np.float32:
    """Return the scale factor of an integer product, rounded to float32 after each step."""
    with np.errstate(over="ignore", under="ignore"):
        return np.float32(np.float32(a * b) / y)


@rule(domain.FIXED)
def scales_in_int32(record: Arithmetic, target: Target) -> Finding | None:
    """Return a finding if rescaling the sum of two operands overflows int32, or None.

    TensorFlow Lite shifts operands left by 20 bits and at least halves them; it shifts by 7 bits to
    square a difference.
    """
    unit = 2 * max(record.scales[:2])
    scale_y = record.scales[2]
    if isinstance(record, SubtractionOperator) and record.squared:
        ratio = unit * unit / (scale_y * (1 << 2 * SQUARED_SHIFT))
        return domain.check_int32((255 << SQUARED_SHIFT) ** 2, ratio, target)
    return domain.check_int32(255 << LEFT_SHIFT, unit / (scale_y * (1 << LEFT_SHIFT)), target)


@rule(domain.FIXED)
def product_in_int32(record: Arithmetic, target: Target) -> Finding | None:
    """Return a finding if rescaling a product of up to 255 · 255 overflows int32, or None."""
    return domain.check_int32(255 * 255, _compute_fixed_ratio(*record.scales), target)


def _compute_fixed_ratio(scale_a: float, scale_b: float, scale_y: float) -> float:
    """Return the scale factor of an integer product with numerics ``fixed``."""
    return float(numerics.compute_rounded_multiplier(scale_a, scale_b, output_scale=scale_y))


SQUARED_DIFFERENCE = "SquaredDifference"
"""Canonical type of a squared difference: Sub and Mul in ONNX, one operator in TensorFlow Lite."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Arithmetic(Pair):
    """Element-wise operation on two tensors that are rescaled first.

    Scales are float32; zero points are those of the ONNX element type. ``offset`` (0 or 128) is the
    difference between ONNX values and stored int8 values. ``low`` and ``high`` clamp the stored
    int8 result.
    """

    requirements: ClassVar[tuple[Requirement, ...]] = (
        *elementwise.PAIR,
        elementwise.quantised,
        domain.per_tensor,
        domain.usable_scales,
        domain.near_scales,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (*elementwise.PAIR_CONSTRAINTS, scales_in_int32)

    scales: tuple[float, float, float]
    zero_points: tuple[int, int, int]
    offset: int = 0
    low: int = -128
    high: int = 127

    @classmethod
    def attributes(cls, written: Written) -> dict[str, object]:
        """Return an empty dictionary, because a binary operation has no ONNX attributes."""
        return {}

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Self:
        values = tuple(graph.values[name] for name in (*node.inputs, *node.outputs))
        a, b, y = map(domain.affine, values)
        low, high = domain.clamp(node, y)
        return cls(
            **pair_of(node, *values),
            scales=(float(a.scale), float(b.scale), float(y.scale)),
            zero_points=(a.zero_point, b.zero_point, y.zero_point),
            offset=y.offset,
            low=low,
            high=high,
        )

    def clamps(self) -> dict[str, int]:
        return {"EX_CLAMP_LOW": self.low, "EX_CLAMP_HIGH": self.high}

    def get_stored_zero_points(self) -> dict[str, int]:
        """Return the registers of the zero points, in the accelerator's int8 domain."""
        names = ("EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT")
        return {
            name: zero - self.offset for name, zero in zip(names, self.zero_points, strict=True)
        }

    def get_fixed_registers(self) -> dict[str, int]:
        """Return the registers of TensorFlow Lite's addition or subtraction."""
        return {
            **_registers(numerics.add_fixed_constants(*self.scales)),
            **self.get_stored_zero_points(),
        }


def _registers(constants: numerics.AddFixedConstants) -> dict[str, int]:
    return {
        "EX_SCALE_A": constants.multiplier_a,
        "EX_SHIFT_A": constants.shift_a,
        "EX_SCALE_B": constants.multiplier_b,
        "EX_SHIFT_B": constants.shift_b,
        "EX_SCALE_Y": constants.multiplier_y,
        "EX_SHIFT_Y": constants.shift_y,
    }


@dataclass(frozen=True, eq=False, kw_only=True)
class Add(Arithmetic):
    """Addition of two rescaled operands (ONNX Runtime's QLinearAdd)."""

    family: ClassVar[str] = "add"
    forms: ClassVar[tuple[Form, ...]] = (
        Form(
            "Add",
            operands=2,
            activation=True,
            integer=(QLinear("QLinearAdd", ((0, 1, 2), (3, 4, 5)), (6, 7)),),
        ),
    )
    dense: ClassVar[str] = "OP_E_ADD"
    repeating: ClassVar[str] = "OP_B_ADD"

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Self:
        """Return the addition, with its operands in the order in which ONNX Runtime adds them."""
        shapes = [graph.values[name].shape for name in (*node.inputs, *node.outputs)]
        if is_turned(axes_of(shapes[0], shapes[1], shapes[2])):
            node = replace(node, inputs=node.inputs[::-1])
        return super().parse(graph, node)

    @classmethod
    def useful(
        cls, node: OnnxNode, position: int, ranges: Sequence[Limits | None], result: Limits
    ) -> Limits | None:
        """Return the range of one addend beyond which the sum saturates: a = y - b."""
        other = ranges[1 - position]
        return (
            None
            if other is None
            else _add_margin(result[0] - other[1], result[1] - other[0], result)
        )

    def settings(self, arch: Arch) -> Settings:
        """Return the registers for the output clamp and the float32 constants of an addition.

        With numerics ``fixed`` the constants are multipliers and shifts.
        """
        registers = self.clamps()
        scale_a, scale_b, scale_y = self.scales
        zero_a, zero_b, zero_y = self.zero_points
        if arch.numerics == "fixed":
            return Settings(registers | self.get_fixed_registers(), self.fields())
        constants = numerics.add_constants(scale_a, zero_a, scale_b, zero_b, scale_y, zero_y)
        registers["EX_OFFSET"] = self.offset
        for name, constant in zip(
            ("EX_SCALE_A", "EX_SCALE_B", "EX_SCALE_Y"), constants, strict=True
        ):
            registers[name] = float32_bits(constant)
        return Settings(registers, self.fields())


@dataclass(frozen=True, eq=False, kw_only=True)
class SubtractionOperator(Arithmetic):
    """Subtraction of two rescaled operands, which ONNX Runtime computes in float.

    With ``squared``, the operation squares the result.
    """

    family: ClassVar[str] = "difference"
    forms: ClassVar[tuple[Form, ...]] = (Form("Sub", operands=2, activation=True, passive=True),)
    inner_types: ClassVar[tuple[str, ...]] = (SQUARED_DIFFERENCE,)
    instructions: ClassVar[tuple[str, ...]] = ("OP_E_SUB",)

    squared: bool = False

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Self:
        """Return the subtraction or squared difference that a graph node computes."""
        return replace(super().parse(graph, node), squared=node.op_type == SQUARED_DIFFERENCE)

    @classmethod
    def useful(
        cls, node: OnnxNode, position: int, ranges: Sequence[Limits | None], result: Limits
    ) -> Limits | None:
        """Return the range of one operand of a subtraction beyond which the result saturates.

        The limits are a = y + b and b = a - y.
        """
        other = ranges[1 - position]
        if other is None:
            return None
        if position:
            return _add_margin(other[0] - result[1], other[1] - result[0], result)
        return _add_margin(result[0] + other[0], result[1] + other[1], result)

    def settings(self, arch: Arch) -> Settings:
        """Return the registers for the output clamp, zero points and scales of a subtraction.

        Scales are float32 bits, or multipliers and shifts with numerics ``fixed``.
        """
        registers = self.clamps()
        fields = self.fields() | ({"squared": 1} if self.squared else {})
        if arch.numerics == "fixed":
            return Settings(registers | self.get_fixed_registers(), fields)
        for name, scale in zip("ABY", self.scales, strict=True):
            registers[f"EX_SCALE_{name}"] = float32_bits(scale)
        return Settings(registers | self.get_stored_zero_points(), fields)

    def get_fixed_registers(self) -> dict[str, int]:
        """Return the registers of TensorFlow Lite's subtraction or squared difference."""
        if not self.squared:
            return super().get_fixed_registers()
        return {
            **_registers(numerics.compute_squared_difference_constants(*self.scales)),
            **self.get_stored_zero_points(),
        }


@rule(domain.FIXED)
def quotient_in_int32(record: Arithmetic, target: Target) -> Finding | None:
    """Return a finding if rescaling a quotient of up to 255 overflows int32, or None.

    Quotients are shifted left by 20 bits before the rescaling.
    """
    scale_a, scale_b, scale_y = record.scales
    return domain.check_int32(
        255 << LEFT_SHIFT, scale_a / scale_b / scale_y / (1 << LEFT_SHIFT), target
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class DivisionOperator(Arithmetic):
    """Division of two rescaled operands, which ONNX Runtime computes in float."""

    family: ClassVar[str] = "quotient"
    forms: ClassVar[tuple[Form, ...]] = (Form("Div", operands=2, passive=True),)
    instructions: ClassVar[tuple[str, ...]] = ("OP_E_DIV",)
    requirements: ClassVar[tuple[Requirement, ...]] = Arithmetic.requirements[:-1]
    constraints: ClassVar[tuple[Constraint, ...]] = (
        *elementwise.PAIR_CONSTRAINTS,
        quotient_in_int32,
    )

    def settings(self, arch: Arch) -> Settings:
        """Return the registers for the output clamp, zero points and scales of a division.

        Scales are float32 bits, or multiplier and shift with numerics ``fixed``.
        """
        registers = self.clamps() | self.get_stored_zero_points()
        scale_a, scale_b, scale_y = self.scales
        if arch.numerics == "fixed":
            ratio = scale_a / scale_b / scale_y / (1 << LEFT_SHIFT)
            registers["EX_SCALE_A"], registers["EX_SHIFT_A"] = numerics.quantise_multiplier(ratio)
            return Settings(registers, self.fields())
        for name, scale in zip("ABY", self.scales, strict=True):
            registers[f"EX_SCALE_{name}"] = float32_bits(scale)
        return Settings(registers, self.fields())


@dataclass(frozen=True, eq=False, kw_only=True)
class MultiplicationOperator(Arithmetic):
    """Multiplication of two rescaled operands (ONNX Runtime's QLinearMul)."""

    family: ClassVar[str] = "multiplication"
    forms: ClassVar[tuple[Form, ...]] = (
        Form(
            "Mul",
            operands=2,
            activation=True,
            passive=True,
            integer=(QLinear("QLinearMul", ((0, 1, 2), (3, 4, 5)), (6, 7)),),
        ),
    )
    instructions: ClassVar[tuple[str, ...]] = ("OP_E_MUL",)
    requirements: ClassVar[tuple[Requirement, ...]] = (*Arithmetic.requirements[:-1], near_product)
    constraints: ClassVar[tuple[Constraint, ...]] = (
        *elementwise.PAIR_CONSTRAINTS,
        product_in_int32,
    )

    def settings(self, arch: Arch) -> Settings:
        """Return the registers for the output clamp, zero points and scale ratio of a product.

        The ratio is float32 bits, or multiplier and shift with numerics ``fixed``.
        """
        registers: dict[str, Any] = self.clamps() | self.get_stored_zero_points()
        scale_a, scale_b, scale_y = self.scales
        if arch.numerics == "fixed":
            registers["EX_SCALE_A"], registers["EX_SHIFT_A"] = numerics.quantise_multiplier(
                _compute_fixed_ratio(*self.scales)
            )
            return Settings(registers, self.fields())
        registers |= {"EX_OUTPUT_ZERO_POINT": self.zero_points[2], "EX_OFFSET": self.offset}
        ratio = _ratio(np.float32(scale_a), np.float32(scale_b), np.float32(scale_y))
        return Settings(registers | {"EX_SCALE_A": float32_bits(ratio)}, self.fields())


# Comparison

FURTHEST = 2.0**40
RELATIONS: Mapping[str, np.ufunc] = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Xor": np.not_equal,
}
"""NumPy function of each comparison operator."""


@rule("operands have the same element type")
def one_type(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if the operands have different element types, or None.

    All operands are int8, all are uint8, or all are flags.
    """
    types = tuple(graph.values[name].dtype for name in node.inputs)
    return (
        None
        if len(set(types)) == 1
        else finding("element types are {types[0]}, {types[1]}", types=types)
    )


@rule("the scales of the compared tensors are between 2^-40 and 2^40")
def moderate_scales(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a scale is too large or small for float32 comparison, or None.

    The values, or the largest value in units of the smallest difference, would exceed float32.
    """
    for name in node.inputs:
        scale = float(domain.numbers(node, graph.values[name]).scale)
        if not 1 / FURTHEST <= scale <= FURTHEST:
            return finding("the scale of '{name}' is {scale:g}", name=name, scale=scale)
    return None


@rule("with numerics fixed, both compared tensors have the same scale: choose numerics onnxruntime")
def one_scale(record: Comparison, target: Target) -> Finding | None:
    """Return a finding if two compared tensors have different scales, or None.

    The rule applies only to numerics ``fixed``. The comparison of such operands depends on float32
    rounding.
    """
    if target.numerics != "fixed" or record.scales[0] == record.scales[1]:
        return None
    return finding("the scales are {scales[0]:.9g} and {scales[1]:.9g}", scales=record.scales)


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison(SubtractionOperator):
    """Comparison of two tensors: the difference is looked up as negative, zero or positive.

    The scale of the difference is the smallest non-zero difference of the operands. ONNX Runtime
    compares dequantised values in float32, and the difference has the correct sign: 0 of 19,660,800
    results differ, with any scales and zero points. ``flags`` is the result, looked up by the
    ``relation`` of the difference to 0.
    """

    family: ClassVar[str] = "comparison"
    forms: ClassVar[tuple[Form, ...]] = tuple(
        Form(name, operands=2, bare=True, plain=True, passive=True) for name in RELATIONS
    )
    inner_types: ClassVar[tuple[str, ...]] = ()
    instructions: ClassVar[tuple[str, ...]] = ("OP_E_SUB", "OP_LUT")
    requirements: ClassVar[tuple[Requirement, ...]] = (
        elementwise.any_computed,
        domain.eight_bit_input,
        domain.eight_bit_output,
        domain.not_empty,
        one_type,
        domain.per_tensor,
        domain.usable_scales,
        moderate_scales,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (*elementwise.PAIR_CONSTRAINTS, one_scale)

    relation: str
    flags: Operand

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Self:
        first, second, result = (graph.values[name] for name in (*node.inputs, *node.outputs))
        a, b = (domain.numbers(node, value) for value in (first, second))
        difference = replace(result, name=f"{result.name}:difference")
        return cls(
            **pair_of(node, first, second, difference),
            scales=(float(a.scale), float(b.scale), _finest(a, b)),
            zero_points=(a.zero_point, b.zero_point, a.offset),
            offset=a.offset,
            relation=node.op_type,
            flags=Operand.from_value(result, domain.elementwise_shape(result.shape)),
        )

    @classmethod
    def operations(cls, record: Self, target: Target) -> tuple[Operator, ...]:
        """Return the subtractions of a comparison, and a table look-up of their signs."""
        signs = np.arange(TABLE_BYTES, dtype=np.uint8).view(np.int8)
        look_up = TableOperator(
            name=record.name,
            kind=record.kind,
            inputs=(replace(record.flags, value=record.output.value),),
            output=record.flags,
            onnx_nodes=record.onnx_nodes,
            table=RELATIONS[record.relation](signs, 0).astype(np.int8),
        )
        return (*super().operations(record, target), look_up)


def _finest(a: domain.Affine, b: domain.Affine) -> float:
    """Return the smallest non-zero difference of two numbers with given quantisations.

    The difference is computed in float32.
    """
    steps = np.arange(-128, 128)
    first, second = (
        (steps - one.stored_zero_point).astype(np.float32) * one.scale for one in (a, b)
    )
    differences = np.abs(first[:, np.newaxis] - second)
    return float(differences[differences > 0].min())
