"""What a sweep is asked for. Light, as ``dla --help`` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.running.declared import option, same, source_of
from experiments.running.given import Given
from isa.progress import Progress, silent

if TYPE_CHECKING:
    from experiments.sweep.driver import Report
    from experiments.sweep.spec import Specification


@dataclass(frozen=True, eq=False)
class Specified:
    """A specification of networks and machines."""

    spec: Specification = field(
        metadata=option(
            "",
            "Networks, axes and constraints (docs/sweeps.md).",
            Path,
            metavar="SPEC.toml",
            texts=source_of("<specification>"),
        )
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Sweeping(Specified):
    """Where the points of a specification are evaluated, and where their rows go."""

    output: str | Path | None = field(
        default=None,
        metadata=option(
            "--output -o",
            "Results file. Default: runs/SPEC.sqlite. May exist.",
            Path,
            metavar="FILE",
            ending=".sqlite",
            repeats=False,
        ),
    )
    workers: int | None = field(
        default=None,
        metadata=option("--workers", "Local processes. Default: one a CPU.", int, metavar="N", repeats=False),
    )
    scheduler: str | None = field(
        default=None,
        metadata=option("--scheduler", "Run on the Dask cluster there instead.", metavar="ADDRESS", repeats=False),
    )
    cache: bool = field(default=True, metadata=same(Given, "cache"))
    stage: Progress = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepRequest(Sweeping):
    """What ``dla sweep`` and ``dla.sweep`` are asked for."""

    retry_failed: bool = field(
        default=False,
        metadata=option("--retry-failed", "Try points again that failed before.", bool, repeats=False),
    )
    report: Report = silent
