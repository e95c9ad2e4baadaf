"""Search for groups of layers that the accelerator computes band by band.

The search also chooses the rows per band, and the rows and constants that stay in the scratchpad.
Groups and single layers cover the region in order. Dynamic programming over the layers finds the
cover with the fewest estimated cycles (:mod:`byoc.estimate.account`). Candidate groups grow
backwards from their last layer. Each step adds one layer: the rows that a band needs of its
operands, the windows for them, and the transfers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from byoc.estimate.bus import MemoryBus
from byoc.estimate.commands import compute_repeat_cycles
from byoc.estimate.constants import BAND_CUTS, GAIN
from byoc.operators.layer import OperatorLayer, Resident, counts
from byoc.scheduling.group_growth import Facts, Growth
from byoc.scheduling.groups import (
    BandedGroup,
    FusionGraph,
    list_fused_buffers,
    may_ride,
    members_of,
)
from byoc.scheduling.tile_search import TileSearch
from byoc.scheduling.tiling import Answers, Budget, Room
from isa.arch import Arch
from isa.instruction import ceil_div

Taken = Callable[[int, int], int]
"""Bytes of residents during layers first to last."""


class Question(NamedTuple):
    """Input of the search for the layer groups of a region.

    ``singles``: cycles of each layer alone. ``pinned``: layers that stay outside groups.
    ``residents``: resident buffers as (name, first layer, last layer, bytes).
    """

    singles: tuple[float, ...]
    pinned: tuple[bool, ...]
    residents: tuple[tuple[str, int, int, int], ...]

    def make_counter(self) -> Taken:
        """Return a function that counts the bytes of residents for a range of layers.

        A resident counts if it is live in the range but not only there.
        """
        known: dict[tuple[int, int], int] = {}

        def count_taken(first: int, last: int) -> int:
            found = known.get((first, last))
            if found is None:
                found = known[first, last] = sum(
                    nbytes
                    for _, born, died, nbytes in self.residents
                    if born <= last and first <= died and not first <= born <= died <= last
                )
            return found

        return count_taken


class _Region(NamedTuple):
    """State of the search for the layer groups of a region.

    ``singles``: cycles of each layer alone. ``saved``: the most cycles that groups up to each layer
    can save. ``best``: cycles of the cheapest cover of all layers before each. ``begun``: lower
    bound of those cycles if the last of these layers share a group with the next one. ``taken``:
    bytes of residents. ``budget``: bytes of the scratchpad.
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
    """Cheapest grouping so far of the layers up to one layer: its cycles and last group."""

    cycles: float
    group: BandedGroup | None = None

    def offer(self, cycles: float, group: BandedGroup) -> None:
        """Record a grouping that ends with ``group`` if it has the fewest cycles so far."""
        if cycles < self.cycles:
            self.cycles = cycles
            self.group = group


@dataclass(eq=False, slots=True)
class _Tried:
    """First layers of all groups that the search has tried with one given last layer.

    ``held``: groups that load all constants once. ``fitted``: groups that fit in the current bands.
    ``unfit``: some group did not fit. ``finer``: some group could gain from finer bands.
    ``unaligned``: the current bands are not whole bursts; the next finer ones are.
    """

    held: set[int] = field(default_factory=set)
    fitted: set[int] = field(default_factory=set)
    unfit: bool = False
    finer: bool = False
    unaligned: bool = False


