"""Variants by name, also those of packages outside this repository.

Such packages add instructions and variants through the entry point group ``dla.isa``.

An entry point names an :class:`Extension`, or a function without parameters that returns one::

    [project.entry-points."dla.isa"]
    my-instructions = "my_package:EXTENSION"

Nothing is looked at, imported or changed before somebody asks for a variant that is not of this repository, or for the
list of all. The built-in table is never altered: :func:`installed` gives a new one. :func:`loaded` serves other entry
point groups by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import TypeVar

from isa.errors import InputError
from isa.table import Extension, Table, built_in
from isa.variants import VARIANTS, Variant

GROUP = "dla.isa"
Kind = TypeVar("Kind")

__all__ = ["GROUP", "Extension", "installed", "loaded", "variant"]


def variant(name: str) -> Variant:
    """The variant called ``name``: of this repository, of an installed package, or composed as in ``v2+OP_NAME``.

    Raises InputError listing those that exist, and for a package whose declarations do not fit in.
    """
    return VARIANTS[name] if name in VARIANTS else installed().variant(name)


@cache
def installed() -> Table:
    """The built-in table and everything that the installed packages add, in the order of their names.

    Raises InputError naming the entry point and its package when it cannot be loaded, or takes a name or number
    that is taken. Computed once a process; ``installed.cache_clear()`` makes it look again.
    """
    table = built_in()
    for owner, extension in loaded(GROUP, Extension, "isa.plugins.Extension"):
        table = table.extended(owner, extension)
    return table


def loaded(group: str, kind: type[Kind], name: str) -> Iterator[tuple[str, Kind]]:
    """(owner, object) of every entry point of ``group``, in the order of the owners' names.

    An owner is the package and the entry point, as messages name them; the object is of ``kind``, called ``name`` in
    messages, or what a function without parameters returned; classes are not called. Raises InputError for what cannot
    be loaded.
    """
    found = {_owner(entry): entry for entry in _entries(group)}
    for owner in sorted(found):
        yield owner, _load(found[owner], owner, kind, name)


def _entries(group: str) -> Iterator[EntryPoint]:
    """The entry points of a group, of every installed package once. What a package says of itself is anybody's text."""
    packages = list(distributions())
    declared = [_declared(package, group) for package in packages]
    if not any(declared):
        return  # whose they are takes thirty times as long to read
    seen: set[str] = set()
    for package, entries in zip(packages, declared, strict=True):
        with _readable(package):
            name, version = package.metadata["Name"], package.version
            sound = all(entry.pattern.match(entry.value) is not None for entry in entries)
        if not isinstance(name, str) or not isinstance(version, str) or name in seen:
            continue  # no text: what an installation that was cut short leaves behind
        if not sound:
            raise InputError(f"package {name} {version}: entry points of {group} name no object; fix or uninstall it")
        seen.add(name)
        yield from entries


def _declared(package: Distribution, group: str) -> tuple[EntryPoint, ...]:
    with _readable(package):
        return tuple(package.entry_points.select(group=group))


@contextmanager
def _readable(package: Distribution) -> Iterator[None]:
    """Raises InputError where what is read of a package's metadata is not what it should be."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        place = package.locate_file("")
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(f"a package in {place} has damaged metadata ({reason}); install it again") from error


def _owner(entry: EntryPoint) -> str:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "?"
    return f"package {package} (entry point {entry.name})"


def _load(entry: EntryPoint, owner: str, kind: type[Kind], name: str) -> Kind:
    try:
        found = entry.load()
        if callable(found) and not isinstance(found, type):
            found = found()
    except Exception as error:  # whatever a package's own code raises: the user needs to know whose it is
        reason = (str(error).splitlines() or [""])[0]
        reason = reason if isinstance(error, ValueError) else f"{type(error).__name__}: {reason}"
        raise InputError(f"{owner} cannot be loaded: {reason}; fix or uninstall it") from error
    if not isinstance(found, kind):
        raise InputError(f"{owner} gives an object of type {type(found).__name__}; it must be {name}")
    return found
