"""ISA variants: declared sets of instructions.

``v1`` is the published machine without depthwise convolution, ``v2`` adds it, ``v3`` adds grouped
convolution, ``v4`` adds what current networks need, and ``v5`` has banked memory. Packages outside
this repository declare further ones (:mod:`isa.plugins`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from isa.arch import PACKED
from isa.instruction import Instruction, Unit
from isa.ops import ALL
from isa.registers import COMMON, Register, RegisterFile, widest

SET_OPCODE = 0x01
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(\+OP_[A-Z0-9_]+)*")


@dataclass(frozen=True, eq=False)
class Variant:
    """Named instruction set: its instructions and registers.

    Raises ValueError if two instructions share an opcode, mnemonic or register.
    """

    name: str
    description: str
    instructions: tuple[Instruction, ...]

    def __post_init__(self) -> None:
        """Check that opcodes, mnemonics and registers are unique and that OP_END exists."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"ISA variant name '{self.name}' must be small letters, digits, points or hyphens"
            )
        opcodes: dict[int, Instruction] = {}
        names: dict[str, Instruction] = {}
        for item in self.instructions:
            other = opcodes.setdefault(item.opcode, item)
            if other is not item:
                what = f"opcode {item.opcode:#04x} of {item.mnemonic}"
                raise ValueError(
                    f"ISA {self.name}: {what} is taken by {other.mnemonic}; choose another"
                )
            for name in (item.mnemonic, *item.aliases):
                if names.setdefault(name, item) is not item:
                    raise ValueError(
                        f"ISA {self.name}: two instructions are called {name}; rename one"
                    )
        if "OP_END" not in self.mnemonics:
            raise ValueError(f"ISA {self.name} has no OP_END; no program could end")
        self.register_file  # noqa: B018 - computing it checks it

    @cached_property
    def mnemonics(self) -> frozenset[str]:
        """Mnemonics of the variant's instructions, without aliases."""
        return frozenset(item.mnemonic for item in self.instructions)

    @cached_property
    def by_opcode(self) -> Mapping[int, Instruction]:
        return {item.opcode: item for item in self._sort_instructions()}

    @cached_property
    def by_mnemonic(self) -> Mapping[str, tuple[Instruction, Mapping[str, int]]]:
        """Instruction and implied field settings by mnemonic, including aliases."""
        table: dict[str, tuple[Instruction, Mapping[str, int]]] = {}
        for item in self._sort_instructions():
            table[item.mnemonic] = (item, {})
            for alias, settings in item.aliases.items():
                table[alias] = (item, settings)
        return table

    @cached_property
    def register_file(self) -> RegisterFile:
        """Registers that all variants have, and those that this variant's instructions add."""
        added: dict[Register, None] = {}
        for item in self._sort_instructions():
            added |= dict.fromkeys(item.adds_registers)
        return RegisterFile(widest((*COMMON.registers, *added))) if added else COMMON

    def _sort_instructions(self) -> list[Instruction]:
        return sorted(self.instructions, key=lambda item: item.mnemonic)


def extend(base: Variant, name: str, description: str, *instructions: Instruction) -> Variant:
    """Return an ISA variant with the instructions of ``base`` and further ones.

    Raise as :class:`Variant`.
    """
    return Variant(name, description, (*base.instructions, *instructions))


_FOURTH = (
    "OP_LUT",
    "OP_PERMUTE",
    "OP_DYN_MAT_MUL",
    "OP_E_MUL",
    "OP_E_SUB",
    "OP_E_DIV",
    "OP_B_ADD",
    "OP_B_MIN",
    "OP_REDUCE",
    "OP_SOFTMAX",
    "OP_NORM",
    "OP_RESIZE",
)
_LATER = ("OP_DEPTH_CONV", "OP_GROUP_CONV", *_FOURTH)
_FIRST = {name: item.forms[-1] for name, item in ALL.items()}
_V1 = Variant(
    "v1",
    "the published instruction set, no depthwise convolution",
    tuple(item for name, item in _FIRST.items() if name not in _LATER),
)
_V2 = extend(_V1, "v2", "v1 and OP_DEPTH_CONV", _FIRST["OP_DEPTH_CONV"])
_V3 = extend(_V2, "v3", "v2 and OP_GROUP_CONV", _FIRST["OP_GROUP_CONV"])
_V4 = Variant(
    "v4", f"v3, {', '.join(_FOURTH)}, and tables as a last step of others", tuple(ALL.values())
)
_V5 = Variant(
    PACKED,
    "banked memory with packed tensors, and the instructions of v4 that exist for them",
    tuple(item for item in ALL.values() if item.packed is not None or item.unit is not Unit.EX),
)
VARIANTS: Mapping[str, Variant] = {item.name: item for item in (_V1, _V2, _V3, _V4, _V5)}
"""Variants of this repository; ``v4`` has every instruction in its latest form."""
