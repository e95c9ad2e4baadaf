"""Inspection of a finished run: effects of each command, and states of machine, bus and memory.

The engines do not record the bus. The use of the bus is therefore observed in a second run of the
engine (docs/machine.md, section 6).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.device import Device, Trace
from dla_sim.engine.bus import FETCH_PORT, RefreshedBus, SharedBus
from dla_sim.engine.dram import Dram, open_dram
from dla_sim.engine.times import CommandTimes, Times, run_on
from dla_sim.engine.workload import UNIT_NAMES, Workload
from dla_sim.kernels.dispatch import carry_out
from dla_sim.prepared import check_inputs, scratchpad
from isa.access import Access, Int64, row_starts, sort_distinct
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


def bus_usage(workload: Workload) -> BusUsage:
    """Return when ports use the bus in a run of ``workload``, which must end without a deadlock."""
    dram = open_dram(workload, 2 * len(workload) + 2)
    times = Times(workload)
    bus = _ObservedBus(times.known) if dram is None else _ObservedRefreshedBus(times.known, dram)
    run_on(workload, times, bus)
    ends = times.known[times.ready : times.requested]
    return BusUsage(tuple(bus.stretches), tuple(zip(bus.fetches, ends, strict=True)))


class _ObservedBus(SharedBus):
    """Bus that records the stretches of its slots, and when the fetches of command words begin."""

    observed = True

    def __init__(self, known: list[int], memory: Dram | None = None) -> None:
        super().__init__(known, memory)
        self.stretches: list[Stretch] = []
        self.fetches: list[int] = []
        self._since = 0
        self._before = self.left.copy()

    def begin(self, port: int, slots: int) -> None:
        self._end_stretch()
        if port == FETCH_PORT:
            self.fetches.append(self.now)
        super().begin(port, slots)
        self._before[port] = slots

    def grant(self, horizon: int) -> int:
        ended = super().grant(horizon)
        if ended >= 0:
            self._end_stretch()
        return ended

    def _end_stretch(self) -> None:
        """Record the slots that were granted while the set of ports stayed the same."""
        fetch, load, store = (
            before - after for before, after in zip(self._before, self.left, strict=True)
        )
        if fetch + load + store:
            self.stretches.append(Stretch(self._since, self.now, (fetch, load, store)))
        self._since = self.now
        self._before = self.left.copy()


class _ObservedRefreshedBus(_ObservedBus, RefreshedBus):
    """Observed bus of a machine whose main memory has rows or a refresh."""


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
        self._cuts = sort_distinct(np.concatenate(ends)) if ends else np.zeros(1, dtype=np.int64)
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
    starts = sort_distinct(starts) if len(starts) > 1 else starts
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
