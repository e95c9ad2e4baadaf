"""Transfer-tuning, after Gibson 2023, chapter 6: schedules found for one network, offered to layers of another.

Layers of one class, that is of one sequence of operators, take each other's schedules, whatever their sizes. The donor
is the network that has tuned most of what the target spends its time on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from byoc.operators.layer import Resident, Tiling, working_set
from byoc.operators.nest import allowed_channels
from byoc.options import Choices, GroupChoice, placed
from byoc.scheduling.residency import tiling_of
from byoc.scheduling.tiling import lies_dense, may_cut_depth, may_cut_rows
from byoc.tuning.log import LoggedSite, TuningLog
from byoc.tuning.subject import Site, Subject
from isa.instruction import ceil_div


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


class Donor:
    """A log whose best schedule is offered to the sites of a subject, as far as it is legal and fits there."""

    def __init__(self, subject: Subject, log: TuningLog) -> None:
        self._subject, self.log = subject, log
        self._sites = list(zip(log.header.layers, map(tiling_of, log.best.choices.layers), strict=True))
        self._groups = placed([site.layer for site in log.header.layers], log.best.choices.groups or ())

    @property
    def whole(self) -> Choices | None:
        """The schedule itself where it is of the same layers: another machine's, or by another compiler.

        What stays in the scratchpad there, or is computed together, and cannot be here is left out.
        """
        subject, best = self._subject, self.log.best.choices
        if tuple(site.layer for site in self.log.header.layers) != subject.names:
            return None
        known = {name for _, name in subject.candidates}
        groups = tuple(
            group
            for first, group in self._groups
            if (
                subject.groupable(first, first + len(group.layers) - 1)
                if group.rows
                else len(group.layers) == 2 and subject.ridden(first) is not None
            )
        )
        return replace(best, residents=tuple(name for name in best.residents or () if name in known), groups=groups)

    def tilings(self, number: int, resident: Resident, budget: int) -> Iterator[Tiling]:
        """Schedules for the class of site ``number``, each once: with their sizes, and with their numbers of tiles."""
        site, seen = self._subject.sites[number], set[Tiling]()
        for own, known in self._sites:
            if own.kind == site.kind:
                for tiling in _fitted(known, own, site, resident):
                    size = working_set(site.geometry, tiling, resident, self._subject.arch.granule)
                    if tiling not in seen and size <= budget:
                        seen.add(tiling)
                        yield tiling

    def groups(self) -> Iterator[tuple[int, GroupChoice]]:
        """Groups for layers of the same classes in the same order, each with the number of its first site.

        In bands of as many rows, and in as many bands; all rows that bands share are kept, or none.
        """
        kinds = [site.kind for site in self._subject.sites]
        for start, group in self._groups:
            own = [site for site, _ in self._sites[start : start + len(group.layers)]]
            for first in range(len(kinds) - len(own) + 1):
                last = first + len(own) - 1
                alike = kinds[first : last + 1] == [site.kind for site in own]
                if alike and not group.rows and self._subject.ridden(first) is not None:
                    yield first, GroupChoice(tuple(site.name for site in self._subject.sites[first : last + 1]), 0)
                elif alike and group.rows and self._subject.groupable(first, last):
                    made = _fitted_groups(group, own, self._subject.sites[first : last + 1], self._subject.rows(last))
                    yield from ((first, one) for one in dict.fromkeys(made))


def _fitted_groups(
    known: GroupChoice, own: Sequence[LoggedSite], sites: Sequence[Site], rows: int
) -> Iterator[GroupChoice]:
    """A group of layers ``own`` for others, which make ``rows`` rows.

    Layers that go element by element have their elements for rows: how many bands there were, the others say.
    """
    names, bands = tuple(site.name for site in sites), ceil_div(min(site.rows for site in own), known.rows)
    wanted = known.channels or tuple(site.channels for site in own)
    channels = tuple(
        allowed_channels(site.geometry.nest, ceil_div(site.geometry.nest.channels, ceil_div(old.channels, size)))
        for site, old, size in zip(sites, own, wanted, strict=True)
    )
    for band in (min(known.rows, rows), ceil_div(rows, bands)):
        for kept in (None, ()):
            yield GroupChoice(names, band, kept, channels, known.held, known.slots)


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
