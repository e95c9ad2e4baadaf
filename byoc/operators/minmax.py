"""Element-wise minimum and maximum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from byoc.graph import Graph, Node
from byoc.operators import domain, elementwise
from byoc.operators.elementwise import Elementwise, layer_of
from byoc.operators.forms import Form, Written
from byoc.operators.operator import Requirement


@dataclass(frozen=True, eq=False, kw_only=True)
class MinMax(Elementwise):
    """Minimum or maximum of two int8 tensors of equal shape and quantisation."""

    family: ClassVar[str] = "minmax"
    forms: ClassVar[tuple[Form, ...]] = (
        Form("Min", operands=None, plain=True, ranges="all"),
        Form("Max", operands=None, plain=True, ranges="all"),
    )
    requirements: ClassVar[tuple[Requirement, ...]] = (
        *elementwise.BINARY,
        domain.per_tensor,
        domain.moves_integers,
    )

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
        return cls(**layer_of(graph, node), function="min" if node.op_type == "Min" else "max")

    @property
    def mnemonic(self) -> str:
        """One for each function."""
        return "OP_C_MIN" if self.function == "min" else "OP_C_MAX"
