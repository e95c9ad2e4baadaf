"""A unit: executes the commands of its queue one at a time, in order (docs/machine.md, sections 3 and 5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from simpy import Event

from dla_sim.engine.bus import Bus
from dla_sim.engine.moment import Clock, Moment
from dla_sim.engine.workload import Cost


class Tokens:
    """The four token counters, and the waiting unit that each one wakes."""

    __slots__ = ("counts", "readers")

    def __init__(self) -> None:
        self.counts = [0, 0, 0, 0]
        self.readers: list[Callable[[], None]] = []


class Unit:
    """Executes commands of ``costs`` by number and records when each started and ended.

    A command starts as soon as it has arrived, the one before it has completed and its tokens are there. Only this unit
    pops those tokens, so it does not matter in which order the events of one cycle are seen: each of them tries again.
    """

    __slots__ = (
        "_arrival", "_bus", "_clock", "_costs", "_end", "_executing", "_port", "_start", "_tokens",
        "on_complete", "queue",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        costs: Sequence[Cost],
        tokens: Tokens,
        bus: Bus,
        port: int,
        times: tuple[list[int], list[int], list[int]],
    ) -> None:
        self._clock = clock
        self._costs = costs
        self._tokens = tokens
        self._bus = bus
        self._port = port
        self._arrival, self._start, self._end = times
        self._executing = False
        self.queue: deque[int] = deque()
        self.on_complete: Callable[[], None] = lambda: None
        if port:
            bus.done[port] = self._data_end

    def offer(self, command: int) -> None:
        """Put a command into the queue; it can start from its arrival on, which may lie ahead."""
        self.queue.append(command)
        if not self._executing:
            self.try_start()

    def try_start(self) -> None:
        """Start the command at the head of the queue, if there is one and all its tokens are there."""
        if self._executing or not self.queue:
            return
        command = self.queue[0]
        cost = self._costs[command]
        counts = self._tokens.counts
        for counter in cost.pops:
            if not counts[counter]:
                return
        for counter in cost.pops:
            counts[counter] -= 1
        self._executing = True
        now = self._clock.cycle
        start = max(now, self._arrival[command])
        self._start[command] = start
        if cost.slots:
            Moment(self._clock, start + cost.lead - now, self._data_begin)
        else:
            Moment(self._clock, start + cost.lead + cost.tail - now, self._complete)

    def _data_begin(self, _: Event) -> None:
        self._bus.begin(self._port, self._costs[self.queue[0]].slots)

    def _data_end(self) -> None:
        Moment(self._clock, self._costs[self.queue[0]].tail, self._complete)

    def _complete(self, _: Event) -> None:
        command = self.queue.popleft()
        self._end[command] = self._clock.cycle
        self._executing = False
        for counter in self._costs[command].pushes:
            self._tokens.counts[counter] += 1
            self._tokens.readers[counter]()
        self.try_start()
        self.on_complete()
