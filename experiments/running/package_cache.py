"""Packages of models that were imported before, in a folder of the user's: the next run does not quantise again.

Kept is what import makes of a model, nothing else: no result, no truth and no check. A run from the cache simulates and
compares with ONNX Runtime as any other, and its report is the same to the byte.

The name of an entry says everything that a package follows from (:func:`key_of`). An entry is believed only with the
code (HMAC-SHA256) that whoever has the folder's secret can make of its name and content; everything else is made again.
A cache that cannot be read or written is no error: then there is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from byoc.operators.registry import built_in, installed
from byoc.package.package import Package, load_package, package_bytes
from experiments.version import sources_digest
from isa.errors import InputError
from isa.files import HEAD, PACKAGE, is_leftover, kind_of, write_atomically
from isa.installation import NAME, is_private, processor, users_folder

LARGEST = 2 << 30
"""Bytes that all entries together may have; beyond, those go that were not used for longest."""
_CODE = hashlib.sha256().digest_size
_SECRET = "secret"
_SUFFIX = ".package"
_SOURCES = ("isa", "byoc", "experiments/models", "experiments/running")
"""What makes packages: a change there makes other names."""


@dataclass(frozen=True)
class PackageCache:
    """The entries in ``folder``, of at most ``largest`` bytes together."""

    folder: Path
    largest: int = LARGEST

    def entries(self) -> list[Path]:
        """The files of the cache, those that were not used for longest first."""
        with contextlib.suppress(OSError):
            files = [(path.lstat().st_mtime_ns, path) for path in self.folder.iterdir() if _is_ours(path)]
            return [path for _, path in sorted(files)]
        return []

    def clear(self) -> int:
        """Removes all entries, and the secret that one of them was made with; how many entries there were."""
        found = self.entries()
        secret = [self.folder / _SECRET] if any(self.find(path.stem) for path in found) else []
        for path in (*found, *secret):
            path.unlink(missing_ok=True)
        return len(found)

    def find(self, key: str) -> Package | None:
        """The package that is kept under ``key``; None where there is none that can be believed."""
        path = self.folder / f"{key}{_SUFFIX}"
        try:
            if not is_private(self.folder):
                return None
            content, secret = _content(path, self.largest), _content(self.folder / _SECRET, _CODE)
            code, package = content[:_CODE], content[_CODE:]
            if len(secret) != _CODE or not hmac.compare_digest(code, _code(secret, key, package)):
                return None
            found = load_package(path, package)
            with contextlib.suppress(OSError):
                os.utime(path)
        except (OSError, InputError):
            return None
        return found

    def keep(self, key: str, package: Package) -> None:
        """Keeps ``package`` under ``key``, unless it is large: whole or not at all, whoever else writes."""
        content = package_bytes(package)
        if len(content) > self.largest // 4:
            return
        with contextlib.suppress(OSError, InputError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.folder / f"{key}{_SUFFIX}"
            if is_private(self.folder) and (path.is_file() or not path.exists()):
                write_atomically(path, _code(self._secret(), key, content) + content)
                self._shrink()

    def _secret(self) -> bytes:
        """What codes are made with. Of two that are made at a time one stays; entries of the other are made again."""
        path = self.folder / _SECRET
        with contextlib.suppress(OSError):
            found = _content(path, _CODE)
            if len(found) == _CODE:
                return found
        if path.exists() or path.is_symlink():
            raise InputError(f"{path}: not a secret of the cache")
        write_atomically(path, made := secrets.token_bytes(_CODE))
        path.chmod(0o600)
        return made

    def _shrink(self) -> None:
        """Removes what a killed process left, and entries until the others are few enough."""
        sizes = {path: path.lstat().st_size for path in self.entries()}
        excess = sum(sizes.values()) - self.largest
        for path, size in sizes.items():
            if excess > 0:
                path.unlink(missing_ok=True)
                excess -= size


def _content(path: Path, most: int) -> bytes:
    """What is in a file; OSError for anything but a file, and for one of more than ``most`` bytes."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        raise OSError(f"{path} is no file of the cache")
    return path.read_bytes()


def _is_ours(path: Path) -> bool:
    """Whether it is a package behind its code, or what was left of one: by what it holds, not by its name alone."""
    if not (path.suffix == _SUFFIX or is_leftover(path)) or not stat.S_ISREG(path.lstat().st_mode):
        return False
    with path.open("rb") as file:
        head = file.read(_CODE + HEAD)[_CODE:]
    return kind_of(head) == PACKAGE or (is_leftover(path) and not head)


def _code(secret: bytes, key: str, content: bytes) -> bytes:
    return hmac.digest(secret, key.encode() + content, "sha256")


def users_cache() -> PackageCache | None:
    """The user's cache where the system has such folders; None where the environment forbids it or there is no home."""
    folder = users_folder()
    return None if folder is None else PackageCache(folder)


def key_of(given: Mapping[str, Any]) -> str | None:
    """The name of the package that import makes of what was ``given`` (JSON), by this code on this computer.

    Float models are run to find their ranges, so that processor and libraries belong to it. None where operators of
    other packages take part, whose code may change unseen.
    """
    if installed() is not built_in():
        return None
    libraries = {name: _version(name) for name in (NAME, "numpy", "onnx", "onnxruntime", "ai-edge-litert")}
    facts = {"given": given, "code": sources_digest(*_SOURCES), "libraries": libraries, "processor": processor()}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def sum_of(content: bytes) -> str:
    """The SHA-256 by which a file belongs to a name."""
    return hashlib.sha256(content).hexdigest()
