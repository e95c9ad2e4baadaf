"""A complete schedule as the search changes it, and changes of it at one place that can be made together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from byoc.choices import Choices, GroupChoice
from byoc.operators.tiling import Resident, Tiling
from byoc.scheduling.residency import tiling_of
from byoc.tuning.subject import Grouped, Subject, placed


@dataclass(frozen=True)
class State:
    """A complete schedule: the tiling of every site, what stays in the scratchpad, and what is computed in groups.

    Of sites in groups of bands the tilings are those that they would have alone.
    """

    tilings: tuple[Tiling, ...]
    residents: frozenset[str]
    groups: Grouped = ()

    @cached_property
    def spans(self) -> list[tuple[int, int, GroupChoice | None]]:
        """Sites that run as one, in order: first and last with the group that they are in, or one alone."""
        groups, found, number = dict(self.groups), list[tuple[int, int, GroupChoice | None]](), 0
        while number < len(self.tilings):
            group = groups.get(number)
            last = number if group is None else number + len(group.layers) - 1
            found.append((number, last, group))
            number = last + 1
        return found

    @property
    def tiled(self) -> tuple[tuple[int, int], ...]:
        """The sites that are tiled so, each with the last of those that go tile by tile with it, mostly itself."""
        return tuple((first, last) for first, last, group in self.spans if group is None or not group.rows)

    def room(self, subject: Subject, number: int) -> tuple[Resident, int]:
        """Which operands of a tiled site are resident or loaded beside it, and the bytes that residents leave it."""
        resident, budget = subject.room(subject.sites[number], self.residents)
        ridden = any(first == number and not group.rows for first, group in self.groups)
        return (resident._replace(beside=subject.beside(number)) if ridden else resident), budget


def state_of(choices: Choices) -> State:
    """Complete choices as a schedule."""
    groups = placed([choice.layer for choice in choices.layers], choices.groups or ())
    return State(tuple(map(tiling_of, choices.layers)), frozenset(choices.residents or ()), groups)


@dataclass(frozen=True)
class Tried:
    """A schedule with what it was measured to take."""

    state: State
    cycles: int
    sites: tuple[int, ...]


@dataclass(frozen=True)
class Move:
    """A schedule changed at sites ``first`` to ``last``: ``state`` is what it is with this change alone."""

    first: int
    last: int
    state: State

    def apart(self, other: Move) -> bool:
        """Whether a site at least lies between what both change: neither then changes what runs before the other."""
        return other.first > self.last + 1 or self.first > other.last + 1

    @property
    def content(self) -> Hashable:
        """What is tried at its sites, wherever the rest of the schedule stands."""
        here = [(first, group) for first, group in self.state.groups if self.first <= first <= self.last]
        return self.first, self.state.tilings[self.first : self.last + 1], tuple(here), self.state.residents


def combined(base: State, moves: Sequence[Move]) -> State:
    """``base`` with all of some moves, each of which was made from it and apart from the others."""
    tilings, residents, groups = list(base.tilings), set(base.residents), set(base.groups)
    for move in moves:
        changed = slice(move.first, move.last + 1)
        tilings[changed] = move.state.tilings[changed]
        residents ^= base.residents ^ move.state.residents
        groups ^= set(base.groups) ^ set(move.state.groups)
    return State(tuple(tilings), frozenset(residents), tuple(sorted(groups, key=lambda one: one[0])))
