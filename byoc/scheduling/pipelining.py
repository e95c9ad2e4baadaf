"""Software pipelining: loads begin early enough to hide them, as far as bus and scratchpad allow.

A first plan gives every tile buffer an address of its own for the lifetime of its layer. The
remaining bytes of the scratchpad take copies of the operands of later tiles, nearest tile first, so
that a layer that would wait for the bus finds operands that were loaded while earlier layers
computed. Tiles are processed in order with an estimate of when EX and LD finish their work. While
LD would idle during a tile's computation, it gets the next load.

The stream stays correct when executed in order: a load moves neither before the last use of the
bytes that it overwrites nor before a store of the bytes that it reads.

A rehearsal then estimates when each command of the stream ends. A command waits for those that
write or still use its buffers (docs/machine.md, sections 2 to 6).
"""

from __future__ import annotations

import sys
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from byoc.estimate.banks import CommandLoads
from byoc.estimate.bus import MemoryBus
from byoc.estimate.commands import CommandClockTimes, Stored, TileClock
from byoc.estimate.constants import (
    AHEAD_SHARES,
    FORGOTTEN,
    TRIES,
    WINDOW,
)
from byoc.scheduling.fetches import BufferFetch, list_fetches, want
from byoc.scheduling.memplan import (
    Request,
    Taken,
    check_plan,
    lowest_gap,
    own_gap,
    plan,
    plan_apart,
    plan_together,
)
from byoc.scheduling.rehearsal import Cue, Rehearsed, rehearse
from byoc.scheduling.stream import (
    CommandStep,
    Pointer,
    TileSteps,
    lifetimes,
    list_used_buffers,
)
from isa.arch import Arch
from isa.instruction import Unit

BOUNDLESS = sys.maxsize
"""Size of a bank that holds all buffers, used to plan for an unlimited scratchpad.

A plan that is the same there is valid for every larger scratchpad: if it separates buffers marked
``apart`` although one bank holds everything, it also separates them in banks of any size."""


class Spread(NamedTuple):
    """Numbers of tiles and loads that keep the commands of neighbouring tiles apart.

    ``unused``: tiles for which no buffer takes the bytes of one that was just used. ``queued``:
    loads of later tiles that a tile issues although LD is still busy. ``alone``: buffers prefer
    banks without other buffers. ``split``: buffers with two operands of a command prefer addresses
    where the second begins a bank (:func:`find_splits`).
    """

    unused: int = 0
    queued: int = 0
    alone: bool = False
    split: bool = False


TIGHT = Spread()


class Pipelined(NamedTuple):
    """Pipelined command stream with the scratchpad plan of its buffers.

    ``cycles``: the estimate used to place loads. ``free``: every larger scratchpad gets the same
    stream. ``crowded``: some loads were delayed because the scratchpad was full. ``most_ahead``:
    the time to load the scratchpad does not limit the stream if it is at least as many cycles.
    """

    cues: tuple[Cue, ...]
    requests: tuple[Request, ...]
    addresses: tuple[int, ...]
    cycles: int
    free: bool
    crowded: bool
    most_ahead: int = 0

    @property
    def steps(self) -> tuple[CommandStep, ...]:
        return tuple([cue.step for cue in self.cues])

    def rehearse_stream(
        self, shared: Collection[int], loads: CommandLoads, arch: Arch
    ) -> tuple[Rehearsed, ...]:
        """Return better estimates, from rehearsals of the stream on ``arch``.

        In the second one, if any, some stores wait for loads. See :func:`rehearse`.
        """
        early = rehearse(self.cues, self.requests, self.addresses, shared, loads, arch)
        waits = self._find_store_waits(early.times, loads.bus)
        return (early, early.delay_stores(waits)) if waits else (early,)

    def _find_store_waits(self, times: CommandClockTimes, bus: MemoryBus) -> dict[int, int]:
        """Return the loads that stores should wait for, by position in the stream.

        A store waits for the last load for the next tile, if both share the bus by ``times``. EX
        waits for this load anyway.
        """
        found: dict[int, int] = {}
        loads: list[tuple[int, int]] = []
        for number, (step, tile, _) in enumerate(self.cues):
            if step.unit is Unit.LD:
                loads.append((number, tile))
            elif step.unit is Unit.ST:
                begin = times.ends[number] - bus.transfer_cycles(times.work[number])
                last = next((at for at, other in reversed(loads) if other <= tile + 1), number)
                if last < number and times.ends[last] > begin:
                    found[number] = last
        return found


