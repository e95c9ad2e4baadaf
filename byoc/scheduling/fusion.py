"""The search for groups: which runs of layers are computed band by band, in how many rows, what is kept and held.

Groups and single layers cover the region in order; the cheapest cover is found by dynamic programming over the order of
layers, each candidate group by the same account as tilings (:mod:`byoc.tiling.cost`): computation against bytes moved.
A group is grown backwards from its last layer, one layer at a time, so that every step is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from byoc.operators.layer import Layer
from byoc.scheduling.groups import Fabric, Group, Member, Planes, stays, window_bytes
from byoc.tiling.cost import BUS_BYTES, COMMAND_OVERHEAD, TILE_OVERHEAD, TRAFFIC, TRANSFER_OVERHEAD, pieces, rows_cycles
from byoc.tiling.search import TileSearch
from byoc.tiling.tiling import aligned
from isa.arch import Arch
from isa.instruction import ceil_div

LONGEST = 16
"""Layers of a group at most."""
GAIN = 0.98
"""A group takes at most this times what its layers take alone: estimates err by as much."""
EXPOSED = 0.4
"""Share of the first loads of constants that nothing hides."""
_CUTS = (2, 4, 7, 10, 14, 19, 28, 56, 112)
"""In how many bands groups are tried."""
_SHARE = 6
"""What is loaded again every band comes in tiles of at most this part of the scratchpad, where it can."""
Room = Callable[[int, int], int]
"""Bytes that residents leave to layers first to last."""


class Choice(NamedTuple):
    """A group with its estimated cycles."""

    group: Group
    cycles: float


class _Part(NamedTuple):
    """A tile of so many channels; how many make the layer, bytes of its constants, bus cycles of those of all."""

    channels: int
    tiles: int
    nbytes: int
    cycles: int


class _Fact(NamedTuple):
    """What the search asks of a layer again and again.

    ``whole``: all channels in a tile; ``parts``: all tiles that there are, large ones first.
    """

    member: Member
    made: Planes
    whole: _Part
    parts: tuple[_Part, ...]


class _Region(NamedTuple):
    """What is known of a region's layers: what each takes alone, what groups that end there can save at most, which
    buffers are resident, and what they leave.
    """

    singles: Sequence[float]
    saved: Sequence[float]
    residents: Collection[str]
    room: Room


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
    """Groups of one region on one machine."""

    def __init__(self, layers: Sequence[Layer], searches: Sequence[TileSearch], fabric: Fabric, arch: Arch) -> None:
        self.layers, self.searches, self.fabric, self.arch = layers, searches, fabric, arch
        self._facts: dict[int, _Fact] = {}

    def cover(
        self, singles: Sequence[float], pinned: Sequence[bool], residents: Collection[str], room: Room
    ) -> list[Group]:
        """The groups of the cheapest cover of all layers, where layer number n alone takes ``singles[n]``.

        What is ``pinned`` stays alone.
        """
        self._pinned = pinned
        best, saved = [0.0], [0.0]
        region = _Region(singles, saved, residents, room)
        taken: list[Group | None] = []
        for last, alone in enumerate(singles):
            cost, group = best[last] + alone, None
            saving = self._saving(last, alone) if self.able(last) else -saved[last]
            saved.append(max(0.0, saved[last] + saving))
            if saved[-1] > 0 and saved[last] > 0:
                for found in self._ending(last, region):
                    total = best[found.group.first] + found.cycles
                    if total < cost:
                        cost, group = total, found.group
            best.append(cost)
            taken.append(group)
        groups, at = list[Group](), len(singles)
        while at:
            group = taken[at - 1]
            if group is not None:
                groups.append(group)
            at = at - 1 if group is None else group.first
        return groups[::-1]

    def _saving(self, index: int, cycles: float) -> float:
        """What a group of two bands can save at most of a layer's ``cycles``."""
        nest, cost = self.layers[index].nest, self.searches[index].cost
        return cycles * GAIN - cost.tile_cycles(nest.channels, nest.rows) - 2 * TILE_OVERHEAD

    def _ending(self, last: int, region: _Region) -> Iterator[Choice]:
        """Candidate groups that end with a layer; of each run of layers those in the coarsest bands that fit."""
        rows, tried = self.fact(last).made.rows, _Tried()
        heights = dict.fromkeys(ceil_div(rows, cut) for cut in (*_CUTS, rows))
        for height in (height for height in heights if height < rows):
            tried.fitted.clear()
            tried.unfit = tried.finer = False
            for keep in (True, False):
                growth = _Growth(self, last, height, keep, region.residents)
                yield from self._grown(growth, region, tried)
                if not (tried.unfit and growth.halo):
                    break
            if not tried.unfit and not tried.finer:
                break

    def _grown(self, growth: _Growth, region: _Region, tried: _Tried) -> Iterator[Choice]:
        """Candidate groups that grow from one layer, where none has been found for their layers."""
        last = growth.first
        alone = region.singles[last]
        while growth.grow():
            first = growth.first
            alone += region.singles[first]
            over = growth.least - GAIN * alone
            if over >= region.saved[first]:
                return
            if growth.fixed > region.room(first, last):
                tried.unfit = True
                return
            if over >= 0 or growth.missing or first in tried.held or first in tried.fitted:
                continue
            found = growth.choice(region.room(first, last))
            if found is None:
                tried.unfit = True
                continue
            tried.fitted.add(first)
            if all(found.group.held) and found.group.slots > 1:
                tried.held.add(first)
            else:
                tried.finer = True
            if found.cycles < GAIN * alone:
                yield found

    def able(self, index: int) -> bool:
        """Whether a layer can be in a group."""
        return self.fabric.members[index] is not None and not self._pinned[index]

    def fact(self, index: int) -> _Fact:
        """The fact of a layer that has a member."""
        found = self._facts.get(index)
        if found is None:
            found = self._facts[index] = self._make_fact(index)
        return found

    def _make_fact(self, index: int) -> _Fact:
        member = self.fabric.members[index]
        assert member is not None
        parts = tuple(self._part(index, channels) for channels in self.searches[index].channels)
        whole = self._part(index, self.layers[index].nest.channels)
        return _Fact(member, self.fabric.planes[member.writes.buffer], whole, parts)

    def _part(self, index: int, channels: int) -> _Part:
        geometry = self.layers[index].geometry
        count = ceil_div(geometry.nest.channels, channels)
        loaded = geometry.constant_bytes(channels) if geometry.has_constants else 0
        nbytes = aligned(loaded, self.arch.alignment) + aligned(geometry.table_bytes(channels), self.arch.alignment)
        return _Part(channels, count, nbytes, count * (nbytes // BUS_BYTES + 1) if nbytes else 0)


@dataclass(eq=False, slots=True)
class _Wanted:
    """What bands want of a buffer: rows [start, stop) relative to the band's, of which ``step`` are new.

    Planes ``first`` to ``end`` are read, by the layers ``readers``. ``made``: in the group.
    """

    start: int
    stop: int
    step: int
    first: int
    end: int
    readers: list[int]
    made: bool = False
    kept: bool = False


@dataclass(eq=False, slots=True)
class _Account:
    """What a group takes: bytes all the time and at each layer, bus cycles, cycles of loads and stores with what they
    wait, of those that nothing hides (``edge``), and of the first constants.

    ``apart``: of how many operands and results of an element-wise layer the bands do not lie densely. ``alone``: loads
    that layers first to last of the group cannot hide, with their cycles.
    """

    near: list[int]
    kept: list[str] = field(default_factory=list)
    apart: dict[int, int] = field(default_factory=dict)
    fixed: int = 0
    traffic: int = 0
    loads: int = 0
    stores: int = 0
    edge: int = 0
    constants: int = 0
    alone: list[tuple[int, int, int]] = field(default_factory=list)

    def load(self, cycles: int, transfers: int) -> None:
        """So many transfers that take the bus for so many cycles together."""
        self.traffic += cycles
        self.loads += cycles + transfers * TRANSFER_OVERHEAD

    def store(self, cycles: int, transfers: int) -> None:
        """The same of what goes to system memory."""
        self.traffic += cycles
        self.stores += cycles + transfers * TRANSFER_OVERHEAD


class _Way(NamedTuple):
    """Whether rows of operands that bands share are loaded ``again``, and the buffers of an operand or result."""

    again: bool
    slots: int


class _Growth:
    """Groups that end with layer ``last`` in bands of ``height`` rows, from that layer alone backwards.

    ``halo``: bands overlap somewhere. ``least``: a bound of the cycles so far, ``fixed``: one of the bytes of windows.
    ``missing``: makers of what is made and read here that are not here yet.
    """

    def __init__(self, fusion: Fusion, last: int, height: int, keep: bool, residents: Collection[str]) -> None:
        self._fusion, self._last, self._height, self._keep = fusion, last, height, keep
        self._residents, self._planes = residents, fusion.fabric.planes
        self._rows = fusion.fact(last).made.rows
        self._bands = ceil_div(self._rows, height)
        self._wanted: dict[str, _Wanted] = {}
        self._heights: list[tuple[int, bool]] = []
        self._sinks: set[int] = set()
        self.first, self.halo, self.least, self.fixed = last + 1, False, 0.0, 0
        self.missing: set[int] = set()
        self._add(last, fusion.fact(last))

    def grow(self) -> bool:
        """Take one layer more in front; False where no group has it."""
        index, last = self.first - 1, self._last
        if index < 0 or last - index >= LONGEST or not self._fusion.able(index):
            return False
        fact = self._fusion.fact(index)
        if fact.member.limit <= last:
            return False
        self._add(index, fact)
        return True

    def _add(self, index: int, fact: _Fact) -> None:
        member, made = fact.member, fact.made
        if member.reader <= self._last:
            wanted = self._wanted[member.writes.buffer]
            if not wanted.made:
                wanted.made = True
                overlap, leaves = wanted.stop - wanted.start > wanted.step, stays(made, self._last)
                wanted.kept = leaves or (overlap and self._keep)
                self.halo = self.halo or (overlap and not leaves)
                self.missing.update(made.makers)
                if wanted.kept:
                    rows = min(wanted.stop - wanted.start, made.rows)
                    self.fixed += window_bytes(made.count, rows, made.rows, made.row_bytes)
            start = wanted.stop - wanted.step if wanted.kept else wanted.start
            stop, step = wanted.stop, wanted.step
            self.missing.discard(index)
        else:
            self._sinks.add(index)
            start, stop = 0, ceil_div(self._height * made.rows, self._rows)
            step = stop
        self._heights.append((min(stop - start, made.rows), stop - start > step))
        low = start * member.stride - member.pad
        high = (stop - 1) * member.stride - member.pad + member.extent
        for piece in member.reads:
            self._want(index, piece.buffer, _Wanted(low, high, step * member.stride, *piece.span, [index]))
        self.first = index
        self.least += self._cycles(index, fact.whole) + TILE_OVERHEAD * self._bands

    def _want(self, index: int, buffer: str, new: _Wanted) -> None:
        """Rows that one layer more wants."""
        new.step = min(new.step, self._planes[buffer].rows)
        before = self._wanted.setdefault(buffer, new)
        if before is not new:
            before.start, before.stop = min(before.start, new.start), max(before.stop, new.stop)
            before.first, before.end = min(before.first, new.first), max(before.end, new.end)
            before.step = max(before.step, new.step)
            before.readers.append(index)

    def _cycles(self, index: int, part: _Part) -> int:
        """Compute cycles of a layer in all bands."""
        nest, cost = self._fusion.layers[index].nest, self._fusion.searches[index].cost
        member, (height, again) = self._fusion.fact(index).member, self._heights[self._last - index]
        if member.flat:
            return cost.tile_cycles(1, nest.rows) + (self._bands - 1) * COMMAND_OVERHEAD
        if member.moves is not None:
            return self._bands * self._copy(index)
        heights = ((height, self._bands),) if again else pieces(nest.rows, height)
        channels = ((nest.channels, 1),) if part.tiles == 1 else pieces(nest.channels, part.channels)
        return sum(often * many * cost.tile_cycles(size, rows) for rows, often in heights for size, many in channels)

    def choice(self, room: int) -> Choice | None:
        """The group of the layers so far with as many constants held as ``room`` bytes allow; None where none fits.

        Rows of operands that bands share are kept, or loaded again into two buffers in turn: whatever takes less.
        """
        for slots in (2, 1):
            ways = (_Way(again, slots) for again in ((False, True) if self._shared() else (False,)))
            found = [one for one in (self._choice(room, way) for way in ways) if one is not None]
            if found:
                return min(found, key=lambda one: one.cycles)
        return None

    def _shared(self) -> bool:
        """Whether bands read rows of an operand of the group more than once."""
        wanted = ((name, one) for name, one in self._wanted.items() if not one.made)
        return any(one.stop - one.start > one.step and name not in self._residents for name, one in wanted)

    def _choice(self, room: int, way: _Way) -> Choice | None:
        account = _Account([0] * (self._last - self.first + 1))
        for name, wanted in self._wanted.items():
            self._move(name, wanted, account, way)
        if account.fixed > room:
            return None
        compute = [0] * len(account.near)
        for index, sides in account.apart.items():
            compute[index - self.first] = self._copies(index, sides, account)
        parts = self._parts(account, room, way.slots)
        if parts is None:
            return None
        overhead = 0.0
        for at, (part, held) in enumerate(parts):
            index = self.first + at
            compute[at] += self._cycles(index, part)
            overhead += self._fusion.searches[index].cost.overhead(part.tiles * self._bands)
            again = 1 if held else self._bands
            account.load(part.cycles * again, part.tiles * again if part.cycles else 0)
            account.constants += part.cycles if held else part.cycles // part.tiles
            _, out = self._result(index, part, way.slots)
            if out:
                account.store(out * self._bands, part.tiles * self._bands)
                account.edge += out // part.tiles + TRANSFER_OVERHEAD
            if way.slots == 1 and out:
                account.alone.append((at, at, (out + TRANSFER_OVERHEAD * part.tiles) * self._bands))
        alone = (cycles + sum(compute[reader : last + 1]) for reader, last, cycles in account.alone)
        busy = max(sum(compute), account.loads, account.stores, account.traffic, *alone)
        cycles = busy + account.edge + EXPOSED * account.constants + TRAFFIC * account.traffic + overhead
        channels, loaded_once = tuple(part.channels for part, _ in parts), tuple(held for _, held in parts)
        kept = tuple(account.kept)
        group = Group(self.first, self._last, self._height, kept, channels, loaded_once, way.slots)
        return Choice(group, cycles)

    def _move(self, name: str, wanted: _Wanted, account: _Account, way: _Way) -> None:
        """Enter what a buffer that layers of the group read takes."""
        planes, alignment = self._planes[name], self._fusion.arch.alignment
        rows, overlap = min(wanted.stop - wanted.start, planes.rows), wanted.stop - wanted.start > wanted.step
        leaves = wanted.made and stays(planes, self._last)
        resident = name in self._residents and (leaves or not wanted.made)
        kept = wanted.kept if wanted.made else overlap and not way.again
        if kept or resident:
            for index in (*wanted.readers, *(planes.makers if wanted.made else ())):
                if self._fusion.fact(index).member.flat:
                    account.apart[index] = account.apart.get(index, 0) + 1
        if resident:
            return
        count = planes.count if wanted.made else wanted.end - wanted.first
        nbytes = aligned(count * rows * planes.row_bytes, alignment)
        if kept:
            account.kept.append(name)
            account.fixed += aligned(window_bytes(count, rows, planes.rows, planes.row_bytes), alignment)
        elif wanted.made:
            for at in range(planes.makers[0] - self.first, max(wanted.readers) - self.first + 1):
                account.near[at] += nbytes
        else:
            account.fixed += way.slots * nbytes
        if leaves or not wanted.made:
            moved = rows if overlap and not kept else wanted.step
            cycles = self._bands * rows_cycles(count, moved * planes.row_bytes, planes.row_bytes)
            if wanted.made:
                account.store(cycles, self._bands)
            else:
                account.load(cycles, self._bands)
                account.edge += cycles // self._bands + TRANSFER_OVERHEAD
            if not wanted.made and (kept or way.slots == 1):  # rows come when those before them are done with
                cycles += self._bands * TRANSFER_OVERHEAD
                account.alone.append((min(wanted.readers) - self.first, max(wanted.readers) - self.first, cycles))

    def _copies(self, index: int, sides: int, account: _Account) -> int:
        """Cycles of copies of an element-wise layer's bands, of so many operands and results that lie apart.

        Enters the bytes of the copies; a machine without such an instruction has a command a plane, of as many cycles.
        """
        writes = self._fusion.fact(index).member.writes
        nbytes = self._heights[self._last - index][0] * self._planes[writes.buffer].row_bytes
        account.near[index - self.first] += sides * aligned(writes.planes * nbytes, self._fusion.arch.alignment)
        return sides * self._bands * self._copy(index)

    def _copy(self, index: int) -> int:
        """Cycles of a copy of a band of what a layer makes, plane by plane."""
        writes = self._fusion.fact(index).member.writes
        nbytes = self._heights[self._last - index][0] * self._planes[writes.buffer].row_bytes
        return COMMAND_OVERHEAD + writes.planes * ceil_div(nbytes, self._fusion.arch.lanes)

    def _parts(self, account: _Account, room: int, slots: int) -> list[tuple[_Part, bool]] | None:
        """How each layer's constants come: all at once where that fits, else the largest ones again in every band."""
        facts = [self._fusion.fact(index) for index in range(self.first, self._last + 1)]
        parts = [(fact.whole, True) for fact in facts]
        results = [self._result(self.first + at, part, slots)[0] for at, (part, _) in enumerate(parts)]
        needed = account.fixed + sum(results) + sum(part.nbytes for part, _ in parts)
        near = list(account.near)
        for at in sorted(range(len(parts)), key=lambda at: -parts[at][0].nbytes):
            if needed + max(near) <= room:
                break
            if account.fixed + max(near) > room or not facts[at].whole.nbytes:
                return None
            part = next((one for one in facts[at].parts if 2 * one.nbytes <= room // _SHARE), facts[at].parts[-1])
            parts[at] = part, False
            result, _ = self._result(self.first + at, part, slots)
            needed += result - results[at] - facts[at].whole.nbytes
            near[at] += min(2, part.tiles) * part.nbytes
        return parts if needed + max(near) <= room else None

    def _result(self, index: int, part: _Part, slots: int) -> tuple[int, int]:
        """Bytes of the buffers of results that go to system memory, and the bus cycles of a band of them."""
        if index not in self._sinks:
            return 0, 0
        writes = self._fusion.fact(index).member.writes
        if writes.buffer in self._residents:
            return 0, 0
        nbytes = self._heights[self._last - index][0] * self._planes[writes.buffer].row_bytes
        count = part.channels if part.tiles > 1 else writes.planes
        return slots * aligned(count * nbytes, self._fusion.arch.alignment), rows_cycles(
            writes.planes, nbytes, self._planes[writes.buffer].row_bytes
        )
