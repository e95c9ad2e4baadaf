"""Choosing cases by level and by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from experiments.golden.case import LEVELS
from isa.errors import InputError


def check_levels(levels: Iterable[str], known: Iterable[str] = LEVELS) -> None:
    """Raises InputError for a level that is not among ``known``."""
    names = tuple(dict.fromkeys(known))
    for level in levels:
        if level not in names:
            raise InputError(f"unknown level '{level}'; choose one of {', '.join(names)}")


def choose(names: Collection[str], levels: Collection[str], cases: Collection[str]) -> list[str]:
    """Those of ``names`` that are of one of ``levels`` or among ``cases`` (level left out or not); all without either.

    Raises InputError for a level or a case that does not exist.
    """
    check_levels(levels, (name.partition("/")[0] for name in names))
    by_name = {name: [name] for name in names}
    for name in names:
        by_name.setdefault(name.partition("/")[2], []).append(name)
    for case in cases:
        if case not in by_name:
            raise InputError(f"no case is called '{case}'; 'dla golden list' shows all of a corpus")
    wanted = {name for case in cases for name in by_name[case]}
    return [name for name in names if name in wanted or name.partition("/")[0] in levels or not (levels or cases)]
