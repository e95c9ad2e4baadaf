"""Command processor: executes the command words in order, at most one a cycle (docs/machine.md, section 4).

It runs ahead of the simulated time as far as what it needs is certain: a chunk that is there stays, and room in a queue
can only grow until the processor itself fills it. So SETs and words that never wait cost no events.
"""

from __future__ import annotations

from collections.abc import Sequence

from dla_sim.engine.fetch import CommandFetch
from dla_sim.engine.moment import Clock
from dla_sim.engine.unit import Unit
from dla_sim.engine.workload import Workload


class CommandProcessor:
    """Puts commands into the queues of ``units``, writes their arrivals, and finds the program's ``total`` cycles."""

    __slots__ = (
        "_arrival", "_chunk_words", "_clock", "_depth", "_fetch", "_last_word", "_time", "_units", "_word",
        "_workload", "next", "total",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, workload: Workload, fetch: CommandFetch, units: Sequence[Unit], arrival: list[int]
    ) -> None:
        self._clock = clock
        self._workload = workload
        self._fetch = fetch
        self._units = units
        self._arrival = arrival
        self._depth = workload.timing.queue_depth
        self._chunk_words = workload.timing.fetch_bytes // 8
        self._last_word = workload.word_count - 1
        self._word = 0  # the next word to execute,
        self._time = 0  # and the first cycle in which it can be, as far as the words before it matter
        self.next = 0  # the next command
        self.total = 0
        fetch.on_ready = self.proceed
        for unit in units:
            unit.on_complete = self.proceed

    def proceed(self) -> None:
        """Execute words as long as nothing has to be waited for. Called at the end of anything that it may wait for."""
        self._time = max(self._time, self._clock.cycle)
        costs = self._workload.costs
        while self.next < len(costs):
            cost = costs[self.next]
            unit = self._units[cost.unit]
            if not self._run_to(cost.word) or len(unit.queue) == self._depth:
                return
            self._arrival[self.next] = self._time + 1
            unit.offer(self.next)
            self.next += 1
            self._word_executed()
        if not self.total and self._run_to(self._last_word) and not any(unit.queue for unit in self._units):
            self.total = self._time + 1

    def _run_to(self, word: int) -> bool:
        """Execute the SETs before ``word``; False if a chunk is missing, up to and with the one that holds ``word``."""
        while self._word // self._chunk_words < self._fetch.ready:
            boundary = (self._word // self._chunk_words + 1) * self._chunk_words
            if word < boundary:
                self._time += word - self._word
                self._word = word
                return True
            self._time += boundary - self._word
            self._word = boundary
            self._fetch.request(self._time)
        return False

    def _word_executed(self) -> None:
        self._time += 1
        self._word += 1
        if self._word % self._chunk_words == 0:
            self._fetch.request(self._time)
