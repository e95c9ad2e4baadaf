"""ISA variants by name, both built in and from installed packages.

Such packages add instructions and variants through the entry point group ``dla.isa``. An entry
point names an :class:`Extension`, or a function without parameters that returns one::

    [project.entry-points."dla.isa"]
    my-instructions = "my_package:EXTENSION"

Packages are imported only when a variant from outside this repository, or the list of all variants,
is requested. The built-in table never changes: :func:`load_installed_table` returns a new one.
:func:`load_entry_points` applies the same rules to other entry point groups.

The table contains all instructions, registers and variants of the project and of packages. An
addition must not use a name or number that is taken; the error names both owners.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions
from traceback import walk_tb
from types import FrameType
from typing import Any, TypeVar

from isa.errors import InputError, PluginError, suggest_name
from isa.instruction import Command, Instruction
from isa.ops import ALL
from isa.registers import COMMON, Register, widest
from isa.variants import VARIANTS, Variant, extend

PROJECT = "the project"
Key = tuple[str, str | int]
"""A kind of name or number, and its value."""


@dataclass(frozen=True, eq=False)
class Extension:
    """ISA variants and instructions that a package adds.

    ``instructions`` may be added to a variant as in ``v2+OP_NAME``. Instructions of ``variants``
    need not be listed again. The project never uses opcodes and register indices from 0x80 up.
    """

    instructions: tuple[Instruction, ...] = ()
    variants: tuple[Variant, ...] = ()

    def all_instructions(self) -> tuple[Instruction, ...]:
        """Return every instruction of the package and of its variants once.

        The variants include the instructions that they inherit.
        """
        inherited = (item for variant in self.variants for item in variant.instructions)
        return tuple(dict.fromkeys((*self.instructions, *inherited)))


@dataclass(frozen=True)
class _Claim:
    """Owner of a name or number, with the declaration.

    ``name`` is the declaration's name if a number is claimed.
    """

    item: object
    name: str
    owner: str


@dataclass(frozen=True, eq=False)
class Table:
    """Table of all instructions, ISA variants and registers, and the package that owns each.

    ``instructions`` has the latest form of each opcode.
    """

    instructions: tuple[Instruction, ...] = ()
    variants: tuple[Variant, ...] = ()
    claims: Mapping[Key, _Claim] = field(default_factory=dict)

    @property
    def registers(self) -> tuple[Register, ...]:
        """All registers by index, each with its largest width in any variant."""
        added = (register for item in self.instructions for register in item.adds_registers)
        return tuple(
            sorted(widest((*COMMON.registers, *added)), key=lambda register: register.index)
        )

    def owner(self, mnemonic: str) -> str:
        """Return the package that owns an instruction."""
        return self.claims["mnemonic", mnemonic].owner

    def extend(self, owner: str, extension: Extension) -> Table:
        """Return the instruction table with an extension added.

        Raises InputError naming both owners if a name or number is taken.
        """
        claims = dict(self.claims)
        for key, claim in _claims(owner, extension):
            _take(claims, key, claim)
        known = dict.fromkeys((*self.instructions, *extension.all_instructions()))
        outgrown = {form for item in known for form in item.forms[1:]}
        instructions = tuple(
            sorted((item for item in known if item not in outgrown), key=lambda item: item.opcode)
        )
        variants = tuple(sorted({*self.variants, *extension.variants}, key=lambda item: item.name))
        return Table(instructions, variants, claims)

    def variant(self, name: str) -> Variant:
        """Return the ISA variant with a name, possibly composed as in ``v2+OP_NAME``.

        Raise InputError if unknown.
        """
        return _find(self, name)


def _claims(owner: str, extension: Extension) -> Iterable[tuple[Key, _Claim]]:
    """Yield the key and claim of every name and number that an extension declares.

    Raises InputError for a name that is not allowed.
    """
    for item in extension.all_instructions():
        first = item.forms[-1]
        yield ("opcode", item.opcode), _Claim(first, item.mnemonic, owner)
        for name in (item.mnemonic, *item.aliases):
            yield ("mnemonic", name), _Claim(first, "", owner)
        for register in item.adds_registers:
            yield ("register", register.name), _Claim(register, "", owner)
            yield ("register index", register.index), _Claim(register, register.name, owner)
        if item.unit is None and owner != PROJECT and item not in ALL.values():
            raise PluginError(f"{owner}: {item.mnemonic} names no unit; give it unit LD, EX or ST")
    for variant in extension.variants:
        if "+" in variant.name:
            raise PluginError(
                f"{owner}: ISA variant {variant.name} has a '+', which composes variants; rename it"
            )
        yield ("ISA variant", variant.name), _Claim(variant, "", owner)


def _take(claims: dict[Key, _Claim], key: Key, claim: _Claim) -> None:
    """Record that a package owns a name or number; raise InputError if another one does.

    The same declaration may be claimed twice, because packages may extend one another.
    """
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
    raise PluginError(
        f"{claim.owner}: {what} is taken by {holder}; choose another or uninstall one of the two"
    )


@cache
def get_built_in_table() -> Table:
    claims: dict[Key, _Claim] = {}
    for item in COMMON.registers:
        claims["register", item.name] = _Claim(item, "", PROJECT)
        claims["register index", item.index] = _Claim(item, item.name, PROJECT)
    return Table(claims=claims).extend(
        PROJECT, Extension(tuple(ALL.values()), tuple(VARIANTS.values()))
    )


@cache
def _find(table: Table, name: str) -> Variant:
    base, *added = name.split("+")
    declared = {item.name: item for item in table.variants}
    if base not in declared:
        names = ", ".join(sorted(declared))
        raise InputError(
            f"unknown ISA variant '{base}'; choose one of {names} or install the "
            "package that adds it"
        )
    if not added:
        return declared[base]
    known = {item.mnemonic: item for item in table.instructions}
    for mnemonic in added:
        if mnemonic not in known:
            raise InputError(
                f"ISA variant '{name}': unknown instruction {mnemonic}; choose one of "
                f"{', '.join(known)}"
            )
    further = (known[mnemonic] for mnemonic in added if mnemonic not in declared[base].mnemonics)
    return extend(declared[base], name, f"{base} and {', '.join(added)}", *further)


GROUP = "dla.isa"
OPERATORS = "dla.operators"
"""Entry point group of operator families, which :mod:`byoc.operators.registry` reads."""
ENGINES = "dla.rtl.engines"
"""Entry point group of hardware, which :mod:`dla_sim.rtl.ex.engines` reads."""
MACHINES = "dla.machines"
"""Entry point group of machine descriptions, which :mod:`experiments.machines.discovery` reads."""
GROUPS = (GROUP, OPERATORS, ENGINES, MACHINES)
Kind = TypeVar("Kind")


def variant(name: str) -> Variant:
    """Return the ISA variant with a name, from the built-in table or an installed package.

    It is built in, of an installed package, or composed as in ``v2+OP_NAME``.

    Raises InputError listing the existing variants, or for a package whose declarations conflict.
    """
    return VARIANTS[name] if name in VARIANTS else load_installed_table().variant(name)


@cache
def load_installed_table() -> Table:
    """Return the built-in instruction table with the additions of all installed packages.

    Packages are added in the order of their names.

    The result is cached per process; ``installed.cache_clear()`` discards it. Raises InputError
    naming the entry point and its package if it cannot be loaded, or uses a name or number that is
    taken.
    """
    table = get_built_in_table()
    for owner, extension in load_entry_points(GROUP, Extension, "isa.plugins.Extension"):
        table = table.extend(owner, extension)
    return table


def load_entry_points(group: str, kind: type[Kind], name: str) -> Iterator[tuple[str, Kind]]:
    """Yield (owner, object) of every entry point of ``group``, in order of the owners' names.

    An owner names the package and the entry point. The object is an instance of ``kind``, or the
    result of a function without parameters; classes are not called.

    Args:
        group: entry point group.
        kind: required type of the objects.
        name: name of this type in messages.

    Raises:
        InputError: an entry point cannot be loaded.
    """
    found = {_owner(entry): entry for entry in _entries(group)}
    for owner in sorted(found):
        yield owner, _load(found[owner], owner, kind, name)


@cache
def has_entry_points(group: str) -> bool:
    """Return whether an installed package has entry points of a group."""
    return any(_entries(group))


def _entries(group: str) -> Iterator[EntryPoint]:
    """Yield the entry points of a group, once per installed package.

    Package metadata is not trusted.
    """
    packages = list(distributions())
    for package in packages:
        _check_groups(package)
    declared = [_find_entry_points(package, group) for package in packages]
    if not any(declared):
        return  # finding the owners takes thirty times as long
    seen: set[str] = set()
    for package, entries in zip(packages, declared, strict=True):
        with _readable(package):
            name = package.metadata["Name"]
            version = package.version
            sound = all(entry.pattern.match(entry.value) is not None for entry in entries)
        if not isinstance(name, str) or not isinstance(version, str) or name in seen:
            continue  # incomplete metadata of an interrupted installation
        if not sound:
            raise PluginError(
                f"package {name} {version}: entry points of {group} name no object; "
                "fix or uninstall it"
            )
        seen.add(name)
        yield from entries


def _check_groups(package: Distribution) -> None:
    """Raise PluginError for an entry point in a group of dla that does not exist."""
    with _readable(package):
        groups = package.entry_points.groups
    unknown = [group for group in groups if group.startswith("dla.") and group not in GROUPS]
    if unknown:
        close = suggest_name(unknown[0], GROUPS) or "remove it"
        raise PluginError(
            f"package {package.name}: nothing reads entry points of {unknown[0]}; {close.strip()}"
        )


def _find_entry_points(package: Distribution, group: str) -> tuple[EntryPoint, ...]:
    with _readable(package):
        return tuple(package.entry_points.select(group=group))


@contextmanager
def _readable(package: Distribution) -> Iterator[None]:
    """Convert errors from damaged package metadata to InputError."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        place = package.locate_file("")
        reason = (str(error).splitlines() or [""])[0]
        raise PluginError(
            f"a package in {place} has damaged metadata ({reason}); install it again"
        ) from error


