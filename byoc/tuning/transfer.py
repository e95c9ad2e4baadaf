"""Transfer tuning (Gibson 2023, chapter 6): offer a network's schedules to another's layers.

Layers of one class, which is a sequence of operators, use each other's schedules independent of
sizes. The donor is the network that has tuned most of the classes in which the target spends its
cycles.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from byoc.operators.layer import Resident, Tiling, compute_working_set
from byoc.operators.nest import find_allowed_channels
from byoc.options import Choices, GroupChoice, place_groups
from byoc.scheduling.residency import tiling_of
from byoc.scheduling.tiling import is_dense, may_cut_depth, may_cut_rows
from byoc.tuning.log import LoggedSite, TuningLog
from byoc.tuning.subject import TilingSite, TuningSubject
from isa.instruction import ceil_div


def donor_score(shares: Mapping[str, float], schedules: Mapping[str, int]) -> float:
    """Return how well a network's schedules suit another: the sum over classes of P² · √W.

    P is the share of the target's untuned cycles in the class, W the number of the donor's tuned
    schedules.
    """
    return sum(share**2 * math.sqrt(schedules.get(kind, 0)) for kind, share in shares.items())


def shares_of(sites: Sequence[TilingSite], cycles: Sequence[int]) -> dict[str, float]:
    """Return the fraction of a network's cycles that each class of layers takes."""
    spent: Counter[str] = Counter()
    for site, taken in zip(sites, cycles, strict=True):
        spent[site.kind] += taken
    total = max(spent.total(), 1)
    return {kind: taken / total for kind, taken in spent.items()}


def schedules_of(log: TuningLog) -> dict[str, int]:
    """Count a log's tuned schedules by class of layer.

    Layers equal in sizes and schedule count once.
    """
    different = {
        (site.kind, site.channels, site.rows, site.inputs, choice)
        for site, choice in zip(log.header.layers, log.best.choices.layers, strict=True)
    }
    return dict(Counter(kind for kind, *_ in different))


def choose_donor(logs: Sequence[TuningLog], shares: Mapping[str, float]) -> TuningLog:
    """Return the tuning log with the highest donor score, the first of equal ones."""
    return max(logs, key=lambda log: donor_score(shares, schedules_of(log)))


class Donor:
    """Tuning log whose best schedule is offered to another network's layers.

    A schedule is offered where it is legal and fits.
    """

    def __init__(self, subject: TuningSubject, log: TuningLog) -> None:
        self._subject = subject
        self.log = log
        self._sites = list(
            zip(log.header.layers, map(tiling_of, log.best.choices.layers), strict=True)
        )
        self._groups = place_groups(
            [site.layer for site in log.header.layers], log.best.choices.groups or ()
        )

    @property
    def whole(self) -> Choices | None:
        """The log's whole schedule, if the tuned network has the same layers as this one.

        It may be from another machine or compiler. Residents and groups that are not possible on
        this machine are left out.
        """
        subject = self._subject
        best = self.log.best.choices
        if tuple(site.layer for site in self.log.header.layers) != subject.names:
            return None
        known = {name for _, name in subject.candidates}
        groups = tuple(
            group
            for first, group in self._groups
            if (
                subject.groupable(first, first + len(group.layers) - 1)
                if group.rows
                else len(group.layers) == 2 and subject.find_excluded(first) is not None
            )
        )
        return replace(
            best,
            residents=tuple(name for name in best.residents or () if name in known),
            groups=groups,
        )

    def tilings(self, number: int, resident: Resident, budget: int) -> Iterator[Tiling]:
        """Yield the log's tilings for layers of the same class as layer ``number``, each once.

        Each known tiling is tried with its sizes, and with its numbers of tiles.
        """
        site = self._subject.sites[number]
        seen = set[Tiling]()
        for own, known in self._sites:
            if own.kind == site.kind:
                for tiling in _fit_tiling(known, own, site, resident):
                    size = compute_working_set(
                        site.geometry, tiling, resident, self._subject.arch.granule
                    )
                    if tiling not in seen and size <= budget:
                        seen.add(tiling)
                        yield tiling

    def groups(self) -> Iterator[tuple[int, GroupChoice]]:
        """Yield the log's groups where layers of the same classes follow in the same order.

        Each comes with the index of its first site. Each is tried with the same rows per band and
        with the same number of bands; bands keep all shared rows, or none.
        """
        kinds = [site.kind for site in self._subject.sites]
        for start, group in self._groups:
            own = [site for site, _ in self._sites[start : start + len(group.layers)]]
            for first in range(len(kinds) - len(own) + 1):
                last = first + len(own) - 1
                alike = kinds[first : last + 1] == [site.kind for site in own]
                if alike and not group.rows and self._subject.find_excluded(first) is not None:
                    yield (
                        first,
                        GroupChoice(
                            tuple(site.name for site in self._subject.sites[first : last + 1]), 0
                        ),
                    )
                elif alike and group.rows and self._subject.groupable(first, last):
                    made = _fit_groups(
                        group, own, self._subject.sites[first : last + 1], self._subject.rows(last)
                    )
                    yield from ((first, one) for one in dict.fromkeys(made))


def _fit_groups(
    known: GroupChoice, own: Sequence[LoggedSite], sites: Sequence[TilingSite], rows: int
) -> Iterator[GroupChoice]:
    """Adapt a group of logged layers to the layers ``sites``, whose result has ``rows`` rows.

    An element-wise layer counts its elements as rows, so the number of bands comes from the other
    layers.
    """
    names = tuple(site.name for site in sites)
    bands = ceil_div(min(site.rows for site in own), known.rows)
    wanted = known.channels or tuple(site.channels for site in own)
    channels = tuple(
        find_allowed_channels(
            site.geometry.nest, ceil_div(site.geometry.nest.channels, ceil_div(old.channels, size))
        )
        for site, old, size in zip(sites, own, wanted, strict=True)
    )
    for band in (min(known.rows, rows), ceil_div(rows, bands)):
        for kept in (None, ()):
            yield GroupChoice(names, band, kept, channels, known.held, known.slots)


def _fit_tiling(
    known: Tiling, own: LoggedSite, site: TilingSite, resident: Resident
) -> Iterator[Tiling]:
    """Adapt the tiling of a logged layer ``own`` to the layer ``site``.

    First it has the same sizes, then the same numbers of tiles.
    """
    nest = site.geometry.nest
    counts = ceil_div(own.channels, known.channels), ceil_div(own.rows, known.rows)
    depth = ceil_div(nest.input_channels, ceil_div(own.inputs, known.depth)) if known.depth else 0
    for channels, rows, deep in (
        (known.channels, known.rows, known.depth),
        (ceil_div(nest.channels, counts[0]), ceil_div(nest.rows, counts[1]), depth),
    ):
        fitting = find_allowed_channels(nest, channels)
        cut = may_cut_rows(site.geometry, fitting)
        deep = deep if deep < nest.input_channels and may_cut_depth(site.geometry, resident) else 0
        if is_dense(site.geometry, fitting, resident):
            yield known._replace(
                channels=fitting, rows=min(rows, nest.rows) if cut else nest.rows, depth=deep
            )
