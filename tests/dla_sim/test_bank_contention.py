"""An addition and a transfer that use the scratchpad at the same time, worked out by hand.

The rules are those of docs/machine.md, section 12. The machine has an array of 8 x 8 x 1,
words of W = 32 bytes, L = 32 lanes and banks of 0x8000 bytes, as in test_engine_words. The bus
brings 8 bytes a cycle, a word in K = 4.
"""

from __future__ import annotations

import pytest

from dla_sim.device import Trace
from dla_sim.timing import Timing
from tests.dla_sim.test_engine_hand_worked import spans, trace_of

BESIDE = """
    SET LD_DRAM_ADDRESS, 0x1000
    SET {unit}_SRAM_ADDRESS, {place}
    SET {unit}_BYTES, {nbytes}
    SET EX_LENGTH, 1000
    SET EX_INPUT_ADDRESS, {input}
    SET EX_OPERAND_ADDRESS, {operand}
    SET EX_OUTPUT_ADDRESS, {output}
    {operation}
    OP_E_ADD
    OP_END
"""


def beside(
    unit: str,
    place: int,
    places: tuple[int, int, int],
    *,
    nbytes: int = 1024,
    lanes: int = 32,
    **timing: int,
) -> Trace:
    """Run a transfer, without latency by default, and an addition of operands at ``places``.

    The addition is that of test_engine_words. 10 words are there at 10 (of 16 bytes a cycle at 5).
    The transfer, word 7, starts at 18 and its slots begin at 22. EX starts at 19 and computes from
    27 on, behind 5 slots.
    """
    operation = {"LD": "OP_DMA_READ", "ST": "OP_DMA_WRITE"}[unit]
    operands = dict(zip(("input", "operand", "output"), places, strict=True))
    text = BESIDE.format(unit=unit, place=place, nbytes=nbytes, operation=operation, **operands)
    text = text.replace("LD_DRAM", f"{unit}_DRAM")
    return trace_of(
        text, Timing(**{"dram_latency": 0, **timing}), f'{{"isa": "v5", "post_lanes": {lanes}}}'
    )


@pytest.mark.parametrize(
    ("unit", "place", "bank", "bus", "taken"),
    [
        # of 32 words, one in every 4th slot, the first passes before EX computes
        ("LD", 0x1000, 0, 8, 31),
        ("LD", 0x7E00, 0, 8, 31),  # over two banks, and takes both
        ("LD", 0x7E00, 0x8000, 8, 31),
        ("LD", 0x8000, 0, 8, 0),  # in another bank
        ("LD", 0x1000, 0, 16, 30),  # one in every other slot: two pass before
        ("ST", 0x1000, 0, 8, 30),  # with the first of every 4 slots: two pass before
        ("ST", 0x1010, 0, 8, 31),  # 33 words in 132 slots
    ],
)
def test_an_addition_beside_a_transfer(
    unit: str, place: int, bank: int, bus: int, taken: int
) -> None:
    """A transfer of 1024 bytes, 128 slots or 64, delays an addition of 96 words in one bank.

    Behind 5 slots 1 word of LD has passed, 2 of ST. The others pass before EX has had its 96
    cycles.
    """
    trace = beside(unit, place, (bank + 0x2000, bank + 0x2400, bank + 0x2800), bus_bytes=bus)
    _, start, end = spans(trace)[1]
    assert (start, end - start) == ({8: 19, 16: 14}[bus], 8 + 96 + taken + 8)
    assert trace.units["EX"]["sram"] == 64 + taken
    assert trace.units[unit]["busy"] - 8 == 1024 // bus


@pytest.mark.parametrize(
    ("bus", "lanes", "cycles"),
    [
        # c = 32; of 42 cycles LD has 10: behind 47 slots 11 words have passed, 1 of them before
        (8, 32, 42),
        (16, 16, 63),  # c = 63; LD takes 30 of them, and the bank has served EX in 62
        (8, 16, 63),
    ],
)
def test_an_operand_alone_beside_a_load(bus: int, lanes: int, cycles: int) -> None:
    """32 words of an operand, each in a bank of its own; the first also has what LD loads."""
    trace = beside("LD", 0x1000, (0, 0x8000, 0x10000), bus_bytes=bus, lanes=lanes)
    _, start, end = spans(trace)[1]
    assert end - start == 8 + cycles + 8
    assert trace.units["EX"].get("sram", 0) == cycles - -(-1000 // lanes)


def test_an_addition_goes_on_behind_a_transfer() -> None:
    """256 bytes are 32 slots and 8 words.

    The first passes before EX computes, the last in 54; EX has 96 cycles.
    """
    _, start, end = spans(beside("LD", 0x1000, (0, 0x400, 0x800), nbytes=256))[1]
    assert (start, end - start) == (19, 8 + 96 + 7 + 8)


def test_a_transfer_begins_while_an_addition_computes() -> None:
    """The slots of a load begin when the addition has computed for 15 cycles.

    With a latency of 20 words are there at 30, LD starts at 38, its slots begin at 62, and EX
    computes from 47 on. Behind 107 slots 26 words have passed: of 15 + 107 cycles EX has had 96.
    """
    _, start, end = spans(beside("LD", 0x1000, (0, 0x400, 0x800), dram_latency=20))[1]
    assert (start, end - start) == (39, 8 + 15 + 107 + 8)
