"""The engine for many Timings equals the engine for one Timing in every figure of a sweep."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dla_sim import program_batch, program_timing
from dla_sim.engine import recurrence
from dla_sim.program_timing import CycleTable, ProgramTiming
from dla_sim.timing import Timing
from isa.errors import InputError
from isa.program import Program
from tests.dla_sim.cases import build_program
from tests.dla_sim.compiled import compiled_program
from tests.dla_sim.program_generator import COMPUTE, random_case
from tests.dla_sim.test_recurrence import TIMINGS, without_a_push


@contextmanager
def engine(run: Callable[..., None], patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use ``run`` for batches of any size."""
    with patch.context() as patched:
        patched.setattr(program_batch, "compile_recurrence", lambda: run)
        patched.setattr(program_timing, "is_engine_useful", lambda timings: True)
        yield


def draw_timings(seed: int, isa: str, count: int) -> list[Timing]:
    """Draw Timings of machines with and without a flash, with any rates, rows and refresh."""
    rng = random.Random(seed)
    kinds = ("plain", "rates", "rates", "rows")
    seeds = [seed, *(rng.randrange(10**6) for _ in range(count - 1))]
    return [Timing(**random_case(one, isa, kinds[one % 4]).timing) for one in seeds]


def compare(program: Program, timings: list[Timing]) -> tuple[int, int]:
    """Compare all runs; return the number of equal runs and of runs that fail in both engines."""
    timed = ProgramTiming(program)
    found = timed.run_together(timings)
    expected = CycleTable.make_empty(len(timings))
    covered = []
    failed = 0
    for number, timing in enumerate(timings):
        try:
            expected.put(number, timed.run(timing))
        except InputError:
            failed += 1
        else:
            if not timing.has_rows_or_refresh:
                covered.append(number)
    others = sorted(set(range(len(timings))) - set(covered))
    assert (found.take(others).cycles == -1).all()
    for name in ("cycles", "kinds", "units"):
        one, other = (getattr(table.take(covered), name) for table in (found, expected))
        assert (one == other).all(), name
    return len(covered), failed


def compare_random(seeds: range, timings: int) -> tuple[int, int]:
    """Compare random programs on both kinds of memory, half of them with a missing token."""
    equal = failed = 0
    for seed in seeds:
        for isa in COMPUTE:
            program = build_program(random_case(seed, isa))
            if seed % 2:
                program = without_a_push(program, random.Random(seed))
            some, others = compare(program, draw_timings(seed, isa, timings))
            equal += some
            failed += others
    return equal, failed


def test_random_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain functions, which numba compiles."""
    with engine(recurrence.time_programs, monkeypatch):
        equal, failed = compare_random(range(60), 5)
    assert equal > 150
    assert failed > 30


@pytest.mark.slow
def test_compiled_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    with engine(recurrence.compile_recurrence(), monkeypatch):
        equal, failed = compare_random(range(1000, 1150), 20)
        assert equal > 2000
        assert failed > 300
        for network in ("digits-cnn", "mobilenet-v1"):
            timings = [*TIMINGS, *(Timing(dram_latency=cycles) for cycles in range(0, 200, 10))]
            assert compare(compiled_program(network, "default"), timings) == (len(timings), 0)


def test_engine_is_loaded_for_many_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few Timings do not pay for loading numba, which may also be missing."""
    recurrence.compile_recurrence.cache_clear()
    program = build_program(random_case(0))
    assert ProgramTiming(program).run_together([Timing()]).cycles.tolist() == [-1]
    monkeypatch.setitem(sys.modules, "numba", None)
    assert not program_batch.is_engine_useful(program_batch.LEAST_TIMINGS)


def test_a_failed_call_hides_no_collision(monkeypatch: pytest.MonkeyPatch) -> None:
    timings = draw_timings(0, "v4", 1)
    programs = (
        without_a_push(build_program(random_case(seed, "v4")), random.Random(seed))
        for seed in range(200)
    )
    colliding = next(timed for timed in map(ProgramTiming, programs) if collides(timed, timings[0]))

    def run_and_fail(*arrays: object) -> None:
        recurrence.time_programs(*arrays)
        raise MemoryError

    with engine(run_and_fail, monkeypatch), pytest.raises(MemoryError):
        colliding.run_together(timings)
    with engine(recurrence.time_programs, monkeypatch):
        assert colliding.run_together(timings).cycles.tolist() == [-1]


def collides(timed: ProgramTiming, timing: Timing) -> bool:
    """Return True if two commands use the same memory at the same time."""
    try:
        timed.run(timing)
    except InputError as error:
        return " and OP_" in str(error)
    return False
