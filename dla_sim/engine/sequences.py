"""The in-order sequences of the engine without events: command processor, command fetch and the three units.

Each runs on until it needs a time that is not known yet, and names it: ``wait`` is its place in ``Times.known``.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.demands import AT_ONCE
from dla_sim.engine.grants import FETCH_PORT, LD_PORT, NEVER, ST_PORT, Bus
from dla_sim.engine.workload import LD, Workload

Int64 = NDArray[np.int64]

__all__ = ["NEVER", "Fetch", "Issue", "Sequence", "Times", "Transfers", "UnitSequence"]


class Times:
    """All times of a run in one list: ends and arrivals of the commands, readiness and requests of the chunks.

    ``known[n]`` is the end of command n, ``known[commands + n]`` its arrival, ``known[ready + c]`` the end of the data
    phase of chunk c and ``known[requested + c]`` its request. ``known[zero]`` is 0, ``known[never]`` never comes.
    """

    __slots__ = ("commands", "known", "never", "ready", "requested", "starts", "zero")

    def __init__(self, workload: Workload) -> None:
        self.commands = commands = len(workload)
        chunks = len(workload.chunk_slots)
        self.zero = 2 * commands
        self.never = 2 * commands + 1
        self.ready = 2 * commands + 2
        self.requested = self.ready + chunks
        self.known = [NEVER] * (2 * commands + 2 + 2 * chunks)
        self.known[self.zero] = 0
        buffers = min(chunks, workload.timing.fetch_buffers)
        self.known[self.requested : self.requested + buffers] = [0] * buffers
        self.starts = [0] * commands


def _places(commands: Int64, times: Times) -> Int64:
    """Where in ``Times.known`` the ends of ``commands`` are."""
    return np.where(commands >= 0, commands, np.where(commands == AT_ONCE, times.zero, times.never))


def _issue_rows(workload: Workload, times: Times) -> list[tuple[int, int]]:
    """(word, place of the end that makes room in the queue) of each command; ``OP_END`` waits for what never comes."""
    demands = workload.demands
    room = _places(demands.room(workload.timing.queue_depth), times)
    return [*zip(demands.word.tolist(), room.tolist(), strict=True), (workload.word_count - 1, times.never)]


UnitRow = tuple[int, int, int, int, int, int, int]


def _unit_rows(workload: Workload, times: Times, unit: int) -> list[UnitRow]:
    """(number, places of arrival and of the two tokens, lead, slots, tail) of each command; the last never comes."""
    demands, columns = workload.demands, workload.columns
    members = demands.by_unit[unit]
    first, second = _places(demands.pushers[:, members], times)
    costs = (columns[name][members] for name in ("lead", "slots", "tail"))
    columns_of_rows = (members, members + times.commands, first, second, *costs)
    rows: list[UnitRow] = list(zip(*(column.tolist() for column in columns_of_rows), strict=True))
    rows.append((0, times.never, times.zero, times.zero, 0, 0, 0))
    return rows


class Sequence(Protocol):
    """Something that happens in order."""

    wait: int

    def proceed(self) -> None:
        """Go on as far as the known times allow; afterwards ``wait`` names one that is not known."""


class Issue:
    """The command processor: ``position`` commands have arrived; from ``time`` on the next word can be executed."""

    __slots__ = (
        "_boundary", "_buffers", "_chunk", "_chunk_words", "_chunks", "_rows", "_times", "_word",
        "position", "time", "wait",
    )  # fmt: skip

    def __init__(self, workload: Workload, times: Times) -> None:
        self._times = times
        self._rows = _issue_rows(workload, times)
        self._chunk_words = workload.timing.fetch_bytes // 8
        self._buffers = workload.timing.fetch_buffers
        self._chunks = len(workload.chunk_slots)
        self._chunk = -1
        self._boundary = 0  # the first word that is not in this chunk
        self._word = 0
        self.position = 0
        self.time = 0
        self.wait = times.zero

    def proceed(self) -> None:
        """Execute words. The last row, ``OP_END``, waits for what never comes: its time is found at the end."""
        known, rows, commands = self._times.known, self._rows, self._times.commands
        position, time, executed = self.position, self.time, self._word
        while True:
            word, room = rows[position]
            if word >= self._boundary:
                self.time, self._word = time, executed
                if not self._cross(word):
                    break
                time, executed = self.time, self._word
            time += word - executed
            executed = word
            free = known[room]
            if free > time:
                if free == NEVER:
                    self.time, self._word, self.wait = time, executed, room
                    break
                time = free
            time += 1
            executed += 1
            known[commands + position] = time
            position += 1
        self.position = position

    def _cross(self, word: int) -> bool:
        """Execute up to the chunk that holds ``word``; False if a chunk is not there yet."""
        times = self._times
        while word >= self._boundary:
            self.time += self._boundary - self._word
            self._word = self._boundary
            freed = self._chunk + self._buffers
            if self._chunk >= 0 and freed < self._chunks:
                times.known[times.requested + freed] = self.time
            ready = times.known[times.ready + self._chunk + 1]
            if ready == NEVER:
                self.wait = times.ready + self._chunk + 1
                return False
            self.time = max(self.time, ready)
            self._chunk += 1
            self._boundary += self._chunk_words
        return True


class Fetch:
    """The command fetch: the chunks, one after the other."""

    __slots__ = ("_bus", "_chunk", "_latency", "_slots", "_times", "wait")

    def __init__(self, workload: Workload, times: Times, bus: Bus) -> None:
        self._times = times
        self._bus = bus
        self._slots = workload.chunk_slots
        self._latency = workload.timing.dram_latency
        self._chunk = 0
        self.wait = times.requested

    def proceed(self) -> None:
        """Begin the data phase of the next chunk, if it is requested and the one before has arrived."""
        times, chunk = self._times, self._chunk
        known = times.known
        before = times.ready + chunk - 1 if chunk else times.zero
        if chunk == len(self._slots):
            self.wait = times.never
        elif known[before] == NEVER:
            self.wait = before
        elif known[times.requested + chunk] == NEVER:
            self.wait = times.requested + chunk
        else:
            time = max(known[times.requested + chunk] + self._latency, known[before])
            self.wait = times.ready + chunk
            self._bus.begin(FETCH_PORT, time, self._slots[chunk], self.wait, 0)
            self._chunk += 1


class UnitSequence:
    """EX: starts each command when it has arrived, the one before it has ended and its tokens are there."""

    __slots__ = ("_free", "_position", "_rows", "_times", "wait")

    def __init__(self, workload: Workload, times: Times, unit: int) -> None:
        self._times = times
        self._rows = _unit_rows(workload, times, unit)
        self._position = 0
        self._free = 0
        self.wait = times.zero

    def proceed(self) -> None:
        """Start commands as long as all is known that they wait for."""
        known, starts, rows = self._times.known, self._times.starts, self._rows
        position, free = self._position, self._free
        while True:
            number, arrival, first, second, lead, _, tail = rows[position]
            begin = known[arrival]
            if free > begin:
                begin = free
            token = known[first]
            if token > begin:
                begin = token
            token = known[second]
            if token > begin:
                begin = token
            if begin == NEVER:
                break
            starts[number] = begin
            free = known[number] = begin + lead + tail
            position += 1
        self._position, self._free = position, free
        self.wait = arrival if known[arrival] == NEVER else first if known[first] == NEVER else second


class Transfers:
    """LD or ST: as EX, but the end of a command with a data phase is known when the bus has granted its slots."""

    __slots__ = ("_before", "_bus", "_port", "_position", "_rows", "_times", "wait")

    def __init__(self, workload: Workload, times: Times, unit: int, bus: Bus) -> None:
        self._times = times
        self._bus = bus
        self._port = LD_PORT if unit == LD else ST_PORT
        self._rows = _unit_rows(workload, times, unit)
        self._position = 0
        self._before = times.zero
        self.wait = times.zero

    def proceed(self) -> None:
        """Start commands as long as all is known that they wait for."""
        known = self._times.known
        free = known[self._before]
        if free == NEVER:
            self.wait = self._before
            return
        while True:
            number, arrival, token, _, lead, slots, tail = self._rows[self._position]
            begin = known[arrival]
            if free > begin:
                begin = free
            if known[token] > begin:
                begin = known[token]
            if begin == NEVER:
                self.wait = arrival if known[arrival] == NEVER else token
                return
            self._times.starts[number] = begin
            self._position += 1
            self._before = self.wait = number
            if slots:
                self._bus.begin(self._port, begin + lead, slots, number, tail)
                return
            free = known[number] = begin + lead + tail
