"""Command fetch: brings the chunks of command words over the bus, in order (docs/machine.md, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simpy import Event

from dla_sim.engine.bus import FETCH, Bus
from dla_sim.engine.moment import Clock, Moment


class CommandFetch:
    """``ready`` counts the chunks that have arrived; ``on_ready`` is called when it rises."""

    __slots__ = ("_bus", "_busy", "_clock", "_latency", "_requests", "_slots", "on_ready", "ready")

    def __init__(self, clock: Clock, bus: Bus, chunk_slots: Sequence[int], latency: int) -> None:
        self._clock = clock
        self._bus = bus
        self._slots = chunk_slots
        self._latency = latency
        self._requests: list[int] = []
        self._busy = False
        self.ready = 0
        self.on_ready: Callable[[], None] = lambda: None
        bus.done[FETCH] = self._arrived

    def request(self, time: int) -> None:
        """The next chunk not yet requested, if there is one, is requested in cycle ``time``, now or later."""
        if len(self._requests) < len(self._slots):
            self._requests.append(time)
            if not self._busy:
                self._prepare()

    def _prepare(self) -> None:
        """Schedule the data phase of the next chunk: its latency over, and the chunk before it out of the way."""
        if self.ready < len(self._requests):
            self._busy = True
            now = self._clock.cycle
            Moment(self._clock, max(0, self._requests[self.ready] + self._latency - now), self._begin)

    def _begin(self, _: Event) -> None:
        self._bus.begin(FETCH, self._slots[self.ready])

    def _arrived(self) -> None:
        self.ready += 1
        self._busy = False
        self._prepare()
        self.on_ready()
