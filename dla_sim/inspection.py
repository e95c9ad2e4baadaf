"""Inspection of a finished run: effects of each command, and states of machine, bus and memory.

The engines do not record the bus. The data phases of LD and ST follow from the commands' times, and
the data phases of the command fetch from their arrivals. The arbiter is therefore simulated again
(docs/machine.md, section 6).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.device import Device, Trace
from dla_sim.engine.bus import FETCH_PORT, LD_PORT, NEVER, PORTS, ST_PORT, make_arbiter
from dla_sim.engine.dram import open_dram
from dla_sim.engine.times import CommandTimes
from dla_sim.engine.workload import LD, ST, UNIT_NAMES, Workload
from dla_sim.kernels.dispatch import carry_out
from dla_sim.prepared import check_inputs, scratchpad
from isa.access import Access, row_starts
from isa.errors import InputError
from isa.instruction import Machine, Operands
from isa.program import Program


@dataclass(frozen=True, slots=True)
class Stretch:
    """Interval of cycles ``[begin, end)`` in which the same bus ports transfer data.

    ``granted`` counts the slots of each of ``PORTS``. A slot is granted in every cycle that is not
    in a refresh of the main memory.
    """

    begin: int
    end: int
    granted: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class BusUsage:
    """Use of the bus in a run: intervals without idle cycles, and the fetches of command words.

    ``stretches`` are in order; a data phase is [begin, end) in cycles.
    """

    stretches: tuple[Stretch, ...]
    chunks: tuple[tuple[int, int], ...]


def bus_usage(workload: Workload, times: CommandTimes) -> BusUsage:
    """Return when ports used the bus in a run whose commands have the times ``times``.

    It asserts that every transfer of LD and ST ends as in ``times``, which makes the bus an
    independent check.
    """
    return _Replay(workload, times).run()


class _Replay:
    """Simulation of the bus from its first data phase to its last."""

    def __init__(self, workload: Workload, times: CommandTimes) -> None:
        self._dram = open_dram(workload, len(workload))
        self._arbiter = make_arbiter(self._dram)
        self._chunk_key = len(workload)
        self._fetch = _Chunks(workload, times)
        self._phases = {
            LD_PORT: _phases(workload, times, LD),
            ST_PORT: _phases(workload, times, ST),
        }
        self._begins = [NEVER] * len(PORTS)
        self._slots = [0] * len(PORTS)
        self._keys = [0] * len(PORTS)
        self._expected = [0] * len(PORTS)

    def run(self) -> BusUsage:
        arbiter = self._arbiter
        begins = self._begins
        stretches: list[Stretch] = []
        for port in range(len(PORTS)):
            self._announce(port)
        while arbiter.waiting or min(begins) < NEVER:
            begin = arbiter.now
            left = tuple(arbiter.left)
            ended = arbiter.grant(min(begins))
            fetch, load, store = (
                before - after for before, after in zip(left, arbiter.left, strict=True)
            )
            if fetch + load + store:
                stretches.append(Stretch(begin, arbiter.now, (fetch, load, store)))
            if ended >= 0:
                self._handle_end(ended)
            for port, time in enumerate(begins):
                if time == arbiter.now:
                    slots = self._slots[port]
                    if self._dram is not None:
                        slots, _ = self._dram.begin(self._keys[port], time, slots)
                    arbiter.begin(port, slots)
                    begins[port] = NEVER
        return BusUsage(tuple(stretches), tuple(self._fetch.phases))

    def _announce(self, port: int) -> None:
        """Record when the next data phase of ``port`` begins, if it has another one."""
        if port == FETCH_PORT:
            self._keys[port] = self._chunk_key + len(self._fetch.phases)
            self._begins[port], self._slots[port] = self._fetch.next()
        else:
            phase = next(self._phases[port], (NEVER, 0, 0, 0))
            self._begins[port], self._slots[port], self._expected[port], self._keys[port] = phase

    def _handle_end(self, port: int) -> None:
        if port == FETCH_PORT:
            self._fetch.handle_end(self._arbiter.now)
        elif self._arbiter.now != self._expected[port]:
            raise AssertionError(
                f"a transfer of {PORTS[port]} leaves the bus at {self._arbiter.now}, not at "
                f"{self._expected[port]}"
            )
        self._announce(port)


def _phases(
    workload: Workload, times: CommandTimes, unit: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the data phases of one unit as (begin, slots, end, command)."""
    columns = workload.columns
    members = workload.demands.by_unit[unit]
    members = members[columns["slots"][members] > 0]
    begin = times.start + columns["lead"]
    end = times.end - columns["tail"]
    yield from zip(
        *(column[members].tolist() for column in (begin, columns["slots"], end)),
        members.tolist(),
        strict=True,
    )


