"""The shared bus: one slot a cycle, round robin among the requesters in their data phase (docs/machine.md, section 6).

Between two changes of the set of requesters the grants follow in closed form: with k requesters in cyclic order after
the one served last, the requester at position p is granted the cycles t + p, t + p + k, t + p + 2k, ...
"""

from __future__ import annotations

from collections.abc import Callable

from simpy import Event

from dla_sim.engine.moment import URGENT, Clock, Moment

FETCH, LD_PORT, ST_PORT = 0, 1, 2
_CYCLIC = ((1, 2, 0), (2, 0, 1), (0, 1, 2))
"""The order in which requesters are looked at, by the one served last."""


class Bus:
    """Grants slots. ``done[requester]`` is called in the cycle in which the data phase of ``requester`` has ended.

    The ends of data phases are urgent: in every cycle they come before all beginnings, and no end of the same cycle can
    follow, for a data phase that begins has at least one slot to go.
    """

    __slots__ = ("_clock", "_last", "_left", "_pending", "_since", "done")

    def __init__(self, clock: Clock, done: list[Callable[[], None]]) -> None:
        self._clock = clock
        self.done = done
        self._left = [0, 0, 0]
        self._last = ST_PORT
        self._since = 0
        self._pending: Event | None = None

    def begin(self, requester: int, slots: int) -> None:
        """The data phase of ``requester`` begins now: it takes part in this cycle's grant. ``slots`` is at least 1."""
        self._advance()
        self._left[requester] = slots
        self._plan()

    def _waiting(self) -> list[int]:
        left = self._left
        return [requester for requester in _CYCLIC[self._last] if left[requester]]

    def _advance(self) -> None:
        """Account for the grants of the cycles since the last change."""
        now = self._clock.cycle
        granted = now - self._since
        self._since = now
        if not granted:
            return
        waiting = self._waiting()
        count = len(waiting)
        if not count:
            return
        whole, rest = divmod(granted, count)
        for position, requester in enumerate(waiting):
            self._left[requester] -= whole + (position < rest)
        self._last = waiting[rest - 1]

    def _plan(self) -> None:
        """Schedule the next end of a data phase; what was planned before no longer holds."""
        waiting = self._waiting()
        if not waiting:
            self._pending = None
            return
        count, left = len(waiting), self._left
        delay = min(position + (left[requester] - 1) * count + 1 for position, requester in enumerate(waiting))
        self._pending = Moment(self._clock, delay, self._end, URGENT)

    def _end(self, event: Event) -> None:
        if event is not self._pending:
            return
        active = self._waiting()
        self._advance()
        self._plan()
        for requester in active:
            if not self._left[requester]:
                self.done[requester]()
