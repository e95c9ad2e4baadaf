"""Slots and beats of transfers: the closed form against bursts cut one by one."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dla_sim.engine.workload import TransferTable
from dla_sim.timing import MemoryTiming, Timing
from isa.access import Access, strided

DRAM = Timing().main
MEMORIES = [
    DRAM,
    MemoryTiming(width=1, burst_bytes=1, latency=0, outstanding=16),
    MemoryTiming(width=16, burst_bytes=16, latency=100, outstanding=1),
    MemoryTiming(width=4, burst_bytes=256, latency=100, outstanding=8),
    MemoryTiming(width=8, burst_bytes=64, latency=100, outstanding=16, rate=Fraction(11, 25)),
    MemoryTiming(width=16, burst_bytes=256, latency=10, outstanding=3, rate=Fraction(7, 3)),
]


def transfer(access: Access, memory: MemoryTiming) -> tuple[int, int]:
    """Return the slots and beats that the simulator computes for one access."""
    slots, beats = TransferTable([access]).cost(memory)
    return int(slots[0]), int(beats[0])


def bursts_one_by_one(access: Access, memory: MemoryTiming) -> tuple[int, int]:
    """(slots, beats) as docs/machine.md section 6 words it."""
    slots = beats = 0
    for low, high in access.runs():
        while low < high:
            end = min(high, (low // memory.burst_bytes + 1) * memory.burst_bytes)
            words = (end - 1) // memory.width - low // memory.width + 1
            beats += words
            slots += max(words, ceil((end - low) / (memory.rate or 1000)), memory.burst_gap)
            low = end
    return slots, beats


DIMENSIONS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 700)), max_size=3)


@given(st.sampled_from(MEMORIES), st.integers(0, 500), st.integers(0, 300), DIMENSIONS)
def test_transfer_counts_every_burst(
    memory: MemoryTiming, address: int, nbytes: int, dims: list[tuple[int, int]]
) -> None:
    access = strided("dram", address, nbytes, *dims)
    assert transfer(access, memory) == bursts_one_by_one(access, memory)


def test_rows_of_seven_bytes() -> None:
    """Rows of 7 bytes 49 apart, eight of them: partial bursts cost the gap, wherever they start."""
    access = strided("dram", 0, 7, (8, 49))
    # Starts at 0, 49, 98, 147, 196, 245, 294, 343; modulo 64: 0, 49, 34, 19, 4, 53, 38, 23; none
    # crosses a block, so 8 bursts of 7 slots. Modulo 8: 0, 1, 2, 3, 4, 5, 6, 7; the first two fit a
    # bus word, six touch two: 14 beats.
    assert transfer(access, DRAM) == (56, 14)


@pytest.mark.parametrize(
    ("address", "nbytes", "expected"), [(0, 64, (8, 8)), (60, 8, (14, 2)), (0, 0, (0, 0))]
)
def test_single_rows(address: int, nbytes: int, expected: tuple[int, int]) -> None:
    assert transfer(Access("dram", address, nbytes), DRAM) == expected


def test_repeated_transfers_cost_no_memory() -> None:
    """A million million rows at stride 0 are counted without being listed."""
    access = Access("dram", 8, 8, ((1 << 20, 0), (1 << 20, 0)))
    assert transfer(access, DRAM) == (7 << 40, 1 << 40)
