"""The version that reports, results and manifests carry."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from importlib.metadata import PackageNotFoundError, version


@cache
def tool_version() -> str:
    """Version of the installed distribution, ``unknown`` where it runs without being installed."""
    try:
        return version("dla-byoc-simulator")
    except PackageNotFoundError:
        return "unknown"


@cache
def compiler_version() -> str:
    """Version of the distribution, and a digest of all the code that programs and their cycles depend on."""
    total = hashlib.sha256()
    for package in ("byoc", "dla_sim", "isa"):
        root = resources.files(package)
        with resources.as_file(root) as folder:
            for path in sorted(folder.rglob("*.py")):
                total.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    return f"{tool_version()}+{total.hexdigest()[:12]}"
