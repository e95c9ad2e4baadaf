"""Which code runs: the version that reports, results and manifests carry, and the copy.

An installed copy knows nothing of what somebody edits in a checkout.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import isa

HOME = Path(isa.__file__).resolve().parents[1]
"""The folder of the packages that run."""
_MARKS = ("pyproject.toml", "isa/__init__.py", "byoc/__init__.py", "dla_sim/__init__.py", "experiments/dla/__init__.py")


@cache
def tool_version() -> str:
    """Version of the installed distribution, ``unknown`` where it runs without being installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dla-byoc-simulator")
    except PackageNotFoundError:
        return "unknown"


@cache
def compiler_version() -> str:
    """Version of the distribution, and a digest of all the code that programs and their cycles depend on."""
    return f"{tool_version()}+{sources_digest('byoc', 'dla_sim', 'isa')[:12]}"


def sources_digest(*folders: str) -> str:
    """SHA-256 of every file of code and weights in these folders of ours."""
    whole = hashlib.sha256()
    for folder in folders:
        for path in sorted(found for found in (HOME / folder).rglob("*") if found.suffix in (".py", ".npz", ".onnx")):
            content = path.read_bytes()
            whole.update(f"{path.relative_to(HOME).as_posix()} {len(content)} ".encode() + content)
    return whole.hexdigest()


def other_checkout(folder: Path) -> Path | None:
    """The checkout of this project around ``folder``, if it is another copy than the one that runs."""
    for place in (folder, *folder.parents):
        if all((place / mark).is_file() for mark in _MARKS):
            return None if place == HOME else place
    return None
