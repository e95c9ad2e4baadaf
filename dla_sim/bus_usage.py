"""Who had the bus when: the grants of a finished run, from one change in the set of ports to the next.

The engines keep no record of the bus. But the data phases of LD and ST follow from the commands' times, those of the
command fetch from their arrivals: so the arbiter can be asked once more (docs/machine.md, section 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dla_sim.engine.bus import FETCH_PORT, LD_PORT, NEVER, PORTS, ST_PORT, Arbiter
from dla_sim.engine.times import CommandTimes
from dla_sim.engine.workload import LD, ST, Workload


@dataclass(frozen=True, slots=True)
class Stretch:
    """Cycles ``[begin, end)`` with the same ports in their data phase; ``granted`` counts slots of each of ``PORTS``.

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


def bus_usage(workload: Workload, times: CommandTimes) -> BusUsage:
    """The use of the bus under ``times``; costs a few steps a transfer.

    Asserts that every transfer of LD and ST ends when ``times`` says so: the bus is a second witness of its times.
    """
    return _Replay(workload, times).run()


class _Replay:
    """The bus from its first data phase to its last."""

    def __init__(self, workload: Workload, times: CommandTimes) -> None:
        self._arbiter = Arbiter()
        self._fetch = _Chunks(workload, times)
        self._phases = {LD_PORT: _phases(workload, times, LD), ST_PORT: _phases(workload, times, ST)}
        self._begins = [NEVER] * len(PORTS)
        self._slots = [0] * len(PORTS)
        self._expected = [0] * len(PORTS)

    def run(self) -> BusUsage:
        arbiter, begins = self._arbiter, self._begins
        stretches: list[Stretch] = []
        for port in range(len(PORTS)):
            self._announce(port)
        while arbiter.waiting or min(begins) < NEVER:
            begin, left = arbiter.now, tuple(arbiter.left)
            ended = arbiter.grant(min(begins))
            fetch, load, store = (before - after for before, after in zip(left, arbiter.left, strict=True))
            if fetch + load + store:
                stretches.append(Stretch(begin, arbiter.now, (fetch, load, store)))
            if ended >= 0:
                self._ended(ended)
            for port, time in enumerate(begins):
                if time == arbiter.now:
                    arbiter.begin(port, self._slots[port])
                    begins[port] = NEVER
        return BusUsage(tuple(stretches), tuple(self._fetch.phases))

    def _announce(self, port: int) -> None:
        """Note the next data phase of ``port``, if there is one."""
        if port == FETCH_PORT:
            self._begins[port], self._slots[port] = self._fetch.next()
        else:
            phase = next(self._phases[port], (NEVER, 0, 0))
            self._begins[port], self._slots[port], self._expected[port] = phase

    def _ended(self, port: int) -> None:
        if port == FETCH_PORT:
            self._fetch.ended(self._arbiter.now)
        elif self._arbiter.now != self._expected[port]:
            raise AssertionError(
                f"a transfer of {PORTS[port]} leaves the bus at {self._arbiter.now}, not at {self._expected[port]}"
            )
        self._announce(port)


def _phases(workload: Workload, times: CommandTimes, unit: int) -> Iterator[tuple[int, int, int]]:
    """(begin, slots, end) of the data phases of one unit."""
    columns = workload.columns
    members = workload.demands.by_unit[unit]
    members = members[columns["slots"][members] > 0]
    begin, end = times.start + columns["lead"], times.end - columns["tail"]
    yield from zip(*(column[members].tolist() for column in (begin, columns["slots"], end)), strict=True)


class _Chunks:
    """The data phases of the command fetch: a chunk is requested when the one ``fetch_buffers`` before is used up."""

    def __init__(self, workload: Workload, times: CommandTimes) -> None:
        self._slots = workload.chunk_slots
        self._timing = workload.timing
        self._words = workload.timing.fetch_bytes // 8
        self._word = workload.demands.word
        self._arrival = times.arrival
        self._used: list[int] = []  # the cycle in which the last word of each chunk was executed
        self._begin = 0
        self.phases: list[tuple[int, int]] = []

    def next(self) -> tuple[int, int]:
        """(begin, slots) of the next chunk, once the one before has arrived."""
        chunk = len(self.phases)
        if chunk == len(self._slots):
            return NEVER, 0
        freed = chunk - self._timing.fetch_buffers
        requested = self._used_up(freed) + 1 if freed >= 0 else 0
        before = self.phases[-1][1] if self.phases else 0
        self._begin = max(requested + self._timing.constants.latency, before)
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
