"""The table of all instructions, registers and variants: the project's own and those of packages outside it.

Whoever adds to the table may not take a name or a number that is taken: the message names both owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from isa.errors import InputError
from isa.instruction import Instruction
from isa.ops import ALL
from isa.registers import COMMON, Register, widest
from isa.variants import VARIANTS, Variant, extend

PROJECT = "the project"
Key = tuple[str, str | int]
"""A kind of name or number, and its value."""


@dataclass(frozen=True, eq=False)
class Extension:
    """What one package adds: variants with their instructions, and instructions for use as in ``v2+OP_NAME``.

    Instructions of ``variants`` need not be listed again. Opcodes and register indices from 0x80 up are never used by
    the project.
    """

    instructions: tuple[Instruction, ...] = ()
    variants: tuple[Variant, ...] = ()

    def all_instructions(self) -> tuple[Instruction, ...]:
        """Every instruction of the package, and of the variants that its own are built on, once."""
        inherited = (item for variant in self.variants for item in variant.instructions)
        return tuple(dict.fromkeys((*self.instructions, *inherited)))


@dataclass(frozen=True)
class _Claim:
    """Who has a name or a number: the declaration, its own name where it is the number that is claimed, the owner."""

    item: object
    name: str
    owner: str


@dataclass(frozen=True, eq=False)
class Table:
    """Instructions by opcode in their latest forms, variants, registers, and the owner of each name and number."""

    instructions: tuple[Instruction, ...] = ()
    variants: tuple[Variant, ...] = ()
    claims: Mapping[Key, _Claim] = field(default_factory=dict)

    @property
    def registers(self) -> tuple[Register, ...]:
        """All registers, by index, as wide as any variant has them."""
        added = (register for item in self.instructions for register in item.adds_registers)
        return tuple(sorted(widest((*COMMON.registers, *added)), key=lambda register: register.index))

    def owner(self, mnemonic: str) -> str:
        """Who declared an instruction."""
        return self.claims["mnemonic", mnemonic].owner

    def extended(self, owner: str, extension: Extension) -> Table:
        """This table and ``extension``; raises InputError naming both owners of a name or number that is taken."""
        claims = dict(self.claims)
        for key, claim in _claims(owner, extension):
            _take(claims, key, claim)
        known = dict.fromkeys((*self.instructions, *extension.all_instructions()))
        outgrown = {form for item in known for form in item.forms[1:]}
        instructions = tuple(sorted((item for item in known if item not in outgrown), key=lambda item: item.opcode))
        variants = tuple(sorted({*self.variants, *extension.variants}, key=lambda item: item.name))
        return Table(instructions, variants, claims)

    def variant(self, name: str) -> Variant:
        """The variant called ``name``, or composed as in ``v2+OP_NAME``; raises InputError listing those that exist."""
        return _find(self, name)


def _claims(owner: str, extension: Extension) -> Iterable[tuple[Key, _Claim]]:
    """(kind and value, claim) of every name and number of an extension; raises InputError for what nobody may have."""
    for item in extension.all_instructions():
        first = item.forms[-1]
        yield ("opcode", item.opcode), _Claim(first, item.mnemonic, owner)
        for name in (item.mnemonic, *item.aliases):
            yield ("mnemonic", name), _Claim(first, "", owner)
        for register in item.adds_registers:
            yield ("register", register.name), _Claim(register, "", owner)
            yield ("register index", register.index), _Claim(register, register.name, owner)
        if item.unit is None and owner != PROJECT and item not in ALL.values():
            raise InputError(f"{owner}: {item.mnemonic} names no unit; give it unit LD, EX or ST")
    for variant in extension.variants:
        if "+" in variant.name:
            raise InputError(f"{owner}: ISA variant {variant.name} has a '+', which composes variants; rename it")
        yield ("ISA variant", variant.name), _Claim(variant, "", owner)


def _take(claims: dict[Key, _Claim], key: Key, claim: _Claim) -> None:
    """Adds a claim. The same declaration may be claimed again: packages may build on one another."""
    held = claims.setdefault(key, claim)
    if held.item is claim.item or (isinstance(claim.item, Register) and held.item == claim.item):
        return
    both = [item for item in (held.item, claim.item) if isinstance(item, Register)]
    if held.owner == claim.owner == PROJECT and len(both) == 2 and len(widest(both)) == 1:
        return
    kind, value = key
    shown = f"{value:#04x}" if isinstance(value, int) else value
    what = f"{kind} {shown} of {claim.name}" if claim.name else f"{kind} {shown}"
    holder = f"{held.name} of {held.owner}" if held.name else held.owner
    raise InputError(f"{claim.owner}: {what} is taken by {holder}; choose another or uninstall one of the two")


@cache
def built_in() -> Table:
    """The table of this repository alone."""
    claims: dict[Key, _Claim] = {}
    for item in COMMON.registers:
        claims["register", item.name] = _Claim(item, "", PROJECT)
        claims["register index", item.index] = _Claim(item, item.name, PROJECT)
    return Table(claims=claims).extended(PROJECT, Extension(tuple(ALL.values()), tuple(VARIANTS.values())))


@cache
def _find(table: Table, name: str) -> Variant:
    base, *added = name.split("+")
    declared = {item.name: item for item in table.variants}
    if base not in declared:
        names = ", ".join(sorted(declared))
        raise InputError(f"unknown ISA variant '{base}'; choose one of {names} or install the package that adds it")
    if not added:
        return declared[base]
    known = {item.mnemonic: item for item in table.instructions}
    for mnemonic in added:
        if mnemonic not in known:
            raise InputError(f"ISA variant '{name}': unknown instruction {mnemonic}; choose one of {', '.join(known)}")
    further = (known[mnemonic] for mnemonic in added if mnemonic not in declared[base].mnemonics)
    return extend(declared[base], name, f"{base} and {', '.join(added)}", *further)
