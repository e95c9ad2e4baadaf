"""ISA variants: declared sets of instructions. ``v1`` is the published machine without depthwise, ``v2`` adds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from isa.errors import InputError
from isa.instruction import Instruction
from isa.ops import ALL

SET_OPCODE = 0x01


@dataclass(frozen=True)
class Variant:
    """A named instruction set."""

    name: str
    description: str
    mnemonics: frozenset[str]

    @cached_property
    def by_opcode(self) -> Mapping[int, Instruction]:
        """Instructions of the variant by opcode."""
        return {ALL[name].opcode: ALL[name] for name in sorted(self.mnemonics)}

    @cached_property
    def by_mnemonic(self) -> Mapping[str, tuple[Instruction, Mapping[str, int]]]:
        """Instruction and implied field settings by mnemonic, aliases included."""
        table: dict[str, tuple[Instruction, Mapping[str, int]]] = {}
        for name in sorted(self.mnemonics):
            table[name] = (ALL[name], {})
            for alias, settings in ALL[name].aliases.items():
                table[alias] = (ALL[name], settings)
        return table


def _declare(name: str, description: str, mnemonics: frozenset[str]) -> Variant:
    opcodes = [ALL[mnemonic].opcode for mnemonic in mnemonics]
    if len(set(opcodes)) != len(opcodes) or SET_OPCODE in opcodes:
        raise ValueError(f"ISA {name}: two instructions share an opcode")
    return Variant(name, description, mnemonics)


_V1 = frozenset(ALL) - {"OP_DEPTH_CONV"}
VARIANTS: dict[str, Variant] = {
    "v1": _declare("v1", "the published instruction set, no depthwise convolution", _V1),
    "v2": _declare("v2", "v1 and OP_DEPTH_CONV", _V1 | {"OP_DEPTH_CONV"}),
}


def variant(name: str) -> Variant:
    """The variant called ``name``; raises InputError listing those that exist."""
    if name not in VARIANTS:
        raise InputError(f"unknown ISA variant '{name}'; choose one of {', '.join(sorted(VARIANTS))}")
    return VARIANTS[name]
