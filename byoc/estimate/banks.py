"""Cycles of EX commands, their waits for scratchpad banks, and the words that LD and ST move.

The rules are those of docs/machine.md: section 5 for ideal memory, section 12 for banked memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from byoc.estimate.bus import MemoryBus
from byoc.estimate.constants import BANK_PORTS, FETCH_BYTES, WORD_BYTES
from isa.access import MAXIMUM_TRANSFER, row_starts, strided
from isa.arch import Arch
from isa.instruction import Command, Instruction, Unit, ceil_div
from isa.ops.dma import side_registers
from isa.packing import get_cycles, get_legal_operands, operand_loads
from isa.plugins import variant

_SIDES = {unit: side_registers(unit, "sram") for unit in (Unit.LD, Unit.ST)}
"""Registers that address the scratchpad in a transfer."""
_OWN_PORTS = 2
"""Number of input operands that have their own port.

All other inputs share one port (section 12).
"""


class EngineStep(Protocol):
    """EX command whose operands are named by buffer and offset."""

    @property
    def instruction(self) -> Instruction:
        """Instruction that the command executes."""
        ...

    @property
    def fields(self) -> Mapping[str, int]:
        """Fields of the command's operation word, by name."""
        ...

    @property
    def registers(self) -> Mapping[str, int]:
        """Register values of the command, without the addresses of operands."""
        ...

    @property
    def pointers(self) -> Mapping[str, tuple[int, int]]:
        """Buffer and offset of each operand, by the register of its address."""
        ...


class OperandLoad(NamedTuple):
    """Bytes ``first`` to ``end`` from pointer number ``pointer`` of a command, and their ``words``.

    Ideal memory: 1.
    """

    pointer: int
    first: int
    end: int
    words: int


class BankUse(NamedTuple):
    """Words that a command accesses in each of the scratchpad banks ``first`` to ``last``.

    For a transfer, ``words`` is the number of words moved. For an EX command, it is the number of
    transferred words that do not delay the command.
    """

    first: int
    last: int
    words: int


