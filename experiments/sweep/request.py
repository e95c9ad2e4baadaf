"""Arguments of sweeps and explorations.

``dla --help`` imports this module, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from experiments.running.declared import option, same, specification
from experiments.running.given import Given, RunRequest
from isa.progress import Progress, silent

if TYPE_CHECKING:
    from experiments.sweep.driver import Report
    from experiments.sweep.spec import Specification


SamplerName = Literal["tpe", "nsga2", "random"]
SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)


@dataclass(frozen=True, eq=False)
class Specified:
    """Request that has a specification of networks and machines."""

    spec: Specification = field(
        metadata=specification(
            "Networks, axes and constraints (docs/sweeps.md).", "SPEC.toml", "<specification>"
        )
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Sweeping(Specified):
    """Arguments common to sweeps and explorations.

    They say where points are evaluated and where their rows are stored.
    """

    output: str | Path | None = field(
        default=None,
        metadata=option(
            "--output -o",
            "Store the results in this file, new or existing. Default: runs/SPEC.sqlite.",
            Path,
            metavar="FILE",
            ending=".sqlite",
            repeats=False,
        ),
    )
    workers: int | None = field(
        default=None,
        metadata=option(
            "--workers",
            "Use N local processes. Default: one per CPU.",
            int,
            metavar="N",
            repeats=False,
        ),
    )
    scheduler: str | None = field(
        default=None,
        metadata=option(
            "--scheduler",
            "Run on the Dask cluster at this address.",
            metavar="ADDRESS",
            repeats=False,
        ),
    )
    cache: bool = field(default=True, metadata=same(Given, "cache"))
    stage: Progress = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepRequest(Sweeping):
    """Arguments of ``dla sweep`` and ``dla.sweep``."""

    retry_failed: bool = field(
        default=False,
        metadata=option(
            "--retry-failed", "Run points that failed before again.", bool, repeats=False
        ),
    )
    cost: str | None = field(
        default=None,
        metadata=option(
            "--cost",
            "Estimate energy and area with this cost table.",
            metavar="NAME|FILE.toml",
            repeats=False,
        ),
    )
    report: Report = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class ExploreRequest(Sweeping):
    """Arguments of ``dla explore`` and ``dla.explore``.

    ``grid`` None: also run the whole grid if it is small.
    """

    objectives: str | None = field(
        default=None,
        metadata=option(
            "--objectives",
            "Minimise these two objectives (docs/sweeps.md). Default: cycles,area, and ms,mm2 for "
            "several networks.",
            metavar="A,B",
        ),
    )
    trials: int = field(
        default=100, metadata=option("--trials", "Evaluate at most N points.", int, metavar="N")
    )
    sampler: SamplerName = field(
        default="tpe",
        metadata=option(
            "--sampler", "Choose the sampler of Optuna: TPE, NSGA-II or random.", SAMPLERS
        ),
    )
    seed: int = field(
        default=0, metadata=option("--seed", "Set the seed of the search.", int, least=0)
    )
    cost: str | None = field(default=None, metadata=same(RunRequest, "cost"))
    grid: bool | None = field(
        default=None,
        metadata=option(
            "--grid/--no-grid",
            "Also run the whole grid and compare the search with it. Default: only if the grid is "
            "small.",
            bool,
            repeats=False,
        ),
    )
    report: Callable[[int], None] = silent


@dataclass(frozen=True)
class OfSweep:
    """Arguments of ``dla report`` for the results of a sweep."""

    x: str | None = field(
        default=None,
        metadata=option(
            "--x",
            "Choose the first objective of a sweep's Pareto front. Default: pe_sram.",
            metavar="COLUMN",
        ),
    )
    y: str | None = field(
        default=None,
        metadata=option(
            "--y",
            "Choose the second objective of a sweep's Pareto front. Default: cycles.",
            metavar="COLUMN",
        ),
    )
    where: str | None = field(
        default=None,
        metadata=option(
            "--where",
            "Use only a sweep's points that satisfy a comparison, such as 'ms < 5'.",
            metavar="COMPARISON",
        ),
    )
    cost: str | None = field(default=None, metadata=same(RunRequest, "cost"))
