"""Objectives of an exploration by name and unit, and the exact hypervolume of pairs of costs.

Less is better in both costs of a pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from experiments.figure import SHARE, Figure
from experiments.sweep.results import PES, SWEPT, Pair
from experiments.sweep.units import UNITS
from isa.errors import InputError, suggest_name


def hypervolume(pairs: Iterable[Pair], reference: Pair) -> float:
    """Return the area that pairs of costs dominate, bounded by a reference point.

    It is the area of all points between ``reference`` and some pair. Pairs that are not better than
    the reference in both objectives add nothing.
    """
    inside = sorted({pair for pair in pairs if pair[0] < reference[0] and pair[1] < reference[1]})
    heights = accumulate((pair[1] for pair in inside), min, initial=reference[1])
    area = 0.0
    for (across, up), height in zip(inside, heights, strict=False):
        area += (reference[0] - across) * max(height - up, 0.0)
    return area


def count_needed(pairs: Sequence[Pair | None], reference: Pair, goal: float) -> int | None:
    """Return how many ``pairs``, in order, are needed to reach the hypervolume ``goal``.

    The result is None if all pairs do not suffice. None in ``pairs`` is a point that counts but has
    no objectives. The result is at least 1.
    """
    if hypervolume((pair for pair in pairs if pair is not None), reference) < goal:
        return None
    low = 1
    high = len(pairs)
    while low < high:
        middle = (low + high) // 2
        if hypervolume((pair for pair in pairs[:middle] if pair is not None), reference) >= goal:
            high = middle
        else:
            low = middle + 1
    return low


ESTIMATED = "estimate"
"""Word after the unit of an estimated objective."""


@dataclass(frozen=True)
class Objective:
    """Objective of an exploration: a column of a sweep's rows to make small or large.

    ``scale`` converts it to ``unit``; ``more``: more is better.
    """

    name: str
    column: str
    unit: str
    scale: float = 1.0
    more: bool = False

    @property
    def title(self) -> str:
        """Name and unit of the objective, for an axis or a column heading."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def value(self, row: Mapping[str, Any]) -> float:
        """Return the objective's value of a results row that ended ok, in ``unit``."""
        return float(row[self.column]) * self.scale

    def cost(self, row: Mapping[str, Any]) -> float:
        """Return the objective's value, negated if more is better, so that less is better."""
        return -self.value(row) if self.more else self.value(row)


def _objective(figure: Figure) -> Objective:
    """Return the exploration objective for the run result that ``figure`` describes.

    A unit that the figure's words or range already imply is left out.
    """
    unit, scale = figure.shown or (
        "" if figure.unit in (figure.words, figure.name, SHARE) else figure.unit,
        1.0,
    )
    name = figure.goal or figure.name.removesuffix("_bytes").replace("_", "-")
    said = ", ".join((unit, ESTIMATED)) if figure.estimate else unit
    return Objective(name, figure.name, said, scale, figure.better == "more")


_ALL = (
    *(_objective(figure) for figure in (*SWEPT.values(), *UNITS.values()) if figure.better),
    Objective("pes", PES, "PEs"),
    Objective("sram", "sram_bytes", "KiB", 1 / 1024),
    Objective("bandwidth", "bus_bytes", "bytes/cycle"),
)
OBJECTIVES: Mapping[str, Objective] = {objective.name: objective for objective in _ALL}

Objectives = tuple[Objective, Objective]


def parse_objectives(text: str) -> Objectives:
    """Return the two objectives in a text such as ``"cycles,area"``.

    Raise InputError for an invalid text.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in OBJECTIVES:
            close = suggest_name(name, OBJECTIVES)
            raise InputError(
                f"--objectives: unknown '{name}'; {close}choose two of {', '.join(OBJECTIVES)}"
            )
    if len(names) != 2 or names[0] == names[1]:
        raise InputError(f"--objectives is '{text}'; name two different ones, such as cycles,area")
    return OBJECTIVES[names[0]], OBJECTIVES[names[1]]


def costs(objectives: Objectives, row: Mapping[str, Any]) -> Pair | None:
    """Return both objectives of a results row, less being better.

    The result is None if the row did not end ok, or if one of them is unknown.
    """
    if row["status"] != "ok" or None in (row[objective.column] for objective in objectives):
        return None
    return objectives[0].cost(row), objectives[1].cost(row)
