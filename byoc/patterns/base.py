"""What every operator family is made of: requirements on the graph, a parsed record, constraints on it, operations.

A requirement or constraint is a function that returns None when it holds, else what is wrong with the actual values.
Its docstring states the rule once: it ends the message that the user reads and is the row of the support table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from byoc.graph import Graph, Node
from byoc.operations import Operation
from byoc.target import Target

Record = TypeVar("Record")
Requirement = Callable[[Graph, Node], str | None]


@dataclass(frozen=True)
class Rejection:
    """Why a node cannot run on the accelerator: one line with the actual values."""

    reason: str


@dataclass(frozen=True)
class Pattern(Generic[Record]):
    """One operator family.

    ``requirements`` look at graph and node and depend on nothing else; where all hold, ``parse`` makes the record that
    both ``constraints`` (which may depend on the target) and ``operations`` work on. ``instructions`` are those that
    the target must have for the family to be asked at all. ``quantised`` names ONNX operators that become integer
    operators only for this family, and how many of their first inputs are data (None: all).
    """

    name: str
    op_types: tuple[str, ...]
    requirements: tuple[Requirement, ...]
    parse: Callable[[Graph, Node], Record]
    constraints: tuple[Callable[[Record, Target], str | None], ...]
    operations: Callable[[Record, Target], tuple[Operation, ...]]
    instructions: tuple[str, ...] = ()
    quantised: Mapping[str, int | None] = field(default_factory=dict)

    def rules(self) -> tuple[str, ...]:
        """Every rule that a node must meet, as the user reads it."""
        return (*map(rule, self.requirements), *map(rule, self.constraints))

    def check(self, graph: Graph, node: Node) -> Rejection | None:
        """The first requirement that ``node`` misses; None where it matches. Does not depend on the target."""
        for requirement in self.requirements:
            detail = requirement(graph, node)
            if detail is not None:
                return Rejection(explain(requirement, detail))
        return None

    def lower(self, graph: Graph, node: Node, target: Target) -> tuple[Operation, ...] | Rejection:
        """Operations of a node that passed :meth:`check`, or the first constraint that it misses on ``target``."""
        for mnemonic in self.instructions:
            if mnemonic not in target.instructions:
                return Rejection(f"{mnemonic} is not in ISA {target.isa}; choose an ISA that has it (dla isa)")
        record = self.parse(graph, node)
        for constraint in self.constraints:
            detail = constraint(record, target)
            if detail is not None:
                return Rejection(explain(constraint, detail))
        return self.operations(record, target)


def as_parsed(record: Operation, target: Target) -> tuple[Operation, ...]:
    """The operation that was parsed, by itself."""
    return (record,)


def rule(check: Callable[..., str | None]) -> str:
    """The rule that a requirement or constraint states: its docstring on one line."""
    return " ".join((check.__doc__ or "").split())


def explain(check: Callable[..., str | None], detail: str) -> str:
    """The message of a requirement or constraint that does not hold: the values, then the rule."""
    return f"{detail}; {rule(check)}"
