"""Scratchpad model of the engines: ports, words and banks of commands (docs/machine.md, 5 and 12).

It contains all differences between ideal and banked memory in the simulator except the arbiter of
the banks (:mod:`dla_sim.engine.banks`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import numpy as np

from dla_sim.timing import Timing
from isa.access import Access, Int64
from isa.arch import IDEAL, Arch
from isa.instruction import Command, Operands, Unit
from isa.packing import operand_layouts, operand_loads


@dataclass(frozen=True)
class ExPort:
    """Port through which EX accesses a banked scratchpad, and the operands that use it.

    ``registers`` are the operands' address registers.
    """

    name: str
    access: Literal["read", "write"]
    registers: tuple[str, ...]


SIDE = ExPort(
    "records, sums and tables",
    "read",
    ("EX_CHANNEL_ADDRESS", "EX_PARTIAL_ADDRESS", "EX_TABLE_ADDRESS"),
)
PORTS_OF_WORDS = (
    ExPort("first operand", "read", ("EX_INPUT_ADDRESS",)),
    ExPort("second operand", "read", ("EX_OPERAND_ADDRESS",)),
    SIDE,
    ExPort("result", "write", ("EX_OUTPUT_ADDRESS",)),
)
"""Ports of EX on banked memory.

Each moves one aligned word per cycle (docs/machine.md, section 12).
"""
_BEFORE_SIDE = 2
"""Number of reads with ports of their own; all further reads of an instruction share one port."""

Hull = tuple[int, int, int]
"""First and last bank that an operand touches, and its number of words."""
Streams = tuple[int, ...]
"""Load of each operand of an EX command on the banks, reads first: 1, or its words in banked
memory.
"""


def streams_of(
    commands: Sequence[Command], operands: Sequence[Operands], arch: Arch
) -> list[Streams]:
    """Return how much each operand of each command loads the scratchpad banks.

    Only commands of EX have loads; LD and ST have none.
    """
    ones = zip(commands, operands, strict=True)
    return [
        operand_loads(command, item, arch) if command.unit is Unit.EX else ()
        for command, item in ones
    ]


def operand_bytes(operands: Operands, streams: Streams, arch: Arch) -> tuple[int, int]:
    """Return the scratchpad bytes that a command reads and writes.

    Banked memory counts whole words.
    """
    if arch.memory == IDEAL:
        return sum([access.total for access in operands.reads]), sum(
            [access.total for access in operands.writes]
        )
    count = len(operands.reads)
    return arch.memory.word * sum(streams[:count]), arch.memory.word * sum(streams[count:])


def hulls_of(
    operands: Sequence[Operands], streams: Sequence[Streams], arch: Arch
) -> tuple[tuple[Hull, ...], ...]:
    """Return the first and last bank of each operand of each command, and the operand's load.

    The load is 1, or the number of the operand's words in banked memory. Only non-empty operands in
    the scratchpad count.
    """
    bank_bytes = arch.sram_bytes // arch.sram_banks
    found = []
    for item, loads in zip(operands, streams, strict=True):
        accesses = (*item.reads, *item.writes) if loads or arch.memory.word else ()
        pairs = zip(accesses, loads or (0,) * len(accesses), strict=True)
        near = [(access, load) for access, load in pairs if access.total and access.space == "sram"]
        found.append(tuple([(*_banks(access, bank_bytes), load) for access, load in near]))
    return tuple(found)


def count_crowds_of(
    operands: Sequence[Operands],
    streams: Sequence[Streams],
    hulls: Sequence[Sequence[Hull]],
    arch: Arch,
) -> Int64:
    found = np.zeros(len(operands), dtype=np.int64)
    for number, (item, loads, banks) in enumerate(zip(operands, streams, hulls, strict=True)):
        if loads:
            # the bank with the largest sum is always the first bank of an operand
            found[number] = max((count_in_bank(banks, bank) for bank, _, _ in banks), default=0)
            if arch.memory != IDEAL:
                found[number] = max(found[number], sum(loads[_BEFORE_SIDE : len(item.reads)]))
    return found


def count_in_bank(hulls: Sequence[Hull], bank: int) -> int:
    """Return the load of one bank by the operands whose bank range includes it.

    The load is the number of operands, or of words in banked memory.
    """
    return sum([load for low, high, load in hulls if low <= bank <= high])


def list_contended_hulls(
    hulls: tuple[tuple[Hull, ...], ...], arch: Arch
) -> tuple[tuple[Hull, ...], ...]:
    """Return the bank ranges where LD and ST may delay EX; none for ideal memory."""
    return () if arch.memory == IDEAL else hulls


@dataclass(frozen=True)
class Served:
    """Words that a bank or port transfers, by the address register of the operand.

    ``by`` identifies the bank or port.
    """

    by: int | ExPort
    words: Mapping[str, int]

    @property
    def total(self) -> int:
        """Total words that a bank or port transfers for all operands."""
        return sum(self.words.values())


def busiest(command: Command, operands: Operands, arch: Arch) -> Served | None:
    """Return the bank or port that transfers the most words of ``command``.

    It is the bottleneck of a command that waits. The result is the first such bank, or the port of
    several operands if no bank transfers as many words. It is None if the instruction does not work
    on words or has no scratchpad operand.
    """
    served: dict[int, dict[str, int]] = {}
    beside: dict[str, int] = {}
    accesses = (*operands.reads, *operands.writes)
    layouts = operand_layouts(command, arch)
    for number, (access, layout, load) in enumerate(
        zip(accesses, layouts, operand_loads(command, operands, arch), strict=False)
    ):
        low, high = _banks(access, arch.sram_bytes // arch.sram_banks)
        at = [served.setdefault(bank, {}) for bank in range(low, high + 1 if access.total else low)]
        for words in (*at, beside) if _BEFORE_SIDE <= number < len(operands.reads) else at:
            words[layout.register] = words.get(layout.register, 0) + load
    if not served:
        return None
    return max(
        [*(Served(bank, served[bank]) for bank in sorted(served)), Served(SIDE, beside)],
        key=lambda one: one.total,
    )


def _banks(access: Access, bank_bytes: int) -> tuple[int, int]:
    """Return the first and the last bank that a non-empty access touches."""
    return access.address // bank_bytes, (access.end - 1) // bank_bytes


class TimingColumns:
    """Fields of several Timings as int64 arrays (timings, 1), which broadcast over commands."""

    def __init__(self, timings: Sequence[Timing]) -> None:
        self._timings = timings

    def __getattr__(self, name: str) -> Int64:
        values = list(map(attrgetter(name), self._timings))
        column = np.array(values, dtype=np.int64)[:, np.newaxis]
        setattr(self, name, column)
        return column


def scratchpad_cycles(
    compute: Int64,
    crowd: Int64,
    reads: Int64,
    writes: Int64,
    word_bytes: int,
    timing: Timing | TimingColumns,
) -> Int64:
    """Return the additional cycles x that EX waits for the scratchpad, command by command.

    In banked memory they are a minimum. docs/machine.md, sections 5 and 12, gives the formulas.
    """
    if word_bytes:
        return np.maximum(compute, crowd) - compute
    needed = compute * np.maximum(1, -(-crowd // timing.bank_ports))
    for nbytes, width in ((reads, timing.sram_read_bytes), (writes, timing.sram_write_bytes)):
        cycles = np.where(width, -(-nbytes // np.maximum(width, 1)), 0)
        needed = np.maximum(needed, cycles)
    found: Int64 = needed - compute
    return found
