"""Layouts, words and cycles of packed commands, computed once for all addresses.

The compiler and the simulator ask for them again for every scratchpad size.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache

from isa.access import Access, strided
from isa.arch import Arch, BankedMemory, words_of
from isa.instruction import (
    Atoms,
    Blocks,
    Command,
    Instruction,
    OperandLayout,
    Operands,
    Packed,
    Plain,
)

REMEMBERED_SHAPES = 4096
"""Maximum number of cached shapes of packed commands."""


def access(layout: OperandLayout, registers: Mapping[str, int], words: BankedMemory) -> Access:
    """Return the byte range of an operand with a layout in banked memory."""
    at = registers[layout.register]
    if isinstance(layout, Plain):
        return strided("sram", at + layout.offset, layout.nbytes)
    if isinstance(layout, Blocks):
        return strided("sram", at, layout.nbytes)
    words = find_own_words(layout, words)
    surfaces = words.surfaces(layout.channels), find_surface_stride(layout, registers, words)
    return strided("sram", at, count_dense_bytes(layout, words), surfaces)


def find_own_words(layout: Atoms, words: BankedMemory) -> BankedMemory:
    """Return the banked memory ``words`` with the atom size of one tensor."""
    return replace(words, atom=layout.narrow) if layout.narrow else words


def count_dense_bytes(layout: Atoms, words: BankedMemory) -> int:
    return layout.positions * words.atom * layout.element


def find_surface_stride(layout: Atoms, registers: Mapping[str, int], words: BankedMemory) -> int:
    return (registers[layout.plane] if layout.plane else 0) or count_dense_bytes(layout, words)


class CommandShape:
    """Properties of packed commands that differ only in addresses, by whole memory words.

    ``is_legal``: one of them has been checked.
    """

    def __init__(self, packed: Packed, command: Command, arch: Arch) -> None:
        self._packed = packed
        self._command = command
        self._arch = arch
        self.is_legal = False

    @cached_property
    def _layouts(self) -> tuple[OperandLayout, ...]:
        return self._packed.layouts(self._command, self._arch)

    @cached_property
    def _places(self) -> list[tuple[str, Access]]:
        """Address register of each operand, and its bytes relative to the address."""
        at = self._command.registers
        words = words_of(self._arch)
        return [
            (one.register, access(one, at, words).move_by(-at[one.register]))
            for one in self._layouts
        ]

    @cached_property
    def cycles(self) -> int:
        return self._packed.cycles(self._command, self._arch)

    @cached_property
    def words(self) -> tuple[int, ...]:
        """Words of each operand."""
        return self._packed.words(self._command, self._arch)

    def operands(self, command: Command) -> Operands:
        """Return the operands of one of the commands; the last one is the result."""
        at = command.registers
        *reads, result = [place.move_by(at[register]) for register, place in self._places]
        return Operands(tuple(reads), (result,), self._layouts)


COMMAND_SHAPES: dict[tuple[object, ...], CommandShape] = {}


def find_shape(packed: Packed, command: Command, arch: Arch) -> CommandShape:
    """Return the shape of a packed command, which is cached for machines of all sizes."""
    instruction = command.instruction
    addresses, others = _split_registers(instruction)
    at = command.registers
    word = arch.memory.word
    key = (
        instruction, id(packed), arch.operand_key, *command.fields.items(),
        *[at[name] for name in others], *[at[name] % word for name in addresses],
    )  # fmt: skip
    found = COMMAND_SHAPES.get(key)
    if found is None:
        if len(COMMAND_SHAPES) == REMEMBERED_SHAPES:
            COMMAND_SHAPES.clear()
        found = COMMAND_SHAPES[key] = CommandShape(packed, command, arch)
    return found


@lru_cache
def _split_registers(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Return the names of the registers with addresses, and of all others."""
    names = instruction.registers
    addresses = [name for name in names if name.endswith("_ADDRESS")]
    return addresses, [name for name in names if name not in addresses]
