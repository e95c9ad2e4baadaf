"""The installation: packages that come with an extra, the line that installs them, the folder of the user's cache.

No index has this project, so that the line names those packages. In the folder work is kept that later runs would do
again: packages, executables of hardware.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import stat
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

FOLDER, OFF = "DLA_CACHE_DIR", "DLA_NO_CACHE"
"""Environment variables: where the cache is, and that there is none."""
NAME = "dla-byoc-simulator"


def users_folder() -> Path | None:
    """The folder, made or not; None where the environment forbids a cache or the user has no home."""
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
    """Whether nobody else can write to the folder, where the system knows users."""
    if not hasattr(os, "geteuid"):
        return True
    found = folder.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def processor() -> str:
    """Return model and vector instructions of the processor, as far as the system says: kernels depend on them."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return "\n".join(dict.fromkeys(line for line in lines if line.startswith(("model name", "flags", "Features"))))
    return f"{platform.machine()} {platform.processor()}"


def install_line(packages: Iterable[str]) -> str:
    """What to type to install ``packages`` where this Python finds them."""
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])


def remedy(extra: str) -> str:
    """The line that installs what belongs to ``extra``."""
    try:
        given = requires(NAME) or ()
    except PackageNotFoundError:  # it runs without being installed: from the folder of its sources
        given = ()
    belongs = re.compile(rf"""extra == ["']{extra}["']""")
    wanted = [text.partition(";")[0].strip() for text in given if belongs.search(text)]
    return install_line(wanted or [f".[{extra}]"])
