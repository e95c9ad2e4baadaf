"""Addition, subtraction and multiplication, element by element, of two tensors that may broadcast or be constant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from byoc.graph import Graph, Node
from byoc.operators import domain, elementwise
from byoc.operators.elementwise import Pair, axes_of, pair_of, turned
from byoc.operators.forms import Form, QLinear, Written
from byoc.operators.operator import Constraint, Requirement, Settings
from byoc.operators.rules import Finding, finding, rule
from byoc.target import Target
from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits


@rule("an operand's scale is at most 2^100 times that of the result")
def near_scales(graph: Graph, node: Node) -> Finding | None:
    """The ratios of scales are float32 numbers."""
    result = domain.affine(graph.values[node.outputs[0]])
    for name in node.inputs:
        ratio = float(domain.affine(graph.values[name]).scale) / float(result.scale)
        if ratio > 2.0**100:
            values = {"name": name, "ratio": ratio, "result": node.outputs[0]}
            return finding("the scale of '{name}' is {ratio:g} times that of '{result}'", **values)
    return None


@rule("the product of the operands' scales is 2^-100 to 2^100 times the scale of the result")
def near_product(graph: Graph, node: Node) -> Finding | None:
    """The ratio is a float32 number and no subnormal one."""
    ratio = float(_ratio(*(domain.affine(graph.values[name]).scale for name in (*node.inputs, *node.outputs))))
    if 2.0**-100 <= ratio <= 2.0**100:
        return None
    return finding("it is {ratio:g} times that of '{result}'", ratio=ratio, result=node.outputs[0])


def _ratio(a: np.float32, b: np.float32, y: np.float32) -> np.float32:
    """What a product of integers is multiplied by, rounded step by step."""
    with np.errstate(over="ignore", under="ignore"):
        return np.float32(np.float32(a * b) / y)


@rule(domain.FIXED)
def scales_in_int32(record: Arithmetic, target: Target) -> Finding | None:
    """The sum of two operands, which TensorFlow Lite moves left by 20 bits: its factor must be below 1."""
    scale_a, scale_b, scale_y = record.scales
    return domain.leaves_int32(1 << 30, 2 * max(scale_a, scale_b) / (scale_y * (1 << 20)), target)


@rule(domain.FIXED)
def product_in_int32(record: Arithmetic, target: Target) -> Finding | None:
    """Products of 255 and 255 at most."""
    scale_a, scale_b, scale_y = record.scales
    return domain.leaves_int32(255 * 255, scale_a * scale_b / scale_y, target)


@dataclass(frozen=True, eq=False, kw_only=True)
class Arithmetic(Pair):
    """Two rescaled operands.

    Scales are float32; zero points are those of the ONNX element type; ``offset`` (0 or 128) is what the stored int8
    values are less. ``low`` and ``high`` clamp the stored int8 result.
    """

    requirements: ClassVar[tuple[Requirement, ...]] = (
        *elementwise.PAIR,
        elementwise.quantised,
        domain.per_tensor,
        domain.usable_scales,
        near_scales,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (*elementwise.PAIR_CONSTRAINTS, scales_in_int32)

    scales: tuple[float, float, float]
    zero_points: tuple[int, int, int]
    offset: int = 0
    low: int = -128
    high: int = 127

    @classmethod
    def attributes(cls, written: Written) -> dict[str, object]:
        """None of its own."""
        return {}

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Self:
        """The operation that a node is, once it meets every requirement."""
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
        """The registers of the limits."""
        return {"EX_CLAMP_LOW": self.low, "EX_CLAMP_HIGH": self.high}

    def stored_zero_points(self) -> dict[str, int]:
        """The registers of the zero points, in the accelerator's int8 domain."""
        names = ("EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT")
        return {name: zero - self.offset for name, zero in zip(names, self.zero_points, strict=True)}

    def fixed_sum(self) -> dict[str, int]:
        """The registers of TensorFlow Lite's sum or difference."""
        fixed = numerics.add_fixed_constants(*self.scales)
        return {
            "EX_SCALE_A": fixed.multiplier_a,
            "EX_SHIFT_A": fixed.shift_a,
            "EX_SCALE_B": fixed.multiplier_b,
            "EX_SHIFT_B": fixed.shift_b,
            "EX_SCALE_Y": fixed.multiplier_y,
            "EX_SHIFT_Y": fixed.shift_y,
            **self.stored_zero_points(),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Add(Arithmetic):
    """Addition of two rescaled operands (ONNX Runtime's QLinearAdd)."""

    family: ClassVar[str] = "add"
    forms: ClassVar[tuple[Form, ...]] = (
        Form("Add", operands=2, activation=True, integer=(QLinear("QLinearAdd", ((0, 1, 2), (3, 4, 5)), (6, 7)),)),
    )
    dense: ClassVar[str] = "OP_E_ADD"
    repeating: ClassVar[str] = "OP_B_ADD"

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> Self:
        """The operation that an addition is, its operands in the order in which ONNX Runtime adds them."""
        shapes = [graph.values[name].shape for name in (*node.inputs, *node.outputs)]
        if turned(axes_of(shapes[0], shapes[1], shapes[2])):
            node = replace(node, inputs=node.inputs[::-1])
        return super().parse(graph, node)

    def settings(self, arch: Arch) -> Settings:
        """Clamp and constants: float32 bits, or multipliers and shifts where numerics are fixed."""
        registers = self.clamps()
        (scale_a, scale_b, scale_y), (zero_a, zero_b, zero_y) = self.scales, self.zero_points
        if arch.numerics == "fixed":
            return Settings(registers | self.fixed_sum(), self.fields())
        constants = numerics.add_constants(scale_a, zero_a, scale_b, zero_b, scale_y, zero_y)
        registers["EX_OFFSET"] = self.offset
        for name, constant in zip(("EX_SCALE_A", "EX_SCALE_B", "EX_SCALE_Y"), constants, strict=True):
            registers[name] = float32_bits(constant)
        return Settings(registers, self.fields())


@dataclass(frozen=True, eq=False, kw_only=True)
class Subtraction(Arithmetic):
    """Subtraction of two rescaled operands, which ONNX Runtime computes in float."""

    family: ClassVar[str] = "difference"
    forms: ClassVar[tuple[Form, ...]] = (Form("Sub", operands=2, activation=True, passive=True),)
    instructions: ClassVar[tuple[str, ...]] = ("OP_E_SUB",)
    dense: ClassVar[str] = "OP_E_SUB"
    repeating: ClassVar[str] = "OP_E_SUB"

    def settings(self, arch: Arch) -> Settings:
        """Clamp, zero points and scales: float32 bits, or multipliers and shifts where numerics are fixed."""
        registers = self.clamps()
        if arch.numerics == "fixed":
            return Settings(registers | self.fixed_sum(), self.fields())
        for name, scale in zip("ABY", self.scales, strict=True):
            registers[f"EX_SCALE_{name}"] = float32_bits(scale)
        return Settings(registers | self.stored_zero_points(), self.fields())


@dataclass(frozen=True, eq=False, kw_only=True)
class Multiplication(Arithmetic):
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
    constraints: ClassVar[tuple[Constraint, ...]] = (*elementwise.PAIR_CONSTRAINTS, product_in_int32)
    dense: ClassVar[str] = "OP_E_MUL"
    repeating: ClassVar[str] = "OP_E_MUL"

    def settings(self, arch: Arch) -> Settings:
        """Clamp, zero points and ratio: float32 bits, or multiplier and shift where numerics are fixed."""
        registers: dict[str, Any] = self.clamps() | self.stored_zero_points()
        scale_a, scale_b, scale_y = self.scales
        if arch.numerics == "fixed":
            registers["EX_SCALE_A"], registers["EX_SHIFT_A"] = numerics.quantise_multiplier(scale_a * scale_b / scale_y)
            return Settings(registers, self.fields())
        registers |= {"EX_OUTPUT_ZERO_POINT": self.zero_points[2], "EX_OFFSET": self.offset}
        ratio = _ratio(np.float32(scale_a), np.float32(scale_b), np.float32(scale_y))
        return Settings(registers | {"EX_SCALE_A": float32_bits(ratio)}, self.fields())
