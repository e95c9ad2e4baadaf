"""An exploration from its specification to its front, compared with the grid and with chance.

``dla explore`` and Python use it.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments.cost.estimate import add_costs
from experiments.cost.table import DEFAULT_TABLE, CostTable, load_table
from experiments.explore.exploration import (
    GOAL,
    Exploration,
    GridComparison,
    Objectives,
    costs,
    count_needed,
    hypervolume,
    parse_objectives,
)
from experiments.explore.search import Evaluate, EvaluatedPoint, Proposal, search
from experiments.running.declared import command_of
from experiments.running.door import door
from experiments.sweep.grid import Axes, Batch
from experiments.sweep.joint import Joint, JointMachine, collect_joint
from experiments.sweep.request import SAMPLERS, ExploreRequest
from experiments.sweep.results import AREA, FlatRow, Pair, front
from experiments.sweep.session import SweepSession, note_place, read_specification, results_file
from experiments.sweep.spec import Spec
from experiments.sweep.store import canonical
from experiments.sweep.units import UNITS, add_units
from isa.errors import InputError

MARGIN = 1.1
"""Factor between the worst value of an objective and the reference point of hypervolumes."""
ORDERS = 200
"""Number of random orders of the grid with which the search is compared."""


def make_exploration(
    conditions: Mapping[str, Any],
    objectives: Objectives,
    settings: tuple[str, ...],
    found: Sequence[EvaluatedPoint],
    grid_points: int,
    grid: Sequence[Pair | None] | None,
) -> Exploration:
    """Return the result of an exploration for the evaluated points ``found``.

    ``grid`` has the objectives of every point of the grid, if they are known.
    """
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
        comparison=None
        if grid is None or reference is None
        else compare_with_grid(found, grid, reference),
        grid=() if grid is None else tuple(grid),
    )


def _reference(objectives: Objectives, pairs: Sequence[Pair]) -> Pair | None:
    """Return the hypervolume's reference point: ``MARGIN`` times the worst value per objective.

    An objective of which more is better has the reference 0. Without pairs the result is None.
    """
    if not pairs:
        return None
    worst = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    first, second = (
        0.0 if objective.more else value * MARGIN
        for objective, value in zip(objectives, worst, strict=True)
    )
    return first, second


def compare_with_grid(
    found: Sequence[EvaluatedPoint], grid: Sequence[Pair | None], reference: Pair
) -> GridComparison:
    """Compare the points of a search, in their order, with the whole grid."""
    total = _volume(grid, reference)
    reached = _volume([item.costs for item in found], reference)
    return GridComparison(
        points=len(grid),
        ok=sum(pair is not None for pair in grid),
        grid_hypervolume=total,
        share=reached / total if total else 1.0,
        needed=count_needed([item.costs for item in found], reference, GOAL * total)
        if found
        else None,
        by_chance=_estimate_by_chance(grid, reference, GOAL * total),
    )


def _volume(pairs: Sequence[Pair | None], reference: Pair) -> float:
    return hypervolume((pair for pair in pairs if pair is not None), reference)


def _estimate_by_chance(grid: Sequence[Pair | None], reference: Pair, goal: float) -> float | None:
    """Return the median number of points that random orders of the grid need to reach ``goal``.

    The orders are seeded, so the result is reproducible. The result is None if no order reaches the
    goal.
    """
    counts = []
    for number in range(ORDERS):
        order = random.Random(number).sample(list(grid), len(grid))
        counts.append(count_needed(order, reference, goal))
    reached = [count for count in counts if count is not None]
    return statistics.median(reached) if reached else None


SMALL_GRID = 1000
"""Largest grid that is also run completely by default.

