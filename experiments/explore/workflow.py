"""An exploration from its specification to its front: the workflow behind ``dla explore`` and the public Python API."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from experiments.cost.table import DEFAULT_TABLE
from experiments.explore.objectives import parse_objectives
from experiments.explore.run import Exploration, Wanted, check
from experiments.explore.run import explore as explore_grid
from experiments.explore.search import SamplerName
from experiments.sweep.workflow import Specification, going_on_in, made_by, results_file, specified
from isa.progress import Progress, silent


def explore(
    spec: Specification,
    *,
    objectives: str = "cycles,area",
    trials: int = 100,
    sampler: SamplerName = "tpe",
    seed: int = 0,
    cost: str | None = None,
    grid: bool | None = None,
    output: str | Path | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    stage: Progress = silent,
    report: Callable[[int], None] = silent,
) -> Exploration:
    """Search the grid of a specification for the best compromises of two objectives, as ``dla explore`` does.

    ``spec``, ``output``, ``workers`` and ``scheduler`` are those of a sweep. ``objectives`` are two names
    (docs/sweeps.md), ``trials`` how many points to evaluate, ``sampler`` and ``seed`` how they are proposed, ``cost``
    the cost table of estimates. ``grid``: run the whole grid as well; None for small ones only. ``stage`` is called
    with what goes on, ``report`` with how many points there are. Raises InputError for bad input.
    """
    chosen = parse_objectives(objectives)
    wanted = Wanted(chosen, trials, sampler, seed, cost or DEFAULT_TABLE, grid)
    checked = specified(spec)
    check(checked, wanted)
    words = [*made_by("explore", checked), "--objectives", objectives, "--trials", str(trials)]
    words += ["--sampler", sampler, "--seed", str(seed)] + (["--cost", cost] if cost else [])
    place = results_file(checked, output)
    with going_on_in(place):
        return explore_grid(
            checked,
            place,
            wanted,
            workers=workers,
            scheduler=scheduler,
            command=shlex.join(words),
            stage=stage,
            report=report,
        )
