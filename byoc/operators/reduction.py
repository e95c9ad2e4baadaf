"""Reductions along axes: sum, mean, maximum, minimum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.definition import Definition
from byoc.operators.forms import Form, Kinds, Written
from byoc.operators.onnx_view import OnnxNode
from byoc.operators.operator import Constraint, Operator, Requirement, Settings
from byoc.operators.rows import AXES, REQUIREMENTS, Columns, Rows, fits_fields, folded, misfit_axes, slices
from byoc.operators.rules import Finding, rule
from byoc.target import Target
from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits
from isa.ops.rows import MAXIMUM, MINIMUM, SUM

Mode = Literal["sum", "mean", "max", "min"]
_FIELDS: Mapping[Mode, int] = {"sum": SUM, "mean": SUM, "max": MAXIMUM, "min": MINIMUM}
_MODES: Mapping[str, Mode] = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min"}


@rule(domain.FIXED)
def scales_in_int32(record: tuple[Reduction, ...], target: Target) -> Finding | None:
    """The sum of the steps of a row, scaled."""
    first = record[0]
    return domain.leaves_int32(first.steps, first.ratio, target)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduction(Rows):
    """One number of every dense row of ``count`` elements. Scales are float32, zero points stored ones.

    Sums and means are of integers, as ONNX Runtime's for global averages; its own are float32 sums whose order depends
    on the processor, so the oracle of such a unit is the definition (:meth:`definition`). They differ by 1 in 4 of
    1,134,964 outputs (3 to 768 elements a row), and in 190 of 512,357 where the scales of operand and result are equal
    or a power of two apart, so that ties are frequent.
    """

    family: ClassVar[str] = "reduction"
    forms: ClassVar[tuple[Form, ...]] = (
        Form("ReduceMean", attributes=("axes",)),
        Form("ReduceSum", attributes=("axes",)),
        Form("ReduceMax", attributes=("axes",), ranges="first"),
        Form("ReduceMin", attributes=("axes",), ranges="first"),
    )
    instructions: ClassVar[tuple[str, ...]] = ("OP_REDUCE",)
    arity: ClassVar[tuple[int, int]] = (1, 1)
    requirements: ClassVar[tuple[Requirement, ...]] = REQUIREMENTS
    kinds: ClassVar[Kinds] = AXES
    constraints: ClassVar[tuple[Constraint, ...]] = (fits_fields, scales_in_int32)

    mode: Mode
    count: int
    scales: tuple[float, float]
    zero_points: tuple[int, int]

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any]:
        """The axes that are reduced, all by default."""
        node, rank = written.node, len(written.operand_shape())
        axes: Any = node.attributes.get("axes", ())
        if node.input(1):
            axes = written.view.constants[node.input(1)].reshape(-1).tolist()
        none = () if node.attributes.get("noop_with_empty_axes") else range(rank)
        return {"axes": tuple(sorted(int(axis) % max(rank, 1) for axis in axes)) or tuple(none)}

    @classmethod
    def stays_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Reductions along computed axes."""
        return bool(node.input(1)) and node.input(1) not in constants

    @classmethod
    def misshapen(cls, written: Written) -> str:
        """Computed axes."""
        name = written.node.input(1)
        return f"its axes '{name}' are computed" if name and name not in written.view.constants else ""

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Axes that are there, and a result of the elements that remain."""
        found = misfit_axes(graph, node)
        if found is not None:
            return found
        source, result = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
        left = [1 if axis in node.attributes["axes"] else size for axis, size in enumerate(source.shape)]
        fits = result.elements == int(np.prod(left, dtype=np.int64))
        return None if fits else f"'{node.name}' reduces shape {source.shape} to {result.shape}"

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> tuple[Reduction, ...]:
        """The operations that a reduction is."""
        source, result = (graph.values[name] for name in (node.inputs[0], node.outputs[0]))
        shape = folded(source.shape, node.attributes["axes"])
        assert shape is not None
        before, after = domain.affine(source), domain.affine(result)
        numbers: dict[str, Any] = {
            "mode": _MODES[node.op_type],
            "count": shape[1],
            "scales": (float(before.scale), float(after.scale)),
            "zero_points": (before.stored_zero_point, after.stored_zero_point),
        }
        kind = cls if shape[2] == 1 else ColumnReduction
        return tuple(kind(**fields, **numbers) for fields in slices(graph, node, shape, "POOL", 1))

    @classmethod
    def operations(cls, record: tuple[Reduction, ...], target: Target) -> tuple[Operator, ...]:
        """As they are."""
        return record

    @property
    def divisor(self) -> int:
        """What sums are divided by."""
        return self.count if self.mode == "mean" else 1

    @property
    def ratio(self) -> float:
        """What the integers are multiplied by."""
        return self.scales[0] / self.scales[1] / self.divisor

    @property
    def steps(self) -> int:
        """Largest magnitude that is scaled."""
        return 255 * (self.count if _FIELDS[self.mode] == SUM else 1)

    def settings(self, arch: Arch) -> Settings:
        """Mode, zero points, and scales: float32 bits, or multiplier and shift where numerics are fixed."""
        registers = {**self.spacing, "EX_CLAMP_LOW": -128, "EX_CLAMP_HIGH": 127}
        registers |= dict(zip(("EX_INPUT_ZERO_POINT", "EX_OUTPUT_ZERO_POINT"), self.zero_points, strict=True))
        mode = _FIELDS[self.mode]
        if arch.numerics == "fixed":
            registers["EX_SCALE_A"], registers["EX_SHIFT_A"] = numerics.quantise_multiplier(self.ratio)
        elif mode == SUM:
            registers["EX_SCALE_A"] = float32_bits(numerics.global_average_scale(*self.scales, self.divisor))
        else:
            registers["EX_SCALE_A"], registers["EX_SCALE_Y"] = map(float32_bits, self.scales)
        return Settings(registers, {"mode": mode})

    @classmethod
    def definition(cls, graph: Graph, node: Node) -> Definition | None:
        """Of sums and means: the sum of integers, scaled once."""
        mode = _MODES[node.op_type]
        if mode not in ("sum", "mean"):
            return None
        source, result = (graph.values[name] for name in (node.inputs[0], node.outputs[0]))
        before, after, axes = domain.affine(source), domain.affine(result), node.attributes["axes"]
        count = int(np.prod([source.shape[axis] for axis in axes], dtype=np.int64))
        scale = numerics.global_average_scale(float(before.scale), float(after.scale), count if mode == "mean" else 1)
        made = Definition()
        wide = made.add("Sub", made.cast(source.name, "int64"), np.int64(before.zero_point))
        total = made.add("ReduceSum", wide, np.array(axes, np.int64), keepdims=1, noop_with_empty_axes=1)
        scaled = made.add("Mul", made.cast(total, "float32"), np.float32(scale))
        return made.finish(scaled, result)


@dataclass(frozen=True, eq=False, kw_only=True)
class ColumnReduction(Columns, Reduction):
    """One number of every row that stands across."""
