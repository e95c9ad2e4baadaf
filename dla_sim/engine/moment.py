"""Clock and Moment: SimPy's environment counting whole cycles, and the one kind of event: a call at a time."""

from __future__ import annotations

from collections.abc import Callable

from simpy import Environment, Event
from simpy.events import NORMAL, URGENT, EventPriority

__all__ = ["NORMAL", "URGENT", "Clock", "Moment"]


class Clock(Environment):
    """The simulated time, in whole cycles."""

    @property
    def cycle(self) -> int:
        """The current cycle."""
        return int(self._now)


class Moment(Event):
    """Calls ``action`` ``delay`` cycles from now; within a cycle, URGENT moments come before NORMAL ones."""

    def __init__(
        self, clock: Clock, delay: int, action: Callable[[Event], None], priority: EventPriority = NORMAL
    ) -> None:
        # As simpy.Timeout does: set the fields here instead of in Event.__init__, because there is one call a command.
        self.env = clock
        self.callbacks = [action]
        self._value = None
        self._ok = True
        clock.schedule(self, priority, delay)
