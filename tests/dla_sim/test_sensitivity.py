"""The sensitivity of random programs equals differences of the totals of separate runs.

``python -m tests.dla_sim.test_sensitivity --count 10000`` checks ten thousand programs.
"""

from __future__ import annotations

import random
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable
from functools import partial

from pydantic import ValidationError

from dla_sim.engine.simulation import simulate
from dla_sim.engine.times import CommandTimes, compute_times
from dla_sim.engine.workload import Demands, Workload
from dla_sim.prepared import prepare
from dla_sim.sensitivity import (
    CycleChange,
    find_command_sensitivity,
    find_sensitivity,
    step_value,
)
from dla_sim.timing import Timing
from isa.errors import InputError
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import COMPUTE, random_case

Engine = Callable[[Workload], CommandTimes]
FAR = 5_000
"""Most steps that are tried of a longer range."""


def run_shifted(
    engine: Engine, demands: Demands, timing: Timing, command: int, cycles: int
) -> int | None:
    """Return the total if one command ends some cycles later; None if it cannot."""
    workload = Workload(demands, timing)
    lead, slots, tail = workload.phases.values()
    tail[command] += cycles
    delayed = slots[command] or command in workload.bank_loads
    if (tail[command] if delayed else lead[command] + tail[command] - 1) < 0:
        return None
    return engine(workload).total


def check_change(
    run: Callable[[int], int | None], total: int, sign: int, change: CycleChange, seed: int
) -> None:
    """Compare a change with the totals after some of its steps, and with the next step."""
    rng = random.Random(seed)
    most = min(change.steps, FAR)
    assert most > 0
    for steps in {1, most, rng.randint(1, most)}:
        assert run(sign * steps) == total + steps * change.cycles, (sign, steps, change)
    if change.final:
        following = run(sign * (change.steps + 1))
        assert following != total + (change.steps + 1) * change.cycles, (sign, change)


def check_program(seed: int, isa: str) -> Counter[str]:
    """Compare the sensitivity of a random program with separate runs; count the comparisons."""
    case = random_case(seed, isa)
    timing = Timing(**case.timing)
    demands = prepare(build_program(case)).demands
    total = compute_times(Workload(demands, timing)).total
    counts: Counter[str] = Counter()
    omitted = {*timing.model_dump()}
    for found in find_sensitivity([demands], timing):
        omitted.remove(found.name)

        def run(steps: int, name: str = found.name) -> int | None:
            value = step_value(name, getattr(timing, name), steps)
            try:
                changed = Timing(**{**timing.model_dump(), name: value})
                return compute_times(Workload(demands, changed)).total
            except (ValidationError, InputError):
                return None

        for sign, change in ((1, found.up), (-1, found.down)):
            if change is None:
                assert run(sign) is None
                continue
            counts["parameters"] += 1
            counts["ends"] += change.final
            counts["slopes"] += change.cycles != 0
            check_change(run, total, sign, change, seed)
    assert omitted <= {"clock_hz", "sram_read_bytes", "sram_write_bytes"}
    for command, both in enumerate(find_command_sensitivity(demands, timing)):
        engine = (compute_times, simulate)[(seed + command) % 4 == 0]
        shift = partial(run_shifted, engine, demands, timing, command)
        for sign, change in ((1, both.later), (-1, both.earlier)):
            if change is None:
                assert shift(sign) is None
                continue
            counts["commands"] += 1
            check_change(shift, total, sign, change, seed)
    return counts


def test_random_programs() -> None:
    counts: Counter[str] = Counter()
    for seed in range(7):
        for isa in COMPUTE:
            counts += check_program(seed, isa)
    assert counts["slopes"] > 200
    assert counts["ends"] > 200
    assert counts["commands"] > 200


def main() -> None:
    """Check many programs; an AssertionError names the first difference."""
    parser = ArgumentParser(description="Compare sensitivities with separate runs.")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=10_000, help="number of programs")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(arguments.first, arguments.first + arguments.count):
        isa = tuple(COMPUTE)[seed % len(COMPUTE)]
        try:
            counts += check_program(seed, isa)
        except AssertionError as error:
            raise AssertionError(f"seed {seed} of {isa}") from error
        if seed % 100 == 99:
            print(f"up to seed {seed}: {dict(counts)}", flush=True)
    print(f"{arguments.count} programs: {dict(counts)}")


if __name__ == "__main__":
    main()
