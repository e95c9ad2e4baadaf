"""What can be changed of a schedule at one place: another tiling, other groups, a tensor more or less that stays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from byoc.operators.operator import Geometry
from byoc.operators.tiling import Resident, Tiling
from byoc.tuning.candidates import Drawing
from byoc.tuning.grouping import Grouping, with_group
from byoc.tuning.state import Move, State
from byoc.tuning.subject import Grouped, Subject
from byoc.tuning.transfer import Donor

PLACES = 64
"""Layers, groups, and tensors at which changes are drawn at a time, of each so many at most."""

Item = TypeVar("Item")


class Moves:
    """Draws moves, each once, from what is legal and fits by itself, and from what a ``donor`` offers."""

    def __init__(self, subject: Subject, random: np.random.Generator) -> None:
        self._subject, self._random = subject, random
        self._grouping = Grouping(subject, random)
        self._made: set[Hashable] = set()
        self._tested: dict[tuple[int, Resident], set[Tiling]] = {}
        self._drawings: dict[tuple[Geometry, Resident, int], Drawing] = {}
        self.donor: Donor | None = None

    def make(self, moves: Iterable[Move]) -> None:
        """Moves that are measured now, and not drawn again."""
        self._made.update(move.content for move in moves)

    def note(self, state: State) -> None:
        """A schedule that was measured: its tilings are not drawn again where they are."""
        for number, _ in state.tiled:
            resident, _ = state.room(self._subject, number)
            self._tested.setdefault((number, resident), set()).add(state.tilings[number])

    def pools(self, base: State, tilings: int, groups: int, flips: int) -> Iterator[list[Move]]:
        """Moves from ``base``, place by place: so many tilings a layer, changes a group, and tensors in all."""
        for number, last in self._some(base.tiled, PLACES):
            drawn = self._drawn(number, base, tilings)
            yield [Move(number, last, _with_tiling(base, number, tiling)) for tiling in drawn]
        for place in (-1, *self._some(range(len(base.groups)), PLACES)):
            changed = (self._grouping.changed(base.groups, place) for _ in range(groups))
            found = dict.fromkeys(one for one in changed if one is not None)
            yield self._new(base, (self._refitted(base, base.residents, one) for one in found))
        for group in () if self.donor is None else self.donor.groups():
            yield self._new(base, [self._refitted(base, base.residents, with_group(base.groups, *group))])
        for _, name in self._some(self._subject.candidates, flips):
            yield self._new(base, [self._refitted(base, base.residents ^ {name}, base.groups)])

    def _some(self, items: Sequence[Item], most: int) -> Sequence[Item]:
        """All of ``items``, or ``most`` of them by chance, in order."""
        if len(items) <= most:
            return items
        chosen = self._random.choice(len(items), most, replace=False)
        return [items[number] for number in sorted(chosen.tolist())]

    def _new(self, base: State, states: Iterable[State | None]) -> list[Move]:
        """Schedules as moves, less those that were made before."""
        moves = [self._move(base, state) for state in states if state is not None and state != base]
        return [move for move in moves if move.content not in self._made]

    def _move(self, base: State, state: State) -> Move:
        """The move from one schedule to another: all sites whose tiling, group or room differ, in whole groups."""
        pairs = enumerate(zip(base.tilings, state.tilings, strict=True))
        changed = {number for number, (before, after) in pairs if before != after}
        for first, group in set(base.groups) ^ set(state.groups):
            changed.update(range(first, first + len(group.layers)))
        flipped = base.residents ^ state.residents
        for region, name in self._subject.candidates if flipped else ():
            if name in flipped:
                changed.update(self._subject.span(region, name))
        low, high = min(changed), max(changed)
        for first, group in (*base.groups, *state.groups):
            last = first + len(group.layers) - 1
            if first <= high and last >= low:
                low, high = min(low, first), max(high, last)
        return Move(low, high, state)

    def _refitted(self, state: State, residents: frozenset[str], groups: Grouped) -> State | None:
        """A schedule with other residents and groups: the compiler's tilings where the room is another; None: none."""
        banded = [one for one in groups if one[1].rows and (residents != state.residents or one not in state.groups)]
        for first, group in groups:
            if not group.rows:
                residents -= self._subject.ridden(first) or frozenset()
        if any(self._subject.account(*one, residents).estimate is None for one in banded):
            return None
        found = State(state.tilings, residents, groups)
        tilings = list(state.tilings)
        for number, _ in found.tiled:
            (before, _), (resident, budget) = state.room(self._subject, number), found.room(self._subject, number)
            search, tiling = self._subject.search(number), tilings[number]
            if resident == before and search.cost.working_set(tiling, resident) <= budget:
                continue
            choice = search.best(resident, budget)
            if choice is None:
                return None
            tilings[number] = choice.tiling
        return replace(found, tilings=tuple(tilings))

    def _drawn(self, number: int, base: State, count: int) -> list[Tiling]:
        """Up to ``count`` different tilings of a site that were never measured there, those that are offered first."""
        resident, budget = base.room(self._subject, number)
        key = self._subject.sites[number].geometry, resident, budget
        drawing = self._drawings.get(key)
        if drawing is None:
            drawing = self._drawings[key] = Drawing(key[0], self._subject.arch, resident, budget)
        tested = self._tested.get((number, resident), set())
        offered = () if self.donor is None else self.donor.tilings(number, resident, budget)
        found = dict.fromkeys(tiling for tiling in offered if tiling not in tested)
        for _ in range(2 * count):
            tiling = drawing.near(self._random, base.tilings[number])
            if tiling is not None and tiling not in tested:
                found[tiling] = None
            if len(found) >= count:
                break
        return list(found)


def _with_tiling(state: State, number: int, tiling: Tiling) -> State:
    return replace(state, tilings=(*state.tilings[:number], tiling, *state.tilings[number + 1 :]))