class _Chunks:
    """Data phases of the command fetch.

    A chunk is requested when the chunk ``fetch_buffers`` earlier has been executed.
    """

    def __init__(self, workload: Workload, times: CommandTimes) -> None:
        self._slots = workload.chunk_slots
        self._timing = workload.timing
        self._words = workload.timing.fetch_bytes // 8
        self._word = workload.demands.word
        self._arrival = times.arrival
        self._used: list[int] = []  # cycle in which the last word of each chunk was executed
        self._begin = 0
        self.phases: list[tuple[int, int]] = []

    def next(self) -> tuple[int, int]:
        """Return when the next chunk of command words is read, as (begin, slots).

        The previous chunk must have arrived.
        """
        chunk = len(self.phases)
        if chunk == len(self._slots):
            return NEVER, 0
        freed = chunk - self._timing.fetch_buffers
        requested = self._find_used_up(freed) + 1 if freed >= 0 else 0
        before = self.phases[-1][1] if self.phases else 0
        self._begin = max(requested + self._timing.constants.latency, before)
        return self._begin, self._slots[chunk]

    def handle_end(self, now: int) -> None:
        self.phases.append((self._begin, now))

    def _find_used_up(self, chunk: int) -> int:
        """Return the cycle in which the last command word of ``chunk`` was executed.

        SETs after an operation never wait within a chunk.
        """
        while len(self._used) <= chunk:
            number = len(self._used)
            last = (number + 1) * self._words - 1
            latest = int(np.searchsorted(self._word, last, side="right")) - 1
            if latest >= 0 and self._word[latest] >= number * self._words:
                self._used.append(int(self._arrival[latest] - 1 + last - self._word[latest]))
            else:
                before = self._used[-1] + 1 if self._used else 0
                self._used.append(max(before, self.phases[number][1]) + self._words - 1)
        return self._used[chunk]


Int64 = NDArray[np.int64]


def live_bytes(
    operands: Sequence[Operands], order: Sequence[int], times: CommandTimes
) -> tuple[Int64, Int64]:
    """Return how many scratchpad bytes are live over time, as (cycles, bytes).

    The number of bytes applies from each of ``cycles`` on, which ascend. A byte is live from the
    completion of the command that wrote it to the completion of the last command that reads it
    before it is overwritten. Bytes that are never read are never live. The result is exact for
    strided accesses. The scratchpad is divided at the ends of the accesses' rows, so time and
    memory depend on the number of rows, not bytes.

    Args:
        operands: operands of each command.
        order: the commands by completion.
        times: times of the run.
    """
    pieces = _Pieces(operands)
    lengths = pieces.lengths
    born = np.full(len(lengths), -1, dtype=np.int64)
    last = np.full(len(lengths), -1, dtype=np.int64)
    changes: list[tuple[Int64, Int64]] = []

    def close(where: Int64) -> None:
        used = where[last[where] > born[where]]
        for change in ((born[used], lengths[used]), (last[used], -lengths[used])):
            changes.append(_sum_changes([change]) if len(used) > MANY else change)

    for number in order:
        end = int(times.end[number])
        for access in operands[number].reads:
            where = pieces.find_touched(access)
            last[where[born[where] >= 0]] = end
        for access in operands[number].writes:
            where = pieces.find_touched(access)
            close(where)
            born[where] = end
            last[where] = -1
    close(np.arange(len(lengths), dtype=np.int64))
    cycles, deltas = _sum_changes(changes)
    moved = np.flatnonzero(deltas)
    return cycles[moved], np.cumsum(deltas)[moved]


def find_residents(
    operands: Sequence[Operands], order: Sequence[int], times: CommandTimes
) -> Mapping[int, int]:
    """Return the commands that write the scratchpad, and when their bytes were last used.

    This is the end of the last command that reads one of the bytes before it is overwritten, or of
    the writing command itself. The arguments are those of :func:`live_bytes`.
    """
    pieces = _Pieces(operands)
    writer = np.full(len(pieces.lengths), -1, dtype=np.int64)
    used: dict[int, int] = {}
    for number in order:
        end = int(times.end[number])
        for access in operands[number].reads:
            for written in set(writer[pieces.find_touched(access)].tolist()):
                used[written] = end
        for access in operands[number].writes:
            where = pieces.find_touched(access)
            if len(where):
                writer[where] = number
                used[number] = end
    used.pop(-1, None)
    return used


