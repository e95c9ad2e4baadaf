"""What an exploration is asked for. Light, as ``dla --help`` reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from experiments.running.declared import option, same
from experiments.running.given import RunRequest
from experiments.sweep.request import Sweeping
from isa.progress import silent

SamplerName = Literal["tpe", "nsga2", "random"]
SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)


@dataclass(frozen=True, eq=False, kw_only=True)
class ExploreRequest(Sweeping):
    """What ``dla explore`` and ``dla.explore`` are asked for. ``grid`` None: the whole grid as well if it is small."""

    objectives: str = field(
        default="cycles,area",
        metadata=option("--objectives", "What to trade, e.g. cycles,area (docs/sweeps.md).", metavar="A,B"),
    )
    trials: int = field(default=100, metadata=option("--trials", "Points to evaluate.", int, metavar="N"))
    sampler: SamplerName = field(
        default="tpe", metadata=option("--sampler", "Optuna's sampler: TPE, NSGA-II or random.", SAMPLERS)
    )
    seed: int = field(default=0, metadata=option("--seed", "Seed of the search.", int, least=0))
    cost: str | None = field(default=None, metadata=same(RunRequest, "cost"))
    grid: bool | None = field(
        default=None,
        metadata=option(
            "--grid/--no-grid",
            "Run the whole grid, too, and say how much the search needed. Default: small grids.",
            bool,
            repeats=False,
        ),
    )
    report: Callable[[int], None] = silent
