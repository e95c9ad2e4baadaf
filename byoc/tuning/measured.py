"""Measured layers and groups of schedules, and the best schedule that they can form.

A piece is a layer with its tiling, or a group. A measurement gives the cycles of each piece after
its predecessor. A schedule is a path of pieces from the first layer to the last. Dynamic
programming finds the shortest path without a measurement. The path may combine layers of several
schedules where the same tensors are resident between them.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from byoc.operators.layer import Tiling
from byoc.options import GroupChoice
from byoc.tuning.subject import State, Tried

WIDTH = 8
"""Number of pieces considered for the same layers and residents, fastest first."""


class MeasuredPiece(NamedTuple):
    """Consecutive layers that run as one unit of a schedule, and the tensors resident meanwhile.

    They are the sites ``first`` to ``last``.
    """

    first: int
    last: int
    tilings: tuple[Tiling, ...]
    group: GroupChoice | None
    residents: frozenset[str]


class _PieceMeasurements(NamedTuple):
    """Measurements of one layer or group: their number, and summed cycles by layer."""

    often: int
    sites: tuple[int, ...]

    @property
    def cycles(self) -> float:
        return sum(self.sites) / self.often


def _add_measurement(
    before: _PieceMeasurements | None, sites: tuple[int, ...]
) -> _PieceMeasurements:
    """Return the measurements of a layer or group with one more measurement."""
    if before is None:
        return _PieceMeasurements(1, sites)
    return _PieceMeasurements(
        before.often + 1, tuple(map(sum, zip(before.sites, sites, strict=True)))
    )


class MeasuredPieces:
    """Measured layers and groups of schedules, for a network with ``count`` layers.

    ``spans`` has, for each tensor that can be resident, the sites during which it stays in the
    scratchpad.
    """

    def __init__(self, count: int, spans: Mapping[str, range]) -> None:
        self._count = count
        self._spans = spans
        self._pieces: dict[MeasuredPiece, int] = {}
        self._alone: dict[int, _PieceMeasurements] = {}
        self._behind: dict[tuple[int, int], _PieceMeasurements | None] = {}
        self._promised: dict[int, float] = {}

    def note(self, state: State, sites: Sequence[int] | None) -> None:
        """Record the measured cycles of a schedule, layer by layer.

        The cycles are None if memory planning failed for the schedule. After a failure, pairs of
        consecutive pieces that never ran together are assumed not to fit.
        """
        before = -1
        for piece in self._list_pieces(state):
            number = self._pieces.setdefault(piece, len(self._pieces))
            if sites is None:
                self._behind.setdefault((before, number), None)
            else:
                here = tuple(sites[piece.first : piece.last + 1])
                self._alone[number] = _add_measurement(self._alone.get(number), here)
                self._behind[before, number] = _add_measurement(
                    self._behind.get((before, number)), (sum(here),)
                )
            before = number

    def expect(self, state: State, cycles: Sequence[float]) -> None:
        """Add unmeasured layers or groups with the ``cycles`` that a model predicts."""
        for piece, taken in zip(self._list_pieces(state), cycles, strict=True):
            number = self._pieces.setdefault(piece, len(self._pieces))
            known = self._promised.get(number, math.inf)
            self._promised[number] = min(known, taken)

    def best(self, stretch: Callable[[], float] | None = None) -> Tried:
        """Return the schedule of known layers and groups with the fewest expected cycles.

        The cycles of a piece are measured, or predicted by a model. ``stretch`` returns a factor
        for the cycles of each piece, by default 1.
        """
        values: dict[int, tuple[float, int]] = {}
        ends: dict[tuple[int, frozenset[str]], list[tuple[float, int]]] = {
            (0, frozenset()): [(0.0, -1)]
        }
        pieces = list(self._pieces)
        starts = self._starts()
        for number in (number for place in range(self._count) for number in starts[place]):
            piece = pieces[number]
            factor = 1.0 if stretch is None else stretch()
            before = ends.get((piece.first, self._find_across(piece, piece.first)), ())
            reached = [
                (value + factor * self._cycles(other, number), other) for value, other in before
            ]
            if reached:
                values[number] = min(reached)
                end = piece.last + 1
                ends.setdefault((end, self._find_across(piece, end)), []).append(
                    (values[number][0], number)
                )
        _, number = min(ends[self._count, frozenset()])
        path: list[int] = []
        while number >= 0:
            path.append(number)
            number = values[number][1]
        return self._join_path([(pieces[number], number) for number in reversed(path)])

    def _cycles(self, before: int, number: int) -> float:
        """Return the mean cycles of a layer or group that runs after the piece ``before``.

        Without such a measurement, it is the mean after any piece, or the prediction.
        """
        if (before, number) not in self._behind:
            return self._mean(number)
        known = self._behind[before, number]
        return math.inf if known is None else known.cycles

    def _mean(self, number: int) -> float:
        """Return the mean measured or predicted cycles of a layer or group.

        They are infinite if the piece never fitted.
        """
        known = self._alone.get(number)
        return self._promised.get(number, math.inf) if known is None else known.cycles

    def _sites(self, piece: MeasuredPiece, number: int) -> list[int]:
        """Return the cycles of a piece (a layer or a group), layer by layer.

        A prediction is assigned to its first site.
        """
        known = self._alone.get(number)
        if known is None:
            return [round(self._promised[number]), *[0] * (piece.last - piece.first)]
        return [round(cycles / known.often) for cycles in known.sites]

    def _join_path(self, path: Sequence[tuple[MeasuredPiece, int]]) -> Tried:
        """Return the schedule of consecutive pieces with its expected cycles."""
        tilings = tuple(tiling for piece, _ in path for tiling in piece.tilings)
        groups = tuple((piece.first, piece.group) for piece, _ in path if piece.group is not None)
        residents = frozenset(name for piece, _ in path for name in piece.residents)
        sites = tuple(cycles for piece, number in path for cycles in self._sites(piece, number))
        return Tried(State(tilings, residents, groups), sum(sites), sites)

    def _starts(self) -> dict[int, list[int]]:
        """Return the known layers and groups that start at each layer.

        Of pieces with the same layers and residents, only the fastest :data:`WIDTH` are returned.
        """
        alike: dict[tuple[int, int, frozenset[str]], list[tuple[float, int]]] = defaultdict(list)
        for piece, number in self._pieces.items():
            cycles = self._mean(number)
            if cycles < math.inf:
                alike[piece.first, piece.last, piece.residents].append((cycles, number))
        starts: dict[int, list[int]] = defaultdict(list)
        for (first, _, _), found in alike.items():
            starts[first] += [number for _, number in sorted(found)[:WIDTH]]
        return starts

    def _list_pieces(self, state: State) -> Iterator[MeasuredPiece]:
        for first, last, group in state.spans:
            spans = ((name, self._spans[name]) for name in state.residents)
            here = frozenset(
                name for name, span in spans if span.start <= last and first < span.stop
            )
            yield MeasuredPiece(first, last, state.tilings[first : last + 1], group, here)

    def _find_across(self, piece: MeasuredPiece, place: int) -> frozenset[str]:
        """Return the resident tensors that are in the scratchpad before and after a layer starts.

        The layer is the site ``place``.
        """
        return frozenset(
            name
            for name in piece.residents
            if self._spans[name].start < place < self._spans[name].stop
        )
