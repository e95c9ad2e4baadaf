"""Ports of a banked scratchpad: words per requester and cycle, and the waits of a network.

There is no hardware with banked memory yet. The requesters are those with which the machine counts
its cycles (docs/machine.md, section 12).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.accounts import SRAM, explain
from dla_sim.engine.times import compute_times
from dla_sim.engine.workload import EX, Demands, Workload
from dla_sim.memory import PORTS_OF_WORDS, SIDE, busiest
from dla_sim.prepared import prepare
from dla_sim.presets import Preset
from dla_sim.timing import Timing
from isa.arch import words_of
from isa.instruction import Instruction, Unit
from isa.ops.dma import side_registers
from isa.packing import operand_layouts, operand_loads
from isa.plugins import variant
from isa.program import Program

Int64 = NDArray[np.int64]
SCHEMA = "dla-rtl-word-ports/1"


class Requester(NamedTuple):
    """Scratchpad port of a unit, and the operands that it transfers, each with instructions.

    It moves one aligned word of any bank per cycle, in the cycles that ``slots`` describes.
    """

    unit: Unit
    port: str
    access: str
    operands: dict[str, tuple[str, ...]]
    slots: str


def requesters(hardware: Preset) -> list[Requester]:
    """Return the scratchpad ports of EX, LD and ST in a machine with banked memory.

    Raise ValueError for a machine without banked memory.
    """
    every = hardware.timing.word_cycles(words_of(hardware.arch).word)
    found = variant(hardware.arch.isa).instructions
    by_unit = {unit: [one for one in found if one.unit is unit] for unit in Unit}
    ports = [
        Requester(
            Unit.EX,
            port.name,
            port.access,
            _find_passing(by_unit[Unit.EX], port.registers),
            "left by LD and ST",
        )
        for port in PORTS_OF_WORDS
    ]
    for unit, access in ((Unit.LD, "write"), (Unit.ST, "read")):
        register = side_registers(unit, "sram")[0]
        passing = {
            register: tuple(one.mnemonic for one in by_unit[unit] if register in one.registers)
        }
        ports.append(Requester(unit, unit.name, access, passing, f"1 in {every} of the bus, first"))
    return ports


def _find_passing(
    instructions: Sequence[Instruction], registers: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    return {
        register: tuple(one.mnemonic for one in instructions if register in one.registers)
        for register in registers
    }


def port_rows(hardware: Preset) -> list[dict[str, Any]]:
    """Return a table row for each instruction, operand, and scratchpad port that transfers it.

    ``words`` of ``word_bytes`` move per cycle, at multiples of ``aligned``, in any of ``banks``, in
    ``slots``.
    """
    arch = hardware.arch
    words = words_of(arch)
    rows = [
        {
            "instruction": mnemonic, "operand": register, "access": one.access,
            "owner": one.unit.name,
            "port": one.port, "words": 1, "word_bytes": words.word, "aligned": words.word,
            "banks": f"0-{arch.sram_banks - 1}",
            "slots": one.slots,
        }
        for one in requesters(hardware) for register,
        mnemonics in one.operands.items() for mnemonic in mnemonics
    ]  # fmt: skip
    order = {one.mnemonic: number for number, one in enumerate(variant(arch.isa).instructions)}
    return sorted(rows, key=lambda row: order[row["instruction"]])


def summary_lines(hardware: Preset) -> Iterator[str]:
    """Yield the words that the scratchpad must offer per cycle."""
    arch = hardware.arch
    timing = hardware.timing
    word = words_of(arch).word
    every = timing.word_cycles(word)
    for verb, access in (("reads", "read"), ("writes", "write")):
        ports = [port.name for port in PORTS_OF_WORDS if port.access == access]
        words = "1 word" if len(ports) == 1 else f"{len(ports)} words"
        yield (
            f"EX {verb} at most {words} of {word} bytes a cycle, aligned, one by each port: "
            f"{'; '.join(ports)}"
        )
    yield (
        f"LD writes or ST reads 1 word in {every} slots of the bus at most, which bring "
        f"{timing.bus_bytes} bytes each"
    )
    yield (
        f"{arch.sram_banks} banks of {arch.sram_bytes // arch.sram_banks:,} bytes with one port "
        "each: LD and ST come "
        "first; EX has all other cycles, first come operands in the order of the instruction, then "
        "the result"
    )


class WordStream(NamedTuple):
    """Scratchpad traffic of an operand: its words, its command's cycles, and the banks used."""

    instruction: str
    operand: str
    access: str
    words: int
    cycles: int
    banks: int


class Waits(NamedTuple):
    """Counts of EX commands and cycles, in total and waiting for a bank or shared port.

    ``for_bank`` and ``for_port`` are pairs of commands and cycles.
    """

    commands: int
    cycles: int
    for_bank: tuple[int, int]
    for_port: tuple[int, int]


