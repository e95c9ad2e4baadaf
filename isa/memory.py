"""One limit on memory: whatever is large is estimated before it is allocated, and refused in one line.

The limit is what ``--max-memory`` or the environment variable ``DLA_MAX_MEMORY`` says, which processes that are started
inherit; by default half of the machine's memory, or of what its container may use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from isa.errors import InputError

VARIABLE = "DLA_MAX_MEMORY"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d{1,15})([KMGT]?)(?:iB|B)?", re.IGNORECASE)
_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_UNKNOWN = 8 << 30


def require(nbytes: int, what: str) -> None:
    """Raises InputError when ``what``, which is about to take ``nbytes``, is above the limit."""
    limit = maximum()
    if nbytes > limit:
        raise InputError(
            f"{what}: too large, it takes about {_shown(nbytes)} of memory and {_shown(limit)} are allowed; "
            "give something smaller or a higher --max-memory"
        )


def maximum() -> int:
    """The limit in bytes. Raises InputError when the environment variable is no size."""
    text = os.environ.get(VARIABLE)
    return _machine() // 2 if text is None else size(text, VARIABLE)


@contextmanager
def limited(text: str | None) -> Iterator[None]:
    """Within, the limit is the size that ``text`` says; None leaves it. Raises InputError for what is no size."""
    before = os.environ.get(VARIABLE)
    if text is not None:
        os.environ[VARIABLE] = str(size(text, "--max-memory"))
    try:
        yield
    finally:
        if text is not None:
            os.environ.pop(VARIABLE)
            os.environ.update({} if before is None else {VARIABLE: before})


def size(text: str, option: str) -> int:
    """Bytes that a text such as ``512M`` or ``4G`` says; raises InputError that names ``option``."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{option} {text}: not a size; write it as 512M or 4G")
    return int(found[1]) * _UNITS[found[2].upper()]


def _shown(nbytes: int) -> str:
    unit = next((unit for unit in "TGMK" if nbytes >= _UNITS[unit]), "")
    return f"{nbytes / _UNITS[unit]:.1f} {unit}iB" if unit else f"{nbytes} bytes"


@cache
def _machine() -> int:
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        physical = _UNKNOWN
    try:
        allowed = _CONTAINER.read_text(encoding="ascii").strip()
    except OSError:
        allowed = ""
    return min(physical, int(allowed)) if allowed.isdecimal() else physical
