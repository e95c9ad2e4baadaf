"""Grow a group of layers upwards and estimate its cost for each way to run it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from byoc.estimate.account import Carried, GroupAccount, GroupFloor, pieces
from byoc.estimate.bus import MemoryBus
from byoc.estimate.commands import compute_repeat_cycles, copy_cycles
from byoc.estimate.constants import AGAIN_SHARES, LONGEST
from byoc.operators.layer import OperatorLayer, align
from byoc.scheduling.groups import (
    BandedGroup,
    FusionGraph,
    Member,
    Planes,
    band_slots,
    is_needed_after,
    window_bytes,
)
from byoc.scheduling.tile_search import TileSearch
from byoc.scheduling.tiling import Room
from isa.arch import Arch
from isa.instruction import ceil_div


class GroupCandidate(NamedTuple):
    """Candidate group of layers with its estimated cycles.

    ``parts`` has one (channel tile, constants loaded once) per layer; None: all layers have whole
    tiles and load their constants once.
    """

    cycles: float
    kept: tuple[str, ...]
    parts: Sequence[tuple[_ChannelTile, bool]] | None
    slots: int

    @property
    def held(self) -> bool:
        """True if the group loads each of its constants only once."""
        return self.parts is None or all(held for _, held in self.parts)

    @property
    def finest(self) -> bool:
        """True if constants load once and operands have two buffers.

        Finer bands cannot improve the group.
        """
        return self.slots > 1 and self.held


class _ChannelTile(NamedTuple):
    """Channel tile of a layer, with the size of its constants.

    ``tiles`` counts the tiles of the layer, ``nbytes`` the bytes of this tile's constants, and
    ``slots`` the bus slots of all tiles' constants.
    """

    channels: int
    tiles: int
    nbytes: int
    slots: int

    def add_part(self, other: _ChannelTile) -> _ChannelTile:
        """Return this channel tile with the tile count, bytes and bus slots of ``other`` added.

        The tiles of ``other`` do not count if they have no constants.
        """
        loaded = other.tiles if other.slots else 0
        return _ChannelTile(
            0, self.tiles + loaded, self.nbytes + other.nbytes, self.slots + other.slots
        )


class _Fact(NamedTuple):
    """Facts about a layer for the group search; ``whole`` is the tile of all channels."""

    member: Member
    made: Planes
    whole: _ChannelTile


class Facts:
    """Cached facts about a region's layers, shared by machines that differ only in scratchpad size.

    ``computed`` has compute cycles by (layer, bands, rows per band, whether rows are recomputed,
    channels per tile).
    """

    def __init__(
        self,
        layers: Sequence[OperatorLayer],
        searches: Sequence[TileSearch],
        graph: FusionGraph,
        arch: Arch,
        bus: MemoryBus,
    ) -> None:
        self.layers = layers
        self.searches = searches
        self.graph = graph
        self.arch = arch
        self.bus = bus
        self.computed: dict[tuple[int, int, int, bool, int], int] = {}
        self._facts: dict[int, _Fact] = {}
        self._parts: dict[int, tuple[_ChannelTile, ...]] = {}

    def __getitem__(self, index: int) -> _Fact:
        """Return the facts of a layer that can be in a group."""
        found = self._facts.get(index)
        if found is None:
            found = self._facts[index] = self._make_fact(index)
        return found

    def _make_fact(self, index: int) -> _Fact:
        member = self.graph.members[index]
        assert member is not None
        whole = self._part(index, self.layers[index].nest.channels)
        return _Fact(member, self.graph.planes[member.writes.buffer], whole)

    def parts(self, index: int) -> tuple[_ChannelTile, ...]:
        """Return all channel tiles of a layer, from large to small."""
        found = self._parts.get(index)
        if found is None:
            found = self._parts[index] = tuple(
                [self._part(index, size) for size in self.searches[index].sizes]
            )
        return found

    def _part(self, index: int, channels: int) -> _ChannelTile:
        geometry = self.layers[index].geometry
        count = ceil_div(geometry.nest.channels, channels)
        loaded = geometry.constant_bytes(channels) if geometry.has_constants else 0
        nbytes = align(loaded, self.arch.granule) + align(
            geometry.table_bytes(channels), self.arch.granule
        )
        return _ChannelTile(
            channels, count, nbytes, count * self.bus.constants.run_slots(nbytes) if nbytes else 0
        )


@dataclass(eq=False, slots=True)
class _Wanted:
    """Rows [start, stop) of a buffer that a band needs, relative to the band.

    Each band has ``step`` new rows. The layers ``readers`` read the planes ``first`` to ``end``.
    ``made``: a layer of the group computes the buffer. ``moves`` caches the costs since the last
    change.
    """

    start: int
    stop: int
    step: int
    first: int
    end: int
    readers: list[int]
    made: bool = False
    kept: bool = False
    moves: dict[_Way, Carried] = field(default_factory=dict)


class _Way(NamedTuple):
    """Way to load a group's operands: whether bands reload shared rows, and buffers per operand."""

    again: bool
    slots: int


