"""Packages outside this repository: they add instructions and variants through the entry point group ``dla.isa``.

An entry point names an :class:`Extension`, or a function without parameters that returns one::

    [project.entry-points."dla.isa"]
    my-instructions = "my_package:EXTENSION"

Nothing is looked at, imported or changed before somebody asks for a variant that is not of this repository, or for the
list of all. The built-in table is never altered: :func:`installed` gives a new one.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from isa.errors import InputError
from isa.table import Extension, Table, built_in

GROUP = "dla.isa"

__all__ = ["GROUP", "Extension", "installed"]


@cache
def installed() -> Table:
    """The built-in table and everything that the installed packages add, in the order of their names.

    Raises InputError naming the entry point and its package when it cannot be loaded, or takes a name or number
    that is taken. Computed once a process; ``installed.cache_clear()`` makes it look again.
    """
    table = built_in()
    found = {_owner(entry): entry for entry in entry_points(group=GROUP)}
    for owner in sorted(found):
        table = table.extended(owner, _load(found[owner], owner))
    return table


def _owner(entry: EntryPoint) -> str:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "?"
    return f"package {package} (entry point {entry.name})"


def _load(entry: EntryPoint, owner: str) -> Extension:
    try:
        found = entry.load()
        if callable(found):
            found = found()
    except Exception as error:  # whatever a package's own code raises: the user needs to know whose it is
        reason = (str(error).splitlines() or [""])[0]
        reason = reason if isinstance(error, ValueError) else f"{type(error).__name__}: {reason}"
        raise InputError(f"{owner} cannot be loaded: {reason}; fix or uninstall it") from error
    if not isinstance(found, Extension):
        raise InputError(f"{owner} gives an object of type {type(found).__name__}; it must be isa.plugins.Extension")
    return found
