"""The system memory that several machines share: which of their ports gets a slot in which cycle (docs/systems.md, 2).

A machine's port is its bus to the memory; on it ask its command fetch, its LD and its ST. Machines may share one port,
or have one each, of which the memory then serves some in a cycle.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from dla_sim.engine.bus import NEVER

Meter = Callable[[int, int, int], None]
"""Is called with the first cycle, the number of cycles and the slots that were granted in them."""


class MemoryArbiter:
    """Grants slots to requesters, from one change in the set of those that wait to the next in closed form.

    ``ports[p]`` are the numbers of the requesters of port p, 0, 1, 2, ... over all ports. In each cycle the memory
    serves ``grants`` ports, or all that ask if they are fewer: the next ones after the port served last, in cyclic
    order. A port serves one of its requesters, the next one after the requester it served last. Before the first grant
    it is as if the last port, and in each port the last requester, had been served last.

    With one port of fetch, LD and ST this is :class:`dla_sim.engine.bus.Arbiter`. Slots are granted up to cycle
    ``now``, ``served`` in all; ``left`` are the slots that each requester still has to get.
    """

    __slots__ = ("_count", "_grants", "_last", "_meter", "_ports", "_served", "left", "now", "served")

    def __init__(self, ports: Sequence[Sequence[int]], grants: int, meter: Meter | None = None) -> None:
        self._meter = meter
        self._ports = [list(members) for members in ports]
        self._grants = grants
        self._last = len(ports) - 1
        self._served = [len(members) - 1 for members in ports]
        self.left = [0] * sum(map(len, ports))
        self._count = 0
        self.now = 0
        self.served = 0

    @property
    def idle(self) -> bool:
        """Nobody waits for a slot."""
        return not self._count

    def begin(self, requester: int, slots: int) -> None:
        """A data phase of ``slots`` > 0 begins now: ``requester`` takes part in this cycle's grant."""
        self.left[requester] = slots
        self._count += 1

    def grant(self, horizon: int) -> list[int]:
        """Grant slots up to cycle ``horizon``, or to the first end of data phases not after it.

        The requesters whose data phases have ended then, in ascending order.
        """
        asking = self._asking()
        end = min((self._end(place, asking) for place in range(len(asking))), default=NEVER)
        cycles = min(end, horizon) - self.now
        if not cycles:
            return []
        self._advance(asking, cycles)
        self.now += cycles
        if end > horizon:
            return []
        ended = sorted(one for _, members in asking for one in members if not self.left[one])
        self._count -= len(ended)
        return ended

    def _asking(self) -> list[tuple[int, list[int]]]:
        """The ports with requesters that wait, and these, both in the order in which they are served."""
        found, ports, left = [], self._ports, self.left
        for step in range(1, len(ports) + 1):
            port = (self._last + step) % len(ports)
            members, first = ports[port], self._served[port] + 1
            waiting = [one for one in (*members[first:], *members[:first]) if left[one]]
            if waiting:
                found.append((port, waiting))
        return found

    def _end(self, place: int, asking: list[tuple[int, list[int]]]) -> int:
        """The cycle in which the first data phase of the port at ``place`` has ended if the set stays as it is."""
        members = asking[place][1]
        last = min(turn + (self.left[one] - 1) * len(members) for turn, one in enumerate(members))
        if len(asking) <= self._grants:
            return self.now + last + 1
        return self.now + (place + last * len(asking)) // self._grants + 1

    def _advance(self, asking: list[tuple[int, list[int]]], cycles: int) -> None:
        """Grant the slots of ``cycles`` cycles, in which nobody ends before the last one."""
        total = cycles * min(self._grants, len(asking))
        self.served += total
        if self._meter is not None and total:
            self._meter(self.now, cycles, total)
        for place, (port, members) in enumerate(asking):
            mine = total // len(asking) + (place < total % len(asking))
            for turn, one in enumerate(members):
                self.left[one] -= mine // len(members) + (turn < mine % len(members))
            if mine:
                self._served[port] = self._ports[port].index(members[(mine - 1) % len(members)])
        if asking:
            self._last = asking[(total - 1) % len(asking)][0]


class SharedMemory:
    """The memory under several machines without events: data phases are announced, and their ends become known.

    They are announced in any order, but never before the time that the memory has reached, :attr:`now`.
    """

    __slots__ = ("_announced", "_arbiter", "_results")

    def __init__(self, ports: Sequence[Sequence[int]], grants: int, meter: Meter | None = None) -> None:
        self._arbiter = MemoryArbiter(ports, grants, meter)
        self._announced: list[tuple[int, int, int, list[int], int, int]] = []  # a heap, by time and requester
        self._results: list[tuple[list[int], int, int]] = [([], 0, 0)] * len(self._arbiter.left)

    @property
    def now(self) -> int:
        """The cycle up to which slots have been granted."""
        return self._arbiter.now

    @property
    def served(self) -> int:
        """How many slots have been granted."""
        return self._arbiter.served

    def announce(self, requester: int, time: int, slots: int, known: list[int], result: int, tail: int) -> None:
        """A data phase of ``slots`` > 0 begins at ``time``; ``tail`` cycles after its end go to ``known[result]``.

        A requester has one data phase at a time.
        """
        heapq.heappush(self._announced, (time, requester, slots, known, result, tail))

    def proceed(self, limit: int) -> list[int]:
        """Advance until data phases have ended, at ``limit`` at the latest: their requesters, none if none has."""
        arbiter, announced = self._arbiter, self._announced
        while announced or not arbiter.idle:
            begins = announced[0][0] if announced else NEVER
            if arbiter.idle:
                arbiter.now = min(begins, limit)
            elif ended := arbiter.grant(min(begins, limit)):
                for requester in ended:
                    known, result, tail = self._results[requester]
                    known[result] = arbiter.now + tail
                return ended
            if arbiter.now < begins:
                break
            _, requester, slots, known, result, tail = heapq.heappop(announced)
            self._results[requester] = known, result, tail
            arbiter.begin(requester, slots)
        return []
