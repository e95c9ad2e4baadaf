"""Cache in the user's folder, so that a later run need not quantise, compile or advise again.

The cache contains only what follows from a network, a machine and options: packages, compiled
networks and advice (:mod:`experiments.running.answers`). It contains no results, no reference
values and no checks. A run from the cache simulates and compares with ONNX Runtime like any other,
and its report is the same to the byte.

The name of an entry is a digest of everything that its content follows from (:func:`key_of`). An
entry is valid only with its code: the HMAC-SHA256 of its name and content with the secret of the
folder. Invalid entries are ignored and made again. A cache that cannot be read or written is not an
error; the run then uses no cache.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byoc.package.package import Package, load_package, package_bytes
from isa import memory
from isa.errors import InputError
from isa.files import ANSWER, HEAD, PACKAGE, is_leftover, kind_of, write_atomically
from isa.installation import NAME, is_private, processor, users_folder, version_of
from isa.plugins import OPERATORS, has_entry_points
from isa.sources import sources_digest

LARGEST = 2 << 30
"""Maximum size of all entries together, in bytes.

Beyond it, the least recently used entries are removed.
"""
_CODE = hashlib.sha256().digest_size
_SECRET = "secret"
_KINDS = {".package": PACKAGE, ".answer": ANSWER}
"""Kinds of the contents of entries, by the ending of their names."""
_SOURCES = ("isa", "byoc", "experiments/models", "experiments/running")
"""Code that makes packages; a change in it changes the names of all entries."""


@dataclass(frozen=True)
class PackageCache:
    """Cache of entries in ``folder``, limited to ``largest`` bytes."""

    folder: Path
    largest: int = LARGEST

    def entries(self) -> list[Path]:
        """Return the paths of the cache's files, least recently used first."""
        with contextlib.suppress(OSError):
            files = [
                (path.lstat().st_mtime_ns, path) for path in self.folder.iterdir() if _is_ours(path)
            ]
            return [path for _, path in sorted(files)]
        return []

    def clear(self) -> int:
        """Remove all entries and return their number.

        The secret is removed as well if it belongs to one of them.
        """
        found = self.entries()
        valid = any(self.read(path.name) is not None for path in found)
        secret = [self.folder / _SECRET] if valid else []
        for path in (*found, *secret):
            path.unlink(missing_ok=True)
        return len(found)

    def find(self, key: str) -> Package | None:
        """Return the package cached under ``key``; None if there is no valid one."""
        name = f"{key}.package"
        with contextlib.suppress(InputError):
            content = self.read(name)
            if content is not None:
                return load_package(self.folder / name, content, trusted=True)
        return None

    def keep(self, key: str, package: Package) -> None:
        """Store ``package`` under ``key`` as :meth:`write` does."""
        self.write(f"{key}.package", [package_bytes(package)])

    def read(self, name: str) -> bytes | None:
        """Return the content of the entry ``name``; None if there is no valid one."""
        path = self.folder / name
        with contextlib.suppress(OSError):
            if not is_private(self.folder):
                return None
            stored = _content(path, self.largest)
            secret = _content(self.folder / _SECRET, _CODE)
            code, content = stored[:_CODE], stored[_CODE:]
            del stored
            if len(secret) == _CODE and hmac.compare_digest(code, _code(secret, name, [content])):
                with contextlib.suppress(OSError):
                    os.utime(path)
                return content
        return None

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        """Store ``parts`` as the entry ``name``; leave it out if it takes a quarter of the cache.

        Other processes may write at the same time. The file is written as a whole or not at all.
        """
        if sum(map(len, parts)) > self.largest // 4:
            return
        with contextlib.suppress(OSError, InputError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.folder / name
            if is_private(self.folder) and (path.is_file() or not path.exists()):
                write_atomically(path, [_code(self._secret(), name, parts), *parts])
                self._shrink()

    def _secret(self) -> bytes:
        """Return the secret of the cache folder, and create it if it is missing.

        If two processes create a secret at the same time, one secret remains; entries with the
        other are made again.
        """
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
        """Remove leftovers of killed processes, and entries until the cache fits its limit.

        The least recently used are removed first.
        """
        sizes = {path: path.lstat().st_size for path in self.entries()}
        excess = sum(sizes.values()) - self.largest
        for path, size in sizes.items():
            if excess > 0:
                path.unlink(missing_ok=True)
                excess -= size


def _content(path: Path, most: int) -> bytes:
    """Return the content of a file in the cache.

    Raise OSError if it is not a regular file or has more than ``most`` bytes.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        raise OSError(f"{path} is no file of the cache")
    return path.read_bytes()


def _is_ours(path: Path) -> bool:
    """Return whether a file in the cache folder is an entry or its leftover.

    The file's name and content decide.
    """
    left = is_leftover(path)
    if not (path.suffix in _KINDS or left) or not stat.S_ISREG(path.lstat().st_mode):
        return False
    with path.open("rb") as file:
        head = file.read(_CODE + HEAD)[_CODE:]
    kinds = _KINDS.values() if left else [_KINDS[path.suffix]]
    return kind_of(head) in kinds or (left and not head)


def _code(secret: bytes, name: str, parts: Iterable[bytes | memoryview]) -> bytes:
    made = hmac.new(secret, name.encode(), "sha256")
    for part in parts:
        made.update(part)
    return made.digest()


def users_cache() -> PackageCache | None:
    """Return the user's cache; None if the environment forbids it or there is no home folder."""
    folder = users_folder()
    return None if folder is None else PackageCache(folder)


def key_of(given: Mapping[str, Any], sources: Sequence[str] = _SOURCES) -> str | None:
    """Return the cache key of what the code in ``sources`` makes of ``given`` on this computer.

    ``given`` is JSON. The name depends on the project's code as well. Import runs float models to
    find their ranges, so the name depends on the processor and the libraries. It depends on the
    limit of memory, which import and compiler check. The result is None if operators of other
    packages are installed, because their code may change unnoticed.
    """
    if has_entry_points(OPERATORS):
        return None
    libraries = {
        name: version_of(name) for name in (NAME, "numpy", "onnx", "onnxruntime", "ai-edge-litert")
    }
    facts = {
        "given": given,
        "code": sources_digest(*sources),
        "libraries": libraries,
        "processor": processor(),
        "max_memory": memory.maximum(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def sum_of(content: bytes) -> str:
    """Return the SHA-256 of a file's content, which is used in cache keys."""
    return hashlib.sha256(content).hexdigest()
