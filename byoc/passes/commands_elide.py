"""Elision: drops register writes that would write the value the register has already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from isa.registers import RESET


class Issue(NamedTuple):
    """One operation word with the register writes before it, each (register name, value)."""

    writes: tuple[tuple[str, int], ...]
    word: int


def elide(issues: Iterable[Issue], reset: Mapping[str, int] = RESET) -> tuple[Issue, ...]:
    """The same operations, each with the same register file, starting from the variant's ``reset`` values."""
    current = dict(reset)
    kept: list[Issue] = []
    for writes, word in issues:
        needed = tuple([write for write in writes if current[write[0]] != write[1]])
        current.update(needed)
        kept.append(Issue(needed, word))
    return tuple(kept)


def count_words(issues: Iterable[Issue]) -> int:
    """Command words of a stream: one a register write, one an operation."""
    return sum(len(issue.writes) + 1 for issue in issues)
