"""Cycle-level execution of programs on several machines with one system memory.

docs/systems.md, sections 1 to 3, describes it. Each machine is that of docs/machine.md and is
computed by the engine without events; the shared memory grants the slots of its data phases. The
requesters on a machine's port to the memory are its command fetch, LD and ST. Machines share one
port, or each has its own and the memory serves some of the ports per cycle. This module does not
schedule: :meth:`Machines.advance` reports that a program ended or can be preempted, and the caller
decides.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dla_sim.engine.banks import BankLoad, Banks, PassingWords
from dla_sim.engine.bus import NEVER, PORTS
from dla_sim.engine.times import CommandTimes, Sequences, Times, collect_times, deadlock
from dla_sim.engine.workload import EX, Workload
from isa.errors import InputError

Meter = Callable[[int, int, int], None]
"""Callback with the first cycle, the number of cycles, and the slots granted in them."""


class MemoryArbiter:
    """Memory arbiter that grants slots in closed form.

    It computes all grants between two changes of the set of waiting requesters at once.
    ``ports[p]`` are the requesters of port p, numbered 0, 1, 2, ... over all ports. In each cycle
    the memory serves up to ``grants`` ports, in cyclic order after the port served last. A port
    serves one of its requesters, in cyclic order after the one it served last. Initially the last
    port, and in each port the last requester, count as served last.

    With one port for fetch, LD and ST this is :class:`dla_sim.engine.bus.BusArbiter`. Slots are
    granted up to cycle ``now``; ``served`` is their number, and ``left`` are the slots that each
    requester still needs.
    """

    __slots__ = (
        "_count",
        "_grants",
        "_last",
        "_meter",
        "_ports",
        "_served",
        "left",
        "now",
        "served",
    )

    def __init__(
        self, ports: Sequence[Sequence[int]], grants: int, meter: Meter | None = None
    ) -> None:
        self._meter = meter
        self._ports = [list(members) for members in ports]
        self._grants = grants
        self._last = len(ports) - 1
        self._served = [len(members) - 1 for members in ports]
        self.left = [0] * sum(map(len, ports))
        self._count = 0
        self.now = 0
        self.served = 0

    @property
    def idle(self) -> bool:
        """True if no requester waits for a slot."""
        return not self._count

    def begin(self, requester: int, slots: int) -> None:
        """Start a transfer that needs ``slots`` > 0 memory slots now.

        ``requester`` takes part in this cycle's grant.
        """
        self.left[requester] = slots
        self._count += 1

    def count_granted(self, requester: int, time: int) -> int:
        """Return the memory slots that a requester receives from ``now`` to ``time``.

        The set of requesters must not change in these cycles.
        """
        asking = self._list_waiting_ports()
        place = next(place for place, (_, members) in enumerate(asking) if requester in members)
        members = asking[place][1]
        total = (time - self.now) * min(self._grants, len(asking))
        mine = total // len(asking) + (place < total % len(asking))
        return mine // len(members) + (members.index(requester) < mine % len(members))

    def grant(self, horizon: int) -> list[int]:
        """Grant memory slots up to ``horizon`` or to the first end of a transfer.

        Returns the requesters whose data phases end there, in ascending order.
        """
        asking = self._list_waiting_ports()
        end = min((self._end(place, asking) for place in range(len(asking))), default=NEVER)
        cycles = min(end, horizon) - self.now
        if not cycles:
            return []
        self._advance(asking, cycles)
        self.now += cycles
        if end > horizon:
            return []
        ended = sorted(one for _, members in asking for one in members if not self.left[one])
        self._count -= len(ended)
        return ended

    def _list_waiting_ports(self) -> list[tuple[int, list[int]]]:
        """Return the ports with waiting requesters, and those requesters.

        Both are in the order of service.
        """
        found = []
        ports = self._ports
        left = self.left
        for step in range(1, len(ports) + 1):
            port = (self._last + step) % len(ports)
            members = ports[port]
            first = self._served[port] + 1
            waiting = [one for one in (*members[first:], *members[:first]) if left[one]]
            if waiting:
                found.append((port, waiting))
        return found

    def _end(self, place: int, asking: list[tuple[int, list[int]]]) -> int:
        """Return the first cycle after a data phase of the port at ``place`` ends.

        The set of requesters must not change before.
        """
        members = asking[place][1]
        last = min(turn + (self.left[one] - 1) * len(members) for turn, one in enumerate(members))
        if len(asking) <= self._grants:
            return self.now + last + 1
        return self.now + (place + last * len(asking)) // self._grants + 1

    def _advance(self, asking: list[tuple[int, list[int]]], cycles: int) -> None:
        """Grant memory slots for ``cycles`` cycles; no transfer ends before the last cycle."""
        total = cycles * min(self._grants, len(asking))
        self.served += total
        if self._meter is not None and total:
            self._meter(self.now, cycles, total)
        for place, (port, members) in enumerate(asking):
            mine = total // len(asking) + (place < total % len(asking))
            for turn, one in enumerate(members):
                self.left[one] -= mine // len(members) + (turn < mine % len(members))
            if mine:
                self._served[port] = self._ports[port].index(members[(mine - 1) % len(members)])
        if asking:
            self._last = asking[(total - 1) % len(asking)][0]


_Announced = tuple[int, int, int | BankLoad, list[int], int, int, PassingWords | None]


class SharedMemory:
    """System memory shared by several machines, modelled without events.

    Machines announce data phases, whose ends become known later. Announcements may come in any
    order, but not before cycle :attr:`now`. Commands of EX that words of LD and ST may delay are
    announced too, for each machine separately.
    """

    __slots__ = ("_announced", "_arbiter", "_banks", "_busy", "_results")

    def __init__(
        self, ports: Sequence[Sequence[int]], grants: int, meter: Meter | None = None
    ) -> None:
        self._arbiter = MemoryArbiter(ports, grants, meter)
        self._announced: list[_Announced] = []  # heap, ordered by time and requester
        self._results: list[tuple[list[int], int, int]] = [([], 0, 0)] * len(self._arbiter.left)
        self._banks: dict[int, Banks] = {}
        # destination of EX's end: known, result, tail
        self._busy: dict[int, tuple[list[int], int, int]] = {}

    @property
    def now(self) -> int:
        """Cycle up to which memory slots have been granted."""
        return self._arbiter.now

    @property
    def served(self) -> int:
        """Number of memory slots granted so far."""
        return self._arbiter.served

    def announce(
        self, requester: int, time: int, slots: int, known: list[int], result: int, tail: int,
        passing: PassingWords | None = None,
    ) -> None:  # fmt: skip
        """Announce a transfer of ``slots`` > 0 memory slots that begins at ``time``.

        ``known[result]`` is set to the cycle of its end plus ``tail``. A requester has one data
        phase at a time.
        """
        heapq.heappush(self._announced, (time, requester, slots, known, result, tail, passing))

    def compute(
        self, machine: int, time: int, load: BankLoad, known: list[int], result: int, tail: int
    ) -> None:
        """Announce a command of a machine's EX at ``time``.

        ``known[result]`` is set to its end plus ``tail``.
        """
        heapq.heappush(self._announced, (time, -1 - machine, load, known, result, tail, None))

    def proceed(self, limit: int) -> set[int]:
        """Advance until a data phase or EX ends, at most to ``limit``, and return the machines.

        Empty if none ends.
        """
        arbiter = self._arbiter
        announced = self._announced
        while announced or self._busy or not arbiter.idle:
            begins = announced[0][0] if announced else NEVER
            if ended := self._advance(min(begins, limit)):
                return ended
            if arbiter.now < begins:
                break
            self._begin(heapq.heappop(announced))
        return set()

    def _begin(self, one: _Announced) -> None:
        """Begin the announced transfers and EX commands whose time is now."""
        _, requester, work, known, result, tail, passing = one
        if isinstance(work, BankLoad):
            self._busy[-1 - requester] = known, result, tail
            self._banks_of(-1 - requester).compute(work)
            return
        self._results[requester] = known, result, tail
        self._arbiter.begin(requester, work)
        if passing is not None:
            self._banks_of(requester // len(PORTS)).begin(requester, passing)

    def _banks_of(self, machine: int) -> Banks:
        if machine not in self._banks:
            self._banks[machine] = Banks(self._arbiter)
        return self._banks[machine]

    def _advance(self, horizon: int) -> set[int]:
        """Grant memory slots up to ``horizon`` or to the first end of a transfer or of EX.

        Ends are those of data phases and of commands of EX.
        """
        arbiter = self._arbiter
        busy = self._busy
        if arbiter.idle and not busy:
            arbiter.now = horizon
            return set()
        finish = {machine: self._banks[machine].end() for machine in busy}
        ended = arbiter.grant(min(horizon, *finish.values()) if finish else horizon)
        results = [self._results[requester] for requester in ended]
        machines = {requester // len(PORTS) for requester in ended}
        for machine, end in finish.items():
            self._banks[machine].settle()
            if end == arbiter.now:
                self._banks[machine].busy = False
                results.append(busy.pop(machine))
                machines.add(machine)
        for known, result, tail in results:
            known[result] = arbiter.now + tail
        return machines


class MachinePort:
    """The memory requesters of one machine (fetch, LD, ST), and its EX."""

    __slots__ = ("_known", "_machine", "_memory")

    def __init__(self, memory: SharedMemory, machine: int, known: list[int]) -> None:
        self._memory = memory
        self._machine = machine
        self._known = known

    def announce(
        self,
        port: int,
        time: int,
        slots: int,
        result: int,
        tail: int,
        passing: PassingWords | None = None,
    ) -> None:
        """Announce a transfer of ``slots`` > 0 memory slots that begins at ``time``.

        ``known[result]`` is set to its end plus ``tail``.
        """
        requester = self._machine * len(PORTS) + port
        self._memory.announce(requester, time, slots, self._known, result, tail, passing)

    def compute(self, time: int, load: BankLoad, result: int, tail: int) -> None:
        """Announce a command of EX at ``time``.

        ``known[result]`` is set to its end plus ``tail``.
        """
        self._memory.compute(self._machine, time, load, self._known, result, tail)


class Running:
    """Program that runs on a machine from cycle ``start`` on.

    ``stops`` are the commands, ascending, before which it can be preempted: its command processor
    then waits for an answer. ``cut`` is the command before which it was preempted. ``end`` is the
    first cycle in which the machine is free again, once known.
    """

    __slots__ = ("_asking", "_sequences", "_times", "cut", "end", "machine", "start", "workload")

    def __init__(
        self,
        machine: int,
        workload: Workload,
        start: int,
        stops: Sequence[int],
        memory: SharedMemory,
    ) -> None:
        self.machine = machine
        self.workload = workload
        self.start = start
        self.cut: int | None = None
        self.end: int | None = None
        self._times = Times(workload, start, stops)
        self._asking = 0
        self._sequences = Sequences(
            workload, self._times, MachinePort(memory, machine, self._times.known)
        )
        self.settle()

    @property
    def asked(self) -> int | None:
        """Cycle in which the command processor asks whether it may continue.

        None if the cycle is unknown or the processor already has its answer.
        """
        place = self._times.asked + self._asking
        if (
            self.cut is not None
            or self._asking == len(self._times.stops)
            or self._times.known[place] == NEVER
        ):
            return None
        return self._times.known[place]

    @property
    def stop(self) -> int:
        """Command before which the command processor asks next whether it may continue."""
        return self._times.stops[self._asking]

    def go_on(self) -> None:
        """Let a program continue that could have been preempted; this costs no cycles."""
        times = self._times
        times.known[times.answered + self._asking] = times.known[times.asked + self._asking]
        self._asking += 1
        self.settle()

    def give_way(self) -> None:
        """Preempt a running program before command :attr:`stop`.

        No further command is issued, and the machine executes ``OP_END`` instead.
        """
        self.cut = self.stop
        self._times.issued = self._times.known[self._times.asked + self._asking]
        self._settle_end()

    def settle(self) -> None:
        """Compute all command times of a program that follow from the known ones."""
        self._sequences.settle()
        self._settle_end()

    def times(self) -> CommandTimes:
        """Return when the commands of a program arrived, started and ended.

        It must have ended without preemption.
        """
        return collect_times(self.workload, self._times)

    def spans(self) -> list[tuple[int, int]]:
        """Return the half-open interval of each executed command, once the program has ended."""
        times = self._times
        count = times.commands if self.cut is None else self.cut
        return list(zip(times.starts[:count], times.known[:count], strict=True))

    def compute_cycles(self) -> int:
        """Return the cycles in which EX executed a command, once the program has ended."""
        times = self._times
        count = times.commands if self.cut is None else self.cut
        computing = self.workload.demands.by_unit[EX].tolist()
        return sum(
            times.known[number] - times.starts[number] for number in computing if number < count
        )

    def _settle_end(self) -> None:
        """Set the end of a program's run if it is known.

        ``OP_END`` runs after all commands and all requested chunks of command words.
        """
        times = self._times
        if times.issued == NEVER:
            return
        count = times.commands if self.cut is None else self.cut
        known = times.known
        chunks = range(len(self.workload.chunk_slots))
        ends = known[:count]
        ends += [
            known[times.ready + chunk] for chunk in chunks if known[times.requested + chunk] < NEVER
        ]
        last = max(ends, default=0)
        if last < NEVER:
            self.end = max(times.issued, last) + 1

    def deadlock(self) -> InputError:
        """Return the error for a program in which no unit can continue.

        The error says what each unit waits for.
        """
        known = self._times.known
        count = self._times.commands
        return deadlock(self.workload, known[count : 2 * count], known[:count])


@dataclass(frozen=True)
class MachineEvent:
    """Event in cycle ``time``: a program has ended, or asks whether it may continue.

    After an end the machine is free.
    """

    time: int
    running: Running
    ended: bool


class Machines:
    """Set of ``count`` machines on one memory; each runs at most one program."""

    def __init__(self, count: int, memory: SharedMemory) -> None:
        self._memory = memory
        self.running: list[Running | None] = [None] * count

    def start(
        self, machine: int, workload: Workload, at: int, stops: Sequence[int] = ()
    ) -> Running:
        """Start a program on a free machine.

        It starts in the cycle that :meth:`advance` has reached, or later.
        """
        running = Running(machine, workload, at, stops, self._memory)
        self.running[machine] = running
        return running

    def advance(self, limit: int) -> list[MachineEvent]:
        """Run to the next event, at most to ``limit``, and return all events of that cycle.

        The events are ordered by machine. Without an event the time becomes ``limit`` and the
        result is empty. Raises DeadlockError if programs have not ended but no event can happen.
        """
        memory = self._memory
        while True:
            happening = self._next()
            until = min(limit, happening[0].time) if happening else limit
            ended = memory.proceed(until)
            if not ended:
                break
            for machine in ended:
                if running := self.running[machine]:
                    running.settle()
        if limit == NEVER and not happening:
            for running in self.running:
                if running:
                    raise running.deadlock()
        if not happening or happening[0].time > limit:
            return []
        for one in happening:
            if one.ended:
                self.running[one.running.machine] = None
        return happening

    def _next(self) -> list[MachineEvent]:
        """Return the earliest events of the machines that are known so far."""
        found: list[MachineEvent] = []
        for running in self.running:
            if running is None:
                continue
            time = running.asked if running.end is None else running.end
            if time is not None:
                found.append(MachineEvent(time, running, running.end is not None))
        first = min((one.time for one in found), default=NEVER)
        return [one for one in found if one.time == first]
