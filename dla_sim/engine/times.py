"""Closed-form engine: computes when each command arrives, starts and ends, without events.

Command processor, command fetch, LD, EX and ST each work in order. The n-th pop of a token counter
takes its n-th push, and room in a queue appears when the command ``queue_depth`` earlier completes.
A start is therefore the latest of the arrival, the unit's previous end and the pushers' ends. Each
sequence runs until it needs an unknown time.

Only data phases interact, and they delay EX. When no sequence can continue, the bus grants slots in
closed form up to the next end. All unknown times depend on such an end and come after it, so no
data phase is missed. If a program does not end, DeadlockError names what the command processor and
every unit wait for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dla_sim.engine.bus import FETCH_PORT, LD_PORT, NEVER, ST_PORT, BusPort, RefreshedBus, SharedBus
from dla_sim.engine.dram import Dram, open_dram
from dla_sim.engine.workload import AT_ONCE, EX, LD, ST, TOKEN_QUEUES, UNIT_NAMES, Int64, Workload
from isa.errors import InputError


@dataclass(frozen=True, eq=False)
class CommandTimes:
    """Arrival, start and end times of all commands except ``OP_END``, as int64 arrays.

    Attributes:
        arrival: first cycle in which the command is in its unit's queue, one after the command
            processor executed its word.
        start: first cycle in which the command executes.
        end: first cycle after its execution.
        total: cycles of the program.
        missed: slots of row misses in the main memory; None for a memory without rows and refresh.
    """

    arrival: Int64
    start: Int64
    end: Int64
    total: int
    missed: Int64 | None = None


class DeadlockError(InputError):
    """Error of a program that cannot continue because its units wait for each other.

    The message names what each unit and the command processor wait for.
    """


def find_executing(members: Int64, times: CommandTimes, cycles: Int64) -> Int64:
    """Return the command of one unit (``members``) that executes at each of ``cycles``, or -1."""
    if not len(members):
        return np.full(len(cycles), -1, dtype=np.int64)
    latest = np.searchsorted(times.start[members], cycles, side="right") - 1
    command = members[np.maximum(latest, 0)]
    return np.where((latest >= 0) & (times.end[command] > cycles), command, -1)


def find_oldest_unfinished(times: CommandTimes, cycles: Int64) -> Int64:
    """Return the oldest command in stream order that is incomplete at each of ``cycles``.

    If all are complete it is the last one. There must be at least one command.
    """
    # it is the first command for which the latest end up to it is after the cycle
    finished = np.maximum.accumulate(times.end)
    return np.minimum(np.searchsorted(finished, cycles, side="right"), len(finished) - 1)


def completion_order(workload: Workload, times: CommandTimes) -> list[int]:
    """Return the commands in the order in which they affect memory.

    This is the order of completion, ties by unit.
    """
    order: list[int] = np.lexsort((workload.demands.unit, times.end)).tolist()
    return order


def deadlock(workload: Workload, arrivals: Sequence[int], ends: Sequence[int]) -> DeadlockError:
    """Return the error for a deadlocked program; it names what each unit waits for.

    ``NEVER`` marks missing arrivals and ends.
    """
    demands = workload.demands
    words = demands.word.tolist()
    commands = range(len(workload))
    named = []
    waiting = next((number for number in commands if arrivals[number] == NEVER), None)
    if waiting is None:
        waits = ["OP_END waits until all units are drained"]
    else:
        named.append(words[waiting])
        unit = UNIT_NAMES[int(demands.unit[waiting])]
        waits = [f"word {words[waiting]} waits for room in the queue of {unit}"]
    for name, members in zip(UNIT_NAMES, demands.by_unit, strict=True):
        head = next((number for number in members.tolist() if ends[number] == NEVER), None)
        if head is None or arrivals[head] == NEVER:
            waits.append(f"{name} is idle")
        else:
            named.append(words[head])
            pushers = " and ".join(
                UNIT_NAMES[TOKEN_QUEUES[counter][0]]
                for counter in _list_missing(workload, head, ends)
            )
            waits.append(f"{name} waits at word {words[head]} for a token from {pushers}")
    message = f"deadlock: {'; '.join(waits)}; every pop needs a push earlier in the stream"
    return DeadlockError(message, dict.fromkeys(named))


def _list_missing(workload: Workload, number: int, ends: Sequence[int]) -> list[int]:
    """Return the token counters that command ``number`` waits for."""
    demands = workload.demands
    missing = []
    for counter in demands.pops[number]:
        order = demands.popping[counter].tolist().index(number)
        pushers = demands.pushing[counter].tolist()
        if order >= len(pushers) or ends[pushers[order]] == NEVER:
            missing.append(counter)
    return missing


class Times:
    """List ``known`` of all times of a run: ends, arrivals, chunk readiness, chunk requests.

    - ``known[n]`` is the end of command n, ``known[commands + n]`` its arrival.
    - ``known[ready + c]`` is the end of chunk c's data phase, ``known[requested + c]`` its request.
    - ``known[zero]`` is ``start``, the cycle in which the program begins on an idle machine.
    - ``known[never]`` stays unknown.
    - ``issued`` is the cycle in which ``OP_END`` can execute as far as earlier words matter.

    The command processor pauses before each command of ``stops``. ``known[asked + s]`` is the cycle
    in which it could execute its next word; it continues once ``known[answered + s]`` is known.
    """

    __slots__ = (
        "answered", "asked", "commands", "issued", "known", "never", "ready", "requested", "starts",
        "stops", "zero",
    )  # fmt: skip

    def __init__(self, workload: Workload, start: int = 0, stops: Sequence[int] = ()) -> None:
        self.commands = commands = len(workload)
        chunks = len(workload.chunk_slots)
        self.zero = 2 * commands
        self.never = 2 * commands + 1
        self.ready = 2 * commands + 2
        self.requested = self.ready + chunks
        self.asked = self.requested + chunks
        self.answered = self.asked + len(stops)
        self.stops = stops
        self.known = [NEVER] * (self.answered + len(stops))
        self.known[self.zero] = start
        buffers = min(chunks, workload.timing.fetch_buffers)
        self.known[self.requested : self.requested + buffers] = [start] * buffers
        self.starts = [0] * commands
        self.issued = NEVER


InOrder = Iterator[int]
"""A sequence of operations; it yields the index in ``Times.known`` of the time that it needs next.

