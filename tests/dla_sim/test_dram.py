"""Rows and refresh of the main memory: by hand, and against counting one by one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dla_sim.engine.bus import Refresh
from dla_sim.engine.dram import list_touched_rows
from dla_sim.engine.simulation import simulate
from dla_sim.engine.times import compute_times
from dla_sim.timing import Timing
from isa.access import strided
from isa.assembler import assemble
from tests.dla_sim.cases import build_program
from tests.dla_sim.comparison import observe
from tests.dla_sim.program_generator import random_case
from tests.dla_sim.tick import run_ticks

LOADS = """
.arch {{}}
.memory 0x80000 commands 0x0
    SET LD_BYTES, {bytes}
    SET LD_DRAM_ADDRESS, {first}
    OP_DMA_READ
    SET LD_DRAM_ADDRESS, {second}
    OP_DMA_READ
    OP_END
"""


def cycles_of(timing: Timing, first: int, second: int, nbytes: int = 64) -> int:
    """Cycles of two loads, which both engines and the tick model must agree on."""
    program = assemble(LOADS.format(bytes=nbytes, first=first, second=second), "loads")
    expected = run_ticks(program, timing).total
    for engine in (simulate, compute_times):
        assert observe(engine, program, timing).total == expected
    return expected


BASE = {"dram_latency": 0, "outstanding_bursts": 128}
ROWS = {**BASE, "dram_row_bytes": 1024, "dram_row_banks": 2, "dram_row_miss": 30}


@pytest.mark.parametrize(
    ("first", "second", "nbytes", "misses"),
    [
        (0x1000, 0x1000, 64, 2),  # the chunk at 0 opens row 0 of bank 0, the first load row 4
        (0x1000, 0x1400, 64, 3),  # row 5 of bank 1
        (0x1000, 0x1800, 64, 3),  # row 6 of bank 0
        (0x1000, 0x0800, 1024, 3),  # whole rows 4 and 2
        (0x1000, 0x0C00, 2048, 4),  # rows 4 and 5; row 3 of bank 1, and row 4 is still open
    ],
)
def test_row_misses_by_hand(first: int, second: int, nbytes: int, misses: int) -> None:
    """The loads and the chunk do not overlap, so that each miss takes 30 cycles."""
    without = cycles_of(Timing(**BASE), first, second, nbytes)
    assert cycles_of(Timing(**ROWS), first, second, nbytes) == without + 30 * misses


def test_a_refresh_by_hand() -> None:
    """A load of 64 bytes has 8 slots; a refresh in the midst of them takes its 20 cycles.

    The chunk has 6 words in [0, 6). SET in 6 and 7, the load in 8, [9, 9 + 4 + 8 + 4): its slots
    are [13, 21). The second load is issued in 10 and follows in [25, 41), its slots [29, 37).
    """
    assert cycles_of(Timing(**BASE), 0x1000, 0x2000) == 42
    refresh = {"dram_refresh_interval": 17, "dram_refresh_cycles": 1}
    # [17, 18) and, as the second load is one cycle later, [34, 35)
    assert cycles_of(Timing(**BASE, **refresh), 0x1000, 0x2000) == 44
    refresh = {"dram_refresh_interval": 30, "dram_refresh_cycles": 20}
    # the second load has the slot of 29 and then those from 50 on
    assert cycles_of(Timing(**BASE, **refresh), 0x1000, 0x2000) == 62


@pytest.mark.parametrize(("interval", "more"), [(87, 30), (98, 0)])
def test_a_refresh_closes_rows(interval: int, more: int) -> None:
    """The second load begins in 30 + 30 + 29 = 89 and hits, but for a refresh before."""
    rows = cycles_of(Timing(**ROWS), 0x1000, 0x1000)
    refresh = {"dram_refresh_interval": interval, "dram_refresh_cycles": 1}
    assert rows == 102
    assert cycles_of(Timing(**ROWS, **refresh), 0x1000, 0x1000) == rows + more


@pytest.mark.parametrize("isa", ["v4", "v5"])
def test_rows_without_cost_change_nothing(isa: str) -> None:
    for seed in range(20):
        case = random_case(seed, isa, "rates")
        program = build_program(case)
        row = max(64, case.timing["burst_bytes"])
        rows = {**case.timing, "dram_row_bytes": row, "dram_row_miss": 0}
        for engine in (simulate, compute_times):
            plain, with_rows = (
                observe(engine, program, Timing(**timing)) for timing in (case.timing, rows)
            )
            assert plain == with_rows


@given(st.integers(1, 40), st.integers(1, 39), st.integers(0, 300))
def test_slots_before_a_time(interval: int, cycles: int, time: int) -> None:
    refresh = Refresh(interval, min(cycles, interval - 1)) if interval > 1 else Refresh(0, cycles)
    free = [
        cycle
        for cycle in range(13_000)
        if not refresh.interval
        or cycle < refresh.interval
        or cycle % refresh.interval >= refresh.cycles
    ]
    before = sum(cycle < time for cycle in free)
    assert refresh.count_slots(time) == before
    if time:
        assert refresh.find_end(time) == free[time - 1] + 1


DIMENSIONS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 900)), max_size=3)


@given(st.integers(0, 2000), st.integers(1, 600), DIMENSIONS, st.sampled_from([1, 2, 3, 8]))
def test_rows_of_a_transfer(
    address: int, nbytes: int, dims: list[tuple[int, int]], banks: int
) -> None:
    """Every burst one after the other, from closed rows."""
    timing = Timing(burst_bytes=64, dram_row_bytes=128, dram_row_banks=banks)
    access = strided("dram", address, nbytes, *dims)
    opened: dict[int, int] = {}
    first: dict[int, int] = {}
    misses = 0
    for low, high in access.runs():
        for burst in range(low // 64, (high - 1) // 64 + 1):
            row = burst * 64 // 128
            first.setdefault(row % banks, row)
            misses += opened.get(row % banks) != row
            opened[row % banks] = row
    found = list_touched_rows(access, timing)
    assert found.inner + len(found.ends) == misses
    assert sorted(found.ends) == [(bank, first[bank], opened[bank]) for bank in sorted(opened)]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"dram_row_bytes": 96}, "dram_row_bytes is 96; it must be a power of two and at least"),
        ({"dram_row_bytes": 32}, "dram_row_bytes is 32; it must be a power of two and at least"),
        (
            {"dram_refresh_interval": 280},
            "dram_refresh_cycles 280 must be less than dram_refresh_interval 280",
        ),
        ({"dram_row_banks": 0}, "greater than or equal to 1"),
        ({"dram_row_miss": -1}, "greater than or equal to 0"),
    ],
)
def test_limits(keys: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Timing.model_validate(keys)


def test_options_are_written_only_where_they_are() -> None:
    assert not [name for name in Timing().model_dump() if name.startswith(("dram_r",))]
    rows = Timing(dram_row_bytes=2048).model_dump()
    assert [name for name in rows if name.startswith("dram_r")] == [
        "dram_row_bytes", "dram_row_banks", "dram_row_miss"
    ]  # fmt: skip
    assert Timing.model_validate(rows) == Timing(dram_row_bytes=2048)