def pipeline_tiles(
    tiles: Sequence[TileSteps],
    cycles: Sequence[int],
    scratch: Sequence[tuple[str, int]],
    arch: Arch,
    bus: MemoryBus,
    apart: Collection[int] = (),
    windows: Collection[int] = (),
    spread: Spread = TIGHT,
) -> tuple[Pipelined, ...]:
    """Return the steps of ``tiles`` in stream order with verified scratchpad plans.

    The result is () if planning fails. If separate banks for the operands of a command delay loads,
    a plan that ignores banks is also tried and is returned in addition if its estimate is lower.

    Args:
        tiles: the steps of all tiles.
        cycles: estimated compute cycles of each tile.
        scratch: names and bytes of the buffers by number.
        arch: the machine.
        bus: its bus to system memory.
        apart: buffers that commands read together with four other operands.
        windows: buffers that several loads fill, whose bytes no other buffer may use.
        spread: how far apart commands of neighbouring tiles are.
    """
    together = (frozenset(list_used_buffers((step,))) for tile in tiles for step in tile.computes)
    beside = arch.memory.bank_conflicts(together)
    splits = find_splits(tiles) if spread.split else {}
    fetches = list_fetches(tiles, bus)
    most = bus.cycles_of(arch.sram_bytes)
    ahead = want(fetches, tiles, cycles, most)
    end = len(tiles) - 1
    lives = {
        buffer: (first, min(last + spread.unused, end))
        for buffer, (first, last) in lifetimes(tiles).items()
    }
    demand = _Demand(
        tiles,
        cycles,
        fetches,
        ahead <= most,
        lives,
        scratch,
        apart,
        windows,
        spread,
        splits,
        {},
        bus,
    )
    found = [_pipeline_once(demand, arch, beside)]
    if beside and (found[0] is None or found[0].crowded):
        limit = BOUNDLESS if found[0] is None else found[0].cycles
        found.append(_pipeline_once(demand, arch, {}, limit))
    return tuple([one._replace(most_ahead=ahead) for one in found if one is not None])


def find_splits(tiles: Iterable[TileSteps]) -> dict[int, int]:
    """Return the offset of the second operand of each buffer with operands at two offsets.

    An example is a buffer with records and weights: commands wait if one bank serves both.
    """
    found: dict[int, set[int]] = {}
    for tile in tiles:
        for step in tile.computes:
            for buffer, offset in step.pointers.values():
                found.setdefault(buffer, set()).add(offset)
    return {buffer: max(offsets) for buffer, offsets in found.items() if len(offsets) == 2}


class _Demand(NamedTuple):
    """Tiles with their fetches, buffer lifetimes and other arguments of :func:`pipeline_tiles`.

    ``free``: the wanted tiles of fetches do not depend on the scratchpad size. ``together``: the
    plans so far that do not keep operands in separate banks, by share of the scratchpad.
    """

    tiles: Sequence[TileSteps]
    cycles: Sequence[int]
    fetches: Sequence[BufferFetch]
    free: bool
    lives: Mapping[int, tuple[int, int]]
    scratch: Sequence[tuple[str, int]]
    apart: Collection[int]
    windows: Collection[int]
    spread: Spread
    splits: Mapping[int, int]
    together: dict[int, tuple[int, ...] | None]
    bus: MemoryBus


