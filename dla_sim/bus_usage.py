"""Who had the bus when: the grants of a finished run, from one change in the set of requesters to the next.

The engines keep no record of the bus. But the data phases of LD and ST follow from a schedule, those of the command
fetch from its arrivals, and between two changes the grants follow in closed form (docs/machine.md, section 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dla_sim.engine.schedule import Schedule
from dla_sim.engine.workload import LD, ST, Workload

REQUESTERS = ("fetch", "LD", "ST")
_FETCH, _LD_PORT, _ST_PORT = 0, 1, 2
_CYCLIC = ((1, 2, 0), (2, 0, 1), (0, 1, 2))
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Stretch:
    """Cycles ``[begin, end)`` with the same requesters; ``granted`` counts the slots of each of :data:`REQUESTERS`.

    Someone is granted in every cycle of a stretch, so ``granted`` sums to its length.
    """

    begin: int
    end: int
    granted: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class BusUsage:
    """``stretches`` in order, idle cycles left out; ``chunks``: the data phase [begin, end) of each fetched chunk."""

    stretches: tuple[Stretch, ...]
    chunks: tuple[tuple[int, int], ...]


def bus_usage(workload: Workload, schedule: Schedule) -> BusUsage:
    """The use of the bus under ``schedule``; costs a few steps a transfer.

    Asserts that every transfer of LD and ST ends when the schedule says so: the bus is a second witness of its times.
    """
    return _Replay(workload, schedule).run()


class _Replay:
    """The bus from its first data phase to its last."""

    def __init__(self, workload: Workload, schedule: Schedule) -> None:
        self._fetch = _Chunks(workload, schedule)
        self._phases = (iter(()), _phases(workload, schedule, LD), _phases(workload, schedule, ST))
        self._begins = [_NEVER, _NEVER, _NEVER]
        self._slots = [0, 0, 0]
        self._expected = [0, 0, 0]
        self._left = [0, 0, 0]
        self._last = _ST_PORT
        self._now = 0
        self._stretches: list[Stretch] = []

    def run(self) -> BusUsage:
        for port in (_FETCH, _LD_PORT, _ST_PORT):
            self._announce(port)
        while True:
            active = [port for port in _CYCLIC[self._last] if self._left[port]]
            horizon = min(self._begins)
            if active:
                self._share(active, horizon)
            elif horizon < _NEVER:
                self._now = horizon
            else:
                return BusUsage(tuple(self._stretches), tuple(self._fetch.phases))
            for port in range(3):
                if self._begins[port] == self._now:
                    self._left[port], self._begins[port] = self._slots[port], _NEVER

    def _announce(self, port: int) -> None:
        """Note the next data phase of ``port``, if there is one."""
        if port == _FETCH:
            self._begins[port], self._slots[port] = self._fetch.next()
        else:
            phase = next(self._phases[port], (_NEVER, 0, 0))
            self._begins[port], self._slots[port], self._expected[port] = phase

    def _share(self, active: list[int], horizon: int) -> None:
        """Grant slots to ``active``, the one to be served first in front, until one ends or ``horizon``."""
        count, now, left = len(active), self._now, self._left
        ends = [now + position + (left[port] - 1) * count + 1 for position, port in enumerate(active)]
        until = min(*ends, horizon)
        whole, rest = divmod(until - now, count)
        granted = [0, 0, 0]
        for position, port in enumerate(active):
            granted[port] = whole + (position < rest)
            left[port] -= granted[port]
        self._stretches.append(Stretch(now, until, (granted[0], granted[1], granted[2])))
        self._now, self._last = until, active[rest - 1]
        for port in active:
            if not left[port]:
                self._ended(port)

    def _ended(self, port: int) -> None:
        if port == _FETCH:
            self._fetch.ended(self._now)
        elif self._now != self._expected[port]:
            raise AssertionError(
                f"a transfer of {REQUESTERS[port]} leaves the bus at {self._now}, not at {self._expected[port]}"
            )
        self._announce(port)


def _phases(workload: Workload, schedule: Schedule, unit: int) -> Iterator[tuple[int, int, int]]:
    """(begin, slots, end) of the data phases of one unit."""
    columns = workload.columns
    members = workload.demands.by_unit[unit]
    members = members[columns["slots"][members] > 0]
    begin, end = schedule.start + columns["lead"], schedule.end - columns["tail"]
    yield from zip(*(column[members].tolist() for column in (begin, columns["slots"], end)), strict=True)


class _Chunks:
    """The data phases of the command fetch: a chunk is requested when the one ``fetch_buffers`` before is used up."""

    def __init__(self, workload: Workload, schedule: Schedule) -> None:
        self._slots = workload.chunk_slots
        self._timing = workload.timing
        self._words = workload.timing.fetch_bytes // 8
        self._word = workload.demands.word
        self._arrival = schedule.arrival
        self._used: list[int] = []  # the cycle in which the last word of each chunk was executed
        self._begin = 0
        self.phases: list[tuple[int, int]] = []

    def next(self) -> tuple[int, int]:
        """(begin, slots) of the next chunk, once the one before has arrived."""
        chunk = len(self.phases)
        if chunk == len(self._slots):
            return _NEVER, 0
        freed = chunk - self._timing.fetch_buffers
        requested = self._used_up(freed) + 1 if freed >= 0 else 0
        before = self.phases[-1][1] if self.phases else 0
        self._begin = max(requested + self._timing.dram_latency, before)
        return self._begin, self._slots[chunk]

    def ended(self, now: int) -> None:
        """The chunk's data phase has ended."""
        self.phases.append((self._begin, now))

    def _used_up(self, chunk: int) -> int:
        """When the last word of ``chunk`` was executed. SETs after an operation never wait within a chunk."""
        while len(self._used) <= chunk:
            number = len(self._used)
            last = (number + 1) * self._words - 1
            latest = int(np.searchsorted(self._word, last, side="right")) - 1
            if latest >= 0 and self._word[latest] >= number * self._words:
                self._used.append(int(self._arrival[latest] - 1 + last - self._word[latest]))
            else:
                before = self._used[-1] + 1 if self._used else 0
                self._used.append(max(before, self.phases[number][1]) + self._words - 1)
        return self._used[chunk]
