"""An exploration from its specification to its front, held against the grid and chance: ``dla explore`` and Python."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.cost.estimate import costed
from experiments.cost.table import DEFAULT_TABLE, CostTable, load_table
from experiments.explore.exploration import GOAL, Exploration, GridComparison
from experiments.explore.objectives import Objectives, costs, hypervolume, needed, parse_objectives
from experiments.explore.search import Evaluate, Found, Proposal, search
from experiments.running.declared import command_of
from experiments.running.door import door
from experiments.sweep.request import SAMPLERS, ExploreRequest
from experiments.sweep.results import FlatRow, Pair, front
from experiments.sweep.session import Session, going_on_in, results_file, specified
from experiments.sweep.spec import Spec
from isa.errors import InputError

MARGIN = 1.1
"""The reference of hypervolumes is this many times the worst value of either objective."""
ORDERS = 200
"""Random orders of the grid that the search is held against."""


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


SMALL_GRID = 1000
"""A grid of so many points is run, too, unless it is said otherwise: to say how much of it the search needed."""
LARGEST_GRID = 100_000
"""Combinations of values that a grid can have for the search to be held against it."""


def check(spec: Spec, wanted: ExploreRequest) -> CostTable:
    """The cost table; raises InputError for what cannot be explored, before any work is done."""
    if len(spec.networks) != 1:
        names = ", ".join(spec.networks)
        raise InputError(
            f"networks: {names}; give one, for a front compares points of one network: 'dla sweep' runs several, and "
            "'dla report' of its results shows a front for each"
        )
    parse_objectives(wanted.objectives)
    if wanted.trials < 1:
        raise InputError(f"--trials is {wanted.trials}; it must be 1 or more")
    if wanted.sampler not in SAMPLERS:
        raise InputError(f"--sampler {wanted.sampler}: unknown; choose one of {', '.join(SAMPLERS)}")
    return load_table(wanted.cost or DEFAULT_TABLE)


def explore_requested(wanted: ExploreRequest) -> Exploration:
    """Search the grid of a specification for the best compromises of two objectives, as ``dla explore`` does.

    ``spec``, ``output``, ``workers`` and ``scheduler`` are those of a sweep. ``objectives`` are two names
    (docs/sweeps.md), ``trials`` how many points to evaluate, ``sampler`` and ``seed`` how they are proposed, ``cost``
    the cost table of estimates. ``grid``: run the whole grid as well; None for small ones only. ``stage`` is called
    with what goes on, ``report`` with how many points there are.

    Each point has a row in the results file afterwards. Those that have one are read, not run: an interrupted
    exploration goes on where it was, and a longer one begins with the same points. Raises InputError for bad input.
    """
    spec = specified(wanted)
    table, objectives, stage = check(spec, wanted), parse_objectives(wanted.objectives), wanted.stage
    command, place = command_of("explore", wanted), results_file(spec, wanted.output)
    workers, scheduler = wanted.workers, wanted.scheduler
    with (
        going_on_in(place),
        Session(spec, place, workers=workers, scheduler=scheduler, command=command, stage=stage) as session,
    ):
        evaluate = _evaluator(session, table)
        grid = session.grid
        stage(f"exploring {grid.points} points")
        found = search(
            grid.axes,
            evaluate,
            lambda row: costs(objectives, row),
            points=wanted.trials,
            sampler=wanted.sampler,
            seed=wanted.seed,
            report=wanted.report,
        )
        pairs = _whole_grid(session, wanted, evaluate)
        settings = tuple(name for name, values in grid.axes.items() if len(values) > 1)
        conditions = {
            "command": command,
            "network": spec.networks[0],
            "sampler": wanted.sampler,
            "seed": wanted.seed,
            "cost_table": table.name,
        }
        return explored(conditions, objectives, _columns(settings), found, grid.points, pairs)


explore = door("explore", ExploreRequest, ExploreRequest, explore_requested)


def _evaluator(session: Session, table: CostTable) -> Evaluate:
    def evaluate(choices: Sequence[Proposal]) -> list[FlatRow | None]:
        return [None if row is None else next(costed([row], table)) for row in session.evaluate(choices)]

    return evaluate


def _columns(settings: Sequence[str]) -> tuple[str, ...]:
    """The columns of rows that hold the values of axes: whole arrays are the lengths of their sides there."""
    return tuple(column for name in settings for column in (("pe.ic", "pe.oc", "pe.ow") if name == "pe" else (name,)))


def _whole_grid(session: Session, wanted: ExploreRequest, evaluate: Evaluate) -> tuple[Pair | None, ...] | None:
    """The objectives of every point of the grid, by key; None where it is not to be run."""
    axes, points = session.grid.axes, session.grid.points
    combinations = math.prod(len(values) for values in axes.values())
    if wanted.grid is False or (wanted.grid is None and max(points, combinations // 10) > SMALL_GRID):
        return None
    if combinations > LARGEST_GRID:
        raise InputError(f"--grid: the axes have {combinations} combinations; at most {LARGEST_GRID} can be compared")
    wanted.stage(f"running all {points} points for comparison")
    session.run(session.grid.batches())
    choices: list[dict[str, Any]] = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    rows = {row["key"]: row for row in evaluate(choices) if row is not None}
    objectives = parse_objectives(wanted.objectives)
    return tuple(costs(objectives, rows[key]) for key in sorted(rows))
