"""A saved run, run again by the command it records, and compared figure by figure."""

from __future__ import annotations

import io
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.report.store import load_report
from isa.errors import InputError

CommandLine = Callable[[Sequence[str]], int]
_CONDITIONS = frozenset({"version"})
"""Keys that are no figure: another version may give the same."""


@dataclass(frozen=True)
class Again:
    """What came of it: how many values were compared, and for each that differs its key and both values."""

    values: int
    differences: tuple[str, ...]
    changes: tuple[str, ...]


def run_again(path: Path, command_line: CommandLine) -> Again:
    """Repeat the run of a report with ``command_line`` (arguments → exit status) and compare every value, exactly.

    Files that the command names must be where they were. Raises InputError for a file that is no run report, and for a
    command that is not one of ``dla run``.
    """
    before = load_report(path)
    words = shlex.split(before.command)
    if words[:2] != ["dla", "run"]:
        raise InputError(f"{path}: its command '{before.command}' is not one of dla run; run 'dla run' again")
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        again = Path(folder) / "again.json"
        command_line([*words[1:], "--json", str(again)])
        if not again.is_file():
            raise InputError(f"{path}: its command '{before.command}' gives no report any more")
        after = load_report(again)
    old, new = (dict(_flat(report.model_dump(mode="json", by_alias=True))) for report in (before, after))
    names = [name for name in dict.fromkeys((*old, *new)) if name not in _CONDITIONS]
    differing = [name for name in names if old.get(name) != new.get(name)]
    changes = () if before.version == after.version else (f"version was {before.version} and is {after.version}",)
    lines = (f"{name} is {old.get(name)!r} in the file and {new.get(name)!r} repeated" for name in differing)
    return Again(len(names), tuple(lines), changes)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(key, value) of everything that is no table or list itself; keys as ``layers.0.cycles``."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _flat(item, f"{name}.{index}")
    else:
        yield name, value
