"""What a search found: the front, and how much of the grid it took, held against the grid and against chance."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.explore.objectives import Objectives, Pair, front, hypervolume, needed
from experiments.explore.search import Found

GOAL = 0.99
"""Share of the grid's hypervolume that is to be reached."""
MARGIN = 1.1
"""The reference of hypervolumes is this many times the worst value of either objective."""
ORDERS = 200
"""Random orders of the grid that the search is held against."""
SCHEMA = "dla-explore/1"


@dataclass(frozen=True)
class GridComparison:
    """Against the whole grid: hypervolumes, and points needed for ``GOAL`` of the grid's, None where not reached.

    ``by_chance`` is the median over random orders of the grid.
    """

    points: int
    ok: int
    grid_hypervolume: float
    share: float
    needed: int | None
    by_chance: float | None


@dataclass(frozen=True, eq=False)
class Exploration:
    """The points that were evaluated, in order, those on the front among them, and how they compare with the grid.

    ``settings`` are the columns that vary; ``reference`` is the point that hypervolumes are measured from.
    """

    conditions: Mapping[str, Any]
    objectives: Objectives
    settings: tuple[str, ...]
    found: tuple[Found, ...]
    front: tuple[Found, ...]
    grid_points: int
    reference: Pair | None
    comparison: GridComparison | None
    grid: tuple[Pair | None, ...]

    def content(self) -> dict[str, Any]:
        """The exploration as JSON has it: objectives by name in their units, and the settings of every point."""
        compared = self.comparison
        return {
            "schema": SCHEMA,
            **self.conditions,
            "objectives": [{"name": o.name, "unit": o.unit, "more_is_better": o.more} for o in self.objectives],
            "points": len(self.found),
            "grid_points": self.grid_points,
            "front": [self._point(found) for found in self.front],
            "found": [self._point(found) for found in self.found],
            "grid": None if compared is None else {
                "points": compared.points,
                "ok": compared.ok,
                "hypervolume_share": compared.share,
                "goal": GOAL,
                "points_needed": compared.needed,
                "points_needed_by_chance": compared.by_chance,
            },
        }  # fmt: skip

    def _point(self, found: Found) -> dict[str, Any]:
        chosen = {name: found.row.get(name) for name in self.settings}
        ok = found.costs is not None
        values = {o.name: o.value(found.row) if ok else None for o in self.objectives}
        return {"key": found.row["key"], "status": found.row["status"], **chosen, **values}


def explored(
    conditions: Mapping[str, Any],
    objectives: Objectives,
    settings: tuple[str, ...],
    found: Sequence[Found],
    grid_points: int,
    grid: Sequence[Pair | None] | None,
) -> Exploration:
    """The exploration of ``found``; ``grid`` are the objectives of every point of the grid, if they are known."""
    whole = [item.costs for item in found] if grid is None else grid
    reference = _reference(objectives, [pair for pair in whole if pair is not None])
    ended = [item for item in found if item.costs is not None]
    best = front([item.costs for item in ended if item.costs is not None])
    return Exploration(
        conditions=conditions,
        objectives=objectives,
        settings=settings,
        found=tuple(found),
        front=tuple(ended[place] for place in best),
        grid_points=grid_points,
        reference=reference,
        comparison=None if grid is None or reference is None else against_grid(found, grid, reference),
        grid=() if grid is None else tuple(grid),
    )


def _reference(objectives: Objectives, pairs: Sequence[Pair]) -> Pair | None:
    """A little worse than the worst of ``pairs`` in either objective; 0 where more is better. None without pairs."""
    if not pairs:
        return None
    worst = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    first, second = (
        0.0 if objective.more else value * MARGIN for objective, value in zip(objectives, worst, strict=True)
    )
    return first, second


def against_grid(found: Sequence[Found], grid: Sequence[Pair | None], reference: Pair) -> GridComparison:
    """The points of a search, in their order, against the whole grid."""
    total = _volume(grid, reference)
    reached = _volume([item.costs for item in found], reference)
    return GridComparison(
        points=len(grid),
        ok=sum(pair is not None for pair in grid),
        grid_hypervolume=total,
        share=reached / total if total else 1.0,
        needed=needed([item.costs for item in found], reference, GOAL * total) if found else None,
        by_chance=_by_chance(grid, reference, GOAL * total),
    )


def _volume(pairs: Sequence[Pair | None], reference: Pair) -> float:
    return hypervolume((pair for pair in pairs if pair is not None), reference)


def _by_chance(grid: Sequence[Pair | None], reference: Pair, goal: float) -> float | None:
    """The median number of points that random orders of the grid need; the orders are the same every time."""
    counts = []
    for number in range(ORDERS):
        order = random.Random(number).sample(list(grid), len(grid))
        counts.append(needed(order, reference, goal))
    reached = [count for count in counts if count is not None]
    return statistics.median(reached) if reached else None
