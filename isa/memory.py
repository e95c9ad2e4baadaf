"""Limit on the simulator's own memory use: large allocations are estimated and rejected.

``--max-memory`` or the environment variable ``DLA_MAX_MEMORY``, which child processes inherit, sets
the limit. The default is half of the memory of the machine or its container.
"""

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
    """Raise InputError if an allocation of ``nbytes`` bytes exceeds the memory limit."""
    limit = maximum()
    if nbytes > limit:
        raise InputError(
            f"{what}: too large, it takes about {_format_size(nbytes)} of memory and "
            f"{_format_size(limit)} are allowed; "
            "give something smaller or a higher --max-memory"
        )


def maximum() -> int:
    """Return the memory limit in bytes.

    Raises InputError if the environment variable is not a size.
    """
    text = os.environ.get(VARIABLE)
    return _machine() // 2 if text is None else size(text, VARIABLE)


@contextmanager
def limit_memory(text: str | None) -> Iterator[None]:
    """Set the memory limit to the size in ``text`` within the block; None keeps it.

    Raises InputError if ``text`` is not a size.
    """
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
    """Return the number of bytes in a text such as ``512M`` or ``4G``.

    Raise InputError that names ``option``.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{option} {text}: not a size; write it as 512M or 4G")
    return int(found[1]) * _UNITS[found[2].upper()]


def _format_size(nbytes: int) -> str:
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
