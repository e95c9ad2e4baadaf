"""Banks of the scratchpad as estimates know them, against words counted one by one."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import cast

import pytest

from byoc.estimate.banks import (
    BankUse,
    CommandLoads,
    ComputeLoad,
    EngineStep,
    OperandLoad,
    Passing,
    delay,
)
from byoc.estimate.bus import MemoryBus
from byoc.estimate.constants import BANK_PORTS
from isa.arch import Arch
from isa.instruction import Unit
from isa.ops.dma import side_registers

IDEAL = Arch(isa="v4", sram_bytes=4096, sram_banks=4)
BANKED = Arch(isa="v5", sram_bytes=4096, sram_banks=4)
BANK = 1024


@pytest.mark.parametrize(
    ("operands", "turns"), [(1, 1), (BANK_PORTS, 1), (BANK_PORTS + 1, 2), (2 * BANK_PORTS + 1, 3)]
)
def test_a_bank_of_ideal_memory_serves_a_few_operands_at_a_time(operands: int, turns: int) -> None:
    """More operands in one bank take turns; in different banks they do not."""
    load = ComputeLoad(100, 0, tuple(OperandLoad(number, 0, 64, 1) for number in range(operands)))
    together = load.compute_served([64 * number for number in range(operands)], IDEAL, 0)
    apart = load.compute_served([BANK * (number % 4) for number in range(operands)], IDEAL, 0)
    assert together == (100 * turns, ())
    assert apart == (100 * -(-operands // (4 * BANK_PORTS)), ())


def test_an_operand_in_two_banks_uses_both() -> None:
    load = ComputeLoad(
        100, 0, tuple(OperandLoad(number, 0, 64, 1) for number in range(BANK_PORTS + 1))
    )
    places = [BANK - 32, *[BANK] * BANK_PORTS]
    assert load.compute_served(places, IDEAL, 0) == (200, ())
    # it ends with its bank
    assert load.compute_served([BANK - 64, *places[1:]], IDEAL, 0) == (100, ())


def test_a_bank_serves_one_word_per_cycle() -> None:
    """So does the port that further operands share.

    Transfers wait for nothing if a bank has cycles to spare.
    """
    operands = OperandLoad(0, 0, 512, 60), OperandLoad(1, 0, 512, 70), OperandLoad(2, 0, 512, 40)
    load = ComputeLoad(100, 0, operands)
    apart = [0, BANK, 2 * BANK]
    together = [0, 512, BANK]
    assert load.compute_served(apart, BANKED, 4) == (100, ())
    assert load.compute_served(together, BANKED, 4) == (130, (BankUse(0, 0, 0),))
    assert load._replace(port_words=150).compute_served(together, BANKED, 4) == (
        150,
        (BankUse(0, 0, 20),),
    )
    assert load._replace(port_words=400).compute_served(together, BANKED, 4) == (400, ())
    # 100 cycles, of which 100 // 4 + 2 may pass words of transfers: bank 1 has 70 of 73 words.
    more = load._replace(operands=(*operands, OperandLoad(3, 0, 512, 4)))
    assert more.compute_served([*apart, BANK], BANKED, 4) == (100, (BankUse(1, 1, 26),))


@pytest.mark.parametrize("seed", range(20))
def test_a_row_of_a_transfer_uses_each_word_that_it_touches(seed: int) -> None:
    rng = random.Random(seed)
    loads = CommandLoads(BANKED, MemoryBus())
    word = BANKED.memory.word
    address, nbytes, loops = side_registers(Unit.LD, "sram")
    size = rng.randint(1, 100)
    count = rng.randint(1, 6)
    step = rng.randint(1, 200)
    offset = rng.randrange(0, 96)
    (first, stride), *others = loops
    registers = {nbytes: size, first: count, stride: step, **{name: 1 for name, _ in others}}
    registers |= {name: 0 for _, name in others}
    made = SimpleNamespace(
        registers=registers, pointers={address: (0, offset)}, instruction=None, fields={}
    )
    found = loads.transfer(cast(EngineStep, made), Unit.LD)
    rows = [offset % word + number * step for number in range(count)]
    touched = [{byte // word for byte in range(row, row + size)} for row in rows]
    dense = (
        {byte // word for row in rows for byte in range(row, row + size)} if step == size else None
    )
    assert found[0] == size + (count - 1) * step
    assert found[1] == (len(dense) if dense is not None else sum(map(len, touched)))


def test_words_that_pass_delay_a_command_until_they_have_passed() -> None:
    """EX has 30 free cycles of bank 2.

    A transfer takes the bank for 100 of 200 words, then for those of the wait.
    """
    use = [BankUse(2, 2, 30)]
    whole = Passing(100, 200, BankUse(2, 2, 100))
    assert delay(use, 100, 200, [whole]) == 70
    assert delay(use, 100, 200, [Passing(100, 300, BankUse(2, 2, 200))]) == 170
    assert delay(use, 100, 200, [Passing(150, 250, BankUse(2, 2, 100))]) == 70
    assert delay(use, 150, 200, [whole]) == 20
    assert delay(use, 100, 200, [whole._replace(use=BankUse(0, 1, 100))]) == 0
    assert (
        delay(
            use,
            100,
            200,
            [whole._replace(use=BankUse(1, 3, 20)), Passing(100, 200, BankUse(2, 2, 20))],
        )
        == 10
    )
    assert (
        delay([BankUse(1, 1, 95), *use], 100, 200, [whole._replace(use=BankUse(1, 2, 100))]) == 70
    )
    assert delay(use, 100, 200, [Passing(150, 150, BankUse(2, 2, 100))]) == 0
