"""The clock: when LD, EX and ST would be done with what they have, on the default machine.

Every unit does its work in order. While a schedule is made, :class:`TileClock` says tile by tile whether the bus would
idle; of a stream that is made, :func:`run` says command by command when all is over (docs/machine.md, sections 2 to 6).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from byoc.estimate.commands import transfer_cycles
from byoc.estimate.constants import (
    DMA_SETUP,
    FIRST_COMMAND,
    ISSUE_CYCLES,
    QUEUE_DEPTH,
    TRANSFER_LEAD,
    TRANSFER_OVERHEAD,
)
from isa.instruction import Unit

_LD, _EX, _ST = _UNITS = tuple(unit.value for unit in (Unit.LD, Unit.EX, Unit.ST))
_LEAD = {_LD: TRANSFER_LEAD, _ST: DMA_SETUP}
"""Cycles of a transfer before its bytes move: a store has its latency thereafter."""
_UNKNOWN = sys.maxsize


class Stored(NamedTuple):
    """What a store takes: slots of the bus, and the buffers that it empties."""

    slots: int
    buffers: tuple[int, ...]


class TileClock:
    """When EX and LD are done with what they have, tile after tile. Stores take the bus from loads."""

    def __init__(self) -> None:
        self._start = self._ex = self._ld = 0
        self._readable: list[int] = []
        self._stored: dict[int, int] = {}

    @property
    def idle(self) -> bool:
        """Whether LD would wait for the end of the computation."""
        return self._ld < self._ex

    @property
    def end(self) -> int:
        """The estimated cycles of everything."""
        return max(self._ex, self._ld)

    def load(self, cycles: int, release: int, *, late: bool = False) -> int:
        """LD loads: beside the computation of the current tile, or before (``late``). When that has arrived.

        ``release``: the first tile beside which what is read is there.
        """
        source = self._readable[release - 1] if release else 0
        self._ld = max(self._ld, source, 0 if late else self._start) + cycles
        return self._ld

    def wait(self, arrival: int) -> None:
        """EX waits for a load."""
        self._ex = max(self._ex, arrival)

    def compute(self, cycles: int, stores: Iterable[Stored]) -> None:
        """EX computes into buffers that ``stores`` empty, and that earlier ones may not have emptied yet."""
        busy = (self._stored.get(buffer, 0) for store in stores for buffer in store.buffers)
        self._start = max(self._ex, *busy, 0)
        self._ex = self._start + cycles

    def store(self, stores: Iterable[Stored]) -> None:
        """ST stores what has been computed."""
        for slots, buffers in stores:
            self._ld = max(self._ld, self._ex) + slots
            self._stored.update(dict.fromkeys(buffers, transfer_cycles(self._ld)))
        self._readable.append(transfer_cycles(self.end))


class Task(NamedTuple):
    """A command: its unit, slots of the bus or cycles of EX, and commands that must be over before it begins."""

    unit: int
    work: int
    needs: tuple[int, ...]


def run(tasks: Sequence[Task]) -> tuple[int, ...]:
    """When each of the commands, in stream order, is over.

    A command waits for room in its unit's queue, behind which all later ones wait, too, and for what it needs; loads
    and stores share the bus.
    """
    clock = _CommandClock(tasks)
    while clock.proceed():
        pass
    return tuple(clock.ends[:-1])


class _CommandClock:
    """Ends of all commands, as far as they are known: what is not waits for a transfer that still moves."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._units = [task.unit for task in tasks]
        self._work = [task.work for task in tasks]
        self._needs = [task.needs for task in tasks]
        self.ends = [_UNKNOWN] * len(tasks) + [0]  # the last one: of no command
        self._waiting: tuple[list[tuple[int, int]], ...] = ([], [], [])  # commands of each unit, when they arrive
        self._queues = [[-1] * QUEUE_DEPTH for _ in _UNITS]
        self._issued, self._time = 0, FIRST_COMMAND
        self.free = [0, 0, 0]
        self._moving: dict[int, tuple[int, int, int]] = {}  # by unit: when bytes begin to move, slots left, command

    def proceed(self) -> bool:
        """Go on until a transfer is over; False where there is none."""
        moving = True
        while moving:
            moving = self._issue()
            for unit in _UNITS:
                waiting = self._waiting[unit]
                while waiting and unit not in self._moving and self._begins(unit, *waiting[0]):
                    del waiting[0]
                    moving = True
        return self._grant()

    def _issue(self) -> bool:
        """Issue commands until one finds no room."""
        ends, number, time = self.ends, self._issued, self._time
        first, count = number, len(self._units)
        while number < count:
            unit = self._units[number]
            queue = self._queues[unit]
            room = ends[queue[-QUEUE_DEPTH]]
            if room == _UNKNOWN:
                break
            time = max(time + ISSUE_CYCLES, room)
            self._waiting[unit].append((number, time))
            queue.append(number)
            number += 1
        self._issued, self._time = number, time
        return number > first

    def _begins(self, unit: int, number: int, begin: int) -> bool:
        """Whether it is known when a unit's next command begins."""
        ends, free = self.ends, self.free
        if free[unit] > begin:
            begin = free[unit]
        for other in self._needs[number]:
            end = ends[other]
            if end > begin:
                if end == _UNKNOWN:
                    return False
                begin = end
        if unit == _EX:
            ends[number] = free[_EX] = begin + self._work[number]
        else:
            self._moving[unit] = begin + _LEAD[unit], self._work[number], number
        return True

    def _grant(self) -> bool:
        """Let bytes move until a transfer is over: two at a time share the bus."""
        if not self._moving:
            return False
        if len(self._moving) == 1:
            ((unit, (start, slots, _)),) = self._moving.items()
            self._over(unit, start + slots)
            return True
        one, two = sorted(self._moving, key=lambda unit: self._moving[unit])
        (start, slots, first), (later, more, second) = self._moving[one], self._moving[two]
        if start + slots <= later:
            self._over(one, start + slots)
            return True
        slots -= later - start
        end = later + 2 * min(slots, more)
        if slots <= more:
            self._moving[two] = end, more - slots, second
            self._over(one, end)
        else:
            self._moving[one] = end, slots - more, first
            self._over(two, end)
        return True

    def _over(self, unit: int, end: int) -> None:
        number = self._moving.pop(unit)[2]
        self.ends[number] = self.free[unit] = end + TRANSFER_OVERHEAD - _LEAD[unit]
