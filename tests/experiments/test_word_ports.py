"""``dla rtl ports`` for banked memory: its table against the tick model, and its output.

The comparison is cycle by cycle.
"""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dla_sim.presets import Preset, load_hardware
from dla_sim.timing import Timing
from experiments.cli.main import main
from experiments.rtl import word_ports
from isa.access import Access, row_starts
from isa.arch import PACKED, Arch
from isa.instruction import Command, Unit
from isa.plugins import variant
from tests.dla_sim.cases import Case, build_program
from tests.dla_sim.program_generator import random_case
from tests.dla_sim.tick import run_ticks, words
from tests.dla_sim.tick.model import TickModel

SIDE = "records, sums and tables"
READING = ("first operand", "second operand", SIDE)
Word = tuple[str, int]
"""A word that passes: the port that moves it, the bank that it lies in."""


def machine(arch: Arch, timing: Timing) -> Preset:
    """A machine without a name."""
    return Preset(name="", arch=arch, timing=timing)


def edge_colours(found: Sequence[Word]) -> list[int]:
    """A cycle for each word, so that no port and no bank has two in one.

    The fewest cycles that there can be.

    Words are edges between ports and banks. Each takes a cycle in which its port has none; where
    its bank is taken then, the words on the path from there that alternate between that cycle and
    one of the bank's own change places.
    """
    taken: dict[tuple[str | int, int], int] = {}
    cycles = [0] * len(found)

    def first_free(node: str | int) -> int:
        return next(cycle for cycle in range(len(found) + 1) if (node, cycle) not in taken)

    def place(edge: int, cycle: int) -> None:
        cycles[edge] = cycle
        taken.update({(node, cycle): edge for node in found[edge]})

    for number, (port, bank) in enumerate(found):
        mine = first_free(port)
        theirs = first_free(bank)
        path = list[int]()
        node = bank
        cycle = mine
        while mine != theirs and (node, cycle) in taken:
            path.append(taken[node, cycle])
            node = next(end for end in found[path[-1]] if end != node)
            cycle = theirs if cycle == mine else mine
        for edge in path:
            for end in found[edge]:
                taken.pop((end, cycles[edge]), None)
        for edge in path:
            place(edge, theirs if cycles[edge] == mine else mine)
        place(number, mine)
    return cycles


def operands_of(command: Command, arch: Arch) -> Iterator[tuple[str, str, Access, int]]:
    """Yield (register, access, range, words) of each operand.

    The tick model counts the words.
    """
    packed = command.instruction.packed
    assert packed is not None
    operands = command.instruction.operands(command, arch)
    counted = words.count(command, arch, Counter()).words.values()
    accesses = (*operands.reads, *operands.writes)
    for number, parts in enumerate(
        zip(packed.layouts(command, arch), accesses, counted, strict=True)
    ):
        layout, access, count = parts
        yield (
            layout.register,
            "read" if number < len(operands.reads) else "write",
            access,
            count if access.total else 0,
        )


def exchanged(cycles: Sequence[int], fixed: Sequence[int], count: int) -> list[int]:
    """Reorder ``count`` cycles so that the last words get the ``fixed`` ones."""
    moved = dict(zip(cycles[len(cycles) - len(fixed) :], fixed, strict=True))
    others = iter(cycle for cycle in range(count) if cycle not in set(fixed))
    return [
        moved.setdefault(cycle, cycle) if cycle in moved else moved.setdefault(cycle, next(others))
        for cycle in cycles
    ]


