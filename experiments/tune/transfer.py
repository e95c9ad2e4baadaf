"""Transfer-tuning, after Gibson 2023, chapter 6: schedules found for one network, offered to layers of another.

Layers of one class, that is of one sequence of operators, take each other's schedules, whatever their sizes. The donor
is the network that has tuned most of what the target spends its time on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from byoc.operators.nest import allowed_channels
from byoc.scheduling.chosen import tiling_of
from byoc.tiling.space import lies_dense, may_cut_depth, may_cut_rows
from byoc.tiling.tiling import Resident, Tiling, working_set
from experiments.tune.log import LoggedSite, TuningLog
from experiments.tune.subject import Site, Subject
from isa.instruction import ceil_div

OFFERS = 4
"""Schedules that are offered to every layer at most, the most promising first."""


def donor_score(shares: Mapping[str, float], schedules: Mapping[str, int]) -> float:
    """Sum over classes of P² · √W: P the share of the target's untuned cycles, W the donor's tuned schedules."""
    return sum(share**2 * math.sqrt(schedules.get(kind, 0)) for kind, share in shares.items())


def shares_of(sites: Sequence[Site], cycles: Sequence[int]) -> dict[str, float]:
    """The share of cycles that each class of layers takes."""
    spent: Counter[str] = Counter()
    for site, taken in zip(sites, cycles, strict=True):
        spent[site.kind] += taken
    total = max(spent.total(), 1)
    return {kind: taken / total for kind, taken in spent.items()}


def schedules_of(log: TuningLog) -> dict[str, int]:
    """How many schedules a log has tuned of each class: those of layers that differ in their sizes or schedules."""
    different = {
        (site.kind, site.channels, site.rows, site.inputs, choice)
        for site, choice in zip(log.header.layers, log.best.choices.layers, strict=True)
    }
    return dict(Counter(kind for kind, *_ in different))


def choose_donor(logs: Sequence[TuningLog], shares: Mapping[str, float]) -> TuningLog:
    """The log with the highest score, of equal ones the first."""
    return max(logs, key=lambda log: donor_score(shares, schedules_of(log)))


def offered(subject: Subject, site: Site, resident: Resident, budget: int, donor: TuningLog) -> Iterator[Tiling]:
    """The donor's schedules for the class of ``site``, as far as they are legal and fit there, each once.

    A schedule is taken with its sizes, and with its numbers of tiles.
    """
    seen: set[Tiling] = set()
    for own, choice in zip(donor.header.layers, donor.best.choices.layers, strict=True):
        if own.kind == site.kind:
            for tiling in _fitted(tiling_of(choice), own, site, resident):
                size = working_set(site.geometry, tiling, resident, subject.arch.alignment)
                if tiling not in seen and size <= budget:
                    seen.add(tiling)
                    yield tiling


def _fitted(known: Tiling, own: LoggedSite, site: Site, resident: Resident) -> Iterator[Tiling]:
    """A schedule of a layer ``own`` for another: its sizes as they are, then as many tiles as there."""
    nest = site.geometry.nest
    counts = ceil_div(own.channels, known.channels), ceil_div(own.rows, known.rows)
    depth = ceil_div(nest.input_channels, ceil_div(own.inputs, known.depth)) if known.depth else 0
    for channels, rows, deep in (
        (known.channels, known.rows, known.depth),
        (ceil_div(nest.channels, counts[0]), ceil_div(nest.rows, counts[1]), depth),
    ):
        fitting = allowed_channels(nest, channels)
        cut = may_cut_rows(site.geometry, fitting)
        deep = deep if deep < nest.input_channels and may_cut_depth(site.geometry, resident) else 0
        if lies_dense(site.geometry, fitting, resident):
            yield known._replace(channels=fitting, rows=min(rows, nest.rows) if cut else nest.rows, depth=deep)
