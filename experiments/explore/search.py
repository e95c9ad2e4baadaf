"""The search: points are proposed, evaluated some at a time, and what came of them is told, until there are enough.

The results file of a sweep is all that an interrupted search needs: started again, the search takes the same steps,
reads what is there, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.explore.hypervolume import Pair
from experiments.explore.proposer import Axes, Proposer, SamplerName

Choice = dict[str, Any]
Row = dict[str, Any]
Evaluate = Callable[[Sequence[Choice]], list[Row | None]]
"""Rows of choices, None for one that the constraints exclude."""
Costs = Callable[[Row], Pair | None]
"""The two objectives of a row, less being better; None where it has none."""

TOGETHER = 8
"""Points proposed at once, whatever the number of workers: the search is the same on every machine."""
ATTEMPTS = 10
"""Proposals for each point that is wanted; the others were known or excluded."""


@dataclass(frozen=True)
class Found:
    """A point that was evaluated: its row, and its objectives where it has any."""

    row: Row
    costs: Pair | None


def search(
    axes: Axes,
    evaluate: Evaluate,
    costs: Costs,
    *,
    points: int,
    sampler: SamplerName = "nsga2",
    seed: int = 0,
    report: Callable[[int], None] = lambda count: None,
) -> list[Found]:
    """Up to ``points`` different points in the order in which they were found; ``report`` hears how many there are.

    There are fewer where the grid has no more, or where nothing new is proposed any longer. Raises InputError where
    Optuna is not installed.
    """
    known: dict[str, Found] = {}
    first = {name: values[0] for name, values in axes.items()}
    if all(len(values) == 1 for values in axes.values()):
        return [Found(row, costs(row)) for row in evaluate([first]) if row is not None]
    proposer = Proposer(axes, sampler, seed)
    for _ in range(0, ATTEMPTS * points, TOGETHER):
        trials = proposer.ask(TOGETHER)
        rows = evaluate([first | choice for _, choice in trials])
        for (trial, _), row in zip(trials, rows, strict=True):
            found = None if row is None else Found(row, costs(row))
            proposer.tell(trial, None if found is None else found.costs, excluded=found is None)
            if found is not None and len(known) < points:
                known.setdefault(found.row["key"], found)
        report(len(known))
        if len(known) >= points or proposer.exhausted:
            break
    return list(known.values())
