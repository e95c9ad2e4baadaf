"""Telling a sweep's results from a run report by the first bytes."""

from __future__ import annotations

from pathlib import Path

_BEGINNING = b"SQLite format 3\0"


def is_sweep(path: Path) -> bool:
    """Whether ``path`` is an SQLite file; not for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False
