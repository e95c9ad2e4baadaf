"""Options of ``dla advise``. This module imports little because ``dla --help`` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from byoc.options import CompileOptions
from experiments.running.declared import option
from experiments.running.given import AnyMachine, NetworkChoice
from isa.progress import Progress, silent


@dataclass(frozen=True, eq=False, kw_only=True)
class AdviseRequest(AnyMachine):
    """Request of ``dla advise`` and ``dla.advise``."""

    target_ms: float | None = field(
        default=None,
        metadata=option(
            "--target-ms",
            "Also find the cheapest machine whose accelerator needs at most this time.",
            float,
            metavar="MS",
        ),
    )
    target_ips: float | None = field(
        default=None,
        metadata=option(
            "--target-ips",
            "Also find the cheapest machine that runs this many inferences a second.",
            float,
            metavar="N",
        ),
    )
    cost: str | None = field(
        default=None,
        metadata=option(
            "--cost", "Estimate areas and energies with this cost table.", metavar="NAME|FILE.toml"
        ),
    )
    stage: Progress = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class AdviseKeywords(AdviseRequest, CompileOptions, NetworkChoice):
    """Keywords of ``dla.advise``: the request's fields and each compile option."""