MANY = 64
"""Number of pieces above which the changes of an access are summed at once.

Accesses with a stride of bytes have so many.
"""


def _sum_changes(changes: list[tuple[Int64, Int64]]) -> tuple[Int64, Int64]:
    """Return the distinct times in ascending order, and the sum of the changes at each time."""
    cycles, position = np.unique(np.concatenate([time for time, _ in changes]), return_inverse=True)
    deltas = np.zeros(len(cycles), dtype=np.int64)
    np.add.at(deltas, position, np.concatenate([delta for _, delta in changes]))
    return cycles, deltas


class _Pieces:
    """Pieces of the scratchpad, which is divided at both ends of every accessed row.

    An access touches each piece wholly or not at all.
    """

    def __init__(self, operands: Sequence[Operands]) -> None:
        accesses = {access for item in operands for access in (*item.reads, *item.writes)}
        rows = [_rows(access) for access in accesses if access.space == "sram" and access.total]
        ends = [start for start, _ in rows] + [end for _, end in rows]
        self._cuts = np.unique(np.concatenate(ends)) if ends else np.zeros(1, dtype=np.int64)
        self._known: dict[Access, Int64] = {}

    @property
    def lengths(self) -> Int64:
        """Length of each piece of the scratchpad, in bytes."""
        return np.diff(self._cuts)

    def find_touched(self, access: Access) -> Int64:
        """Return the numbers of the scratchpad pieces that ``access`` touches.

        None if it is not in the scratchpad.
        """
        if access not in self._known:
            self._known[access] = self._find(access)
        return self._known[access]

    def _find(self, access: Access) -> Int64:
        if access.space != "sram" or not access.total:
            return np.zeros(0, dtype=np.int64)
        starts, ends = _rows(access)
        if len(starts) == 1:
            return np.arange(*np.searchsorted(self._cuts, (starts[0], ends[0])))
        touched = np.zeros(len(self._cuts), dtype=np.int64)
        np.add.at(touched, np.searchsorted(self._cuts, starts), 1)
        np.add.at(touched, np.searchsorted(self._cuts, ends), -1)
        return np.flatnonzero(np.cumsum(touched))


def _rows(access: Access) -> tuple[Int64, Int64]:
    starts = row_starts(access)
    starts = np.unique(starts) if len(starts) > 1 else starts
    return starts, starts + access.nbytes


class Playback:
    """Replay of a run's effects, command by command in order of completion.

    The machine can be inspected between commands. It uses the device's own memories for the
    program. Only one playback may be active at a time, and not during a run of the program. Raises
    InputError if the inputs do not fit.
    """

    def __init__(
        self, device: Device, program: Program, inputs: Mapping[str, NDArray[Any]], trace: Trace
    ) -> None:
        check_inputs(program.inputs, inputs)
        loaded = device.load(program)
        loaded.memory.reset()
        for tensor in program.inputs:
            loaded.memory.put(tensor, inputs[tensor.name])
        self.machine = Machine(
            device.arch,
            scratchpad(device.arch, loaded.prepared.sram_peak_bytes),
            loaded.memory.data,
        )
        self._effect = loaded.kernels.run
        self._commands = loaded.prepared.commands
        self._end = trace.times.end
        self._order = loaded.order
        self._position = 0

    def find_next(self, until: int) -> int | None:
        """Return the next command if it completes at cycle ``until`` or before, otherwise None."""
        if self._position == len(self._order):
            return None
        number = self._order[self._position]
        return number if self._end[number] <= until else None

    def step(self) -> None:
        """Apply the effect of the next command that completes.

        Errors are those of :func:`dla_sim.kernels.dispatch.carry_out`.
        """
        number = self._order[self._position]
        carry_out(self._effect, self._commands[number], self.machine)
        self._position += 1

    def run(self, until: int) -> None:
        """Apply the effects of all commands that complete at cycle ``until`` or before."""
        while self.find_next(until) is not None:
            self.step()

    def sram(self, first: int, end: int) -> bytes:
        """Return the bytes [first, end) of the scratchpad.

        Bytes that the program cannot touch are 0, as after reset.
        """
        return self.machine.sram[first:end].tobytes().ljust(end - first, b"\0")


