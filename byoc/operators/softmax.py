"""Softmax along one axis, as ONNX Runtime's QLinearSoftmax computes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.forms import Form, Kinds, QLinear, Written, numeric
from byoc.operators.operator import ChannelConstants, Constraint, Operator, Requirement, Settings
from byoc.operators.rows import (
    AXES,
    REQUIREMENTS,
    Columns,
    Rows,
    fits_fields,
    folded,
    misfit_axes,
    shared_constants,
    slices,
)
from byoc.operators.rules import Finding, finding, rule
from byoc.target import Target
from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits

_LEGACY = 13
"""Before this opset a Softmax was of all axes from its own on, which by default was the second."""


@rule("exponentials times 1 / scale of the result stay within float32")
def finite_numerators(record: tuple[Softmax, ...], target: Target) -> Finding | None:
    """ONNX Runtime makes of infinities what the processor makes of them: only rows of one element come that far."""
    first = record[0]
    with np.errstate(over="ignore"):
        largest = numerics.softmax_table(first.input_scale, first.count)[255]
        finite = np.isfinite(largest * numerics.softmax_factor(first.output_scale))
    if finite or target.numerics == "fixed":
        return None
    return finding("rows have {count} elements, the scale is {scale:g}", count=first.count, scale=first.output_scale)


@rule("with numerics fixed, the scale of the result is above 2^-16, and rows have 4,095 elements at most")
def small_sums(record: tuple[Softmax, ...], target: Target) -> Finding | None:
    """The factor is below 2^24, and the sum of a row within int32."""
    first = record[0]
    if target.numerics != "fixed" or (first.output_scale > 2.0**-16 and first.count < 4096):
        return None
    return finding("the scale is {scale:g}, the elements are {count}", scale=first.output_scale, count=first.count)


@dataclass(frozen=True, eq=False, kw_only=True)
class Softmax(Rows):
    """Softmax of dense rows; ``count`` elements each. Scales are float32, the zero point is a stored one.

    ``beta`` multiplies the exponents, with numerics fixed: only TensorFlow Lite has it.
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
    constants_name: ClassVar[str] = "exponentials"

    count: int
    input_scale: float
    output_scale: float
    output_zero_point: int
    beta: float = 1.0
    fixed: bool = False

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any]:
        """The axes of a row."""
        source, rank = written.node.attributes, len(written.operand_shape())
        legacy = int(source.get("opset", _LEGACY)) < _LEGACY
        axis = int(source.get("axis", 1 if legacy else -1)) % max(rank, 1)
        return {"axes": tuple(range(axis, rank)) if legacy else (axis,)}

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Axes that are there, and a result of the operand's shape."""
        source, result = graph.values[node.inputs[0]].shape, graph.values[node.outputs[0]].shape
        shapes = None if source == result else f"'{node.name}' makes {result} of {source}"
        return shapes or misfit_axes(graph, node)

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> tuple[Softmax, ...]:
        """The operations that a softmax is."""
        source, result = (graph.values[name] for name in (node.inputs[0], node.outputs[0]))
        shape = folded(source.shape, node.attributes["axes"])
        assert shape is not None
        after = domain.affine(result)
        numbers: dict[str, Any] = {
            "count": shape[1],
            "input_scale": float(domain.affine(source).scale),
            "output_scale": float(after.scale),
            "output_zero_point": after.stored_zero_point,
            "beta": float(node.attributes.get("beta", 1.0)),
        }
        kind = cls if shape[2] == 1 else ColumnSoftmax
        return tuple(
            kind(**fields, **numbers)
            for fields in slices(node, node.inputs[0], node.outputs[0], shape, "ACT", shape[1])
        )

    @classmethod
    def operations(cls, record: tuple[Softmax, ...], target: Target) -> tuple[Operator, ...]:
        """Those with the exponentials of the target's numerics."""
        return tuple(replace(one, fixed=target.numerics == "fixed") for one in record)

    def settings(self, arch: Arch) -> Settings:
        """Zero point and factor of the result."""
        fixed = arch.numerics == "fixed"
        scale = self.output_scale
        factor = numerics.softmax_factor_fixed(scale) if fixed else float32_bits(numerics.softmax_factor(scale))
        return Settings({**self.spacing, "EX_OUTPUT_ZERO_POINT": self.output_zero_point, "EX_SCALE_Y": factor}, {})

    def constants(self) -> ChannelConstants:
        """The exponentials, one set for all rows."""
        scale = self.input_scale
        table = (
            numerics.softmax_table_fixed(scale, self.beta) if self.fixed else numerics.softmax_table(scale, self.count)
        )
        return ChannelConstants(weights=shared_constants(table, self.nest().channels))


@dataclass(frozen=True, eq=False, kw_only=True)
class ColumnSoftmax(Columns, Softmax):
    """Softmax of rows that stand across."""
