"""The search for groups: which runs of layers are computed band by band, in how many rows, what is kept and held.

Groups and single layers cover the region in order; the cheapest cover is found by dynamic programming over the order of
layers. Candidates grow backwards from their last layer (:mod:`byoc.scheduling.growth`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from byoc.estimate.compute import again_cycles
from byoc.estimate.constants import BAND_CUTS, GAIN
from byoc.operators.layer import Layer
from byoc.operators.tiling import Resident, counts
from byoc.scheduling.groups import Fabric, Group, may_ride, members_of, ridden_buffers
from byoc.scheduling.growth import Facts, Growth
from byoc.tiling.budget import Answers, Budget, Room
from byoc.tiling.search import TileSearch
from isa.arch import Arch
from isa.instruction import ceil_div

Taken = Callable[[int, int], int]
"""Bytes that residents take of those for layers first to last."""


class Question(NamedTuple):
    """What a cover is asked for: cycles of the layers alone, those that stay alone, and what is resident: names of
    buffers with the layers, first and last, between which they are, and their bytes.
    """

    singles: tuple[float, ...]
    pinned: tuple[bool, ...]
    residents: tuple[tuple[str, int, int, int], ...]

    def taken(self) -> Taken:
        """What residents take that are there at any of the layers and not only there."""
        known: dict[tuple[int, int], int] = {}

        def taken(first: int, last: int) -> int:
            found = known.get((first, last))
            if found is None:
                found = known[first, last] = sum(
                    nbytes
                    for _, born, died, nbytes in self.residents
                    if born <= last and first <= died and not first <= born <= died <= last
                )
            return found

        return taken


class _Region(NamedTuple):
    """What is known of a region's layers: what each takes alone, what groups that end there can save at most, which
    buffers are resident, what those take, and what there is.

    ``best``: cycles of the cheapest cover of all layers before one. ``begun``: what those take at least if the last of
    them are in one group with it.
    """

    singles: Sequence[float]
    saved: Sequence[float]
    best: Sequence[float]
    begun: Sequence[float]
    residents: frozenset[str]
    taken: Taken
    budget: Budget


@dataclass(eq=False, slots=True)
class _Cheapest:
    """The cheapest cover so far of all layers up to one: its cycles, and the group at its end."""

    cycles: float
    group: Group | None = None

    def offer(self, cycles: float, group: Group) -> None:
        """A cover that takes so many cycles and ends with this group."""
        if cycles < self.cycles:
            self.cycles, self.group = cycles, group


@dataclass(eq=False, slots=True)
class _Tried:
    """First layers of groups that end with one layer: of those that hold all constants, of those that fit in the bands
    that are tried now; whether any did not fit, and whether any would gain from finer bands.
    """

    held: set[int] = field(default_factory=set)
    fitted: set[int] = field(default_factory=set)
    unfit: bool = False
    finer: bool = False


class Fusion:
    """Groups of one region on machines that differ in the scratchpad's size at most; remembers its covers."""

    def __init__(self, layers: Sequence[Layer], searches: Sequence[TileSearch], fabric: Fabric, arch: Arch) -> None:
        self._layers, self._searches, self._fabric = layers, searches, fabric
        self._facts = Facts(layers, searches, fabric, arch)
        self._covers = Answers[Question, tuple[Group, ...]]()

    def cover(self, question: Question, capacity: Budget) -> tuple[Group, ...]:
        """The groups of the cheapest cover of all layers in ``capacity`` bytes, residents included."""
        return self._covers.within(question, capacity, 0, lambda budget: self._cover(question, budget))

    def _cover(self, question: Question, budget: Budget) -> tuple[Group, ...]:
        singles, self._pinned = question.singles, question.pinned
        best, begun, saved = [0.0], [math.inf], [0.0]
        residents = frozenset(name for name, *_ in question.residents)
        region = _Region(singles, saved, best, begun, residents, question.taken(), budget)
        taken: list[Group | None] = []
        for last, alone in enumerate(singles):
            cheapest, least = _Cheapest(best[last] + alone), self._searches[last].cost.floor_in_bands()
            self._ridden(last, region, cheapest)
            saving = alone * GAIN - least if self._able(last) else -saved[last]
            saved.append(max(0.0, saved[last] + saving))
            if saved[-1] > 0 and saved[last] > 0:
                self._ending(last, region, cheapest)
            best.append(cheapest.cycles)
            begun.append(min(begun[last], best[last]) + least)
            taken.append(cheapest.group)
        groups, at = list[Group](), len(singles)
        while at:
            group = taken[at - 1]
            if group is not None:
                groups.append(group)
            at = at - 1 if group is None else group.first
        return tuple(groups[::-1])

    def _ridden(self, last: int, region: _Region, cheapest: _Cheapest) -> None:
        """Offer a layer on the tiles of the one before it, if that pays."""
        first = last - 1
        if not (last and self._able(first) and self._able(last) and may_ride(self._layers, self._fabric, last)):
            return
        before = members_of(self._fabric, first, last)[0]
        if not region.residents.isdisjoint(ridden_buffers(self._fabric, last) - {before.writes.buffer}):
            return
        sources = tuple(piece.buffer in region.residents for piece in before.reads)
        beside = len(self._layers[last].operation.inputs) - 1
        resident, search = Resident(sources, follows=first > 0, beside=beside), self._searches[first]
        most = GAIN * (region.singles[first] + region.singles[last])
        if search.cost.floor(resident) >= most:
            return
        found = search.best_beside(resident, region.budget, region.taken(first, last))
        if found is None:
            return
        tiles = math.prod(counts(self._layers[first].geometry, found.tiling))
        computed = self._searches[last].cost.compute.tile(1, self._layers[last].nest.rows) + again_cycles(tiles)
        cycles = found.cycles + computed
        if cycles < most:
            cheapest.offer(region.best[first] + cycles, Group(first, last, 0, (), (), ()))

    def _ending(self, last: int, region: _Region, cheapest: _Cheapest) -> None:
        """Offer groups that end with a layer: of each run of layers those in the coarsest bands that fit."""
        rows, tried = self._facts[last].made.rows, _Tried()
        heights = dict.fromkeys(ceil_div(rows, cut) for cut in (*BAND_CUTS, rows))
        for height in (height for height in heights if height < rows):
            tried.fitted.clear()
            tried.unfit = tried.finer = False
            for keep in (True, False):
                growth = Growth(self._facts, last, height, keep, region.residents)
                self._grown(growth, region, tried, cheapest)
                if not (tried.unfit and growth.halo):
                    break
            if not tried.unfit and not tried.finer:
                break

    def _grown(self, growth: Growth, region: _Region, tried: _Tried, cheapest: _Cheapest) -> None:
        """Offer groups that grow from one layer, where none has been found for their layers."""
        last = growth.first
        alone = region.singles[last]
        while growth.first and self._able(growth.first - 1) and growth.grow():
            first = growth.first
            alone += region.singles[first]
            before = min(region.best[first], region.begun[first])
            if growth.least - GAIN * alone >= region.saved[first] or growth.least + before >= cheapest.cycles:
                return
            room = Room(region.budget, region.taken(first, last))
            if not room.holds(growth.fixed):
                tried.unfit = True
                return
            if growth.missing or first in tried.held or first in tried.fitted:
                continue
            if growth.floor() >= min(GAIN * alone, cheapest.cycles - region.best[first]):
                tried.fitted.add(first)  # no other way to compute these bands is below that
                continue
            found = growth.choice(room)
            if found is None:
                tried.unfit = True
                continue
            tried.fitted.add(first)
            if found.finest:
                tried.held.add(first)
            else:
                tried.finer = True
            if found.cycles < GAIN * alone:
                cheapest.offer(region.best[first] + found.cycles, growth.group(found))

    def _able(self, index: int) -> bool:
        """Whether a layer can be in a group."""
        return self._fabric.members[index] is not None and not self._pinned[index]
