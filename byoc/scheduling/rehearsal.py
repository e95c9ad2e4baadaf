"""Rehearsing a stream: when its commands would end on the default machine, by an estimate.

Loading, computing and storing are each in order; a command waits for those that make or still use what its buffers
hold, and for room in its unit's queue, behind which all later commands wait, too; loads and stores share the bus
(docs/machine.md, sections 2 to 6).
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

from byoc.estimate.clock import Task, run
from byoc.scheduling.memplan import Request
from byoc.scheduling.stream import Step, slots_of
from isa.instruction import Unit

_LD, _EX, _ST = (unit.value for unit in (Unit.LD, Unit.EX, Unit.ST))
_OUTPUT = "EX_OUTPUT_ADDRESS"


class Cue(NamedTuple):
    """A step in stream order, the tile that it belongs to or is wanted by, and the cycles that EX computes in it."""

    step: Step
    tile: int
    cycles: int = 0


class Rehearsed(NamedTuple):
    """Steps in stream order, and when each would be over."""

    steps: Sequence[Step]
    ends: Sequence[int]

    @property
    def cycles(self) -> int:
        """Of all."""
        return max(self.ends, default=0)

    def layers(self) -> dict[str, int]:
        """Cycles by layer, which add up to all: those up to the end of a computation, for which it waited, are its own.

        What nothing computes has those up to the end of its transfers.
        """
        found = dict.fromkeys((step.source.layer for step in self.steps), 0)
        computed = {step.source.layer for step in self.steps if step.unit is Unit.EX}
        done = 0
        for step, end in zip(self.steps, self.ends, strict=True):
            if end > done and (step.unit is Unit.EX or step.source.layer not in computed):
                found[step.source.layer] += end - done
                done = end
        if self.steps:
            found[self.steps[-1].source.layer] += self.cycles - done
        return found


def rehearse(
    cues: Sequence[Cue], requests: Sequence[Request], addresses: Sequence[int], shared: Collection[int]
) -> Rehearsed:
    """The estimated times of a stream in the scratchpad that ``requests`` and ``addresses`` plan.

    What takes another's place waits for that. ``shared``: buffers of which commands use parts, residents and windows.
    """
    order = _Order(requests, addresses, frozenset(shared))
    tasks = [Task(cue.step.unit.value, _work(cue), order.needs(number, cue)) for number, cue in enumerate(cues)]
    return Rehearsed([cue.step for cue in cues], run(tasks))


def _work(cue: Cue) -> int:
    """Cycles of EX, or slots of the bus."""
    return cue.cycles if cue.step.unit is Unit.EX else slots_of(cue.step)


# What waits for what. ------------------------------------------------------------------------------------------------


class _Use:
    """The last commands that loaded, made, read and stored what is in a buffer, and from which byte of it on."""

    __slots__ = ("_loads", "_parts", "loaded", "made", "read", "stored")

    def __init__(self) -> None:
        self.loaded = self.made = self.read = self.stored = -1
        self._loads: list[tuple[int, int]] = []
        self._parts: dict[tuple[int, bool], dict[int, int]] = {}

    def load(self, number: int, tile: int) -> None:
        """A command loads what a tile wants."""
        self.loaded = number
        self._loads.append((number, tile))

    def loaded_for(self, tile: int) -> int:
        """The last command that loaded what a tile wants, or one before it."""
        return next((number for number, wanted in reversed(self._loads) if wanted <= tile), -1)

    def part(self, unit: int, writes: bool, offset: int, number: int) -> None:
        """A command uses the buffer from ``offset`` on, to where the next part begins."""
        self._parts.setdefault((unit, writes), {})[offset] = number

    def last_of(self, low: int, high: int) -> tuple[int, int, int]:
        """The last commands of LD, EX and ST that use any of these bytes; of a buffer without parts, any bytes."""
        if not self._parts:
            return self.loaded, max(self.made, self.read), self.stored
        found = [-1, -1, -1]
        for (unit, _), parts in self._parts.items():
            starts = sorted(parts)
            for start, end in zip(starts, (*starts[1:], sys.maxsize), strict=True):
                if start < high and end > low:
                    found[unit] = max(found[unit], parts[start])
        return found[_LD], found[_EX], found[_ST]


class _Order:
    """What each command must wait for, asked in stream order."""

    def __init__(self, requests: Sequence[Request], addresses: Sequence[int], shared: frozenset[int]) -> None:
        self._requests, self._addresses, self._shared = requests, addresses, shared
        self._uses: dict[int, _Use] = {}
        self._occupants, self._meetings = _Occupants(), _Meetings()

    def needs(self, number: int, cue: Cue) -> tuple[int, int]:
        """The last commands of the two other units that must be over before this one begins, -1 for none."""
        unit, found = cue.step.unit.value, [-1, -1, -1]
        for name, (buffer, offset) in cue.step.pointers.items():
            use = self._uses.get(buffer) or self._moved_in(buffer, found)
            writes, whole = name == _OUTPUT, buffer not in self._shared
            if not whole:
                use.part(unit, writes, offset, number)
            if unit == _LD:
                if whole:
                    found[_EX], found[_ST] = max(found[_EX], use.made, use.read), max(found[_ST], use.stored)
                use.load(number, cue.tile)
                continue
            found[_LD] = max(found[_LD], use.loaded if whole else use.loaded_for(cue.tile))
            if unit == _ST:
                found[_EX], use.stored = max(found[_EX], use.made), number
            elif writes:
                found[_ST], use.made = max(found[_ST], use.stored if whole else -1), number
            else:
                use.read = number
        if unit == _LD:
            return max(found[_EX], self._meetings.through(found[_ST])), found[_ST]
        if unit == _EX:
            self._meetings.enter(number, found[_ST])
        return found[_LD], found[_ST if unit == _EX else _EX]

    def _moved_in(self, buffer: int, found: list[int]) -> _Use:
        """The use of a buffer that takes the place of others: ``found`` becomes what waits for those, too."""
        start = self._addresses[buffer]
        end = start + self._requests[buffer].nbytes
        for other in self._occupants.replace(start, end, buffer):
            first = self._addresses[other]
            for unit, number in enumerate(self._uses[other].last_of(start - first, end - first)):
                found[unit] = max(found[unit], number)
        use = self._uses[buffer] = _Use()
        return use


class _Meetings:
    """Loads wait for stores through commands of EX that have waited for them: tokens pass between neighbours only."""

    def __init__(self) -> None:
        self._stores: list[int] = []
        self._commands: list[int] = []
        self._last = -1

    def enter(self, number: int, stored: int) -> None:
        """A command of EX waits for a store, and all before it; -1: for none."""
        self._last = number
        if stored > (self._stores[-1] if self._stores else -1):
            self._stores.append(stored)
            self._commands.append(number)

    def through(self, stored: int) -> int:
        """The command of EX after which a store is over; where none has waited for that, one does so from here on."""
        if stored < 0:
            return -1
        at = bisect_left(self._stores, stored)
        if at == len(self._stores):
            self.enter(self._last, stored)
        return self._commands[at]


class _Occupants:
    """Which buffer has each byte of the scratchpad: the last one that was put there."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._held: list[tuple[int, int, int]] = []  # address, end, buffer; sorted

    def replace(self, start: int, end: int, buffer: int) -> list[int]:
        """Give a buffer its bytes; those that had them."""
        first = last = bisect_left(self._ends, start + 1)
        pieces, before = [(start, end, buffer)], []
        while last < len(self._held) and self._held[last][0] < end:
            low, high, other = self._held[last]
            before.append(other)
            if low < start:
                pieces.append((low, start, other))
            if high > end:
                pieces.append((end, high, other))
            last += 1
        pieces.sort()
        self._held[first:last] = pieces
        self._ends[first:last] = [high for _, high, _ in pieces]
        return before
