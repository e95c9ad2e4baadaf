"""The tick model on small programs worked out by hand, and invariants of every run.

The rules are those of docs/machine.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from isa.arch import Arch, PeArray
from isa.errors import InputError
from tests.dla_sim.cases import Case, Step, build_program, legal_steps
from tests.dla_sim.coverage import causes
from tests.dla_sim.program_generator import COMPUTE, random_case
from tests.dla_sim.shrink import PLAIN_TIMING, shrink
from tests.dla_sim.tick import TickResult, run_ticks

ARCH = Arch(pe=PeArray(ic=2, oc=2), sram_bytes=1024, sram_banks=2, alignment=1)


def run(case: Case) -> TickResult:
    return run_ticks(build_program(case), SimpleNamespace(**case.timing))


def ticks(*steps: Step, **timing: int) -> TickResult:
    return run(Case(ARCH, {**PLAIN_TIMING, **timing}, steps))


def sync(unit: str, *flags: str) -> Step:
    return Step("OP_SYNC", unit, flags=frozenset(flags))


def test_end_alone() -> None:
    # burst_gap = ⌈(100 + 8) / 16⌉ = 7. Chunk 0: requested at 0, one beat held 7 slots in [100,
    # 107), OP_END in 107.
    result = ticks(dram_latency=100)
    assert result.total == 108
    assert result.causes == {"LD": {"drained": 108}, "EX": {"drained": 108}, "ST": {"drained": 108}}


def test_one_read() -> None:
    # burst_gap = ⌈(10 + 8) / 16⌉ = 2. Three words: 3 slots in [10, 13). SET in 13, the read in 14;
    # it starts at 15: setup [15, 19), latency [19, 29), 8 beats [29, 37), drain [37, 41). OP_END in
    # 41.
    result = ticks(
        Step("OP_DMA_READ", "LD", {"LD_BYTES": 64}), dram_latency=10, dma_setup=4, dma_drain=4
    )
    assert result.total == 42
    assert result.spans == ((15, 41), (41, 42))
    assert result.causes["LD"] == {"queue_empty": 15, "busy": 16, "dram": 10, "drained": 1}
    assert result.kinds == {("ISSUE", ""): 16, ("DMA", ""): 26}


def test_one_write() -> None:
    # Like the read, but the data phase [19, 27) comes before the latency [27, 37); 60 bytes from 2:
    # bus words 0 to 7.
    write = Step("OP_DMA_WRITE", "ST", {"ST_BYTES": 60, "ST_DRAM_ADDRESS": 2})
    # One word more, so everything one slot and one word later: the write starts at 17 and ends at
    # 17 + 4 + 8 + 10 + 4.
    result = ticks(write, dram_latency=10, dma_setup=4, dma_drain=4)
    assert result.spans == ((17, 43), (43, 44))
    assert result.causes["ST"] == {"queue_empty": 17, "busy": 16, "dram": 10, "drained": 1}


def test_bursts_bound_by_the_gap() -> None:
    # burst_gap = ⌈(10 + 2) / 2⌉ = 6. Fetch: 4 words in bursts of 16 bytes: 2 bursts of 2 beats, 12
    # slots in [10, 22). SETs in 22 and 23, read in 24, start 25, setup [25, 26), latency [26, 36).
    # 17 bytes from 15 are byte 15 and bytes 16 to 31: bursts of 1 and 2 beats, 12 slots [36, 48).
    # OP_END in 48.
    read = Step("OP_DMA_READ", "LD", {"LD_BYTES": 17, "LD_DRAM_ADDRESS": 15})
    result = ticks(read, dram_latency=10, burst_bytes=16, outstanding_bursts=2)
    assert result.total == 49
    assert result.causes["LD"] == {"queue_empty": 25, "busy": 1 + 3, "dram": 10 + 9, "drained": 1}


def test_round_robin() -> None:
    # Five words in [0, 5): SETs in 5 and 6, read in 7, write in 8. LD: setup [8, 9), on the bus
    # from 9. ST: setup [9, 10), on the bus from 10. Grants: 9 LD, 10 ST (which comes after LD), 11
    # LD (the fetch, after ST, asks for nothing), 12 ST.
    read = Step("OP_DMA_READ", "LD", {"LD_BYTES": 16, "ST_BYTES": 16})
    result = ticks(read, Step("OP_DMA_WRITE", "ST"))
    assert result.spans == ((8, 12), (9, 13), (13, 14))
    assert result.causes["LD"] == {"queue_empty": 8, "busy": 3, "bus": 1, "drained": 2}
    assert result.causes["ST"] == {"queue_empty": 9, "busy": 3, "bus": 1, "drained": 1}


def test_token_chain() -> None:
    # Four words in [0, 4): executed in 4, 5, 6. LD [5, 7). EX is in its queue from 6, has its token
    # at 7: [7, 9). ST is there from 7, has its token at 9: [9, 11). OP_END in 11.
    steps = (
        sync("LD", "push_next"),
        sync("EX", "pop_previous", "push_next"),
        sync("ST", "pop_previous"),
    )
    result = ticks(*steps, sync_cycles=2)
    assert result.spans == ((5, 7), (7, 9), (9, 11), (11, 12))
    assert result.causes["EX"] == {"queue_empty": 6, "token_LD": 1, "busy": 2, "drained": 3}
    assert result.causes["ST"] == {"queue_empty": 7, "token_EX": 2, "busy": 2, "drained": 1}
    assert result.kinds == {("ISSUE", ""): 8, ("DMA", ""): 4}


def test_full_queue() -> None:
    # Three words in [0, 3). First sync in 3, executes [4, 8); the second is refused in 4 to 7,
    # taken in 8: [9, 13).
    result = ticks(sync("LD"), sync("LD"), queue_depth=1, sync_cycles=4)
    assert result.spans == ((4, 8), (9, 13), (13, 14))
    assert result.causes["LD"] == {"queue_empty": 5, "busy": 8, "drained": 1}
    assert result.events["queue of LD full"] == 4


def test_one_buffer_of_one_word() -> None:
    # Each chunk: 3 cycles of latency, one slot, executed in the next cycle; the next chunk is
    # requested a cycle later.
    result = ticks(
        sync("LD"), sync("ST"), sync("EX"), dram_latency=3, fetch_bytes=8, fetch_buffers=1
    )
    assert result.total == 4 * 5


@pytest.mark.parametrize(
    ("timing", "waiting"),
    [
        # c = ⌈5 / 4 lanes⌉ = 2; the ports are as wide as needed, and 4 streams a bank are served at
        # once
        ({}, 0),
        ({"sram_read_bytes": 4}, 8),  # ⌈40 / 4⌉ - 2
        ({"sram_write_bytes": 8}, 1),  # ⌈20 / 8⌉ - 2
        ({"bank_ports": 1}, 4),  # three streams in bank 0: 2 · 3 - 2
        ({"bank_ports": 2}, 2),  # 2 · ⌈3 / 2⌉ - 2
        # the largest of the three
        ({"bank_ports": 2, "sram_read_bytes": 4, "sram_write_bytes": 8}, 8),
    ],
)
def test_scratchpad(timing: Mapping[str, int], waiting: int) -> None:
    # Three words in [0, 3): SET in 3, the addition in 4; it starts at 5: fill 3, c = 2, waiting,
    # drain 2.
    result = ticks(Step("OP_E32_ADD", "EX", {"EX_LENGTH": 5}), ex_fill=3, ex_drain=2, **timing)
    assert result.spans[0] == (5, 5 + 3 + 2 + waiting + 2)
    expected = {"queue_empty": 5, "busy": 7, "drained": 1} | ({"sram": waiting} if waiting else {})
    assert result.causes["EX"] == expected


def test_zero_bytes() -> None:
    # OP_DMA_READ with LD_BYTES 0: setup and drain remain, and the latency. Two words in [0, 2)
    # after a latency of 5, burst_gap 1: executed in 7, [8, 8 + 1 + 5 + 2).
    result = ticks(Step("OP_DMA_READ", "LD"), dram_latency=5, dma_drain=2)
    assert result.spans[0] == (8, 16)
    assert result.causes["LD"] == {"queue_empty": 8, "busy": 3, "dram": 5, "drained": 1}


@pytest.mark.parametrize("isa", COMPUTE)
def test_sums_and_causes(isa: str) -> None:
    for seed in range(40):
        result = run(random_case(seed, isa))
        for unit, row in result.causes.items():
            assert sum(row.values()) == result.total
            assert set(row) <= set(causes(isa)[unit])
        assert sum(result.kinds.values()) == result.total


def test_legal_steps_drop_unsatisfied_pops() -> None:
    everything = ("pop_previous", "pop_next", "push_previous", "push_next")
    steps = legal_steps((sync("EX", *everything), sync("LD", *everything), sync("EX", *everything)))
    assert [sorted(step.flags) for step in steps] == [
        ["push_next", "push_previous"], ["pop_next", "push_next"],
        ["pop_previous", "push_next", "push_previous"],
    ]  # fmt: skip


def test_shrinking_reaches_the_smallest_case() -> None:
    def fails(case: Case) -> bool:
        try:
            return run(case).causes["ST"].get("token_EX", 0) > 2
        except InputError:  # no legal program, such as a pool with fewer outputs than inputs
            return False

    seed = next(seed for seed in range(1000) if fails(random_case(seed)))
    case = shrink(random_case(seed), fails)
    assert fails(case)
    assert [step.unit for step in case.steps] == ["EX", "ST"]
    assert case.steps[1].flags == {"pop_previous"}
    assert (
        "OP_SYNC ST [pop_previous]" in case.describe()
        or "OP_DMA_WRITE ST [pop_previous]" in case.describe()
    )