class _Result(NamedTuple):
    """Result of layer ``number`` that only layers outside the group read.

    ``planes`` planes; ``band`` bytes per plane and band; ``slots`` bus slots of all planes of a
    band.
    """

    number: int
    planes: int
    band: int
    slots: int

    def nbytes(self, planes: int, slots: int, alignment: int) -> int:
        return slots * align(planes * self.band, alignment)


class _Layer(NamedTuple):
    """Layer of a group: facts, rows per band, and cycles and overhead of whole tiles.

    ``again``: bands recompute rows that they share.
    """

    fact: _Fact
    height: int
    again: bool
    cycles: int
    overhead: float


class Growth:
    """Group that grows backwards from layer ``last``, in bands of ``height`` rows.

    ``halo``: bands overlap in a buffer of the group. ``least``: lower bound of the cycles of these
    layers, for any layers added in front. ``fixed``: lower bound of the bytes of windows.
    ``missing``: layers that write a buffer read and computed here but are not in the group yet.
    """

    def __init__(
        self, facts: Facts, last: int, height: int, keep: bool, residents: Collection[str]
    ) -> None:
        self._facts = facts
        self._last = last
        self._height = height
        self._keep = keep
        self._bus = facts.bus
        self._residents = residents
        self._planes = facts.graph.planes
        self._alignment = facts.arch.granule
        self._rows = facts[last].made.rows
        self._bands = ceil_div(self._rows, height)
        self._wanted: dict[str, _Wanted] = {}
        self._layers: list[_Layer] = []  # the last layer first
        self._results: list[_Result] = []
        self._constants = _ChannelTile(0, 0, 0, 0)  # sum over all layers
        self._floor = GroupFloor(self._bus, self._bands)
        self.first = last + 1
        self.halo = False
        self.fixed = 0
        self.missing: set[int] = set()
        self._add(last, facts[last])

    @property
    def least(self) -> float:
        """Lower bound of the present layers' cycles, whichever layers join in front."""
        return self._floor.least

    def grow(self) -> bool:
        """Add the preceding layer to the group; return False if no group can contain it."""
        index = self.first - 1
        last = self._last
        if last - index >= LONGEST:
            return False
        fact = self._facts[index]
        if fact.member.limit <= last:
            return False
        self._add(index, fact)
        return True

    def _add(self, index: int, fact: _Fact) -> None:
        member = fact.member
        made = fact.made
        inside = member.reader <= self._last
        if inside:
            wanted = self._wanted[member.writes.buffer]
            if not wanted.made:
                self._make(wanted, made)
            start = wanted.stop - wanted.step if wanted.kept else wanted.start
            stop = wanted.stop
            step = wanted.step
            self.missing.discard(index)
        else:
            start = 0
            stop = ceil_div(self._height * made.rows, self._rows)
            step = stop
        height = min(stop - start, made.rows)
        again = stop - start > step
        if not inside and member.writes.buffer not in self._residents:
            planes = member.writes.planes
            slots = band_slots(self._bus, made, planes, height, step)
            result = _Result(index, planes, height * made.row_bytes, slots)
            self._results.append(result)
            self._floor.store(result.slots)
        low = start * member.stride - member.pad
        high = (stop - 1) * member.stride - member.pad + member.extent
        for piece in member.reads:
            self._want(
                index, piece.buffer, _Wanted(low, high, step * member.stride, *piece.span, [index])
            )
        cycles = self._cycles(index, fact, height, again, fact.whole)
        self._layers.append(_Layer(fact, height, again, cycles, self._overhead(index, 1)))
        self._constants = self._constants.add_part(fact.whole)
        self.first = index
        self._floor.compute(cycles, self._layers[-1].overhead, fact.whole.nbytes)

    def floor(self) -> float:
        """Return a lower bound of the group's cycles for any scratchpad size."""
        moved = 0
        for name, wanted in self._wanted.items():
            planes = self._planes[name]
            leaves = wanted.made and is_needed_after(planes, self._last)
            if not self._resident(name, wanted) and (leaves or not wanted.made):
                count = planes.count if wanted.made else wanted.end - wanted.first
                slots = band_slots(self._bus, planes, count, wanted.step, wanted.step)
                moved += self._bands * slots
        return self._floor.add_slots(moved)

    def _make(self, wanted: _Wanted, made: Planes) -> None:
        """Record that the group itself computes a buffer that it reads."""
        wanted.made = True
        wanted.moves.clear()
        overlap = wanted.stop - wanted.start > wanted.step
        leaves = is_needed_after(made, self._last)
        wanted.kept = leaves or (overlap and self._keep)
        self.halo = self.halo or (overlap and not leaves)
        self.missing.update(made.makers)
        if wanted.kept:
            rows = min(wanted.stop - wanted.start, made.rows)
            self.fixed += window_bytes(made.count, rows, made.rows, made.row_bytes)

    def _want(self, index: int, buffer: str, new: _Wanted) -> None:
        """Extend the rows needed of a buffer by those that one more layer reads."""
        new.step = min(new.step, self._planes[buffer].rows)
        before = self._wanted.setdefault(buffer, new)
        if before is not new:
            before.start, before.stop = min(before.start, new.start), max(before.stop, new.stop)
            before.first, before.end = min(before.first, new.first), max(before.end, new.end)
            before.step = max(before.step, new.step)
            before.readers.append(index)
            before.moves.clear()

    def _cycles(self, index: int, fact: _Fact, height: int, again: bool, part: _ChannelTile) -> int:
        """Return the compute cycles of a layer over all bands, each with ``height`` rows."""
        known = self._facts.computed
        key = (index, self._bands, height, again, part.channels)
        found = known.get(key)
        if found is None:
            found = known[key] = self._count_cycles(index, fact, height, again, part)
        return found

    def _count_cycles(
        self, index: int, fact: _Fact, height: int, again: bool, part: _ChannelTile
    ) -> int:
        nest = self._facts.layers[index].nest
        compute = self._facts.searches[index].cost.compute
        if fact.member.flat:
            return compute.tile(1, nest.rows) + compute_repeat_cycles(self._bands - 1)
        if fact.member.moves is not None:
            return self._bands * self._copy(fact, height)
        heights = ((height, self._bands),) if again else pieces(nest.rows, height)
        channels = (
            ((nest.channels, 1),) if part.tiles == 1 else pieces(nest.channels, part.channels)
        )
        return sum(
            [
                often * many * compute.tile(size, rows)
                for rows, often in heights
                for size, many in channels
            ]
        )

    def _overhead(self, index: int, tiles: int) -> float:
        """Return the overhead cycles of a layer that has ``tiles`` tiles in every band."""
        return self._facts.searches[index].cost.overhead(tiles * self._bands)

    def group(self, choice: GroupCandidate) -> BandedGroup:
        parts = choice.parts or [(layer.fact.whole, True) for layer in reversed(self._layers)]
        channels = tuple(part.channels for part, _ in parts)
        held = tuple(held for _, held in parts)
        return BandedGroup(
            self.first, self._last, self._height, choice.kept, channels, held, choice.slots
        )

    def choice(self, room: Room) -> GroupCandidate | None:
        """Return the cheapest candidate group of the layers so far that fits in ``room``.

        Return None if no way fits. As many constants as fit are loaded once. Operand rows that
        bands share are kept, or loaded again into alternating buffers. A single buffer per operand
        is tried if it may leave room to load all constants once.
        """
        found = list[GroupCandidate]()
        for slots in (2, 1):
            ways = [
                _Way(again, slots)
                for again in ((False, True) if self._has_shared_rows() else (False,))
            ]
            choices = [self._choice(room, way, hold=bool(found)) for way in ways]
            found += [one for one in choices if one is not None]
            if any(one.held for one in found):
                break
        return min(found, key=lambda one: one.cycles, default=None)

    def _has_shared_rows(self) -> bool:
        """Return True if bands read some rows of the group's inputs more than once."""
        wanted = ((name, one) for name, one in self._wanted.items() if not one.made)
        return any(
            one.stop - one.start > one.step and name not in self._residents for name, one in wanted
        )

    def _choice(self, room: Room, way: _Way, *, hold: bool) -> GroupCandidate | None:
        """Return the candidate group with operands loaded in one way, or None if too large.

        With ``hold``, return None unless all constants are loaded once.
        """
        account = GroupAccount(self._bus, [0] * len(self._layers))
        for name, wanted in self._wanted.items():
            moves = wanted.moves.get(way)
            if moves is None:
                moves = wanted.moves[way] = self._move(name, wanted, way)
            account.enter(name, moves, self.first)
        if not room.has_room_for(account.fixed):
            return None
        compute = [0] * len(account.near)
        for index, sides in account.apart.items():
            compute[index - self.first] = self._copies(index, sides, account)
        results = sum(
            [result.nbytes(result.planes, way.slots, self._alignment) for result in self._results]
        )
        parts = None
        if not room.has_room_for(
            account.fixed + results + self._constants.nbytes + max(account.near)
        ):
            parts = None if hold else self._parts(account, room, way.slots)
            if parts is None:
                return None
        overhead = self._compute(parts, compute, account)
        self._store(parts, account, way.slots)
        return GroupCandidate(
            account.cycles(compute, overhead), tuple(account.kept), parts, way.slots
        )

    def _compute(
        self,
        parts: Sequence[tuple[_ChannelTile, bool]] | None,
        compute: list[int],
        account: GroupAccount,
    ) -> float:
        """Add each layer's cycles to ``compute`` and the loads of its constants to ``account``.

        Return the tile overhead.
        """
        overhead = 0.0
        if parts is None:
            for at, layer in enumerate(reversed(self._layers)):
                compute[at] += layer.cycles
                overhead += layer.overhead
            account.load(self._constants.slots, self._constants.tiles)
            account.constants += self._constants.slots
            return overhead
        for at, ((part, held), layer) in enumerate(zip(parts, reversed(self._layers), strict=True)):
            index = self.first + at
            compute[at] += self._cycles(index, layer.fact, layer.height, layer.again, part)
            overhead += self._overhead(index, part.tiles)
            again = 1 if held else self._bands
            account.load(part.slots * again, part.tiles * again if part.slots else 0)
            account.constants += part.slots if held else part.slots // part.tiles
        return overhead

    def _store(
        self, parts: Sequence[tuple[_ChannelTile, bool]] | None, account: GroupAccount, slots: int
    ) -> None:
        """Add the stores of results that only layers outside the group read."""
        for result in self._results:
            at = result.number - self.first
            out = result.slots
            tiles = 1 if parts is None else parts[at][0].tiles
            if out:
                account.store(out * self._bands, tiles * self._bands)
                account.edge += self._bus.transfer_cycles(out // tiles)
            if slots == 1 and out:
                account.alone.append((at, at, self._bus.transfer_cycles(out, tiles) * self._bands))

    def _move(self, name: str, wanted: _Wanted, way: _Way) -> Carried:
        """Return the scratchpad bytes and transfers of a buffer that the group reads."""
        planes = self._planes[name]
        rows = min(wanted.stop - wanted.start, planes.rows)
        overlap = wanted.stop - wanted.start > wanted.step
        leaves = wanted.made and is_needed_after(planes, self._last)
        resident = self._resident(name, wanted)
        kept = wanted.kept if wanted.made else overlap and not way.again
        apart: tuple[int, ...] = ()
        if kept or resident:
            users = (*wanted.readers, *(planes.makers if wanted.made else ()))
            apart = tuple([index for index in users if self._facts[index].member.flat])
        if resident:
            return Carried(wanted.made, apart=apart)
        count = planes.count if wanted.made else wanted.end - wanted.first
        nbytes = align(count * rows * planes.row_bytes, self._alignment)
        fixed = 0
        near = None
        reader = min(wanted.readers)
        last = max(wanted.readers)
        if kept:
            fixed = align(window_bytes(count, rows, planes.rows, planes.row_bytes), self._alignment)
        elif wanted.made or (way.slots == 1 and self._height == 1):
            near = planes.makers[0] if wanted.made else reader, last, nbytes
        else:
            fixed = way.slots * nbytes
        if not (leaves or not wanted.made):
            return Carried(kept, fixed, near, apart=apart)
        moved = rows if overlap and not kept else wanted.step
        first = wanted.start if moved > wanted.step else wanted.stop - wanted.step
        slots = self._bands * band_slots(self._bus, planes, count, moved, wanted.step, first)
        moving = self._bus.transfer_cycles(slots, self._bands)
        if wanted.made:
            return Carried(kept, fixed, near, slots, stores=moving, apart=apart)
        # Loads into rows that the previous band still uses cannot overlap with its computation.
        alone = (reader, last, moving) if kept or way.slots == 1 else None
        edge = self._bus.transfer_cycles(slots // self._bands)
        return Carried(kept, fixed, near, slots, loads=moving, edge=edge, apart=apart, alone=alone)

    def _resident(self, name: str, wanted: _Wanted) -> bool:
        """Return True if a buffer stays in the scratchpad as a whole tensor.

        A tensor with producer and consumers in the group does not, even if it is an output.
        """
        return name in self._residents and (
            not wanted.made or self._planes[name].last_reader > self._last
        )

    def _copies(self, index: int, sides: int, account: GroupAccount) -> int:
        """Return how many cycles an element-wise layer takes to copy bands that are not dense.

        The bands of ``sides`` operands and results are not dense.

        The bytes of the copies are added to ``account``. A machine without the copy instruction
        uses one command per plane in as many cycles.
        """
        layer = self._layers[self._last - index]
        writes = layer.fact.member.writes
        nbytes = layer.height * layer.fact.made.row_bytes
        account.near[index - self.first] += sides * align(writes.planes * nbytes, self._alignment)
        return sides * self._bands * self._copy(layer.fact, layer.height)

    def _copy(self, fact: _Fact, height: int) -> int:
        """Return the cycles of a plane-by-plane copy of one band of a layer's result."""
        return copy_cycles(
            fact.member.writes.planes, height * fact.made.row_bytes, self._facts.arch
        )

    def _parts(
        self, account: GroupAccount, room: Room, slots: int
    ) -> list[tuple[_ChannelTile, bool]] | None:
        """Choose channel tiles of each layer when not all constants fit in the scratchpad.

        The largest constants are loaded in every band.
        """
        if not room.has_room_for(account.fixed + max(account.near)):
            return None
        facts = [layer.fact for layer in reversed(self._layers)]
        order = sorted(
            (at for at, fact in enumerate(facts) if fact.whole.nbytes),
            key=lambda at: -facts[at].whole.nbytes,
        )
        best = None
        for share in AGAIN_SHARES:
            found = self._share_room(account, room, slots, facts, order, share)
            if found is None:
                break  # larger tiles do not fit either
            best = found
        return best

    def _share_room(
        self,
        account: GroupAccount,
        room: Room,
        slots: int,
        facts: Sequence[_Fact],
        order: Sequence[int],
        share: int,
    ) -> list[tuple[_ChannelTile, bool]] | None:
        """Let layers reload their constants, in ``order``, until the group fits in ``room``.

        Return the layers' channel tiles, or None if the group does not fit. A reloaded tile's
        constants take at most 1/``share`` of the room in both buffers, if tiles can be that small.
        """
        parts = [(fact.whole, True) for fact in facts]
        near = list(account.near)
        made = {result.number - self.first: result for result in self._results}
        whole = {
            at: result.nbytes(result.planes, slots, self._alignment) for at, result in made.items()
        }
        needed = account.fixed + sum(whole.values()) + self._constants.nbytes
        for at in order:
            possible = self._facts.parts(self.first + at)
            part = next(
                (one for one in possible if room.has_room_for(2 * share * one.nbytes)), possible[-1]
            )
            parts[at] = part, False
            if at in made:
                planes = part.channels if part.tiles > 1 else made[at].planes
                needed += made[at].nbytes(planes, slots, self._alignment) - whole[at]
            needed -= facts[at].whole.nbytes
            near[at] += min(2, part.tiles) * part.nbytes
            if room.has_room_for(needed + max(near)):
                return parts
            if not room.has_room_for(account.fixed + max(near)):
                return None
        return None
