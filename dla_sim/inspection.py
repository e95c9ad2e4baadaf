"""Looking into a run: its effects one command at a time (:class:`Playback`), and what the machine does at a cycle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.device import Device
from dla_sim.engine.times import CommandTimes, completion_order
from dla_sim.engine.workload import UNIT_NAMES, Workload
from dla_sim.kernels.dispatch import carry_out
from dla_sim.memory import check_inputs, scratchpad
from dla_sim.trace import Trace
from isa.errors import InputError
from isa.instruction import Machine
from isa.program import Program


class Playback:
    """The effects of one run, command by command in order of completion, on a machine that can be looked at.

    ``trace`` is the run's. The memories are the device's own for this program: one playback at a time, and not across
    a run of it. Raises InputError for inputs that do not fit.
    """

    def __init__(self, device: Device, program: Program, inputs: Mapping[str, NDArray[Any]], trace: Trace) -> None:
        check_inputs(program.inputs, inputs)
        loaded = device.load(program)
        loaded.memory.reset()
        for tensor in program.inputs:
            loaded.memory.put(tensor, inputs[tensor.name])
        self.machine = Machine(
            device.arch, scratchpad(device.arch, loaded.prepared.sram_peak_bytes, 0), loaded.memory.data
        )
        self._effects = loaded.effects
        self._commands = loaded.prepared.commands
        self._end = trace.times.end
        self._order = completion_order(loaded.workload, trace.times)
        self._position = 0

    def following(self, until: int) -> int | None:
        """The command whose effect is next, if it completes at cycle ``until`` or before."""
        if self._position == len(self._order):
            return None
        number = self._order[self._position]
        return number if self._end[number] <= until else None

    def step(self) -> None:
        """Carry out the next effect; errors are those of :func:`dla_sim.kernels.dispatch.carry_out`."""
        number = self._order[self._position]
        carry_out(self._effects[number], self._commands[number], self.machine)
        self._position += 1

    def run(self, until: int) -> None:
        """Carry out all effects of commands that complete at cycle ``until`` or before."""
        while self.following(until) is not None:
            self.step()

    def sram(self, first: int, end: int) -> bytes:
        """The scratchpad's bytes [first, end); what no command of the program can touch is as after reset, 0."""
        return self.machine.sram[first:end].tobytes().ljust(end - first, b"\0")


@dataclass(frozen=True)
class Waiting:
    """A command in its unit's queue that has not started. ``missing``: token counters; ``behind``: the command before.

    Just one of them says why: the head of an idle unit waits for tokens, any other for the command before it.
    ``missing`` holds (counter, command that pushes the token).
    """

    command: int
    missing: tuple[tuple[int, int], ...]
    behind: int | None


@dataclass(frozen=True)
class UnitState:
    """One unit: how many of its ``commands`` are ``done``, the one ``executing`` (by number) and those ``waiting``."""

    name: str
    commands: int
    done: int
    executing: int | None
    waiting: tuple[Waiting, ...]


@dataclass(frozen=True)
class MachineState:
    """The machine at a cycle, after its completions and starts (docs/machine.md, section 3, steps 1 and 2).

    ``tokens`` holds the counters in the order of ``TOKEN_QUEUES``. ``next`` is the first command that is not in a queue
    yet, None when all are, and ``blocked`` the unit whose full queue it waits for.
    """

    cycle: int
    units: tuple[UnitState, ...]
    tokens: tuple[int, ...]
    next: int | None
    blocked: str | None


def state_at(workload: Workload, times: CommandTimes, cycle: int) -> MachineState:
    """The machine at ``cycle``, from 0 to the program's total; raises InputError for any other."""
    if not 0 <= cycle <= times.total:
        raise InputError(f"cycle {cycle} is not in the run; it has the cycles 0 to {times.total}")
    missing = _missing(workload, times, cycle)
    units = tuple(
        _unit_state(name, members, times, missing, cycle)
        for name, members in zip(UNIT_NAMES, workload.demands.by_unit, strict=True)
    )
    coming = np.flatnonzero(times.arrival > cycle)
    following = int(coming[0]) if len(coming) else None
    return MachineState(
        cycle, units, _token_counts(workload, times, cycle), following, _blocked(workload, units, following)
    )


def _unit_state(
    name: str,
    members: NDArray[np.int64],
    times: CommandTimes,
    missing: Mapping[int, tuple[tuple[int, int], ...]],
    cycle: int,
) -> UnitState:
    arrival, start, end = times.arrival[members], times.start[members], times.end[members]
    done = int((end <= cycle).sum())
    running = np.flatnonzero((start <= cycle) & (end > cycle))
    executing = int(members[running[0]]) if len(running) else None
    waiting, before = [], executing
    for place in np.flatnonzero((arrival <= cycle) & (start > cycle)).tolist():
        number = int(members[place])
        waiting.append(Waiting(number, missing[number] if before is None else (), before))
        before = number
    return UnitState(name, len(members), done, executing, tuple(waiting))


def _blocked(workload: Workload, units: tuple[UnitState, ...], following: int | None) -> str | None:
    if following is None:
        return None
    unit = units[workload.costs[following].unit]
    entries = len(unit.waiting) + (unit.executing is not None)
    return unit.name if entries == workload.timing.queue_depth else None


def token_pairs(workload: Workload) -> tuple[tuple[int, int, int], ...]:
    """(counter, pusher, popper) of every token that is popped, in order of counter and pop."""
    pairs = []
    for counter, (pushing, popping) in enumerate(zip(workload.demands.pushing, workload.demands.popping, strict=True)):
        pairs += [(counter, pusher, popper) for pusher, popper in zip(pushing.tolist(), popping.tolist(), strict=False)]
    return tuple(pairs)


def _token_counts(workload: Workload, times: CommandTimes, cycle: int) -> tuple[int, ...]:
    """All counters at ``cycle``: pushes come with completions, pops with starts."""
    demands = workload.demands
    return tuple(
        int((times.end[pushing] <= cycle).sum() - (times.start[popping] <= cycle).sum())
        for pushing, popping in zip(demands.pushing, demands.popping, strict=True)
    )


def _missing(workload: Workload, times: CommandTimes, cycle: int) -> Mapping[int, tuple[tuple[int, int], ...]]:
    """(counter, pusher) of each token that a command wants and that has not been pushed at ``cycle``."""
    found: dict[int, tuple[tuple[int, int], ...]] = defaultdict(tuple)
    for counter, pusher, popper in token_pairs(workload):
        if times.end[pusher] > cycle:
            found[popper] += ((counter, pusher),)
    return found
