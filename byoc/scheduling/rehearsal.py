"""Rehearse a stream of steps: the start and end of each, and the steps that delay it."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from byoc.estimate.banks import BankUse, CommandLoads
from byoc.estimate.bus import MemoryBus
from byoc.estimate.commands import CommandClockTimes, CommandTask, run
from byoc.estimate.constants import (
    COMMAND_OVERHEAD,
)
from byoc.scheduling.memplan import Request
from byoc.scheduling.stream import AT_ONCE, CommandStep
from isa.arch import Arch
from isa.instruction import Unit

LD, EX, ST = (unit.value for unit in (Unit.LD, Unit.EX, Unit.ST))
_OUTPUT = "EX_OUTPUT_ADDRESS"


class Cue(NamedTuple):
    """Step in stream order, and the tile that it belongs to or is loaded for.

    ``release``: a load reads bytes that tiles before this one store; 0 if it reads none.
    """

    step: CommandStep
    tile: int
    release: int = 0


class Rehearsed(NamedTuple):
    """Steps in stream order with their estimated times.

    ``tasks`` are their commands; the first one is issued in cycle ``begin``. ``store_waits``: loads
    that stores wait for, by position in the stream.
    """

    steps: Sequence[CommandStep]
    tasks: Sequence[CommandTask]
    begin: int
    times: CommandClockTimes
    bus: MemoryBus
    store_waits: Mapping[int, int] = AT_ONCE

    def delay_stores(self, store_waits: Mapping[int, int]) -> Rehearsed:
        """Return the times of the same stream with stores that wait for loads.

        EX passes the token of such a load, so that its next command also waits for the load.
        """
        tasks = list(self.tasks)
        waits = dict(store_waits)
        for number in store_waits:
            following = range(number + 1, len(tasks))
            computing = next((at for at in following if tasks[at].unit == EX), number)
            waits[computing] = max(waits.get(computing, 0), store_waits[number])
        for number, load in waits.items():
            loaded, other = tasks[number].needs
            tasks[number] = tasks[number]._replace(needs=(max(loaded, load), other))
        return Rehearsed(
            self.steps, tasks, self.begin, run(tasks, self.begin, self.bus), self.bus, store_waits
        )

    @property
    def cycles(self) -> int:
        return max(self.times.ends, default=0)

    @property
    def computed(self) -> int:
        """Cycles in which EX computes, with its waits for banks."""
        pairs = zip(self.steps, self.times.work, strict=True)
        return sum([work for step, work in pairs if step.unit is Unit.EX])

    def layers(self) -> dict[str, int]:
        """Return the cycles by layer; they add up to all cycles (docs/machine.md, section 7).

        While EX computes, cycles belong to its command's layer; otherwise to the layer of the
        oldest unfinished command.
        """
        found = dict.fromkeys((step.source.layer for step in self.steps), 0)
        finished = list(accumulate(self.times.ends, max))
        done = 0
        oldest = 0
        commands = zip(self.steps, *self.times, strict=True)
        computes = [
            (end - work, end, step.source.layer)
            for step, work, end in commands
            if step.unit is Unit.EX
        ]
        for begin, end, layer in (*computes, (self.cycles, self.cycles, "")):
            while done < begin:
                oldest = bisect_right(finished, done, oldest)
                until = min(finished[oldest], begin)
                found[self.steps[oldest].source.layer] += until - done
                done = until
            if end > done:
                found[layer] += end - done
                done = end
        return found


def rehearse(
    cues: Sequence[Cue],
    requests: Sequence[Request],
    addresses: Sequence[int],
    shared: Collection[int],
    loads: CommandLoads,
    arch: Arch,
) -> Rehearsed:
    """Estimate when each command of a stream starts and ends.

    A command that writes to bytes of another buffer waits for the last uses of that buffer.

    Args:
        cues: the steps in stream order.
        requests: the buffers.
        addresses: their addresses.
        shared: buffers that commands use in part: residents and windows.
        loads: scratchpad accesses of commands.
        arch: the machine.
    """
    order = _Order(requests, addresses, frozenset(shared))

    # by the identity of a load, which ``loads`` keeps, and by addresses
    served: dict[tuple[int, ...], tuple[int, tuple[BankUse, ...]]] = {}

    def work(step: CommandStep) -> tuple[int, tuple[BankUse, ...]]:
        """Return the EX cycles or bus slots of a step, and its bank accesses.

        The cycles include waits for the scratchpad.
        """
        starts = tuple([addresses[buffer] + offset for buffer, offset in step.pointers.values()])
        if step.unit is Unit.EX:
            load = loads.compute(step)
            key = id(load), *starts
            if key not in served:
                served[key] = load.compute_served(starts, arch, loads.word_slots)
            cycles, uses = served[key]
            return COMMAND_OVERHEAD + cycles, uses
        nbytes, words = loads.transfer(step, step.unit)
        bank = arch.sram_bytes // arch.sram_banks
        use = BankUse(starts[0] // bank, (starts[0] + nbytes - 1) // bank, words)
        return max(step.slots, words * loads.word_slots), (use,)

    tasks = []
    for number, cue in enumerate(cues):
        cycles, uses = work(cue.step)
        tasks.append(CommandTask(cue.step.unit.value, cycles, order.find_needed(number, cue), uses))
    steps = [cue.step for cue in cues]
    begin = loads.first_issue(steps, addresses)
    return Rehearsed(steps, tasks, begin, run(tasks, begin, loads.bus), loads.bus)


class _Use:
    """Last commands that loaded, computed, read and stored a buffer.

    They are also recorded by the offset of the part used.
    """

    __slots__ = ("_loads", "_parts", "loaded", "made", "read", "stored")

    def __init__(self) -> None:
        self.loaded = self.made = self.read = self.stored = -1
        self._loads: list[tuple[int, int]] = []
        self._parts: dict[tuple[int, bool], dict[int, int]] = {}

    def load(self, number: int, tile: int) -> None:
        """Record a command that loads the buffer for ``tile``."""
        self.loaded = number
        self._loads.append((number, tile))

    def find_load(self, tile: int) -> int:
        """Return the last command that loaded the buffer for ``tile`` or an earlier tile."""
        return next((number for number, wanted in reversed(self._loads) if wanted <= tile), -1)

    def part(self, unit: int, writes: bool, offset: int, number: int) -> None:
        """Record a command that uses the buffer from ``offset`` to the next recorded offset."""
        self._parts.setdefault((unit, writes), {})[offset] = number

    def last_of(self, low: int, high: int) -> tuple[int, int, int]:
        """Return the last LD, EX and ST commands that used bytes ``low`` to ``high``.

        If no parts are recorded, these are the last commands that used any bytes of the buffer.
        """
        if not self._parts:
            return self.loaded, max(self.made, self.read), self.stored
        found = [-1, -1, -1]
        for (unit, _), parts in self._parts.items():
            starts = sorted(parts)
            for start, end in zip(starts, (*starts[1:], sys.maxsize), strict=True):
                if start < high and end > low:
                    found[unit] = max(found[unit], parts[start])
        return found[LD], found[EX], found[ST]


class _Order:
    """Dependencies of commands, queried in stream order."""

    def __init__(
        self, requests: Sequence[Request], addresses: Sequence[int], shared: frozenset[int]
    ) -> None:
        self._requests = requests
        self._addresses = addresses
        self._shared = shared
        self._uses: dict[int, _Use] = {}
        self._occupants = _Occupants()
        self._meetings = _Meetings()
        self._stores: list[tuple[int, int]] = []  # tile and number of each store

    def find_needed(self, number: int, cue: Cue) -> tuple[int, int]:
        """Return the last command of each other unit that command ``number`` needs, or -1."""
        unit = cue.step.unit.value
        found = [-1, -1, -1]
        for name, (buffer, offset) in cue.step.pointers.items():
            use = self._uses.get(buffer) or self._take_buffer(buffer, found)
            writes = name == _OUTPUT
            whole = buffer not in self._shared
            if not whole:
                use.part(unit, writes, offset, number)
            if unit == LD:
                if whole:
                    found[EX], found[ST] = (
                        max(found[EX], use.made, use.read),
                        max(found[ST], use.stored),
                    )
                use.load(number, cue.tile)
                found[ST] = max(found[ST], self._find_last_store(cue.release))
                continue
            found[LD] = max(found[LD], use.loaded if whole else use.find_load(cue.tile))
            if unit == ST:
                found[EX] = max(found[EX], use.made)
                use.stored = number
                self._stores.append((cue.tile, number))
            elif writes:
                found[ST] = max(found[ST], use.stored if whole else -1)
                use.made = number
            else:
                use.read = number
        if unit == LD:
            return max(found[EX], self._meetings.find_first_waiting(found[ST])), found[ST]
        if unit == EX:
            self._meetings.enter(number, found[ST])
        return found[LD], found[ST if unit == EX else EX]

    def _find_last_store(self, release: int) -> int:
        """Return the last store of a tile before tile ``release``, -1 for none."""
        at = bisect_left(self._stores, (release, 0))
        return self._stores[at - 1][1] if at else -1

    def _take_buffer(self, buffer: int, found: list[int]) -> _Use:
        """Return a new use record of ``buffer``.

        Add the last uses of the buffers it overwrites to ``found``.
        """
        start = self._addresses[buffer]
        end = start + self._requests[buffer].nbytes
        for other in self._occupants.replace(start, end, buffer):
            first = self._addresses[other]
            for unit, number in enumerate(self._uses[other].last_of(start - first, end - first)):
                found[unit] = max(found[unit], number)
        use = self._uses[buffer] = _Use()
        return use


class _Meetings:
    """EX commands that have waited for stores.

    Tokens pass only between neighbouring units, so loads wait for a store through such a command of
    EX.
    """

    def __init__(self) -> None:
        self._stores: list[int] = []
        self._commands: list[int] = []
        self._last = -1

    def enter(self, number: int, stored: int) -> None:
        """Record that a command of EX waits for store ``stored`` and all earlier ones.

        ``stored`` is -1 if the command waits for none.
        """
        self._last = number
        if stored > (self._stores[-1] if self._stores else -1):
            self._stores.append(stored)
            self._commands.append(number)

    def find_first_waiting(self, stored: int) -> int:
        """Return the first command of EX that waits for a store.

        If none does, make the last one wait.
        """
        if stored < 0:
            return -1
        at = bisect_left(self._stores, stored)
        if at == len(self._stores):
            self.enter(self._last, stored)
        return self._commands[at]


class _Occupants:
    """Map from each scratchpad byte to the buffer that was last placed there."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._held: list[tuple[int, int, int]] = []  # address, end, buffer; sorted

    def replace(self, start: int, end: int, buffer: int) -> list[int]:
        """Record a newly placed buffer; return the buffers that occupied any of its bytes."""
        first = last = bisect_left(self._ends, start + 1)
        pieces = [(start, end, buffer)]
        before = []
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
