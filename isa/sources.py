"""Digests of the project's code, on which versions and the keys of caches depend."""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
"""Folder that contains the packages that run."""
_SUFFIXES = (".py", ".npz", ".onnx", ".toml", ".csv")


def sources_digest(*folders: str) -> str:
    """Return the SHA-256 of all files of code and data in some folders, or of single files."""
    return hashlib.sha256("".join(map(_digest_folder, folders)).encode()).hexdigest()


@cache
def _digest_folder(folder: str) -> str:
    whole = hashlib.sha256()
    for path in list_sources(HOME, [folder]):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(HOME).as_posix()} {len(content)} ".encode() + content)
    return whole.hexdigest()


def list_sources(home: Path, folders: Iterable[str]) -> list[Path]:
    """Return the files of code and data in some folders of ``home``, sorted folder by folder."""
    found = (
        sorted(path for path in (place, *place.rglob("*")) if path.suffix in _SUFFIXES)
        for place in (home / folder for folder in folders)
    )
    return [path for paths in found for path in paths]