It must be resumed only when that time is known.
"""


def _issue(workload: Workload, times: Times) -> InOrder:
    """Run the command processor: execute the words, at most one per cycle."""
    known = times.known
    timing = workload.timing
    commands = times.commands
    chunks = len(workload.chunk_slots)
    chunk_words = timing.fetch_bytes // 8
    buffers = timing.fetch_buffers
    room = _places(workload.demands.room(timing.queue_depth), times).tolist()
    words = [*workload.demands.word.tolist(), workload.word_count - 1]
    time = known[times.zero]  # first cycle for the next word; number of executed words
    executed = 0
    chunk = -1  # chunk of the next word; first word after it
    boundary = 0
    stops = iter(enumerate(times.stops))
    stop, command = next(stops, (0, -1))
    for number, word in enumerate(words):
        if number == command:
            # the buffer is free before the pause
            if executed == boundary and 0 <= chunk < chunks - buffers:
                known[times.requested + chunk + buffers] = time
            known[times.asked + stop] = time
            yield times.answered + stop
            stop, command = next(stops, (0, -1))
        while word >= boundary:
            time += boundary - executed
            executed = boundary
            if chunk >= 0 and chunk + buffers < chunks:
                known[times.requested + chunk + buffers] = time
            chunk += 1
            if known[times.ready + chunk] == NEVER:
                yield times.ready + chunk
            time = max(time, known[times.ready + chunk])
            boundary += chunk_words
        time += word - executed
        if number == commands:
            break
        free = known[room[number]]
        if free > time:
            if free == NEVER:
                yield room[number]
                free = known[room[number]]
            if free > time:
                time = free
        time += 1
        executed = word + 1
        known[commands + number] = time
    times.issued = time
    yield times.never


def _fetch(workload: Workload, times: Times, bus: BusPort) -> InOrder:
    """Run the command fetch, one chunk after another."""
    known = times.known
    before = 0
    latency = workload.fetch_latency
    for chunk, slots in enumerate(workload.chunk_slots):
        requested = times.requested + chunk
        ready = times.ready + chunk
        if known[requested] == NEVER:
            yield requested
        bus.announce(FETCH_PORT, max(known[requested] + latency, before), slots, ready, 0)
        if known[ready] == NEVER:
            yield ready
        before = known[ready]
    yield times.never


def _compute(workload: Workload, times: Times, bus: BusPort) -> InOrder:
    """Run EX: start each command after its arrival, the previous command's end and its tokens.

    The end of a command that LD and ST may delay is known when the bus has advanced that far.
    """
    known = times.known
    starts = times.starts
    free = 0
    loads = workload.bank_loads
    for number, arrival, first, second, lead, _, tail in _rows(workload, times, EX):
        begin = known[arrival]
        if begin == NEVER:
            yield arrival
            begin = known[arrival]
        if free > begin:
            begin = free
        for place in (first, second):
            token = known[place]
            if token > begin:
                if token == NEVER:
                    yield place
                    token = known[place]
                if token > begin:
                    begin = token
        starts[number] = begin
        if number in loads:
            bus.compute(begin + lead, loads[number], number, tail)
            yield number
            free = known[number]
        else:
            free = known[number] = begin + lead + tail
    yield times.never


def _move(workload: Workload, times: Times, unit: int, bus: BusPort) -> InOrder:
    """Run LD or ST: start each command after its arrival, its predecessor and its tokens.

    The end of a data phase is known when the bus has granted its slots.
    """
    known = times.known
    starts = times.starts
    free = 0
    passing = workload.passing_words
    port = LD_PORT if unit == LD else ST_PORT
    for number, arrival, token, _, lead, slots, tail in _rows(workload, times, unit):
        begin = known[arrival]
        if begin == NEVER:
            yield arrival
            begin = known[arrival]
        if free > begin:
            begin = free
        there = known[token]
        if there > begin:
            if there == NEVER:
                yield token
                there = known[token]
            if there > begin:
                begin = there
        starts[number] = begin
        if slots:
            bus.announce(port, begin + lead, slots, number, tail, passing.get(number))
            if known[number] == NEVER:
                yield number
            free = known[number]
        else:
            free = known[number] = begin + lead + tail
    yield times.never


def _rows(workload: Workload, times: Times, unit: int) -> Iterator[tuple[int, ...]]:
    """Yield a row for each command of a unit: its number, its time indices and its costs.

    A row is (number, indices of arrival and two tokens, lead, slots, tail).
    """
    demands = workload.demands
    members = demands.by_unit[unit]
    first, second = _places(demands.pushers[:, members], times)
    costs = (column[members] for column in workload.phases.values())
    columns_of_rows = (members, members + times.commands, first, second, *costs)
    return zip(*(column.tolist() for column in columns_of_rows), strict=True)


def _places(commands: Int64, times: Times) -> Int64:
    """Return the indices in ``Times.known`` of the end times of ``commands``."""
    return np.where(commands >= 0, commands, np.where(commands == AT_ONCE, times.zero, times.never))


def compute_times(workload: Workload) -> CommandTimes:
    """Return when each command of ``workload`` arrives, starts and ends.

    The machine is idle at cycle 0. The result equals :func:`dla_sim.engine.simulation.simulate`.
    Raises DeadlockError if the program stops before its ``OP_END``.
    """
    dram = open_dram(workload, 2 * len(workload) + 2)
    found = collect_times(workload, run_units(workload, dram))
    return found if dram is None else replace(found, missed=dram.list_missed(len(workload)))


def run_units(workload: Workload, dram: Dram | None) -> Times:
    """Run all units of a machine; a time that stays ``NEVER`` is of a program that stops early."""
    times = Times(workload)
    bus = SharedBus(times.known) if dram is None else RefreshedBus(times.known, dram)
    run_on(workload, times, bus)
    return times


def run_on(workload: Workload, times: Times, bus: SharedBus) -> None:
    """Run all units of a machine on its bus, and record the times in ``times``."""
    sequences = Sequences(workload, times, bus)
    sequences.settle()
    while bus.proceed():
        sequences.settle()


class Sequences:
    """Units of a machine (fetch, processor, EX, ST, LD), each run as far as times are known."""

    __slots__ = ("_known", "_waiting")

    def __init__(self, workload: Workload, times: Times, bus: BusPort) -> None:
        self._known = times.known
        sequences = (
            _issue(workload, times),
            _fetch(workload, times, bus),
            _compute(workload, times, bus),
            _move(workload, times, ST, bus),
            _move(workload, times, LD, bus),
        )
        self._waiting = dict.fromkeys(sequences, times.zero)

    def settle(self) -> None:
        """Run the units of a machine as far as the known times allow."""
        known = self._known
        waiting = self._waiting
        moving = True
        while moving:
            moving = False
            for sequence, place in waiting.items():
                if known[place] < NEVER:
                    waiting[sequence] = next(sequence)
                    moving = True


def collect_times(workload: Workload, times: Times) -> CommandTimes:
    """Return the times at the end of a run; raise DeadlockError if the program stopped early."""
    count = times.commands
    ends = times.known[:count]
    arrivals = times.known[count : 2 * count]
    if times.issued == NEVER or NEVER in ends:
        raise deadlock(workload, arrivals, ends)
    total = max(times.issued, max(ends, default=0)) + 1
    return CommandTimes(_column(arrivals), _column(times.starts), _column(ends), total)


def _column(values: list[int]) -> Int64:
    return np.array(values, dtype=np.int64)
