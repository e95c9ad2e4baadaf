"""Element-wise addition, the residual connections of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from byoc.graph import Graph, Node
from byoc.operators import domain, elementwise
from byoc.operators.elementwise import Elementwise, layer_of
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


@rule(domain.FIXED)
def scales_in_int32(record: Add, target: Target) -> Finding | None:
    """The sum of two operands, which TensorFlow Lite moves left by 20 bits: its factor must be below 1."""
    scale_a, scale_b, scale_y = record.scales
    return domain.leaves_int32(1 << 30, 2 * max(scale_a, scale_b) / (scale_y * (1 << 20)), target)


@dataclass(frozen=True, eq=False, kw_only=True)
class Add(Elementwise):
    """Addition of two rescaled operands (ONNX Runtime's QLinearAdd).

    Scales are float32; zero points are those of the ONNX element type; ``offset`` (0 or 128) is added to the stored
    int8 values of operands and subtracted from the result. ``low`` and ``high`` clamp the stored int8 result.
    """

    family: ClassVar[str] = "add"
    forms: ClassVar[tuple[Form, ...]] = (
        Form("Add", operands=2, activation=True, integer=(QLinear("QLinearAdd", ((0, 1, 2), (3, 4, 5)), (6, 7)),)),
    )
    arity: ClassVar[tuple[int, int]] = (2, 2)
    requirements: ClassVar[tuple[Requirement, ...]] = (
        *elementwise.BINARY,
        elementwise.quantised,
        domain.per_tensor,
        domain.usable_scales,
        near_scales,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (scales_in_int32,)

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
    def parse(cls, graph: Graph, node: Node) -> Add:
        """The operation that an addition is, once it meets every requirement."""
        a, b, y = (domain.affine(graph.values[name]) for name in (*node.inputs, *node.outputs))
        low, high = domain.clamp(node, y)
        return cls(
            **layer_of(graph, node),
            scales=(float(a.scale), float(b.scale), float(y.scale)),
            zero_points=(a.zero_point, b.zero_point, y.zero_point),
            offset=y.offset,
            low=low,
            high=high,
        )

    @property
    def mnemonic(self) -> str:
        """The one instruction."""
        return "OP_E_ADD"

    def settings(self, arch: Arch) -> Settings:
        """Clamp and constants: float32 bits, or multipliers and shifts where numerics are fixed."""
        registers = {"EX_CLAMP_LOW": self.low, "EX_CLAMP_HIGH": self.high}
        (scale_a, scale_b, scale_y), (zero_a, zero_b, zero_y) = self.scales, self.zero_points
        if arch.numerics == "onnxruntime":
            constants = numerics.add_constants(scale_a, zero_a, scale_b, zero_b, scale_y, zero_y)
            registers["EX_OFFSET"] = self.offset
            for name, constant in zip(("EX_SCALE_A", "EX_SCALE_B", "EX_SCALE_Y"), constants, strict=True):
                registers[name] = float32_bits(constant)
            return Settings(registers, {})
        fixed = numerics.add_fixed_constants(scale_a, scale_b, scale_y)
        registers |= {
            "EX_SCALE_A": fixed.multiplier_a,
            "EX_SHIFT_A": fixed.shift_a,
            "EX_SCALE_B": fixed.multiplier_b,
            "EX_SHIFT_B": fixed.shift_b,
            "EX_SCALE_Y": fixed.multiplier_y,
            "EX_SHIFT_Y": fixed.shift_y,
            "EX_INPUT_ZERO_POINT": zero_a - self.offset,
            "EX_OPERAND_ZERO_POINT": zero_b - self.offset,
            "EX_OUTPUT_ZERO_POINT": zero_y - self.offset,
        }
        return Settings(registers, {})