class ComputeLoad(NamedTuple):
    """Cycles, words and operands of a command without waits, fill and drain.

    The words are those at the port that operands share.
    """

    cycles: int
    port_words: int
    operands: tuple[OperandLoad, ...]

    def compute_served(
        self, addresses: Sequence[int], arch: Arch, word_slots: int
    ) -> tuple[int, tuple[BankUse, ...]]:
        """Return a command's cycles with waits for banks, and the banks that can delay it further.

        Transfers of LD and ST to the returned banks may add cycles. ``addresses`` are the values of
        the command's pointers. A bank of ideal memory (``word_slots`` 0) serves ``BANK_PORTS``
        operands at a time; a command with more operands takes several turns (section 5). In banked
        memory, a bank serves one word per cycle, and so does the port that operands share (section
        12). LD and ST take at most one word of a bank in ``word_slots`` cycles.
        """
        if not word_slots and len(self.operands) <= BANK_PORTS:
            return self.cycles, ()
        bank = arch.sram_bytes // arch.sram_banks
        spans = [
            ((addresses[pointer] + first) // bank, (addresses[pointer] + end - 1) // bank, words)
            for pointer, first, end, words in self.operands
        ]
        most = 0
        # a bank with the largest sum is always the first bank of an operand
        for one, _, _ in spans:
            most = max(most, sum([words for low, high, words in spans if low <= one <= high]))
        if not word_slots:
            return self.cycles * ceil_div(most, BANK_PORTS), ()
        cycles = max(self.cycles, self.port_words, most)
        enough = cycles - cycles // word_slots - 2
        if most <= enough:
            return cycles, ()
        loads: dict[int, int] = {}
        for low, high, words in spans:
            for one in range(low, high + 1):
                loads[one] = loads.get(one, 0) + words
        return cycles, tuple(
            [
                BankUse(one, one, cycles - load)
                for one, load in sorted(loads.items())
                if load > enough
            ]
        )


class CommandLoads:
    """Cache of the cycles and scratchpad accesses of one machine's commands.

    They do not depend on the scratchpad size.

    ``word_slots`` is the number of bus slots in which LD or ST moves at most one word; 0 in ideal
    memory.
    """

    def __init__(self, arch: Arch, bus: MemoryBus) -> None:
        self.bus = bus
        self._arch = arch
        self._reset = variant(arch.isa).register_file.reset
        self._word = max(arch.memory.word, 1)
        self.word_slots = arch.memory.word // bus.bus_bytes
        self._known: dict[tuple[object, ...], ComputeLoad] = {}
        self._moved: dict[tuple[int, ...], tuple[int, int]] = {}

    def first_issue(self, steps: Iterable[EngineStep], addresses: Sequence[int]) -> int:
        """Return the cycle in which the program issues its first command.

        After the first chunk is fetched, each word of the program takes one cycle. ``addresses``
        are those of the buffers. A command takes a word, and one for each register that changes.
        """
        known = dict(self._reset)
        words = 0
        first = 0
        for step in steps:
            values = {
                name: addresses[buffer] + offset for name, (buffer, offset) in step.pointers.items()
            }
            values |= step.registers
            words += 1 + sum(known[name] != value for name, value in values.items())
            known |= values
            first = first or words
            if words * WORD_BYTES >= FETCH_BYTES:
                break
        return self.bus.first_chunk(words + 1) + first  # OP_END is a word, too

    def transfer(self, step: EngineStep, unit: Unit) -> tuple[int, int]:
        """Return how many scratchpad bytes LD or ST spans, and how many words it accesses.

        A row accesses each word that it touches, also in part (section 12). Words of ideal memory
        are bytes and cause no waits.
        """
        start, nbytes, loops = _SIDES[unit]
        registers = step.registers
        offset = step.pointers[start][1] % self._word
        dims = [
            (registers[count], registers[stride]) for count, stride in loops if registers[count] > 1
        ]
        key = offset, registers[nbytes], *chain.from_iterable(dims)
        found = self._moved.get(key)
        if found is None:
            access = strided("sram", offset, registers[nbytes], *dims)
            starts = row_starts(access)
            words = (starts + access.nbytes - 1) // self._word - starts // self._word + 1
            found = self._moved[key] = access.end - offset, int(words.sum()) if access.total else 0
        return found

    def compute(self, step: EngineStep) -> ComputeLoad:
        """Return the cycles, words and operand accesses of an EX command."""
        # The words of some operands depend on the byte of a word at which they begin.
        offsets = [offset % self._word for _, offset in step.pointers.values()]
        registers = step.registers
        fields = step.fields
        opcode = step.instruction.opcode
        values = *registers.values(), *fields.values(), *offsets
        key = opcode, len(fields), *registers, *fields, *step.pointers, *values
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._load(step, offsets)
        return found

    def _load(self, step: EngineStep, offsets: Sequence[int]) -> ComputeLoad:
        # Bases are so far apart that the address of an access identifies its operand.
        bases = [number * MAXIMUM_TRANSFER + offset for number, offset in enumerate(offsets)]
        given = {**step.registers, **dict(zip(step.pointers, bases, strict=True))}
        known = {name: given.get(name, self._reset[name]) for name in step.instruction.registers}
        command = Command(
            0, step.instruction, Unit.EX, False, False, False, False, step.fields, known
        )
        operands = get_legal_operands(command, self._arch)
        words = operand_loads(command, operands, self._arch)
        accesses = zip((*operands.reads, *operands.writes), words, strict=True)
        loads = [
            (access.address // MAXIMUM_TRANSFER, access, load)
            for access, load in accesses
            if access.total
        ]
        own = [
            OperandLoad(one, access.address - bases[one], access.end - bases[one], load)
            for one, access, load in loads
        ]
        shared = sum(words[_OWN_PORTS : len(operands.reads)])
        return ComputeLoad(get_cycles(command, self._arch), shared, tuple(own))


class Passing(NamedTuple):
    """Words of a transfer, spread evenly from cycle ``begin`` to cycle ``end``."""

    begin: int
    end: int
    use: BankUse


def delay(uses: Sequence[BankUse], begin: int, end: int, passing: Sequence[Passing]) -> int:
    """Return the cycles by which LD and ST delay EX from cycle ``begin`` to cycle ``end``.

    LD and ST have priority over EX at the banks.
    """
    late = -1
    longer = 0
    while longer > late:
        late = longer
        shares = [
            (
                one.use,
                one.use.words
                * max(min(end + late, one.end) - max(begin, one.begin), 0)
                / (one.end - one.begin),
            )
            for one in passing
            if one.end > one.begin
        ]
        longer = late
        for bank, _, free in uses:
            words = sum([share for use, share in shares if use.first <= bank <= use.last])
            longer = max(longer, int(words - free))
    return late
