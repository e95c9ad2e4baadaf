"""The bus for the engine without events: from one change in the set of requesters to the next in closed form.

docs/machine.md, section 6. With k requesters in cyclic order after the one served last, the one at position p is
granted the cycles now + p, now + p + k, now + p + 2k, ...
"""

from __future__ import annotations

from typing import Protocol

FETCH_PORT, LD_PORT, ST_PORT = 0, 1, 2
NEVER = 1 << 62
"""The time of what has not happened."""

_CYCLIC = ((1, 2, 0), (2, 0, 1), (0, 1, 2))
"""The order in which requesters are looked at, by the one served last."""


class Bus(Protocol):
    """What grants slots to data phases."""

    def begin(self, port: int, time: int, slots: int, result: int, tail: int) -> None:
        """A data phase of ``slots`` > 0 begins at ``time``; ``tail`` cycles after its end go to ``known[result]``."""

    def proceed(self) -> bool:
        """Advance until a data phase has ended; False if there is none."""


class OwnBuses:
    """Every requester has a bus of its own: no machine of the document, but what remains without contention.

    All times are then sums and maxima of others, so that no cost that falls makes any of them later.
    """

    __slots__ = ("known",)

    def __init__(self, known: list[int]) -> None:
        self.known = known

    def begin(self, port: int, time: int, slots: int, result: int, tail: int) -> None:
        """A data phase of ``slots`` begins at ``time`` and ends as many cycles later."""
        self.known[result] = time + slots + tail

    def proceed(self) -> bool:
        """Nothing goes on by itself."""
        return False


class Grants:
    """Data phases: announced with :meth:`begin`, in any order, but never before the time that the bus has reached.

    ``known`` is written when one ends.
    """

    __slots__ = ("_begins", "_last", "_left", "_now", "_results", "_tails", "_waiting", "known")

    def __init__(self, known: list[int]) -> None:
        self.known = known
        self._begins = [NEVER, NEVER, NEVER]  # of data phases that are announced,
        self._left = [0, 0, 0]  # slots of those and of the ones going on
        self._results = [0, 0, 0]
        self._tails = [0, 0, 0]
        self._waiting: list[int] = []  # ports in their data phase, in any order
        self._last = ST_PORT
        self._now = 0

    def begin(self, port: int, time: int, slots: int, result: int, tail: int) -> None:
        """A data phase of ``slots`` > 0 begins at ``time``; ``tail`` cycles after its end go to ``known[result]``."""
        self._begins[port] = time
        self._left[port] = slots
        self._results[port] = result
        self._tails[port] = tail

    def proceed(self) -> bool:
        """Advance until a data phase has ended; False if there is none."""
        begins, waiting = self._begins, self._waiting
        while True:
            port = 1 if begins[1] <= begins[2] else 2
            if begins[0] < begins[port]:
                port = 0
            time = begins[port]
            if waiting:
                ended = self._share(time)
                if ended >= 0:
                    self._finish(ended, self._now)
                    return True
            elif time >= NEVER:
                return False
            else:
                begins[port] = NEVER
                end = time + self._left[port]
                if begins[0] >= end and begins[1] >= end and begins[2] >= end:
                    self._last = port
                    self._finish(port, end)
                    return True
                self._now = time
                waiting.append(port)
                continue
            begins[port] = NEVER
            waiting.append(port)

    def _finish(self, port: int, time: int) -> None:
        self.known[self._results[port]] = time + self._tails[port]

    def _share(self, horizon: int) -> int:
        """Grant slots up to cycle ``horizon``, or to the first end not after it. The port that has ended, or -1."""
        waiting, left, now = self._waiting, self._left, self._now
        if len(waiting) == 1:
            port = waiting[0]
            end = now + left[port]
            if end <= horizon:
                self._now, self._last = end, port
                waiting.clear()
                return port
            if horizon > now:
                left[port] = end - horizon
                self._now, self._last = horizon, port
            return -1
        return self._share_among(horizon)

    def _share_among(self, horizon: int) -> int:
        """The same for several requesters."""
        left, now = self._left, self._now
        order = [port for port in _CYCLIC[self._last] if port in self._waiting]
        count = len(order)
        ended = -1
        end = horizon + 1
        for position, port in enumerate(order):
            finish = now + position + (left[port] - 1) * count + 1
            if finish < end:
                ended, end = port, finish
        self._now = min(end, horizon)
        granted = self._now - now
        if granted:
            whole, rest = divmod(granted, count)
            for position, port in enumerate(order):
                left[port] -= whole + (position < rest)
            self._last = order[rest - 1]
        if ended >= 0:
            self._waiting.remove(ended)
        return ended
