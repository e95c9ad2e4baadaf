"""One exploration, from a specification to a front: the workflow behind ``dla explore``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.cost.estimate import costed
from experiments.cost.table import DEFAULT_TABLE, CostTable, load_table
from experiments.explore.objectives import Objectives, Pair, costs
from experiments.explore.result import Exploration, explored
from experiments.explore.search import SAMPLERS, Choice, Row, SamplerName, search
from experiments.running import Progress, silent
from experiments.sweep.session import Session
from experiments.sweep.spec import Spec
from isa.errors import InputError

SMALL_GRID = 1000
"""A grid of so many points is run, too, unless it is said otherwise: to say how much of it the search needed."""
LARGEST_GRID = 100_000
"""Combinations of values that a grid can have for the search to be held against it."""


@dataclass(frozen=True)
class Wanted:
    """What to look for and how. ``grid``: run the whole grid as well; None for small ones only."""

    objectives: Objectives
    points: int
    sampler: SamplerName = "tpe"
    seed: int = 0
    cost: str = DEFAULT_TABLE
    grid: bool | None = None


def check(spec: Spec, wanted: Wanted) -> CostTable:
    """The cost table; raises InputError for what cannot be explored, before any work is done."""
    if len(spec.networks) != 1:
        names = ", ".join(spec.networks)
        raise InputError(f"networks: {names}; explore one at a time, for a front compares points of one network")
    if wanted.points < 1:
        raise InputError(f"--trials is {wanted.points}; it must be 1 or more")
    if wanted.sampler not in SAMPLERS:
        raise InputError(f"--sampler {wanted.sampler}: unknown; choose one of {', '.join(SAMPLERS)}")
    return load_table(wanted.cost)


def explore(
    spec: Spec,
    output: Path,
    wanted: Wanted,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    command: str = "dla explore",
    stage: Progress = silent,
    report: Callable[[int], None] = lambda count: None,
) -> Exploration:
    """Evaluate up to ``wanted.points`` points of ``spec``; each has a row in the results file ``output`` afterwards.

    Points that have a row are read, not run: an interrupted exploration goes on where it was, and a longer one begins
    with the same points. ``report`` hears how many points there are. Raises InputError for bad input.
    """
    table = check(spec, wanted)
    with Session(spec, output, workers=workers, scheduler=scheduler, command=command, stage=stage) as session:
        evaluate = _evaluator(session, table)
        grid = session.grid
        stage(f"exploring {grid.points} points")
        found = search(
            grid.axes,
            evaluate,
            lambda row: costs(wanted.objectives, row),
            points=wanted.points,
            sampler=wanted.sampler,
            seed=wanted.seed,
            report=report,
        )
        pairs = _whole_grid(session, wanted, evaluate, stage)
        settings = tuple(name for name, values in grid.axes.items() if len(values) > 1)
        conditions = {
            "command": command,
            "network": spec.networks[0],
            "sampler": wanted.sampler,
            "seed": wanted.seed,
            "cost_table": table.name,
        }
        return explored(conditions, wanted.objectives, _columns(settings), found, grid.points, pairs)


def _evaluator(session: Session, table: CostTable) -> Callable[[Sequence[Choice]], list[Row | None]]:
    def evaluate(choices: Sequence[Choice]) -> list[Row | None]:
        return [None if row is None else next(costed([row], table)) for row in session.evaluate(choices)]

    return evaluate


def _columns(settings: Sequence[str]) -> tuple[str, ...]:
    """The columns of rows that hold the values of axes: whole arrays are the lengths of their sides there."""
    return tuple(column for name in settings for column in (("pe.ic", "pe.oc", "pe.ow") if name == "pe" else (name,)))


def _whole_grid(
    session: Session, wanted: Wanted, evaluate: Callable[[Sequence[Choice]], list[Row | None]], stage: Progress
) -> tuple[Pair | None, ...] | None:
    """The objectives of every point of the grid, by key; None where it is not to be run."""
    axes, points = session.grid.axes, session.grid.points
    combinations = math.prod(len(values) for values in axes.values())
    if wanted.grid is False or (wanted.grid is None and max(points, combinations // 10) > SMALL_GRID):
        return None
    if combinations > LARGEST_GRID:
        raise InputError(f"--grid: the axes have {combinations} combinations; at most {LARGEST_GRID} can be compared")
    stage(f"running all {points} points for comparison")
    session.run(session.grid.batches())
    choices: list[dict[str, Any]] = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    rows = {row["key"]: row for row in evaluate(choices) if row is not None}
    return tuple(costs(wanted.objectives, rows[key]) for key in sorted(rows))
