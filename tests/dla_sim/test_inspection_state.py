"""The state of the machine equals the tick model's, cycle by cycle on random programs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dla_sim.device import Device
from dla_sim.engine.times import compute_times
from dla_sim.engine.workload import TOKEN_QUEUES, UNIT_NAMES
from dla_sim.inspection import MachineState, state_at
from dla_sim.timing import Timing
from isa.errors import InputError
from isa.program import Program
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import random_case
from tests.dla_sim.tick.model import TickModel, TickResult


@dataclass(frozen=True)
class _Snapshot:
    """State after completions and starts: executing and queued commands per unit, and tokens.

    ``next`` is the next command to be queued.
    """

    units: tuple[tuple[int | None, tuple[int, ...]], ...]
    missing: tuple[tuple[str, ...], ...]
    tokens: tuple[int, ...]
    next: int | None


class _Recording(TickModel):
    """The tick model, and its state at the moment of each cycle's grant."""

    def run(self) -> TickResult:
        self.snapshots: list[_Snapshot] = []
        return super().run()

    def grant(self) -> None:
        units = []
        missing = []
        for name in UNIT_NAMES:
            unit = self.units[name]
            queue = tuple(unit.queue)
            units.append((queue[0], queue[1:]) if unit.script is not None else (None, queue))
            missing.append(tuple(self.missing(unit)) if unit.script is None and queue else ())
        tokens = tuple(
            self.tokens[UNIT_NAMES[pusher], UNIT_NAMES[popper]] for pusher, popper in TOKEN_QUEUES
        )
        coming = [
            number
            for word, number in self.command_at.items()
            if word >= self.word and number in self.to_units
        ]
        self.snapshots.append(
            _Snapshot(tuple(units), tuple(missing), tokens, min(coming, default=None))
        )
        super().grant()


def _tick_states(program: Program, timing: Timing) -> list[_Snapshot]:
    model = _Recording(program, timing)
    model.run()
    return model.snapshots


def _as_snapshot(state: MachineState) -> _Snapshot:
    units = []
    missing = []
    for unit in state.units:
        units.append((unit.executing, tuple(waiting.command for waiting in unit.waiting)))
        givers = [
            UNIT_NAMES[TOKEN_QUEUES[counter][0]]
            for waiting in unit.waiting
            for counter, _ in waiting.missing
        ]
        missing.append(tuple(givers))
    return _Snapshot(tuple(units), tuple(missing), state.tokens, state.next)


@pytest.mark.parametrize("first", range(0, 60, 12))
def test_states_are_those_of_the_tick_model(first: int) -> None:
    for seed in range(first, first + 12):
        case = random_case(seed)
        program = build_program(case)
        timing = Timing(**case.timing)
        workload = Device(program.arch, timing).load(program).workload
        times = compute_times(workload)
        expected = _tick_states(program, timing)
        for cycle in range(0, times.total, 1 + times.total // 400):
            state = state_at(workload, times, cycle)
            assert _as_snapshot(state) == expected[cycle], (seed, cycle)
            if state.next is None:
                assert state.blocked is None
            else:
                unit = state.units[workload.costs[state.next].unit]
                full = len(unit.waiting) + (unit.executing is not None) == timing.queue_depth
                assert state.blocked == (unit.name if full else None)


def test_cycles_outside_the_run_are_refused() -> None:
    program = build_program(random_case(3))
    workload = Device(program.arch).load(program).workload
    times = compute_times(workload)
    finished = state_at(workload, times, times.total)
    assert all(unit.done == unit.commands and not unit.waiting for unit in finished.units)
    assert finished.next is None
    for cycle in (-1, times.total + 1):
        with pytest.raises(
            InputError, match=f"cycle {cycle} is not in the run; it has the cycles 0 to"
        ):
            state_at(workload, times, cycle)