def streams(programs: Iterable[Program], timing: Timing) -> Iterator[WordStream]:
    """Yield the scratchpad traffic of every EX operand that transfers at least one word.

    Cycles include waits.
    """
    for program in programs:
        arch = program.arch
        bank_bytes = arch.sram_bytes // arch.sram_banks
        found = prepare(program)
        taken = (found.demands.compute + _compute_waiting(found.demands, timing)).tolist()
        for command, operands, cycles in zip(found.commands, found.operands, taken, strict=True):
            if command.instruction.unit is not Unit.EX:
                continue
            words = operand_loads(command, operands, arch)
            accesses = (*operands.reads, *operands.writes)
            for number, (layout, access) in enumerate(
                zip(operand_layouts(command, arch), accesses, strict=False)
            ):
                if words[number] and access.total:
                    banks = (access.end - 1) // bank_bytes - access.address // bank_bytes + 1
                    side = "read" if number < len(operands.reads) else "write"
                    yield WordStream(
                        command.instruction.mnemonic, layout.register, side, words[number], cycles,
                        banks
                    )  # fmt: skip


def _compute_waiting(demands: Demands, timing: Timing) -> Int64:
    """Return the cycles that each EX command of a run waits for the scratchpad.

    Commands of other units have 0.
    """
    workload = Workload(demands, timing)
    waiting = explain(workload, compute_times(workload)).commands[:, SRAM]
    return np.where(demands.unit == EX, waiting, 0)


def stream_rows(found: Iterable[WordStream]) -> list[dict[str, Any]]:
    """Return a table row of words per cycle for each instruction and operand.

    A row has the mean and maximum words per cycle, and the most banks of a stream.
    """
    groups: dict[tuple[str, str, str], list[WordStream]] = {}
    for one in found:
        groups.setdefault((one.instruction, one.operand, one.access), []).append(one)
    return [
        {
            "instruction": instruction, "operand": operand, "access": access, "streams": len(group),
            "words": sum(one.words for one in group), "cycles": sum(one.cycles for one in group),
            "mean": round(
                sum(one.words for one in group) / max(1, sum(one.cycles for one in group)), 3
            ),
            "most": round(max(one.words / max(1, one.cycles) for one in group), 3),
            "banks": max(one.banks for one in group),
        }
        for (instruction, operand, access), group in sorted(groups.items())
    ]  # fmt: skip


def compute_waits(programs: Iterable[Program], timing: Timing) -> Waits:
    """Count a network's EX commands and cycles, and those that wait for the scratchpad."""
    commands = cycles = 0
    counted = {True: [0, 0], False: [0, 0]}
    for program in programs:
        found = prepare(program)
        waiting = _compute_waiting(found.demands, timing)
        computing = [
            number for number, one in enumerate(found.commands) if one.instruction.unit is Unit.EX
        ]
        commands += len(computing)
        cycles += int((found.demands.compute + waiting)[computing].sum())
        for number in (number for number in computing if waiting[number]):
            served = busiest(found.commands[number], found.operands[number], program.arch)
            entry = counted[served is not None and served.by == SIDE]
            entry[0] += 1
            entry[1] += int(waiting[number])
    bank, bank_cycles = counted[False]
    port, port_cycles = counted[True]
    return Waits(commands, cycles, (bank, bank_cycles), (port, port_cycles))


def format_waits(found: Waits) -> str:
    """Format the scratchpad waits of a network as a sentence."""
    parts = " and ".join(
        f"{count:,} of {found.commands:,} commands for {what}, {cycles:,} of {found.cycles:,} "
        "cycles"
        for what, (count, cycles) in (
            ("a bank", found.for_bank),
            ("the port of " + SIDE.name, found.for_port),
        )
    )
    return f"EX waits in {parts}"


def ports_json(hardware: Preset, programs: Sequence[Program] | None) -> dict[str, Any]:
    """Return scratchpad ports and a network's waits as JSON values.

    ``network`` is None without programs.
    """
    arch = hardware.arch
    timing = hardware.timing
    word = words_of(arch).word
    every = timing.word_cycles(word)
    network = None
    if programs is not None:
        network = {
            "streams": stream_rows(streams(programs, timing)),
            **compute_waits(programs, timing)._asdict(),
        }
    return {
        "schema": SCHEMA,
        "machine": {"arch": arch.model_dump(mode="json"), "timing": timing.model_dump(mode="json")},
        "ports": port_rows(hardware),
        "ex": {
            f"{access}_words": sum(port.access == access for port in PORTS_OF_WORDS)
            for access in ("read", "write")
        },
        "banks": {
            "count": arch.sram_banks,
            "words": 1,
            "word_bytes": word,
            "cycles": every,
            "for_bus": 1,
        },
        "network": network,
    }