The report then says how much of the grid the search needed.
"""
LARGEST_GRID = 100_000
"""Most combinations of values of a grid with which a search can be compared."""


def check(spec: Spec, wanted: ExploreRequest) -> CostTable:
    """Check a request for an exploration and return its cost table.

    Raise InputError, before any work is done, if the request cannot be explored.
    """
    if len(spec.networks) != 1 and spec.goal is None:
        names = ", ".join(spec.networks)
        raise InputError(
            f"networks: {names}; give one, or add joint = true to search one machine for all; 'dla "
            "sweep' runs several, and 'dla report' of its results shows a front for each"
        )
    alone = [one.name for one in _objectives(spec, wanted) if one.name not in UNITS]
    if alone and spec.goal is not None:
        raise InputError(
            f"--objectives: {alone[0]} is a figure of one network; choose two of "
            f"{', '.join(UNITS)} for several networks"
        )
    if wanted.trials < 1:
        raise InputError(f"--trials is {wanted.trials}; it must be 1 or more")
    if wanted.sampler not in SAMPLERS:
        raise InputError(
            f"--sampler {wanted.sampler}: unknown; choose one of {', '.join(SAMPLERS)}"
        )
    return load_table(wanted.cost or DEFAULT_TABLE)


def _objectives(spec: Spec, wanted: ExploreRequest) -> Objectives:
    """Return the two objectives of an exploration; the default depends on the specification."""
    usual = "cycles,area"
    if spec.goal is not None:
        usual = f"{spec.goal.objective if spec.goal.objective != AREA else 'ms'},{AREA}"
    return parse_objectives(wanted.objectives or usual)


def explore_requested(wanted: ExploreRequest) -> Exploration:
    """Search the grid of a specification for the best trade-offs of two objectives.

    ``dla explore`` calls this function. ``spec``, ``output``, ``workers`` and ``scheduler`` are
    those of a sweep. A joint specification searches one machine for several networks: its points
    are machines. ``objectives`` are two names (docs/sweeps.md), ``trials`` is the number of
    points to evaluate, ``sampler`` and ``seed`` control proposals, and ``cost`` is the cost table
    of the estimates. ``grid`` True also runs the whole grid; None runs only small grids. ``stage``
    is called with a text for each step, ``report`` with the number of points found.

    Each point gets a row in the results file. Points that have a row are read, not run: an
    interrupted exploration continues at the same point, and a longer one starts with the same
    points. Raises InputError for bad input.
    """
    spec = read_specification(wanted)
    table, objectives = check(spec, wanted), _objectives(spec, wanted)
    command = command_of("explore", wanted)
    place = results_file(spec, wanted.output)
    with (
        note_place(place),
        SweepSession(
            spec,
            place,
            workers=wanted.workers,
            scheduler=wanted.scheduler,
            command=command,
            stage=wanted.stage,
        ) as session,
    ):
        grid = session.grid
        several = MachineEvaluator(session, spec, table)
        evaluate = _evaluator(session, table) if spec.goal is None else several
        axes = {**grid.axes, "network": spec.networks[:1]}
        settings = tuple(name for name in grid.varied if name != "network")
        points = grid.points // len(spec.networks)
        wanted.stage(f"exploring {points} points")
        found = search(
            axes,
            evaluate,
            lambda row: costs(objectives, row),
            points=wanted.trials,
            sampler=wanted.sampler,
            seed=wanted.seed,
            report=wanted.report,
        )
        joint = several.make_joint(point.row["key"] for point in found)
        pairs = _whole_grid(session, wanted, evaluate, axes, objectives)
        conditions = {
            "command": command,
            "network": ", ".join(spec.networks),
            "sampler": wanted.sampler,
            "seed": wanted.seed,
            "cost_table": table.name,
        }
        explored = make_exploration(conditions, objectives, settings, found, points, pairs)
        return replace(explored, joint=joint)


explore = door("explore", ExploreRequest, ExploreRequest, explore_requested)


def _evaluator(session: SweepSession, table: CostTable) -> Evaluate:
    def evaluate(choices: Sequence[Proposal]) -> list[FlatRow | None]:
        return [
            None if row is None else add_units(next(add_costs([row], table)))
            for row in session.evaluate(choices)
        ]

    return evaluate


class MachineEvaluator:
    """Evaluation of the machines of a joint specification."""

    def __init__(self, session: SweepSession, spec: Spec, table: CostTable) -> None:
        self._session, self._spec, self._table = session, spec, table
        self._machines: dict[str, JointMachine] = {}

    def __call__(self, choices: Sequence[Proposal]) -> list[FlatRow | None]:
        """Run every network on the machines of ``choices``, and return a row for each machine."""
        picked = [
            [self._session.grid.pick({**choice, "network": name}) for name in self._spec.networks]
            for choice in choices
        ]
        self._session.run(batch for batches in picked for batch in batches if batch is not None)
        return [self._row([one for one in batches if one is not None]) for batches in picked]

    def _row(self, batches: Sequence[Batch]) -> FlatRow | None:
        found = self._collect(batches)
        if found is None:
            return None
        (machine,) = found.machines
        key = canonical({"preset": machine.preset, **machine.options.choices, **machine.settings})
        self._machines.setdefault(key, machine)
        return {
            "key": key,
            "status": "missed" if machine.missed else "ok",
            "message": "; ".join(machine.missed),
            **machine.shown,
            **{name: machine.total(name) for name in UNITS},
        }

    def _collect(self, batches: Sequence[Batch]) -> Joint | None:
        if not batches:
            return None
        at = self._session
        return collect_joint(at.grid, at.packages, at.store, self._table, batches=batches)

    def make_joint(self, keys: Iterable[str]) -> Joint | None:
        """Return the joint result of the machines with these keys, or None for one network."""
        if self._spec.goal is None or not self._machines:
            return None
        machines = tuple(self._machines[key] for key in keys)
        return Joint(self._spec, self._spec.goal, self._table, machines)


def _whole_grid(
    session: SweepSession,
    wanted: ExploreRequest,
    evaluate: Evaluate,
    axes: Axes,
    objectives: Objectives,
) -> tuple[Pair | None, ...] | None:
    """Run every point of the grid and return their pairs of objective values.

    The result is None if the grid is not to be run.
    """
    points = session.grid.points
    combinations = math.prod(len(values) for values in axes.values())
    if wanted.grid is False or (
        wanted.grid is None and max(points, combinations // 10) > SMALL_GRID
    ):
        return None
    if combinations > LARGEST_GRID:
        raise InputError(
            f"--grid: the axes have {combinations} combinations; at most "
            f"{LARGEST_GRID} can be compared"
        )
    wanted.stage(f"running all {points} points for comparison")
    session.run(session.grid.batches())
    choices: list[dict[str, Any]] = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    rows = {row["key"]: row for row in evaluate(choices) if row is not None}
    return tuple(costs(objectives, rows[key]) for key in sorted(rows))
