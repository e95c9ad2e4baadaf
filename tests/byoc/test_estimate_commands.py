"""Estimated end cycles of commands equal those of a machine that advances by half a bus slot."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from byoc.estimate.banks import BankUse
from byoc.estimate.bus import DEFAULT_BUS, MemoryBus
from byoc.estimate.commands import CommandTask, Stored, TileClock, run
from byoc.estimate.constants import (
    DMA_DRAIN,
    DMA_SETUP,
    DRAM_LATENCY,
    EX_DRAIN,
    EX_FILL,
    ISSUE_CYCLES,
    QUEUE_DEPTH,
)
from isa.instruction import Unit

LD, EX, ST = (unit.value for unit in (Unit.LD, Unit.EX, Unit.ST))
FIRST = 146
"""Cycle at which the first command is issued."""


def stepped(tasks: Sequence[CommandTask], bus: MemoryBus = DEFAULT_BUS) -> list[int]:
    """Return the end cycles of commands by stepping through the cycles.

    Transfers share the bus equally.
    """
    lead = {LD: DMA_SETUP + bus.latency, ST: DMA_SETUP}
    ends: dict[int, int] = {}
    left: dict[int, int] = {}  # half slots of the transfers that move
    began: dict[int, int] = {}
    issued: list[tuple[int, int]] = []  # command and the cycle at which it is in its queue
    issue_time = FIRST - ISSUE_CYCLES
    cycle = 0
    while len(ends) < len(tasks):
        assert cycle < 100_000
        # Issue: a unit's queue has room when the command QUEUE_DEPTH places before the next one has
        # ended.
        while len(issued) < len(tasks):
            number = len(issued)
            same = [one for one, _ in issued if tasks[one].unit == tasks[number].unit]
            room = 0 if len(same) < QUEUE_DEPTH else ends.get(same[-QUEUE_DEPTH])
            if room is None or room > cycle:
                break
            issue_time = max(issue_time + ISSUE_CYCLES, room)
            issued.append((number, issue_time))
        for unit in (LD, EX, ST):
            queue = [
                (one, at) for one, at in issued if tasks[one].unit == unit and one not in began
            ]
            running = [
                one for one in began if tasks[one].unit == unit and ends.get(one, cycle + 1) > cycle
            ]
            if not queue or running or queue[0][1] > cycle:
                continue
            number = queue[0][0]
            if any(ends.get(other, cycle + 1) > cycle for other in tasks[number].needs):
                continue
            began[number] = cycle
            if unit == EX:
                ends[number] = cycle + tasks[number].work
            else:
                left[number] = 2 * tasks[number].work
        moving = [one for one in left if began[one] + lead[tasks[one].unit] <= cycle]
        for one in moving:
            left[one] -= 2 // len(moving)
        cycle += 1
        for one in [one for one in moving if left[one] <= 0]:
            del left[one]
            ends[one] = cycle + DMA_SETUP + bus.latency + DMA_DRAIN - lead[tasks[one].unit]
    return [ends[number] for number in range(len(tasks))]


@pytest.mark.parametrize("seed", range(60))
def test_commands_end_when_a_machine_in_steps_ends_them(seed: int) -> None:
    """Queues, tokens and two transfers that share the bus.

    All works are so long that units meet.
    """
    rng = random.Random(seed)
    tasks = [
        CommandTask(
            rng.choice((LD, EX, ST)),
            rng.randint(1, 400),
            tuple(rng.sample(range(number), min(number, rng.randint(0, 2)))),
        )
        for number in range(rng.randint(1, 14))
    ]
    bus = MemoryBus(latency=rng.choice((0, DRAM_LATENCY, 400)))
    assert list(run(tasks, FIRST, bus).ends) == stepped(tasks, bus)


def test_two_transfers_at_once_take_turns() -> None:
    """The store begins after the load, ends first, and the load then has the bus for itself."""
    load = 1000
    store = 100
    first = FIRST + DMA_SETUP + DRAM_LATENCY
    ends = run([CommandTask(LD, load, ()), CommandTask(ST, store, ())], FIRST, DEFAULT_BUS).ends
    assert ends[1] < first + load
    assert ends[0] == first + load + store + DMA_DRAIN - max(0, first - FIRST - 6 - DMA_SETUP)
    assert stepped([CommandTask(LD, load, ()), CommandTask(ST, store, ())]) == list(ends)


@pytest.mark.parametrize(("bank", "free", "late"), [(3, 50, 150), (3, 200, 0), (2, 50, 0)])
def test_words_of_a_transfer_delay_the_command_that_they_meet(
    bank: int, free: int, late: int
) -> None:
    """While the command computes, 200 words pass, and 50 of them find a free cycle of the bank.

    Another bank is not touched.
    """
    load = CommandTask(LD, 200, (), (BankUse(3, 3, 200),))
    compute = CommandTask(EX, 1000, (), (BankUse(bank, bank, free),))
    tasks = [load, compute, CommandTask(ST, 10, (1,))]
    plain = run([one._replace(banks=()) for one in tasks], FIRST, DEFAULT_BUS)
    found = run(tasks, FIRST, DEFAULT_BUS)
    assert found.work[1] == 1000 + late
    assert [later - before for later, before in zip(found.ends, plain.ends, strict=True)] == [
        0,
        late,
        late,
    ]


def test_only_words_that_pass_while_it_computes_delay_a_command() -> None:
    """A computation between two loads meets half of the second one.

    Its fill and drain use no bank.
    """
    slots = 400
    words = 200
    load = CommandTask(LD, slots, (), (BankUse(0, 0, words),))
    alone = run([load, load], FIRST, DEFAULT_BUS).ends
    # It starts after the first load and ends in the middle of the words of the second one.
    begin = alone[0]
    second = alone[1] - DMA_DRAIN - slots
    cycles = second + slots // 2 - begin
    tasks = [
        load,
        load,
        CommandTask(EX, cycles + EX_DRAIN, (0,), (BankUse(0, 0, words // 2 - 10),)),
    ]
    assert (
        run(tasks, FIRST, DEFAULT_BUS).work[2] - tasks[2].work == 19
    )  # 10 words, half as many during this wait, and so on, rounded down
    without = [load, load, CommandTask(EX, second - begin + EX_DRAIN, (0,), (BankUse(0, 0, 0),))]
    assert run(without, FIRST, DEFAULT_BUS).work[2] == without[2].work
    early = [CommandTask(EX, EX_FILL + 10, (), (BankUse(0, 0, 0),)), load]
    assert run(early, FIRST, DEFAULT_BUS).work[0] == early[0].work


def test_a_tile_waits_until_its_buffer_is_stored() -> None:
    """The second tile writes the buffer that the store of the first one empties.

    The third one another buffer.
    """
    clock = TileClock(DEFAULT_BUS)
    store = Stored(500, (7,))
    clock.compute(100, [store])
    clock.store([store])
    stored = DEFAULT_BUS.transfer_cycles(100 + 500)
    clock.compute(10, [Stored(500, (8,))])
    assert clock.end == 600  # the bus is busy with the store
    clock.compute(10, [store])
    assert clock.end == stored + 10


def test_a_load_waits_for_the_tile_that_stores_its_bytes() -> None:
    """Bytes that tile 1 stores are readable when its store has ended.

    A load beside a tile begins with the tile.
    """
    clock = TileClock(DEFAULT_BUS)
    store = Stored(300, (1,))
    clock.compute(100, [store])
    clock.store([store])
    readable = DEFAULT_BUS.transfer_cycles(400)
    assert clock.load(50, 1) == readable + 50
    other = TileClock(DEFAULT_BUS)
    other.compute(1000, [])
    assert other.load(50, 0) == 50  # the computation began at 0
    other.compute(1000, [])
    assert other.idle
    assert other.load(50, 0) == 1050
    assert other.load(50, 0, late=True) == 1100
    other.wait(5000)
    other.compute(1, [])
    assert other.end == 5001
