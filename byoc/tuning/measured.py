"""What was measured of all schedules, piece by piece, and the best schedule that its pieces make.

A piece is what runs as one: a layer with its tiling, or a group. A measurement says how long every one takes behind the
one before it. A schedule is a path of pieces from the first layer to the last; the shortest one takes runs of layers
from one schedule and others from another, wherever the same tensors stay between them, and is found by dynamic
programming, without a measurement.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from byoc.operators.layer import Tiling
from byoc.options import GroupChoice
from byoc.tuning.subject import State, Tried

WIDTH = 8
"""Pieces for the same layers between the same tensors that stay, of which the fastest are taken into account."""


class Piece(NamedTuple):
    """Sites ``first`` to ``last`` that run as one, with what stays in the scratchpad beside any of them."""

    first: int
    last: int
    tilings: tuple[Tiling, ...]
    group: GroupChoice | None
    residents: frozenset[str]


class _Known(NamedTuple):
    """Measurements of a piece: how many, and the cycles of all together, by site."""

    often: int
    sites: tuple[int, ...]

    @property
    def cycles(self) -> float:
        return sum(self.sites) / self.often


def _known(before: _Known | None, sites: tuple[int, ...]) -> _Known:
    """One measurement more than there was before."""
    if before is None:
        return _Known(1, sites)
    return _Known(before.often + 1, tuple(map(sum, zip(before.sites, sites, strict=True))))


class MeasuredPieces:
    """The measured pieces of schedules of so many sites; ``spans``: those beside which each tensor would stay."""

    def __init__(self, count: int, spans: Mapping[str, range]) -> None:
        self._count, self._spans = count, spans
        self._pieces: dict[Piece, int] = {}
        self._alone: dict[int, _Known] = {}
        self._behind: dict[tuple[int, int], _Known | None] = {}
        self._promised: dict[int, float] = {}

    def note(self, state: State, sites: Sequence[int] | None) -> None:
        """Learn from a measurement: cycles by site; None where the schedule found no place.

        Then pieces that never ran one behind the other are taken not to fit so.
        """
        before = -1
        for piece in self._of(state):
            number = self._pieces.setdefault(piece, len(self._pieces))
            if sites is None:
                self._behind.setdefault((before, number), None)
            else:
                here = tuple(sites[piece.first : piece.last + 1])
                self._alone[number] = _known(self._alone.get(number), here)
                self._behind[before, number] = _known(self._behind.get((before, number)), (sum(here),))
            before = number

    def expect(self, state: State, cycles: Sequence[float]) -> None:
        """Pieces that may be in the best schedule, too, each with the cycles that a model gives it, until measured."""
        for piece, taken in zip(self._of(state), cycles, strict=True):
            number = self._pieces.setdefault(piece, len(self._pieces))
            known = self._promised.get(number, math.inf)
            self._promised[number] = min(known, taken)

    def best(self, stretch: Callable[[], float] | None = None) -> Tried:
        """The schedule that should take the fewest cycles, were every piece's times what ``stretch`` says."""
        values: dict[int, tuple[float, int]] = {}
        ends: dict[tuple[int, frozenset[str]], list[tuple[float, int]]] = {(0, frozenset()): [(0.0, -1)]}
        pieces, starts = list(self._pieces), self._starts()
        for number in (number for place in range(self._count) for number in starts[place]):
            piece, factor = pieces[number], 1.0 if stretch is None else stretch()
            before = ends.get((piece.first, self._across(piece, piece.first)), ())
            reached = [(value + factor * self._cycles(other, number), other) for value, other in before]
            if reached:
                values[number], end = min(reached), piece.last + 1
                ends.setdefault((end, self._across(piece, end)), []).append((values[number][0], number))
        _, number = min(ends[self._count, frozenset()])
        path: list[int] = []
        while number >= 0:
            path.append(number)
            number = values[number][1]
        return self._joined([(pieces[number], number) for number in reversed(path)])

    def _cycles(self, before: int, number: int) -> float:
        """The mean cycles of a piece behind another, or, where it never was, behind any, or as promised."""
        if (before, number) not in self._behind:
            return self._mean(number)
        known = self._behind[before, number]
        return math.inf if known is None else known.cycles

    def _mean(self, number: int) -> float:
        """The mean cycles of a piece, or as promised; infinite where it was never measured to find a place."""
        known = self._alone.get(number)
        return self._promised.get(number, math.inf) if known is None else known.cycles

    def _sites(self, piece: Piece, number: int) -> list[int]:
        """The cycles of a piece by site; what is only promised stands at its first one."""
        known = self._alone.get(number)
        if known is None:
            return [round(self._promised[number]), *[0] * (piece.last - piece.first)]
        return [round(cycles / known.often) for cycles in known.sites]

    def _joined(self, path: Sequence[tuple[Piece, int]]) -> Tried:
        """The schedule of pieces one behind the other, with what they should take."""
        tilings = tuple(tiling for piece, _ in path for tiling in piece.tilings)
        groups = tuple((piece.first, piece.group) for piece, _ in path if piece.group is not None)
        residents = frozenset(name for piece, _ in path for name in piece.residents)
        sites = tuple(cycles for piece, number in path for cycles in self._sites(piece, number))
        return Tried(State(tilings, residents, groups), sum(sites), sites)

    def _starts(self) -> dict[int, list[int]]:
        """The pieces that begin with each site: of those in each other's place, the fastest."""
        alike: dict[tuple[int, int, frozenset[str]], list[tuple[float, int]]] = defaultdict(list)
        for piece, number in self._pieces.items():
            cycles = self._mean(number)
            if cycles < math.inf:
                alike[piece.first, piece.last, piece.residents].append((cycles, number))
        starts: dict[int, list[int]] = defaultdict(list)
        for (first, _, _), found in alike.items():
            starts[first] += [number for _, number in sorted(found)[:WIDTH]]
        return starts

    def _of(self, state: State) -> Iterator[Piece]:
        for first, last, group in state.spans:
            spans = ((name, self._spans[name]) for name in state.residents)
            here = frozenset(name for name, span in spans if span.start <= last and first < span.stop)
            yield Piece(first, last, state.tilings[first : last + 1], group, here)

    def _across(self, piece: Piece, place: int) -> frozenset[str]:
        """What stays from before site ``place``, where a piece begins or ends, to it."""
        return frozenset(name for name in piece.residents if self._spans[name].start < place < self._spans[name].stop)
