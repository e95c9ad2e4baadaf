"""Contents by address: short ones are written where they belong as hexadecimal digits, longer ones are objects.

An object is named by the first 32 digits of the SHA-256 of its contents, and equal contents are stored once. The
objects that a level of the corpus is the first to need lie together in one zip file, which any unzip can read.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

from isa.errors import InputError

INLINE_BYTES = 48
MAXIMUM_BYTES = 1 << 28


def digest_of(content: bytes) -> str:
    """The name of an object."""
    return hashlib.sha256(content).hexdigest()[:32]


class Writer:
    """Turns contents into references and collects the objects they need, in packs by ``level``."""

    def __init__(self) -> None:
        self.level = ""
        self._known: set[str] = set()
        self._packs: dict[str, dict[str, bytes]] = {}

    def reference(self, content: bytes) -> str:
        """``hex:...`` or ``object:...``."""
        if len(content) <= INLINE_BYTES:
            return f"hex:{content.hex()}"
        digest = digest_of(content)
        if digest not in self._known:
            self._known.add(digest)
            self._packs.setdefault(self.level, {})[digest] = content
        return f"object:{digest}"

    def packs(self) -> dict[str, bytes]:
        """The packs by place; names and bytes follow from the contents alone."""
        files = {}
        for level, objects in self._packs.items():
            raw = _zipped(objects)
            files[f"objects/{level}-{hashlib.sha256(raw).hexdigest()[:8]}.zip"] = raw
        return files


def _zipped(objects: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for digest in sorted(objects):
            info = zipfile.ZipInfo(digest, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, objects[digest])
    return stream.getvalue()


class Reader:
    """Turns references of a corpus in ``folder`` back into contents; ``packs`` are places of zip files."""

    def __init__(self, folder: Path, packs: Iterable[str]) -> None:
        self._folder = folder
        self._packs = tuple(packs)
        self._places: dict[str, zipfile.ZipFile] | None = None

    def content(self, reference: str) -> bytes:
        """The contents; raises InputError for a reference that is malformed, or an object missing or damaged."""
        kind, _, text = reference.partition(":")
        if kind == "hex":
            try:
                return bytes.fromhex(text)
            except ValueError as error:
                raise InputError(f"'{reference[:40]}' is not hexadecimal") from error
        if kind != "object":
            raise InputError(f"'{reference[:40]}' is neither hex: nor object:")
        if self._places is None:
            self._places = {name: pack for pack in self._open() for name in pack.namelist()}
        if text not in self._places:
            raise InputError(f"object {text[:40]} is in no pack; restore the corpus or record it again")
        return self._read(self._places[text], text)

    def _open(self) -> Iterable[zipfile.ZipFile]:
        for place in self._packs:
            file = self._folder / place
            if not file.is_file():
                raise InputError(f"pack {place} is missing; restore it or record the corpus again")
            try:
                yield zipfile.ZipFile(io.BytesIO(file.read_bytes()))
            except zipfile.BadZipFile as error:
                raise InputError(f"pack {place} is damaged ({error}); restore it") from error

    @staticmethod
    def _read(pack: zipfile.ZipFile, digest: str) -> bytes:
        try:
            if pack.getinfo(digest).file_size > MAXIMUM_BYTES:
                raise InputError(f"object {digest} has more than {MAXIMUM_BYTES} bytes; restore the corpus")
            content = pack.read(digest)
        except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"object {digest} is damaged ({error}); restore the corpus") from error
        if digest_of(content) != digest:
            raise InputError(f"object {digest} was changed (its SHA-256 is another); restore the corpus")
        return content