def _pipeline_once(
    demand: _Demand, arch: Arch, beside: Mapping[int, frozenset[int]], limit: int = BOUNDLESS
) -> Pipelined | None:
    """Return the steps in stream order, or None if planning fails.

    Return None too if they are estimated to take ``limit`` cycles or more.
    """
    (
        tiles, cycles, fetches, free, lives, scratch, apart, windows, spread, splits, together, bus
    ) = demand  # fmt: skip
    for fetch in fetches:
        fetch.reset()
    for share in AHEAD_SHARES:
        profile = _Profile(lives, scratch, len(tiles), arch.sram_bytes * share // 100)
        requests = profile.requests(fetches, apart, beside, spread.alone, splits)
        bank = arch.sram_bytes // arch.sram_banks
        scratchpad = arch.sram_bytes, arch.granule, bank
        one_operand = arch.memory.one_operand
        addresses = plan_apart(requests, *scratchpad, one_operand=one_operand)
        if addresses is None:
            if share not in together:
                together[share] = plan_together(requests, *scratchpad, one_operand=one_operand)
            addresses = together[share]
        if addresses is not None:
            break
    else:
        return None
    # A buffer larger than a bank reserves its last bank, which depends on the bank size.
    free = free and not beside and profile.free and share == AHEAD_SHARES[0]
    free = free and all(scratch[buffer][1] <= bank for buffer in apart)
    free = free and addresses == plan(
        requests, 2 * BOUNDLESS, arch.granule, BOUNDLESS, one_operand=arch.memory.one_operand
    )
    space = _Space(requests, addresses, arch, windows)
    estimate = _run(tiles, cycles, fetches, space, spread.queued, TileClock(bus))
    if estimate >= limit:
        return None
    check_plan(space.requests, space.addresses, arch.sram_bytes, arch.granule)
    cues = tuple(_stream(tiles, fetches))
    crowded = not (profile.free and space.free and share == AHEAD_SHARES[0])
    placed = tuple(space.requests), tuple(space.addresses)
    return Pipelined(cues, *placed, estimate, free and space.free, crowded)


# The first plan.


class _Profile:
    """Number of live scratchpad bytes at every tile of a stream.

    First fetches of buffers move earlier while at most ``limit`` bytes are live.
    """

    def __init__(
        self,
        lives: Mapping[int, tuple[int, int]],
        scratch: Sequence[tuple[str, int]],
        count: int,
        limit: int,
    ) -> None:
        self._lives = dict(lives)
        self._scratch = scratch
        self._limit = limit
        self.free = True
        changes = [0] * (count + 1)
        for buffer, (first, last) in lives.items():
            changes[first] += scratch[buffer][1]
            changes[last + 1] -= scratch[buffer][1]
        self._live = list(accumulate(changes))

    def requests(
        self,
        fetches: Sequence[BufferFetch],
        apart: Collection[int],
        beside: Mapping[int, frozenset[int]],
        alone: bool,
        splits: Mapping[int, int],
    ) -> list[Request]:
        """Return a request for every buffer, from its first fetch to its last use.

        First fetches move as early as wanted.
        """
        for fetch in fetches:
            if fetch.before is None and self._lives[fetch.buffer][0] == fetch.tile:
                self._move(fetch)
        return [
            Request(
                name,
                nbytes,
                *self._lives.get(buffer, (0, 0)),
                buffer in apart,
                beside.get(buffer, frozenset()),
                alone,
                splits.get(buffer, 0),
            )
            for buffer, (name, nbytes) in enumerate(self._scratch)
        ]

    def _move(self, fetch: BufferFetch) -> None:
        size = self._scratch[fetch.buffer][1]
        position = fetch.tile
        while position > max(fetch.wanted, fetch.release):
            if self._live[position - 1] + size > self._limit:
                self.free = False
                break
            position -= 1
            self._live[position] += size
        self._lives[fetch.buffer] = position, self._lives[fetch.buffer][1]


# The stream.


def _run(
    tiles: Sequence[TileSteps],
    cycles: Sequence[int],
    fetches: Sequence[BufferFetch],
    space: _Space,
    queued: int,
    clock: TileClock,
) -> int:
    """Choose the tile and the scratchpad buffer of every fetch; return the stream's cycles.

    The cycles are estimated. A tile issues up to ``queued`` loads although LD is busy.
    """
    head = 0
    for number, tile in enumerate(tiles):
        following = head
        while following < len(fetches) and fetches[following].tile == number:
            fetch = fetches[following]
            if fetch.position < 0:
                if not space.try_keep(fetch, number):
                    space.settle(fetch, number)
                fetch.arrival = clock.load(fetch.cycles, fetch.release, late=True)
            clock.wait(fetch.arrival)
            following += 1
        head = following
        stores = [Stored(step.slots, tuple(list_used_buffers((step,)))) for step in tile.stores]
        clock.compute(cycles[number], stores)
        room = queued
        for fetch in _candidates(fetches, head, number):
            room -= not clock.idle
            if room < 0:
                break
            if space.try_place(fetch, number):
                fetch.arrival = clock.load(fetch.cycles, fetch.release)
            elif space.full:
                break
        clock.store(stores)
    return clock.end


def _candidates(fetches: Sequence[BufferFetch], head: int, number: int) -> Iterator[BufferFetch]:
    """Yield the operand fetches that may and should overlap tile ``number``, nearest first."""
    for fetch in fetches[head : head + WINDOW]:
        if fetch.wanted > number:
            return
        if fetch.position < 0 and fetch.release <= number:
            yield fetch


class _Space:
    """Occupied bytes of the scratchpad over time: buffers of the first plan, then added copies."""

    def __init__(
        self,
        requests: Sequence[Request],
        addresses: Sequence[int],
        arch: Arch,
        windows: Collection[int],
    ) -> None:
        self._windows = frozenset(windows)
        self.requests = list(requests)
        self.addresses = list(addresses)
        self.free = True
        self._capacity = arch.sram_bytes
        self._alignment = arch.granule
        self._bank = arch.sram_bytes // arch.sram_banks
        self._copies: dict[int, list[int]] = {}  # numbers of the added copies of each buffer
        placed = zip(requests, addresses, strict=True)
        taken = [
            Taken(address, address + request.nbytes, request.first, request.last, buffer)
            for buffer, (request, address) in enumerate(placed)
        ]
        self._coming = sorted(taken, key=lambda item: -item.first)
        self._taken: list[Taken] = []
        self._pruned = 0
        self._held: dict[int, BufferFetch] = {}
        self._failed = 0
        self._tile = -1

    @property
    def full(self) -> bool:
        """True if :data:`TRIES` fetches tried for the current tile could not be placed.

        No more are tried.
        """
        return self._failed >= TRIES

    def settle(self, fetch: BufferFetch, position: int) -> None:
        """Schedule a fetch at tile ``position`` into its own buffer, which is free."""
        fetch.position, fetch.place = position, fetch.buffer
        self._held[fetch.buffer] = fetch

    def try_place(self, fetch: BufferFetch, position: int) -> bool:
        """Reserve scratchpad bytes for a fetch during tile ``position``, if there are any.

        Return whether bytes were reserved.
        """
        if self.try_keep(fetch, position):
            return True
        self._advance(position, fetch.last)
        if self._has_own(fetch, position):
            self.settle(fetch, position)
            return True
        if fetch.buffer in self._windows:
            return False
        request = self.requests[fetch.buffer]
        if request.apart:
            return False
        return self._copy(fetch, position, fetch.last)

    def try_keep(self, fetch: BufferFetch, position: int) -> bool:
        """Try to reserve scratchpad bytes for a fetch and all later fetches of its bytes.

        They are reserved from tile ``position`` on.
        """
        if (
            fetch.again is None
            or fetch.buffer in self._windows
            or self.requests[fetch.buffer].apart
        ):
            return False
        later = [fetch.again]
        while (following := later[-1].again) is not None:
            later.append(following)
        self._advance(position, later[-1].last)
        if not self._copy(fetch, position, later[-1].last):
            return False
        for same in later:
            same.position = position
            same.place = fetch.place
            same.merged = True
        return True

    def _copy(self, fetch: BufferFetch, position: int, last: int) -> bool:
        """Reserve scratchpad bytes for a copy, from tile ``position`` to tile ``last``.

        Return whether bytes were reserved.
        """
        request = self.requests[fetch.buffer]
        address = lowest_gap(self._taken, request.nbytes, position, last, self._alignment)
        if address + request.nbytes > self._capacity:
            self.free = False
            self._failed += 1
            return False
        if request.beside:
            copied = [self._copies.get(buffer, ()) for buffer in request.beside]
            beside = request.beside.union(*copied)
            alive = replace(request, first=position, last=last, beside=beside)
            address = own_gap(
                self._taken, alive, self._capacity, self._alignment, self._bank, address
            )
        end = address + request.nbytes
        self._copies.setdefault(fetch.buffer, []).append(len(self.requests))
        fetch.position = position
        fetch.place = len(self.requests)
        insort(self._taken, Taken(address, end, position, last, fetch.place))
        self.addresses.append(address)
        self.requests.append(Request(f"{request.name} ahead", request.nbytes, position, last))
        return True

    def _has_own(self, fetch: BufferFetch, position: int) -> bool:
        """Return whether the fetch's own buffer is free during tile ``position``.

        If so, reserve it from then on.
        """
        buffer = fetch.buffer
        held = self._held.get(buffer)
        before = fetch.before
        if held is not None and held.last >= position:
            return False
        while before is not None and before.tile > position:
            if before.position < 0:
                return False  # the previous fetch may still need its own buffer
            before = before.before
        request = self.requests[buffer]
        address = self.addresses[buffer]
        if position >= request.first:
            return True
        own = Taken(address, address + request.nbytes, position, request.last, buffer)
        for item in self._taken:
            meets = item.first < request.first and item.last >= position
            if meets and item.address < own.end and address < item.end and item.buffer != buffer:
                return False
        self._taken = [own if item.buffer == buffer else item for item in self._taken]
        self.requests[buffer] = replace(request, first=position)
        return True

    def _advance(self, position: int, until: int) -> None:
        """Drop reserved scratchpad places that are free again at tile ``position``.

        Add those that are taken by tile ``until``.
        """
        if position > self._tile:
            self._tile = position
            self._failed = 0
        if position > self._pruned + FORGOTTEN:
            self._pruned = position
            self._taken = [item for item in self._taken if item.last >= position]
        while self._coming and self._coming[-1].first <= until:
            insort(self._taken, self._coming.pop())


def _stream(tiles: Sequence[TileSteps], fetches: Sequence[BufferFetch]) -> Iterator[Cue]:
    """Yield all steps in stream order.

    A load for a later tile follows the tile's computation, so that EX does not wait for room in
    LD's queue.
    """
    own: list[list[Cue]] = [[] for _ in tiles]
    ahead: list[list[Cue]] = [[] for _ in tiles]
    moved: dict[int, dict[int, int]] = {}
    for fetch in fetches:
        names = {fetch.buffer: fetch.place} if fetch.place != fetch.buffer else {}
        steps = () if fetch.merged else rename_buffers(fetch.steps, names)
        (ahead if fetch.position < fetch.tile else own)[fetch.position].extend(
            Cue(step, fetch.tile, fetch.release) for step in steps
        )
        for number in range(fetch.tile, fetch.last + 1) if names else ():
            moved.setdefault(number, {}).update(names)
    for number, tile in enumerate(tiles):
        names = moved.get(number, {})
        yield from own[number]
        yield from (Cue(step, number) for step in rename_buffers(tile.computes, names))
        yield from ahead[number]
        yield from (Cue(step, number) for step in rename_buffers(tile.stores, names))


def rename_buffers(steps: Iterable[CommandStep], names: Mapping[int, int]) -> Iterable[CommandStep]:
    return (
        (step._replace(pointers=_follow_pointers(step.pointers, names)) for step in steps)
        if names
        else steps
    )


def _follow_pointers(
    pointers: Mapping[str, Pointer], names: Mapping[int, int]
) -> dict[str, Pointer]:
    return {
        name: Pointer(names.get(buffer, buffer), offset)
        for name, (buffer, offset) in pointers.items()
    }