class Fusion:
    """Search for the layer groups of one region, cached for many scratchpad sizes."""

    def __init__(
        self,
        layers: Sequence[OperatorLayer],
        searches: Sequence[TileSearch],
        graph: FusionGraph,
        arch: Arch,
        bus: MemoryBus,
    ) -> None:
        self._layers = layers
        self._searches = searches
        self._graph = graph
        self._facts = Facts(layers, searches, graph, arch, bus)
        self._covers = Answers[Question, tuple[BandedGroup, ...]]()

    def cover(self, question: Question, capacity: Budget) -> tuple[BandedGroup, ...]:
        """Return the layer groups with the lowest estimated cost for the whole region.

        ``capacity`` is in bytes and includes the residents.
        """
        return self._covers.get_answer(
            question, capacity, 0, lambda budget: self._cover(question, budget)
        )

    def _cover(self, question: Question, budget: Budget) -> tuple[BandedGroup, ...]:
        singles = question.singles
        self._pinned = question.pinned
        best = [0.0]
        begun = [math.inf]
        saved = [0.0]
        residents = frozenset(name for name, *_ in question.residents)
        region = _Region(singles, saved, best, begun, residents, question.make_counter(), budget)
        taken: list[BandedGroup | None] = []
        for last, alone in enumerate(singles):
            cheapest = _Cheapest(best[last] + alone)
            least = self._searches[last].cost.floor_in_bands()
            self._offer_fused(last, region, cheapest)
            saving = alone * GAIN - least if self._able(last) else -saved[last]
            saved.append(max(0.0, saved[last] + saving))
            if saved[-1] > 0 and saved[last] > 0:
                self._offer_ending(last, region, cheapest)
            best.append(cheapest.cycles)
            begun.append(min(begun[last], best[last]) + least)
            taken.append(cheapest.group)
        groups = list[BandedGroup]()
        at = len(singles)
        while at:
            group = taken[at - 1]
            if group is not None:
                groups.append(group)
            at = at - 1 if group is None else group.first
        return tuple(groups[::-1])

    def _offer_fused(self, last: int, region: _Region, cheapest: _Cheapest) -> None:
        """Offer to fuse an element-wise layer into the previous layer, if that saves cycles."""
        first = last - 1
        if not (
            last
            and self._able(first)
            and self._able(last)
            and may_ride(self._layers, self._graph, last)
        ):
            return
        before = members_of(self._graph, first, last)[0]
        if not region.residents.isdisjoint(
            list_fused_buffers(self._graph, last) - {before.writes.buffer}
        ):
            return
        sources = tuple(piece.buffer in region.residents for piece in before.reads)
        beside = len(self._layers[last].operation.inputs) - 1
        resident = Resident(sources, follows=first > 0, beside=beside)
        search = self._searches[first]
        most = GAIN * (region.singles[first] + region.singles[last])
        if search.cost.floor(resident) >= most:
            return
        found = search.best_beside(resident, region.budget, region.taken(first, last))
        if found is None:
            return
        tiles = math.prod(counts(self._layers[first].geometry, found.tiling))
        computed = self._searches[last].cost.compute.tile(
            1, self._layers[last].nest.rows
        ) + compute_repeat_cycles(tiles)
        cycles = found.cycles + computed
        if cycles < most:
            cheapest.offer(region.best[first] + cycles, BandedGroup(first, last, 0, (), (), ()))

    def _offer_ending(self, last: int, region: _Region, cheapest: _Cheapest) -> None:
        """Offer to the search groups that end with a layer, in the coarsest bands that fit."""
        made = self._facts[last].made
        tried = _Tried()
        whole = self._count_whole(made.row_bytes)
        for height in _list_heights(made.rows, whole):
            tried.fitted.clear()
            tried.unfit = False
            tried.finer = tried.unaligned = height > whole and height % whole > 0
            for keep in (True, False):
                growth = Growth(self._facts, last, height, keep, region.residents)
                self._offer_grown(growth, region, tried, cheapest)
                if not (tried.unfit and growth.halo):
                    break
            if not tried.unfit and not tried.finer:
                break

    def _count_whole(self, row_bytes: int) -> int:
        """Return the number of rows of a plane that are whole bursts, 1 if a row fills a beat."""
        bus = self._facts.bus
        short = row_bytes < bus.bus_bytes
        return bus.burst_bytes // math.gcd(row_bytes, bus.burst_bytes) if short else 1

    def _offer_grown(
        self, growth: Growth, region: _Region, tried: _Tried, cheapest: _Cheapest
    ) -> None:
        """Offer to the search groups made by adding earlier layers to one last layer.

        A group is skipped if a group of the same layers was found before.
        """
        last = growth.first
        alone = region.singles[last]
        while growth.first and self._able(growth.first - 1) and growth.grow():
            first = growth.first
            alone += region.singles[first]
            before = min(region.best[first], region.begun[first])
            if (
                growth.least - GAIN * alone >= region.saved[first]
                or growth.least + before >= cheapest.cycles
            ):
                return
            room = Room(region.budget, region.taken(first, last))
            if not room.has_room_for(growth.fixed):
                tried.unfit = True
                return
            if growth.missing or first in tried.held or first in tried.fitted:
                continue
            if growth.floor() >= min(GAIN * alone, cheapest.cycles - region.best[first]):
                tried.fitted.add(first)  # the bound applies to every way to compute these bands
                continue
            found = growth.choice(room)
            if found is None:
                tried.unfit = True
                continue
            tried.fitted.add(first)
            if found.finest and not tried.unaligned:
                tried.held.add(first)
            else:
                tried.finer = True
            if found.cycles < GAIN * alone:
                cheapest.offer(region.best[first] + found.cycles, growth.group(found))

    def _able(self, index: int) -> bool:
        """Return True if a layer can be in a group."""
        return self._graph.members[index] is not None and not self._pinned[index]


def _list_heights(rows: int, whole: int) -> list[int]:
    """Return the numbers of rows per band that the search tries, from many to few.

    Each number is also rounded down to bands of ``whole`` rows, which are whole bursts.
    """
    heights = [ceil_div(rows, cut) for cut in (*BAND_CUTS, rows)]
    found = {size for height in heights for size in (height, height - height % whole)}
    return sorted((height for height in found if 0 < height < rows), reverse=True)
