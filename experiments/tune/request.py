"""Arguments of a tuning. ``dla --help`` imports this module, so it imports little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from byoc.options import CompileOptions
from experiments.running.declared import option
from experiments.running.given import Compiling, NetworkChoice
from isa.progress import Progress, silent

Report = Callable[[int, int], None]
"""Callback with the number of measurements so far and the fewest cycles."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SearchOptions:
    """Options of the search: measurements, seed, learned model and logs of other tunings."""

    measurements: int = field(
        default=200,
        metadata=option("--measurements", "Measure N schedules in total.", int, metavar="N"),
    )
    search_seed: int = field(
        default=0, metadata=option("--search-seed", "Set the seed of the search.", int, least=0)
    )
    learn: bool = field(
        default=True,
        metadata=option(
            "--model/--no-model", "Rank candidates by a learned cost model (extra 'tune').", bool
        ),
    )
    donors: Sequence[str | Path] = field(
        default=(),
        metadata=option(
            "--from",
            "Measure the schedules of this log first. Repeatable.",
            list[Path],
            metavar="OTHER.jsonl",
        ),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class TuneRequest(SearchOptions, Compiling):
    """Arguments of ``dla tune`` and ``dla.tune``."""

    log: str | Path | None = field(
        default=None,
        metadata=option(
            "--log",
            "Store measurements in this log; continue it if it exists.",
            Path,
            metavar="FILE.jsonl",
            ending=".jsonl",
        ),
    )
    stage: Progress = silent
    report: Report = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class TuneKeywords(TuneRequest, CompileOptions, NetworkChoice):
    """Keywords of ``dla.tune``: the request's fields and the compiler options."""
