"""Rules that a node must meet to run on the accelerator, and refusals: facts as data, sentences made last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec

Asked = ParamSpec("Asked")


@dataclass(frozen=True)
class Finding:
    """What is wrong with the actual ``values``; ``text`` is the format string of the sentence that tells them."""

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The sentence."""
        return self.text.format(**self.values)


def finding(text: str, **values: Any) -> Finding:
    """A finding of ``values``, told by ``text``."""
    return Finding(text, values)


@dataclass(frozen=True)
class Rule(Generic[Asked]):
    """One rule: ``check`` returns None where it holds, else what it found.

    ``text`` states the rule once: it ends the message that the user reads and is the row of the support table.
    """

    name: str
    text: str
    check: Callable[Asked, Finding | None]

    def __call__(self, *arguments: Asked.args, **options: Asked.kwargs) -> Finding | None:
        """What breaks the rule, or None."""
        return self.check(*arguments, **options)


def rule(text: str) -> Callable[[Callable[Asked, Finding | None]], Rule[Asked]]:
    """Makes a check the rule that ``text`` states, named as the function is."""
    return lambda check: Rule(check.__name__, text, check)


@dataclass(frozen=True)
class Refusal:
    """Why ``node`` does not run on the accelerator: the name of the rule that it misses, and what was found.

    ``finding`` has the actual values. ``rule_text`` states the rule where the finding does not say it all. ``str`` is
    the line that the user reads.
    """

    node: str
    rule: str
    finding: Finding
    rule_text: str = ""

    @property
    def values(self) -> Mapping[str, Any]:
        """The actual values."""
        return self.finding.values

    def __str__(self) -> str:
        """The finding, then the rule."""
        return f"{self.finding}; {self.rule_text}" if self.rule_text else str(self.finding)
