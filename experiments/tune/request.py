"""What a tuning is asked for. Light, as ``dla --help`` reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from byoc.options import CompileOptions
from experiments.running.declared import option
from experiments.running.given import Compiling, Subject
from isa.progress import Progress, silent

Report = Callable[[int, int], None]
"""Hears how many measurements there are, and the fewest cycles so far."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Search:
    """How to search: so many measurements in all, from a seed, with the learned model or without, helped by logs."""

    measurements: int = field(
        default=200, metadata=option("--measurements", "Schedules to measure in all.", int, metavar="N")
    )
    search_seed: int = field(default=0, metadata=option("--search-seed", "Seed of the search.", int, least=0))
    learn: bool = field(
        default=True,
        metadata=option("--model/--no-model", "Rank candidates by a learned cost model (extra 'tune').", bool),
    )
    donors: Sequence[str | Path] = field(
        default=(),
        metadata=option(
            "--from",
            "A log whose schedules are offered first. Repeatable.",
            list[Path],
            metavar="OTHER.jsonl",
        ),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class TuneRequest(Search, Compiling):
    """What ``dla tune`` and ``dla.tune`` are asked for."""

    log: str | Path | None = field(
        default=None,
        metadata=option("--log", "What was measured; read to go on.", Path, metavar="FILE.jsonl", ending=".jsonl"),
    )
    stage: Progress = silent
    report: Report = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class TuneKeywords(TuneRequest, CompileOptions, Subject):
    """The keywords of ``dla.tune``: a request's, and the choices of its options one by one."""
