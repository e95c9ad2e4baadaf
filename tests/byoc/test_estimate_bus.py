"""Slots of the bus as estimates know them, against every burst of every row."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from byoc.estimate.bus import DEFAULT_BUS, MemoryBus, bus_of, registers_of
from byoc.estimate.constants import DMA_DRAIN, DMA_SETUP
from dla_sim.presets import load_hardware
from dla_sim.timing import Timing
from isa.instruction import Unit

BUSES = [
    MemoryBus(),
    MemoryBus(16, 64, 4),
    MemoryBus(8, 64, 20),
    MemoryBus(4, 128, 32),
    MemoryBus(32, 64, 2),
    MemoryBus(8, 64, 146, Fraction(11, 25)),
]


def slots_of_row(bus: MemoryBus, address: int, nbytes: int) -> int:
    """Return the slots of a row, burst by burst: its beats, or a gap where these are fewer."""
    total = 0
    for block in range(address // bus.burst_bytes, -(-(address + nbytes) // bus.burst_bytes)):
        first = max(address, block * bus.burst_bytes) // bus.bus_bytes
        last = min(address + nbytes, (block + 1) * bus.burst_bytes)
        beats = -(-last // bus.bus_bytes) - first
        served = ceil((last - max(address, block * bus.burst_bytes)) / (bus.rate or bus.bus_bytes))
        whole = served == bus.data_cycles(bus.burst_bytes)
        total += bus.burst_slots if whole else max(beats, served, bus.burst_gap)
    return total


@pytest.mark.parametrize("bus", BUSES, ids=str)
def test_rows_take_the_slots_of_their_bursts(bus: MemoryBus) -> None:
    """In the mean over the places in a burst at which rows a pitch apart can begin."""
    random = np.random.default_rng(0)
    for _ in range(200):
        count, nbytes, pitch = (int(number) for number in random.integers(1, (9, 300, 300)))
        starts = {step * pitch % bus.burst_bytes for step in range(bus.burst_bytes)}
        mean = Fraction(sum(slots_of_row(bus, start, nbytes) for start in starts), len(starts))
        assert bus.rows_slots(count, nbytes, pitch) == count * mean // 1, (count, nbytes, pitch)


def test_a_long_row_begins_anywhere() -> None:
    """It has a burst of which others have a part."""
    bus = MemoryBus()
    for nbytes in (640, 6400, 64000):
        every = [
            slots_of_row(bus, start, nbytes) for start in range(0, bus.burst_bytes, bus.bus_bytes)
        ]
        assert min(every) < bus.run_slots(nbytes) <= max(every) + 1


def test_rows_begin_at_multiples_of_what_all_loops_have_in_common() -> None:
    bus = MemoryBus()
    (address, nbytes, loops) = registers_of(Unit.LD)
    registers = {
        address: 0,
        nbytes: 24,
        **{count: 1 for count, _ in loops},
        **{stride: 0 for _, stride in loops},
    }
    (first, step), (second, pitch), *_ = loops
    registers |= {first: 3, step: 24, second: 5, pitch: 96}
    assert bus.transfer_slots(registers, Unit.LD) == bus.rows_slots(15, 24, 8)
    assert bus.rows_slots(15, 24, 8) != bus.rows_slots(15, 24, 96)


def test_each_transfer_has_an_overhead() -> None:
    for latency in (100, 400):
        bus = MemoryBus(latency=latency)
        assert bus.transfer_cycles(100, 7) == 100 + 7 * (DMA_SETUP + latency + DMA_DRAIN)


def test_a_bus_has_the_latency_of_its_timing_from_the_default_on() -> None:
    """Machines with less latency share the default bus, so that sweeps compile once for them."""
    buses = [bus_of(Timing(dram_latency=latency)) for latency in (0, 20, 100, 101, 400)]
    assert [bus.latency for bus in buses] == [100, 100, 100, 101, 400]
    assert buses[:3] == [DEFAULT_BUS] * 3
    assert len({*buses}) == 3


def test_a_slow_memory_makes_bursts_longer_than_their_beats() -> None:
    timing = load_hardware().timing.model_copy(
        update={"dram_latency": 200, "outstanding_bursts": 2}
    )
    beats = timing.burst_bytes // timing.bus_bytes
    assert bus_of(timing).burst_slots == (200 + beats + 1) // 2


def test_constants_come_from_the_flash() -> None:
    timing = Timing(dram_latency=32, flash_bytes=1)
    bus = bus_of(timing)
    assert timing.flash is not None
    assert bus.constants.dense_slots(6400) == 6400 == timing.flash.least_slots(6400)
    assert bus.dense_slots(6400) == DEFAULT_BUS.dense_slots(6400) == 800
    assert bus.first_chunk(16) == timing.flash.latency + timing.flash.least_slots(128) == 192
    assert DEFAULT_BUS.constants is DEFAULT_BUS
