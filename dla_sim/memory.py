"""The memory of a machine as the engines ask it: ports, words and banks of commands (docs/machine.md, sections 5, 12).

All that differs between ideal and banked memory in the simulator is here, but for the arbiter of the banks
(:mod:`dla_sim.engine.banks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import Timing
from isa.access import Access
from isa.arch import IDEAL, Arch
from isa.instruction import Command, Operands, Unit
from isa.packing import operand_layouts, operand_loads

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Port:
    """One that EX has on a scratchpad of words: the operands that it moves, by the registers of their addresses."""

    name: str
    access: Literal["read", "write"]
    registers: tuple[str, ...]


SIDE = Port("records, sums and tables", "read", ("EX_CHANNEL_ADDRESS", "EX_PARTIAL_ADDRESS", "EX_TABLE_ADDRESS"))
PORTS_OF_WORDS = (
    Port("first operand", "read", ("EX_INPUT_ADDRESS",)),
    Port("second operand", "read", ("EX_OPERAND_ADDRESS",)),
    SIDE,
    Port("result", "write", ("EX_OUTPUT_ADDRESS",)),
)
"""Each moves one aligned word of one bank a cycle (docs/machine.md, section 12)."""
_BEFORE_SIDE = 2
"""Reads of an instruction that has more than these two: they have ports of their own, and all others share one."""

Hull = tuple[int, int, int]
"""The first and the last bank that an operand of a command touches, and its words."""
Streams = tuple[int, ...]
"""What each operand of a command of EX loads the banks with, reads first: 1, or on a machine of words its words."""


def streams_of(commands: Sequence[Command], operands: Sequence[Operands], arch: Arch) -> list[Streams]:
    """Of each command; nothing for those of other units."""
    ones = zip(commands, operands, strict=True)
    return [operand_loads(command, item, arch) if command.unit is Unit.EX else () for command, item in ones]


def operand_bytes(operands: Operands, streams: Streams, arch: Arch) -> tuple[int, int]:
    """Return the bytes that a command reads and writes, in banked memory those of whole words."""
    if arch.memory == IDEAL:
        return sum([access.total for access in operands.reads]), sum([access.total for access in operands.writes])
    count = len(operands.reads)
    return arch.memory.word * sum(streams[:count]), arch.memory.word * sum(streams[count:])


def crowds(commands: Sequence[Command], operands: Sequence[Operands], arch: Arch) -> Int64:
    """The largest number of streams of each command of EX in one bank, 0 for others.

    On a machine of words it is the largest number of words in one, or at the port of several operands.
    """
    streams = streams_of(commands, operands, arch)
    return crowds_of(operands, streams, hulls_of(operands, streams, arch), arch)


def hulls_of(operands: Sequence[Operands], streams: Sequence[Streams], arch: Arch) -> tuple[tuple[Hull, ...], ...]:
    """The banks of each command's operands in the scratchpad that are not empty, with their streams or words."""
    bank_bytes = arch.sram_bytes // arch.sram_banks
    found = []
    for item, loads in zip(operands, streams, strict=True):
        accesses = (*item.reads, *item.writes) if loads or arch.memory.word else ()
        pairs = zip(accesses, loads or (0,) * len(accesses), strict=True)
        near = [(access, load) for access, load in pairs if access.total and access.space == "sram"]
        found.append(tuple([(*_banks(access, bank_bytes), load) for access, load in near]))
    return tuple(found)


def crowds_of(
    operands: Sequence[Operands], streams: Sequence[Streams], hulls: Sequence[Sequence[Hull]], arch: Arch
) -> Int64:
    found = np.zeros(len(operands), dtype=np.int64)
    for number, (item, loads, banks) in enumerate(zip(operands, streams, hulls, strict=True)):
        if loads:
            # A bank with the largest sum is always the first bank of one of them.
            found[number] = max((in_bank(banks, bank) for bank, _, _ in banks), default=0)
            if arch.memory != IDEAL:
                found[number] = max(found[number], sum(loads[_BEFORE_SIDE : len(item.reads)]))
    return found


def in_bank(hulls: Sequence[Hull], bank: int) -> int:
    """Streams or words in one bank: those of an operand belong to every bank that its hull touches."""
    return sum([load for low, high, load in hulls if low <= bank <= high])


def kept_hulls(hulls: tuple[tuple[Hull, ...], ...], arch: Arch) -> tuple[tuple[Hull, ...], ...]:
    """Return the hulls that LD and ST may delay EX in: none of ideal memory."""
    return () if arch.memory == IDEAL else hulls


@dataclass(frozen=True)
class Served:
    """What a bank or a port serves: its number or name, and the words of each operand, by its address' register."""

    by: int | Port
    words: Mapping[str, int]

    @property
    def total(self) -> int:
        """Words of all operands."""
        return sum(self.words.values())


def busiest(command: Command, operands: Operands, arch: Arch) -> Served | None:
    """What serves ``command`` the most words, so that it waits for that if it waits at all: the first such bank, or
    the port of several operands where no bank serves as many.

    None where the instruction is not worked out on words, or has nothing in the scratchpad.
    """
    served: dict[int, dict[str, int]] = {}
    beside: dict[str, int] = {}
    accesses, layouts = (*operands.reads, *operands.writes), operand_layouts(command, arch)
    for access, layout, load in zip(accesses, layouts, operand_loads(command, operands, arch), strict=False):
        low, high = _banks(access, arch.sram_bytes // arch.sram_banks)
        for bank in range(low, high + 1 if access.total else low):
            served.setdefault(bank, {})[layout.register] = load
        if layout.register in SIDE.registers:
            beside[layout.register] = load
    if not served:
        return None
    return max(
        [*(Served(bank, served[bank]) for bank in sorted(served)), Served(SIDE, beside)], key=lambda one: one.total
    )


def _banks(access: Access, bank_bytes: int) -> tuple[int, int]:
    """The first and the last bank that an access which is not empty touches."""
    return access.address // bank_bytes, (access.end - 1) // bank_bytes


def scratchpad_cycles(
    compute: Int64, crowd: Int64, reads: Int64, writes: Int64, word_bytes: int, timing: Timing
) -> Int64:
    """The further cycles x that EX waits for the scratchpad, command by command, on a machine of words the fewest.

    docs/machine.md, sections 5 and 12.
    """
    if word_bytes:
        return np.maximum(compute, crowd) - compute
    needed = compute * np.maximum(1, -(-crowd // timing.bank_ports))
    if timing.sram_read_bytes:
        needed = np.maximum(needed, -(-reads // timing.sram_read_bytes))
    if timing.sram_write_bytes:
        needed = np.maximum(needed, -(-writes // timing.sram_write_bytes))
    return needed - compute
