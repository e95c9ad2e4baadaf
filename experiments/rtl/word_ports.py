"""Ports of a banked scratchpad: words per requester and cycle.

There is no hardware with banked memory yet. The requesters are those with which the machine counts
its cycles (docs/machine.md, section 12).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dla_sim.memory import PORTS_OF_WORDS
from dla_sim.presets import Preset
from isa.arch import words_of
from isa.instruction import Instruction, Unit
from isa.ops.dma import side_registers
from isa.plugins import variant

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


def ports_json(hardware: Preset) -> dict[str, Any]:
    """Return the ports of a banked scratchpad as JSON values."""
    arch = hardware.arch
    timing = hardware.timing
    word = words_of(arch).word
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
            "cycles": timing.word_cycles(word),
            "for_bus": 1,
        },
    }
