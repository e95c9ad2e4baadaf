"""Element-wise minimum and maximum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from byoc.graph import Graph, Node
from byoc.operators import domain, elementwise
from byoc.operators.elementwise import Pair, pair_of
from byoc.operators.forms import Form, Written
from byoc.operators.operator import MANY, Constraint, Requirement, Settings
from isa.arch import Arch


@dataclass(frozen=True, eq=False, kw_only=True)
class MinMax(Pair):
    """Minimum or maximum of two int8 tensors of equal quantisation."""

    family: ClassVar[str] = "minmax"
    forms: ClassVar[tuple[Form, ...]] = (
        Form("Min", operands=None, plain=True, ranges="all"),
        Form("Max", operands=None, plain=True, ranges="all"),
    )
    arity: ClassVar[tuple[int, int]] = (1, MANY)
    requirements: ClassVar[tuple[Requirement, ...]] = (
        *elementwise.PAIR,
        domain.per_tensor,
        domain.moves_integers,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = elementwise.PAIR_CONSTRAINTS
    repeating: ClassVar[str] = "OP_B_MIN"

    function: Literal["min", "max"]

    @classmethod
    def canonical_type(cls, form: Form, operands: int) -> str:
        """A comparison of one operand is the operand."""
        return "Identity" if operands == 1 else form.op_type

    @classmethod
    def attributes(cls, written: Written) -> dict[str, object]:
        """None of its own."""
        return {}

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> MinMax:
        """The operation that a minimum or maximum is, once it meets every requirement."""
        return cls(**pair_of(graph, node), function="min" if node.op_type == "Min" else "max")

    @property
    def mnemonic(self) -> str:
        """One for each function; one for both where operands repeat."""
        if self.repeats:
            return self.repeating
        return "OP_C_MIN" if self.function == "min" else "OP_C_MAX"

    def settings(self, arch: Arch) -> Settings:
        """The function, and how operands repeat."""
        return Settings({}, {**self.fields(), "maximum": int(self.function == "max")} if self.repeats else {})
