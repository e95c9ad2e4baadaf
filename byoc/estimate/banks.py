"""Cycles of commands of EX, how long they wait for the banks of the scratchpad, and words that LD and ST move.

The rules are those of docs/machine.md: section 5 for ideal memory, section 12 for banked memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from byoc.estimate.bus import Bus
from byoc.estimate.constants import BANK_PORTS
from isa.access import MAXIMUM_TRANSFER, row_starts, strided
from isa.arch import Arch
from isa.instruction import Command, Instruction, Unit, ceil_div
from isa.ops.dma import side_registers
from isa.packing import operand_loads
from isa.plugins import variant

_SIDES = {unit: side_registers(unit, "sram") for unit in (Unit.LD, Unit.ST)}
"""Registers of the scratchpad's side of a transfer."""
_OWN_PORTS = 2
"""Operands with a port of their own; all others that a command reads share one (section 12)."""


class EngineStep(Protocol):
    """A command of EX whose operands are named by buffer and offset."""

    @property
    def instruction(self) -> Instruction:
        """Instruction of the command."""
        ...

    @property
    def fields(self) -> Mapping[str, int]:
        """Fields of its word."""
        ...

    @property
    def registers(self) -> Mapping[str, int]:
        """Registers, without the addresses of operands."""
        ...

    @property
    def pointers(self) -> Mapping[str, tuple[int, int]]:
        """Buffer and offset of each operand, by the register of its address."""
        ...


class OperandLoad(NamedTuple):
    """Bytes ``first`` to ``end`` behind pointer number ``pointer`` of a command; ``words``: 1 in ideal memory."""

    pointer: int
    first: int
    end: int
    words: int


class BankUse(NamedTuple):
    """What a command does to the banks ``first`` to ``last``.

    ``words``: of a transfer, those that pass; of a command of EX, those that may pass before they delay it.
    """

    first: int
    last: int
    words: int

    @property
    def banks(self) -> tuple[int, int]:
        """The first bank and the one behind the last."""
        return self.first, self.last + 1


class ComputeLoad(NamedTuple):
    """Cycles of a command between fill and drain without waits, words at the shared port, and operands."""

    cycles: int
    port_words: int
    operands: tuple[OperandLoad, ...]

    def served(self, addresses: Sequence[int], arch: Arch, word_slots: int) -> tuple[int, tuple[BankUse, ...]]:
        """Return the cycles with waits for banks if the pointers are ``addresses``, and the banks that may add to them.

        A bank of ideal memory, for which ``word_slots`` is 0, serves ``BANK_PORTS`` operands at a time: a command with
        more of them takes several turns (section 5). A bank of banked memory, and the port that operands share, serves
        a word a cycle (section 12); LD and ST take a word of it in ``word_slots`` cycles at most.
        """
        if not word_slots and len(self.operands) <= BANK_PORTS:
            return self.cycles, ()
        bank = arch.sram_bytes // arch.sram_banks
        spans = [
            BankUse((addresses[pointer] + first) // bank, (addresses[pointer] + end - 1) // bank, words)
            for pointer, first, end, words in self.operands
        ]
        banks = {one.first for one in spans}  # a bank with the largest sum is always the first bank of an operand
        most = max([_words_in(spans, bank) for bank in banks], default=0)
        if not word_slots:
            return self.cycles * ceil_div(most, BANK_PORTS), ()
        cycles = max(self.cycles, self.port_words, most)
        enough = cycles - cycles // word_slots - 2
        if most <= enough:
            return cycles, ()
        loads = [(one, _words_in(spans, one)) for one in {one for span in spans for one in range(*span.banks)}]
        return cycles, tuple([BankUse(one, one, cycles - load) for one, load in sorted(loads) if load > enough])


def _words_in(spans: Sequence[BankUse], bank: int) -> int:
    return sum([words for low, high, words in spans if low <= bank <= high])


class CommandLoads:
    """Loads of commands of one machine, each computed once. They do not depend on the size of the scratchpad.

    ``word_slots``: slots of the bus in which LD or ST moves a word at most, 0 in ideal memory.
    """

    def __init__(self, arch: Arch, bus: Bus) -> None:
        self._arch, self._reset = arch, variant(arch.isa).register_file.reset
        self._word = max(arch.memory.word, 1)
        self.word_slots = arch.memory.word // bus.bus_bytes
        self._known: dict[tuple[object, ...], ComputeLoad] = {}
        self._moved: dict[tuple[int, ...], tuple[int, int]] = {}

    def transfer(self, step: EngineStep, unit: Unit) -> tuple[int, int]:
        """Return the bytes of the scratchpad from the first to the last that LD or ST moves, and the words it touches.

        A row takes all words that it touches (section 12). Words of ideal memory are bytes, and nothing waits for them.
        """
        start, nbytes, loops = _SIDES[unit]
        registers, offset = step.registers, step.pointers[start][1] % self._word
        dims = [(registers[count], registers[stride]) for count, stride in loops if registers[count] > 1]
        key = offset, registers[nbytes], *chain.from_iterable(dims)
        found = self._moved.get(key)
        if found is None:
            access = strided("sram", offset, registers[nbytes], *dims)
            starts = row_starts(access)
            words = (starts + access.nbytes - 1) // self._word - starts // self._word + 1
            found = self._moved[key] = access.end - offset, int(words.sum()) if access.total else 0
        return found

    def compute(self, step: EngineStep) -> ComputeLoad:
        """Return the load of a command of EX."""
        # Of some the words depend on where in a word operands begin.
        offsets = tuple([offset % self._word for _, offset in step.pointers.values()])
        names, values = tuple(step.pointers), (tuple(step.registers.items()), tuple(step.fields.items()))
        key = step.instruction.opcode, values, names, offsets
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._load(step, offsets)
        return found

    def _load(self, step: EngineStep, offsets: Sequence[int]) -> ComputeLoad:
        # Operands are so far apart that the address of an access tells its operand.
        bases = [number * MAXIMUM_TRANSFER + offset for number, offset in enumerate(offsets)]
        given = {**step.registers, **dict(zip(step.pointers, bases, strict=True))}
        known = {name: given.get(name, self._reset[name]) for name in step.instruction.registers}
        command = Command(0, step.instruction, Unit.EX, False, False, False, False, step.fields, known)
        operands = step.instruction.operands(command, self._arch)
        words = operand_loads(command, operands, self._arch)
        accesses = zip((*operands.reads, *operands.writes), words, strict=True)
        loads = [(access.address // MAXIMUM_TRANSFER, access, load) for access, load in accesses if access.total]
        own = [
            OperandLoad(one, access.address - bases[one], access.end - bases[one], load) for one, access, load in loads
        ]
        shared = sum(words[_OWN_PORTS : len(operands.reads)])
        return ComputeLoad(step.instruction.cycles(command, self._arch), shared, tuple(own))


class Passing(NamedTuple):
    """The words of a transfer that pass evenly from cycle ``begin`` to cycle ``end``."""

    begin: int
    end: int
    use: BankUse


def delay(uses: Sequence[BankUse], begin: int, end: int, passing: Sequence[Passing]) -> int:
    """Return the cycles by which words of LD and ST, which come first, delay EX between ``begin`` and ``end``."""
    late = -1
    longer = 0
    while longer > late:
        late = longer
        shares = [
            (one.use, one.use.words * max(min(end + late, one.end) - max(begin, one.begin), 0) / (one.end - one.begin))
            for one in passing
            if one.end > one.begin
        ]
        longer = late
        for bank, _, free in uses:
            words = sum([share for use, share in shares if use.first <= bank <= use.last])
            longer = max(longer, int(words - free))
    return late
