"""The installation: packages of an extra and how to install them, and the user's cache folder.

The project is not on a package index, so the install line names the packages of an extra. The cache
stores results that later runs would compute again: packages and executables of hardware.
"""

import contextlib
import os
import platform
import re
import shlex
import stat
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

FOLDER = "DLA_CACHE_DIR"
OFF = "DLA_NO_CACHE"
"""Environment variables: the cache folder, and a switch that disables the cache."""
NAME = "dla-byoc-simulator"


def users_folder() -> Path | None:
    """Return the user's cache folder, which need not exist.

    Return None if the cache is disabled or the user has no home.
    """
    if os.environ.get(OFF):
        return None
    with contextlib.suppress(RuntimeError, KeyError):
        return _folder()
    return None


def _folder() -> Path:
    if os.environ.get(FOLDER):
        return Path(os.environ[FOLDER])
    if sys.platform == "win32":
        return Path(os.environ["LOCALAPPDATA"]) / NAME / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / NAME
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / NAME


def is_private(folder: Path) -> bool:
    """Return True if no other user can write to a folder; always True without POSIX users."""
    if not hasattr(os, "geteuid"):
        return True
    found = folder.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def processor() -> str:
    """Return the model and vector instructions of the host processor, if known.

    Compiled kernels depend on both.
    """
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return "\n".join(
            dict.fromkeys(
                line for line in lines if line.startswith(("model name", "flags", "Features"))
            )
        )
    return f"{platform.machine()} {platform.processor()}"


def install_line(packages: Iterable[str]) -> str:
    """Return the command line that installs ``packages`` for this Python."""
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])


@cache
def version_of(name: str) -> str:
    """Return the version of an installed distribution, or "" if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def remedy(extra: str) -> str:
    """Return the command line that installs the packages of ``extra``."""
    try:
        given = requires(NAME) or ()
    except PackageNotFoundError:  # the project is not installed but runs from its source folder
        given = ()
    belongs = re.compile(rf"""extra == ["']{extra}["']""")
    wanted = [text.partition(";")[0].strip() for text in given if belongs.search(text)]
    return install_line(wanted or [f".[{extra}]"])
