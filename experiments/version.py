"""Version of the code that runs, which reports, results and manifests record.

An installed copy does not contain later edits of a checkout; :func:`other_checkout` finds such a
checkout.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import isa
from isa.installation import version_of

PROJECT = "dla-byoc-simulator"
"""Name of the distribution."""
HOME = Path(isa.__file__).resolve().parents[1]
"""Folder that contains the packages that run."""
_SUFFIXES = (".py", ".npz", ".onnx", ".toml", ".csv")
_PACKAGES = ("isa", "byoc", "dla_sim", "experiments")
_MARKS = (
    "pyproject.toml",
    "isa/__init__.py",
    "byoc/__init__.py",
    "dla_sim/__init__.py",
    "experiments/dla/__init__.py",
)


@cache
def tool_version() -> str:
    """Return the version of the installed distribution; ``unknown`` if it is not installed."""
    return version_of(PROJECT) or "unknown"


@cache
def compiler_version() -> str:
    """Return the distribution's version with a digest of the code.

    The digest covers the code that programs and their cycles depend on.
    """
    return f"{tool_version()}+{sources_digest('byoc', 'dla_sim', 'isa')[:12]}"


def sources_digest(*folders: str) -> str:
    """Return the SHA-256 of all files of code and data in some folders, or of single files."""
    return hashlib.sha256("".join(map(_digest_folder, folders)).encode()).hexdigest()


@cache
def _digest_folder(folder: str) -> str:
    whole = hashlib.sha256()
    for path in _sources(HOME, [folder]):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(HOME).as_posix()} {len(content)} ".encode() + content)
    return whole.hexdigest()


def _sources(home: Path, folders: Iterable[str]) -> list[Path]:
    """Return the files of code and data in some folders of ``home``, sorted folder by folder."""
    found = (
        sorted(path for path in (place, *place.rglob("*")) if path.suffix in _SUFFIXES)
        for place in (home / folder for folder in folders)
    )
    return [path for paths in found for path in paths]


def other_checkout(folder: Path) -> Path | None:
    """Return the checkout that contains ``folder`` if its code differs from the running one.

    The result is None if ``folder`` is in no checkout, or if the code is the same.
    """
    for place in (folder, *folder.parents):
        if all((place / mark).is_file() for mark in _MARKS):
            return None if place == HOME or _contents(place) == _contents(HOME) else place
    return None


def _contents(home: Path) -> dict[str, bytes]:
    """Return the contents of the files of code and data by installed name.

    experiments/dla is installed as dla.
    """
    files = _sources(home, (*_PACKAGES, "dla"))
    return {
        _find_installed_name(path.relative_to(home).as_posix()): path.read_bytes() for path in files
    }


def _find_installed_name(name: str) -> str:
    return name.removeprefix("experiments/") if name.startswith("experiments/dla/") else name
