"""Programs on several machines at once, which meet in the system memory alone (docs/systems.md, 1 to 3).

Each machine is that of docs/machine.md, its sequences those of the engine without events; the slots of its data phases
come from the memory that all share. Nothing here decides what runs: :meth:`Machines.advance` says when a program has
ended or asks whether it may go on, and whoever called answers and starts the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dla_sim.engine.bus import NEVER, PORTS
from dla_sim.engine.recurrence import Sequences, Times, times_found
from dla_sim.engine.times import CommandTimes, standstill
from dla_sim.engine.workload import Workload
from dla_sim.systems.memory import SharedMemory
from isa.errors import InputError


class MachinePort:
    """The three requesters of one machine: those of the memory from ``first`` on."""

    __slots__ = ("_first", "_known", "_memory")

    def __init__(self, memory: SharedMemory, first: int, known: list[int]) -> None:
        self._memory = memory
        self._first = first
        self._known = known

    def announce(self, port: int, time: int, slots: int, result: int, tail: int) -> None:
        """A data phase of ``slots`` > 0 begins at ``time``; ``tail`` cycles after its end go to ``known[result]``."""
        self._memory.announce(self._first + port, time, slots, self._known, result, tail)


class Running:
    """A program on a machine from cycle ``start`` on.

    ``stops`` are commands, ascending, before which its command processor asks whether it may go on; ``cut`` is the one
    before which it was told not to. ``end`` is the first cycle in which the machine is free again, once it is known.
    """

    __slots__ = ("_asking", "_sequences", "_times", "cut", "end", "machine", "start", "workload")

    def __init__(
        self, machine: int, workload: Workload, start: int, stops: Sequence[int], memory: SharedMemory
    ) -> None:
        self.machine, self.workload, self.start = machine, workload, start
        self.cut: int | None = None
        self.end: int | None = None
        self._times = Times(workload, start, stops)
        self._asking = 0
        self._sequences = Sequences(workload, self._times, MachinePort(memory, machine * len(PORTS), self._times.known))
        self.settle()

    @property
    def asked(self) -> int | None:
        """The cycle in which the command processor asks, once it is known and until it is answered."""
        place = self._times.asked + self._asking
        if self.cut is not None or self._asking == len(self._times.stops) or self._times.known[place] == NEVER:
            return None
        return self._times.known[place]

    @property
    def stop(self) -> int:
        """The command before which it asks."""
        return self._times.stops[self._asking]

    def go_on(self) -> None:
        """The answer: it may. It costs nothing."""
        times = self._times
        times.known[times.answered + self._asking] = times.known[times.asked + self._asking]
        self._asking += 1
        self.settle()

    def give_way(self) -> None:
        """The answer: no further command is issued; the machine executes ``OP_END`` instead."""
        self.cut = self.stop
        self._times.issued = self._times.known[self._times.asked + self._asking]
        self._settle_end()

    def settle(self) -> None:
        """Find what follows from the times that are known."""
        self._sequences.settle()
        self._settle_end()

    def times(self) -> CommandTimes:
        """When its commands arrived, started and ended, and its ``total``: :attr:`end`. It must have ended, uncut."""
        return times_found(self.workload, self._times)

    def spans(self) -> list[tuple[int, int]]:
        """The half-open interval of each command that was executed, once it has ended."""
        times = self._times
        count = times.commands if self.cut is None else self.cut
        return list(zip(times.starts[:count], times.known[:count], strict=True))

    def _settle_end(self) -> None:
        """``OP_END`` is executed when all commands have ended and no chunk of words is under way any more."""
        times = self._times
        if times.issued == NEVER:
            return
        count = times.commands if self.cut is None else self.cut
        known, chunks = times.known, range(len(self.workload.chunk_slots))
        ends = known[:count]
        ends += [known[times.ready + chunk] for chunk in chunks if known[times.requested + chunk] < NEVER]
        last = max(ends, default=0)
        if last < NEVER:
            self.end = max(times.issued, last) + 1

    def standstill(self) -> InputError:
        """What everybody waits for when nothing goes on."""
        known, count = self._times.known, self._times.commands
        return standstill(self.workload, known[count : 2 * count], known[:count])


@dataclass(frozen=True)
class Happening:
    """In cycle ``time`` a program has ended (``ended``: its machine is free), or asks whether it may go on."""

    time: int
    running: Running
    ended: bool


class Machines:
    """``count`` machines on one memory; at most one program runs on each."""

    def __init__(self, count: int, memory: SharedMemory) -> None:
        self._memory = memory
        self.running: list[Running | None] = [None] * count

    def start(self, machine: int, workload: Workload, at: int, stops: Sequence[int] = ()) -> Running:
        """Start a program on a machine that is free, in a cycle up to which :meth:`advance` has come, or later."""
        running = Running(machine, workload, at, stops, self._memory)
        self.running[machine] = running
        return running

    def advance(self, limit: int) -> list[Happening]:
        """Run until something happens, at ``limit`` at the latest: all that happens in that cycle, by machine.

        Without anything until then the time is ``limit``. Raises DeadlockError when nothing can happen any more but
        programs have not ended.
        """
        memory = self._memory
        while True:
            happening = self._next()
            until = min(limit, happening[0].time) if happening else limit
            ended = memory.proceed(until)
            if not ended:
                break
            for machine in {requester // len(PORTS) for requester in ended}:
                if running := self.running[machine]:
                    running.settle()
        if limit == NEVER and not happening:
            for running in self.running:
                if running:
                    raise running.standstill()
        if not happening or happening[0].time > limit:
            return []
        for one in happening:
            if one.ended:
                self.running[one.running.machine] = None
        return happening

    def _next(self) -> list[Happening]:
        """What happens next as far as is known, by machine."""
        found: list[Happening] = []
        for running in self.running:
            if running is None:
                continue
            time = running.asked if running.end is None else running.end
            if time is not None:
                found.append(Happening(time, running, running.end is not None))
        first = min((one.time for one in found), default=NEVER)
        return [one for one in found if one.time == first]