@dataclass(frozen=True)
class QueuedCommand:
    """A command in its unit's queue that has not started.

    Exactly one of two fields gives the reason. ``missing`` lists (counter, command that pushes the
    token) for the head of an idle unit. ``behind`` is the previous command for any other.
    """

    command: int
    missing: tuple[tuple[int, int], ...]
    behind: int | None


@dataclass(frozen=True)
class UnitState:
    """State of a unit: how many ``commands`` are done, which one executes, and which ones wait."""

    name: str
    commands: int
    done: int
    executing: int | None
    waiting: tuple[QueuedCommand, ...]


@dataclass(frozen=True)
class MachineState:
    """State of the machine at a cycle, after its completions and starts.

    docs/machine.md, section 3, defines the order within a cycle.

    Attributes:
        cycle: the cycle.
        units: state of LD, EX and ST.
        tokens: counters in the order of ``TOKEN_QUEUES``.
        next: first command that is in no queue yet, or None.
        blocked: unit whose full queue that command waits for, or None.
    """

    cycle: int
    units: tuple[UnitState, ...]
    tokens: tuple[int, ...]
    next: int | None
    blocked: str | None


def state_at(workload: Workload, times: CommandTimes, cycle: int) -> MachineState:
    """Return the state of the machine at ``cycle``.

    Raise InputError unless it is within 0 to the total.
    """
    if not 0 <= cycle <= times.total:
        raise InputError(f"cycle {cycle} is not in the run; it has the cycles 0 to {times.total}")
    missing = _find_missing(workload, times, cycle)
    units = tuple(
        _unit_state(name, members, times, missing, cycle)
        for name, members in zip(UNIT_NAMES, workload.demands.by_unit, strict=True)
    )
    coming = np.flatnonzero(times.arrival > cycle)
    following = int(coming[0]) if len(coming) else None
    return MachineState(
        cycle,
        units,
        _token_counts(workload, times, cycle),
        following,
        _explain_block(workload, units, following),
    )


def _unit_state(
    name: str,
    members: NDArray[np.int64],
    times: CommandTimes,
    missing: Mapping[int, tuple[tuple[int, int], ...]],
    cycle: int,
) -> UnitState:
    arrival = times.arrival[members]
    start = times.start[members]
    end = times.end[members]
    done = int((end <= cycle).sum())
    running = np.flatnonzero((start <= cycle) & (end > cycle))
    executing = int(members[running[0]]) if len(running) else None
    waiting = []
    before = executing
    for place in np.flatnonzero((arrival <= cycle) & (start > cycle)).tolist():
        number = int(members[place])
        waiting.append(QueuedCommand(number, missing[number] if before is None else (), before))
        before = number
    return UnitState(name, len(members), done, executing, tuple(waiting))


def _explain_block(
    workload: Workload, units: tuple[UnitState, ...], following: int | None
) -> str | None:
    if following is None:
        return None
    unit = units[workload.costs[following].unit]
    entries = len(unit.waiting) + (unit.executing is not None)
    return unit.name if entries == workload.timing.queue_depth else None


def token_pairs(workload: Workload) -> tuple[tuple[int, int, int], ...]:
    """Return the command that pushes and the one that pops each token, by token counter.

    An entry is (counter, pusher, popper); entries are in order of counter and pop.
    """
    pairs = []
    for counter, (pushing, popping) in enumerate(
        zip(workload.demands.pushing, workload.demands.popping, strict=True)
    ):
        pairs += [
            (counter, pusher, popper)
            for pusher, popper in zip(pushing.tolist(), popping.tolist(), strict=False)
        ]
    return tuple(pairs)


def _token_counts(workload: Workload, times: CommandTimes, cycle: int) -> tuple[int, ...]:
    """Return the values of all token counters at ``cycle``: completions push, starts pop."""
    demands = workload.demands
    return tuple(
        int((times.end[pushing] <= cycle).sum() - (times.start[popping] <= cycle).sum())
        for pushing, popping in zip(demands.pushing, demands.popping, strict=True)
    )


def _find_missing(
    workload: Workload, times: CommandTimes, cycle: int
) -> Mapping[int, tuple[tuple[int, int], ...]]:
    """Return the tokens that each waiting command lacks at ``cycle``, as (counter, pusher)."""
    found: dict[int, tuple[tuple[int, int], ...]] = defaultdict(tuple)
    for counter, pusher, popper in token_pairs(workload):
        if times.end[pusher] > cycle:
            found[popper] += ((counter, pusher),)
    return found
