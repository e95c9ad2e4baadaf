"""Rules of operators: a node that breaks a rule is refused, with the rule and the actual values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec

from byoc.graph import Graph, Node
from byoc.options import Target

Asked = ParamSpec("Asked")

OTHER_ROUNDING = "same_rounding"
"""Rule that refuses nodes whose rounding needs other numerics than the machine's."""


@dataclass(frozen=True)
class Finding:
    """Rule violation: the actual values and the format string of the message.

    ``values`` are the actual values, and ``text`` is the format string.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text.format(**self.values)


def finding(text: str, **values: Any) -> Finding:
    """Return a finding with these ``values`` and the format string ``text``."""
    return Finding(text, values)


@dataclass(frozen=True)
class Rule(Generic[Asked]):
    """Rule that a node must meet, with the check that decides it.

    ``check`` returns None if the rule holds, otherwise a finding. ``text`` states the rule once: it
    ends the message to the user and is the row of the support table.
    """

    name: str
    text: str
    check: Callable[Asked, Finding | None]

    def __call__(self, *arguments: Asked.args, **options: Asked.kwargs) -> Finding | None:
        """Return the finding if the rule is broken, or None."""
        return self.check(*arguments, **options)


def rule(text: str) -> Callable[[Callable[Asked, Finding | None]], Rule[Asked]]:
    """Return a decorator that turns a check into the rule stated by ``text``.

    The rule has the name of the function.
    """
    return lambda check: Rule(check.__name__, text, check)


@dataclass(frozen=True)
class Refusal:
    """Reason why ``node`` does not run on the accelerator.

    ``rule`` is the name of the broken rule. ``finding`` has the actual values. ``rule_text`` states
    the rule if the finding does not. ``str`` gives the line shown to the user.
    """

    node: str
    rule: str
    finding: Finding
    rule_text: str = ""

    @property
    def values(self) -> Mapping[str, Any]:
        return self.finding.values

    def __str__(self) -> str:
        return f"{self.finding}; {self.rule_text}" if self.rule_text else str(self.finding)


Requirement = Rule[[Graph, Node]]
Constraint = Rule[[Any, Target]]


def make_missing_instruction(mnemonic: str, isa: str) -> Finding:
    """Return the finding that the machine's ISA lacks an instruction."""
    return finding(
        "{mnemonic} is not in ISA {isa}; choose an ISA that has it (dla isa)",
        mnemonic=mnemonic,
        isa=isa,
    )


def open_shape(graph: Graph, node: Node) -> Refusal | None:
    """Return a refusal if a tensor of an integer node has a data-dependent shape, else None."""
    for name in (*node.inputs, *node.outputs) if node.integer else ():
        if graph.values[name].open:
            return Refusal(
                node.name,
                "static_shape",
                finding("the shape of '{name}' depends on the data", name=name),
            )
    return None


def make_unknown_operator(node: Node) -> Refusal:
    """Return the refusal of a node whose operator no family knows."""
    return Refusal(
        node.name,
        "known",
        finding("{operator} is not supported on the accelerator", operator=node.op_type),
    )
