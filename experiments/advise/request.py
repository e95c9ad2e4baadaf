"""What advice is asked for. Light, as ``dla --help`` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from byoc.options import CompileOptions
from experiments.running.declared import option
from experiments.running.given import Compiling, Subject
from isa.progress import Progress, silent


@dataclass(frozen=True, eq=False, kw_only=True)
class AdviseRequest(Compiling):
    """What ``dla advise`` and ``dla.advise`` are asked for."""

    target_ms: float | None = field(
        default=None,
        metadata=option(
            "--target-ms",
            "Also find the cheapest machine that takes no longer (accelerator alone).",
            float,
            metavar="MS",
        ),
    )
    cost: str | None = field(
        default=None,
        metadata=option("--cost", "Cost table of areas and energies, both estimates.", metavar="NAME|FILE.toml"),
    )
    stage: Progress = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class AdviseKeywords(AdviseRequest, CompileOptions, Subject):
    """The keywords of ``dla.advise``: a request's, and the choices of its options one by one."""
