"""Slots of rows, one by one, against the tick-by-tick model's."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from amaranth.sim import Simulator

from dla_sim.rtl.bus import Slots
from tests.dla_sim.tick.scripts import BEAT, Memory, transfer_slots

BUS_BYTES = 32
ROWS = 60


def random_memory(random_: random.Random) -> Memory:
    """Any memory that such a bus can have."""
    width = 1 << random_.randrange(6)
    burst = width << random_.randrange(6)
    latency, outstanding = random_.choice([0, 5, 100]), random_.choice([1, 3, 64])
    return Memory("dram", width, burst, latency, outstanding, Fraction(width))


def gap_of(memory: Memory) -> int:
    """Its ``burst_gap`` (docs/machine.md, section 2)."""
    return -(-(memory.latency + memory.burst // memory.width) // memory.outstanding)


@pytest.mark.parametrize("seed", range(3))
def test_slots_of_rows_are_those_of_the_model(seed: int) -> None:
    """Beats and held slots are those of the model for any granted cycles.

    They are in order, with every byte once and the last slot of each row.
    """
    random_ = random.Random(seed)
    slots = Slots(BUS_BYTES, "slots")
    simulator = Simulator(slots)
    simulator.add_clock(1e-6)

    async def bench(ctx: Any) -> None:
        for _ in range(ROWS):
            memory = random_memory(random_)
            address = random_.randrange(1 << 12)
            nbytes = random_.choice([1, 7, 64, random_.randrange(1, 300)])
            if random_.randrange(10) == 0:
                address = (1 << 32) - nbytes  # the last bytes that can be addressed
            ctx.set(slots.shift, memory.width.bit_length() - 1)
            ctx.set(slots.burst_shift, memory.burst.bit_length() - 1)
            ctx.set(slots.gap, gap_of(memory))
            expected = transfer_slots([(address, address + nbytes)], memory, Counter())
            end = address + nbytes
            for number, symbol in enumerate(expected):
                ctx.set(slots.address, address % (1 << 32))
                ctx.set(slots.left, end - address)
                while random_.randrange(3) == 0:
                    await ctx.tick()
                assert ctx.get(slots.beat) == (symbol == BEAT)
                assert ctx.get(slots.last) == (number == len(expected) - 1)
                count = ctx.get(slots.count)
                assert count == (
                    min(end, (address // memory.width + 1) * memory.width) - address
                ) * (symbol == BEAT)
                ctx.set(slots.step, 1)
                await ctx.tick()
                ctx.set(slots.step, 0)
                address += count
            assert address == end

    simulator.add_testbench(bench)
    simulator.run()
