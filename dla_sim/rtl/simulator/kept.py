"""What takes minutes to make, in a folder of the user's: Verilog of machines, and executables.

The name of a file says all that it is made of; it appears whole or not at all. Where there is no such folder, or others
can write to it, there is one that is gone when the process ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from isa.cache_folder import is_private, users_folder
from isa.errors import InputError

if sys.platform != "win32":
    import fcntl

FOLDER = "rtl"
LARGEST = 2 << 30
"""Bytes that all files together may have; beyond, those go that were not used for longest."""
LEFT_OVER = 86_400
"""Seconds after which a folder of files half made is nobody's: its process was killed."""
_SUFFIXES = (".v", ".run", ".gates")


def kept(name: str, make: Callable[[Path], Path]) -> Path:
    """The file of that name; ``make`` makes it in a folder of its own where there is none, by one process at a time.

    Raises InputError where the place cannot be written to.
    """
    folder = _place() / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{name}.lock", "wb") as lock:
            if sys.platform != "win32":
                fcntl.flock(lock, fcntl.LOCK_EX)
            place = folder / name
            if not place.is_file():
                with tempfile.TemporaryDirectory(dir=folder, prefix=".", ignore_cleanup_errors=True) as temporary:
                    os.replace(make(Path(temporary)), place)
                _shrink(folder)
            os.utime(place)
            return place
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror}; DLA_CACHE_DIR names another place") from error


def entries(folder: Path) -> list[Path]:
    """What is kept in the user's cache ``folder``, those that were not used for longest first."""
    found = [path for path in (folder / FOLDER).glob("*") if path.suffix in _SUFFIXES]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def clear(folder: Path) -> int:
    """Removes all that is kept in the user's cache ``folder``; how many files there were."""
    found = entries(folder)
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    return len(found)


def _place() -> Path:
    folder = users_folder()
    with contextlib.suppress(OSError):
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_private(folder):
                return folder
    return Path(_passing().name)


@cache
def _passing() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dla-rtl-")


def _shrink(folder: Path) -> None:
    """Removes files until the others are few enough, and what killed processes left."""
    sizes = {path: path.stat().st_size for path in entries(folder.parent)}
    excess = sum(sizes.values()) - LARGEST
    for path, size in sizes.items():
        if excess > 0:
            path.unlink(missing_ok=True)
            excess -= size
    for path in _left_over(folder):
        shutil.rmtree(path, ignore_errors=True)


def _left_over(folder: Path) -> Iterator[Path]:
    for path in folder.glob(".*"):
        if path.is_dir() and time.time() - path.stat().st_mtime > LEFT_OVER:
            yield path