def ex_words(case: Case, command: Command, rng: random.Random) -> list[Word]:
    """Return the words of a command of EX, each in some bank of its operand, by port."""
    arch = case.arch
    assert arch.words is not None
    hardware = machine(arch, Timing(**case.timing))
    bank_bytes = arch.sram_bytes // arch.sram_banks
    rows = {(row["instruction"], row["operand"]): row for row in word_ports.port_rows(hardware)}
    found: list[Word] = []
    for register, side, access, count in operands_of(command, arch):
        row = rows[command.instruction.mnemonic, register]
        assert (row["owner"], row["access"], row["words"], row["slots"]) == (
            "EX",
            side,
            1,
            "left by LD and ST",
        )
        assert row["word_bytes"] == row["aligned"] == arch.words.word
        banks = range(access.address // bank_bytes, (access.end - 1) // bank_bytes + 1)
        assert set(banks) <= set(range(*_banks(row["banks"])))
        found += [(row["port"], rng.choice(banks)) for _ in range(count)]
    return found


def test_no_bank_and_no_port_has_two_words_in_a_cycle_of_random_programs() -> None:
    """All words of a command of EX pass in the cycles that the tick model gives it.

    Each may be anywhere in its operand. Words of LD and ST pass too, each in the cycle of its slot.
    """
    rng = random.Random(5)
    waiting = Counter[str]()
    passed = 0
    beside = 0
    for seed in range(150):
        case = random_case(seed, PACKED)
        timing = Timing(**case.timing)
        program = build_program(case)
        model = TickModel(program, timing)
        result = model.run()
        assert model.banks is not None
        for command, (start, end) in zip(program.commands, result.spans, strict=False):
            if command.instruction.unit is not Unit.EX:
                continue
            begin = start + timing.ex_fill
            length = end - start - timing.ex_fill - timing.ex_drain
            found = ex_words(case, command, rng)
            taken = {
                c - begin: banks
                for c, banks in model.banks.passed.items()
                if 0 <= c - begin < length
            }
            both = found + [("LD or ST", rng.choice(banks)) for banks in taken.values()]
            cycles = exchanged(edge_colours(both), list(taken), length)
            assert cycles[len(found) :] == list(taken)
            assert all(0 <= cycle < length for cycle in cycles)
            moved = {
                (cycle, node) for word, cycle in zip(both, cycles, strict=True) for node in word
            }
            assert len(moved) == 2 * len(both)
            by_cycle = Counter(cycle for cycle, node in moved if node in READING)
            assert max(by_cycle.values(), default=0) <= 3
            passed = passed + len(found)
            beside = beside + len(taken)
            busy = Counter(port for port, _ in found)
            waiting[SIDE] += 0 < busy[SIDE] == max(busy.values()) and len({p for p, _ in found}) > 1
    assert passed > 15_000
    assert beside > 500
    assert waiting[SIDE] > 5


def test_ld_and_st_have_a_word_in_k_cycles_of_random_programs() -> None:
    """Each has as many slots as its words ask for, and both together no more than the bus."""
    transfers = 0
    for seed in range(150):
        case = random_case(seed, PACKED)
        arch = case.arch
        timing = Timing(**case.timing)
        assert arch.words is not None
        every = timing.word_cycles(arch.words.word)
        rows = {
            row["owner"]: row
            for row in word_ports.port_rows(machine(arch, timing))
            if row["owner"] != "EX"
        }
        assert {row["slots"] for row in rows.values()} == {f"1 in {every} of the bus, first"}
        program = build_program(case)
        result = run_ticks(program, timing)
        asked = 0
        for command, (start, end) in zip(program.commands, result.spans, strict=False):
            if command.instruction.unit in (Unit.LD, Unit.ST):
                operands = command.instruction.operands(command, arch)
                side = (operands.writes if command.instruction.unit is Unit.LD else operands.reads)[
                    0
                ]
                touched = sum(
                    (first + side.nbytes - 1) // arch.words.word - first // arch.words.word + 1
                    for first in (row_starts(side).tolist() if side.total else [])
                )
                assert end - start >= every * touched
                asked += every * touched
                transfers += touched > 0
        assert asked <= result.total
    assert transfers > 100


def _banks(text: str) -> tuple[int, int]:
    first, last = map(int, text.split("-"))
    return first, last + 1


def test_every_operand_of_every_instruction_has_one_port() -> None:
    rows = [
        (row["instruction"], row["operand"])
        for row in word_ports.port_rows(load_hardware(isa=PACKED))
    ]
    assert len(rows) == len(set(rows))
    asked = {
        (one.mnemonic, register)
        for one in variant(PACKED).instructions if one.unit is not None
        for register in one.registers if register.endswith("_ADDRESS") and "DRAM" not in register
    }  # fmt: skip
    assert set(rows) == asked


def test_what_the_command_says_of_balanced_64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = tmp_path / "ports.json", tmp_path / "ports.csv"
    given = ["rtl", "ports", "--preset", "balanced-64", "--isa", "v5", "--json", str(places[0])]
    assert main([*given, "--csv", str(places[1])]) == 0
    out = capsys.readouterr().out
    assert out.endswith(
        "EX reads at most 3 words of 32 bytes a cycle, aligned, one by each port: first operand; "
        "second operand; "
        "records, sums and tables\n"
        "EX writes at most 1 word of 32 bytes a cycle, aligned, one by each port: result\n"
        "LD writes or ST reads 1 word in 4 slots of the bus at most, which bring 8 bytes each\n"
        "16 banks of 32,768 bytes with one port each: LD and ST come first; EX has all other "
        "cycles, first come "
        "operands in the order of the instruction, then the result\n"
    )
    document = json.loads(places[0].read_text())
    rows = list(csv.DictReader(places[1].read_text().splitlines()))
    assert [row["port"] for row in document["ports"]] == [row["port"] for row in rows]
    assert document["ex"] == {"read_words": 3, "write_words": 1}
    assert document["banks"] == {
        "count": 16,
        "words": 1,
        "word_bytes": 32,
        "cycles": 4,
        "for_bus": 1,
    }


def test_slots_of_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """A bus of 16 bytes brings a word of 32 in 2 slots, one of 8 a word of 64 in 8."""
    for keys, slots in (
        (["bus_bytes=16"], "1 in 2 of the bus"),
        (["word_bytes=64"], "1 in 8 of the bus"),
    ):
        more = [word for key in keys for word in ("--set", key)]
        assert main(["rtl", "ports", "--preset", "balanced-64", "--isa", "v5", *more]) == 0
        assert slots in capsys.readouterr().out
