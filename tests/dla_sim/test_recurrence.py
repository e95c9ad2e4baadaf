"""The engine without events equals the event engine, arrivals and deadlocks included.

Sweeps equal single runs.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from dla_sim.device import Device, Engine
from dla_sim.engine.accounts import account, explain, kind_cycles
from dla_sim.engine.simulation import simulate
from dla_sim.engine.times import DeadlockError, compute_times
from dla_sim.engine.workload import Workload
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.program import Program
from tests.dla_sim.cases import build_program
from tests.dla_sim.compiled import COMPILED, compiled_program
from tests.dla_sim.program_generator import COMPUTE, random_case

TIMINGS = (
    Timing(),
    Timing(bus_bytes=32, dram_latency=20, queue_depth=4),
    Timing(bus_bytes=1, burst_bytes=16, outstanding_bursts=1, queue_depth=1),
    Timing(
        dram_latency=0,
        dma_setup=0,
        dma_drain=0,
        ex_fill=0,
        ex_drain=0,
        fetch_bytes=8,
        fetch_buffers=1,
    ),
    Timing(sram_read_bytes=16, sram_write_bytes=4, bank_ports=1, fetch_bytes=4096, fetch_buffers=2),
)


def outcome(engine: Engine, workload: Workload) -> tuple[object, ...]:
    """Everything that an engine says: the times, or the message about a deadlock."""
    try:
        found = engine(workload)
    except DeadlockError as error:
        return (str(error),)
    times = (found.arrival, found.start, found.end)
    assert all(column.dtype == np.int64 for column in times)
    return (found.total, *(column.tolist() for column in times))


def workload_of(program: Program, timing: Timing) -> Workload:
    return Device(program.arch, timing).load(program).workload


@pytest.mark.parametrize("isa", COMPUTE)
def test_random_programs(isa: str) -> None:
    """Beside ``test_tick_equality``, which does not see arrivals."""
    for seed in range(200):
        case = random_case(seed, isa)
        workload = workload_of(build_program(case), Timing(**case.timing))
        assert outcome(compute_times, workload) == outcome(simulate, workload), f"seed {seed}"


def test_programs_that_lack_pushes() -> None:
    """A push less often leaves a program that stands still; both engines then say the same."""
    deadlocks = 0
    for seed in range(300):
        case = random_case(seed)
        program = without_a_push(build_program(case), random.Random(seed))
        workload = workload_of(program, Timing(**case.timing))
        expected = outcome(simulate, workload)
        deadlocks += len(expected) == 1
        assert outcome(compute_times, workload) == expected, f"seed {seed}"
    assert deadlocks > 30


def without_a_push(program: Program, rng: random.Random) -> Program:
    """The program with one of its push flags cleared, if it has any."""
    flags = [
        (command.index, bit)
        for command in program.commands
        for bit, pushes in ((53, command.push_previous), (52, command.push_next))
        if pushes
    ]
    words = program.words.copy()
    if flags:
        index, bit = rng.choice(flags)
        words[index] &= ~np.uint64(1 << bit)
    return replace(program, words=words)


@pytest.mark.parametrize(("network", "schedule"), COMPILED)
def test_compiled_networks(network: str, schedule: Literal["seed", "default"]) -> None:
    program = compiled_program(network, schedule)
    for timing in TIMINGS:
        workload = workload_of(program, timing)
        assert outcome(compute_times, workload) == outcome(simulate, workload), timing


def test_a_sweep_equals_single_runs() -> None:
    program = compiled_program("mobilenet-v1", "default")
    sweep = ProgramTiming(program)
    for timing in TIMINGS:
        cycles = sweep.run(timing)
        trace = (
            Device(program.arch, timing, engine=simulate).run(program, {}, timing_only=True).trace
        )
        assert cycles.cycles == trace.cycles
        assert (cycles.kinds, cycles.ex_cycles, cycles.units) == (
            trace.kinds,
            trace.ex_cycles,
            trace.units,
        )
        assert sweep.layers(timing) == {layer.name: layer.cycles for layer in trace.layers}


@pytest.mark.parametrize("isa", COMPUTE)
def test_kinds_alone_equal_the_accounts(isa: str) -> None:
    for seed in range(200):
        case = random_case(seed, isa)
        program = build_program(case)
        timing = Timing(**case.timing)
        loaded = Device(program.arch, timing).load(program)
        times = compute_times(loaded.workload)
        accounts = account(loaded.prepared.labels, explain(loaded.workload, times), times)
        assert kind_cycles(loaded.prepared.labels, loaded.workload.demands, times) == (
            accounts.kinds,
            accounts.ex_cycles,
        ), seed