def _owner(entry: EntryPoint) -> str:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "?"
    return f"package {package} (entry point {entry.name})"


def _load(entry: EntryPoint, owner: str, kind: type[Kind], name: str) -> Kind:
    try:
        found = entry.load()
        if callable(found) and not isinstance(found, type):
            found = found()
    except Exception as error:  # any exception of a package's code: the message names the package
        reason = (str(error).splitlines() or [""])[0]
        reason = reason if isinstance(error, ValueError) else f"{type(error).__name__}: {reason}"
        raise PluginError(f"{owner} cannot be loaded: {reason}; fix or uninstall it") from error
    if not isinstance(found, kind):
        raise PluginError(
            f"{owner} gives an object of type {type(found).__name__}; it must be {name}"
        )
    return found


def describe_fault(error: BaseException) -> str:
    """Return package, class and hook of a package in which ``error`` arose, and the exception.

    The result is "" if the code and the classes of no package took part.
    """
    owners = {
        entry.module.partition(".")[0]: _owner(entry)
        for group in GROUPS
        for entry in _entries(group)
    }
    steps = [*walk_tb(error.__traceback__)]
    for number, (frame, _) in enumerate(steps):
        owner = owners.get(str(frame.f_globals.get("__name__")).partition(".")[0])
        if owner is not None:
            hook = frame.f_code.co_qualname
            about = [_find_declaration(outer, owners) for outer, _ in reversed(steps[:number])]
            named = next((name for name, _, _ in filter(None, about)), "")
            hook = hook if "." in hook or not named else f"{named}, {hook}"
            return _describe(owner, hook, error)
    for frame, line in reversed(steps):
        declared = _find_declaration(frame, owners)
        if declared is not None:
            name, owner, hooks = declared
            text = linecache.getline(frame.f_code.co_filename, line)
            own = frame.f_locals.get("self", frame.f_locals.get("cls"))
            kind = own if isinstance(own, type) else type(own)
            method = frame.f_code.co_name if kind.__name__ == name else ""
            used = next((word for word in _ATTRIBUTE.findall(text) if word in hooks), method)
            return _describe(owner, f"{name}.{used}" if used else name, error)
    return ""


_ATTRIBUTE = re.compile(r"\.(\w+)")


def _describe(owner: str, where: str, error: BaseException) -> str:
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{owner}: {where} ends with {what:.200}"


def _find_declaration(
    frame: FrameType, owners: Mapping[str, str]
) -> tuple[str, str, Collection[str]] | None:
    """Return name, owner and hooks of a package's class or instruction among local variables."""
    for value in frame.f_locals.values():
        item = getattr(value, "instruction", value) if isinstance(value, Command) else value
        if isinstance(item, Instruction):
            hooks: Collection[str] = [one.name for one in fields(item)]
            homes: list[Any] = [item.semantics, item.cycles, item.operands]
            name = item.mnemonic
        else:
            kind = item if isinstance(item, type) else type(item)
            name, homes, hooks = kind.__name__, [kind], vars(kind).keys()
        for home in homes:
            owner = owners.get(str(home.__module__).partition(".")[0])
            if owner is not None:
                return name, owner, hooks
    return None
