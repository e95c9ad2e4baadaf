"""Corpus on disk: an index, one readable file per case, and packs of contents.

``corpus.json`` names every case with its file and that file's SHA-256; other files do not count.
Names of case files and packs contain a digest, so no file that a corpus needs is ever overwritten.
A new corpus is written next to the old one and becomes valid when its index replaces the old index
in one step. A process that is killed before that step leaves the old corpus, and one killed later
the new corpus.

Only files named in the index are ever removed or replaced, and links are never followed. Before a
file is written, the index lists it as unfinished. After the last step the index lists the old
corpus's files until they are removed. The next writer therefore knows which files an interrupted
one has left.

Short contents are in the case files as hexadecimal digits. Longer ones are objects, named by the
first 32 digits of their SHA-256; equal contents are stored once. One standard zip file per level
contains the objects that no earlier level needs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.golden.case import LEVELS, StoredCase, case_text, parse_case
from isa.errors import InputError
from isa.files import archive_bytes, is_leftover, write_atomically
from isa.reading import json_of, open_zip, read_bytes, zip_member

FORMAT = "dla-golden/1"
INDEX = "corpus.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}/[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
"""Valid names of cases: LEVEL/name. The name is part of the file name."""
_PLACE = re.compile(
    rf"cases/{NAME.pattern}-[0-9a-f]{{8}}\.toml|objects/[A-Za-z0-9][A-Za-z0-9.-]{{0,99}}-[0-9a-f]{{8}}\.zip"
)
_DIGEST = re.compile(r"[0-9a-f]{64}")
INLINE_BYTES = 48
MAXIMUM_BYTES = 1 << 28


@dataclass(frozen=True)
class Event:
    """History entry of a golden corpus: why its results changed to those with ``digest``."""

    action: str
    reason: str
    version: str
    cases: int
    changed: tuple[str, ...]
    digest: str


@dataclass(frozen=True)
class Entry:
    """Index entry of a golden case: its file and the SHA-256 of the file."""

    file: str
    sha256: str


@dataclass(frozen=True)
class Corpus:
    """Index of a golden corpus in ``folder``: its cases, packs and history.

    ``entries`` are the cases by name, ordered by level and name. ``unfinished`` are files that an
    interrupted writer may have left and that no case needs.
    """

    folder: Path
    entries: Mapping[str, Entry]
    packs: tuple[str, ...] = ()
    history: tuple[Event, ...] = ()
    unfinished: tuple[str, ...] = ()

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.folder, self.packs)

    @property
    def digest(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 over the names and contents of all cases."""
        lines = "".join(f"{name} {entry.sha256}\n" for name, entry in sorted(self.entries.items()))
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    @property
    def places(self) -> frozenset[str]:
        """Paths of every file of this golden corpus except the index."""
        return frozenset(
            (*self.packs, *self.unfinished, *(entry.file for entry in self.entries.values()))
        )

    def case(self, name: str) -> StoredCase:
        """Read a golden case of the corpus by name.

        Raise InputError if its file is missing or edited, or if one of its objects is damaged.
        """
        entry = self.entries[name]
        file = _own(self.folder, entry.file)
        if not file.is_file():
            raise InputError(
                f"{self.folder}: case {name} is missing ({entry.file}); restore it or record again"
            )
        raw = read_bytes(file, MAXIMUM_BYTES, "a case of a corpus", "restore it")
        if hashlib.sha256(raw).hexdigest() != entry.sha256:
            raise InputError(
                f"{self.folder}: case {name} was edited ({entry.file}); restore it, and accept new "
                "results with bless"
            )
        try:
            case = parse_case(raw.decode(), self._reader.content)
        except (InputError, UnicodeDecodeError) as error:
            raise InputError(f"{self.folder}: case {name}: {error}") from error
        if case.name != name:
            raise InputError(
                f"{self.folder}: the file of case {name} holds {case.name}; restore it"
            )
        return case


def open_corpus(folder: Path) -> Corpus:
    """Open the golden corpus in ``folder``.

    Raise InputError if there is none, or if it is empty or damaged.
    """
    if not (folder / INDEX).is_file():
        raise InputError(f"{folder}: no golden corpus here; 'dla golden record {folder}' makes one")
    corpus = _read_index(folder)
    if not corpus.entries:
        raise InputError(
            f"{folder}: the corpus has no cases; 'dla golden record {folder}' makes some"
        )
    return corpus


def corpus_to_replace(folder: Path) -> Corpus:
    """Return the corpus to replace, or an empty one if the folder is missing or empty.

    Raises InputError if the folder contains other files or a damaged corpus.
    """
    if (folder / INDEX).exists():
        return _read_index(folder)
    if folder.exists():
        foreign = sorted(item.name for item in folder.iterdir() if not is_leftover(item))
        if foreign:
            raise InputError(
                f"{folder}: holds {foreign[0]} and no golden corpus; choose an empty folder"
            )
    return Corpus(folder, {})


def _read_index(folder: Path) -> Corpus:
    index = _own(folder, INDEX)
    try:
        content = read_bytes(index, MAXIMUM_BYTES, "the index of a corpus", "restore it")
        document = json_of(content, str(index), "the index of a corpus", "restore it")
        found = document.get("format") if isinstance(document, dict) else None
        if found != FORMAT:
            raise InputError(
                f"{folder}: the corpus has format {found!r}, this version reads {FORMAT!r}; use "
                "the version that wrote it, or record into another folder"
            )
        return _parse(folder, document)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{index}: the index of the corpus is damaged; restore it") from error


def _parse(folder: Path, document: dict[str, Any]) -> Corpus:
    entries = {
        name: Entry(str(item["file"]), str(item["sha256"]))
        for name, item in document["cases"].items()
    }
    packs = tuple(map(str, document["packs"]))
    history = tuple(
        Event(**{**item, "changed": tuple(item["changed"])}) for item in document["history"]
    )
    corpus = Corpus(
        folder, entries, packs, history, tuple(map(str, document.get("unfinished", ())))
    )
    for name, entry in entries.items():
        if not NAME.fullmatch(name):
            raise InputError(
                f"{folder}: the index names a case {name!r}, which is no name of a case; restore it"
            )
        if not _DIGEST.fullmatch(entry.sha256) or entry.file != _case_file(name, entry.sha256):
            raise InputError(
                f"{folder}: the index names no file of case {name} ({entry.file!r}); restore it"
            )
    for place in corpus.places:
        if not _PLACE.fullmatch(place):
            raise InputError(
                f"{folder}: the index names a file outside the corpus ({place!r}); restore it"
            )
    last = history[-1] if history else Event("", "", "", 0, (), corpus.digest)
    if (document["digest"], last.digest, last.cases) != (
        corpus.digest,
        corpus.digest,
        len(entries),
    ):
        raise InputError(
            f"{folder}: the index was changed: it holds {len(entries)} cases of digest "
            f"{corpus.digest}, its history "
            f"ends with {last.cases} of {str(last.digest)[:16]}; restore it"
        )
    return corpus


def _own(folder: Path, place: str) -> Path:
    """Return the path of a golden corpus's file, which must not be a symbolic link.

    Raise InputError if the path contains a symbolic link.
    """
    file = folder
    for part in place.split("/"):
        file = file / part
        if file.is_symlink():
            raise InputError(
                f"{file}: a link, and a golden corpus consists of files of its own; remove it"
            )
    return file


def _case_file(name: str, sha256: str) -> str:
    return f"cases/{name}-{sha256[:8]}.toml"


def write_corpus(
    folder: Path, cases: Iterable[StoredCase], history: tuple[Event, ...], event: Event
) -> Corpus:
    """Store golden cases as the corpus in ``folder``, in one step.

    ``event`` and the new digest are added to the history.

    Raises InputError as :func:`corpus_to_replace`, for symbolic links in the folder, and for a
    foreign file in place of one of the corpus; then nothing is changed.
    """
    old = corpus_to_replace(folder)
    writer = ObjectWriter()
    entries: dict[str, Entry] = {}
    files: dict[str, bytes] = {}
    for case in sorted(cases, key=case_order):
        writer.level = case.level
        text = case_text(case, writer.reference).encode()
        sha256 = hashlib.sha256(text).hexdigest()
        entries[case.name] = Entry(_case_file(case.name, sha256), sha256)
        files[entries[case.name].file] = text
    packs = writer.make_packs()
    files |= packs
    corpus = Corpus(folder, entries, tuple(packs))
    corpus = replace(
        corpus, history=(*history, replace(event, cases=len(entries), digest=corpus.digest))
    )
    missing = [
        place
        for place, content in files.items()
        if not (file := _own(folder, place)).is_file() or file.read_bytes() != content
    ]
    left = sorted(old.places.difference(files))
    for place in left:
        _own(folder, place)
    new = [place for place in missing if place not in old.places]
    for place in new:
        if (folder / place).exists():
            raise InputError(
                f"{folder / place}: in the way, and not the corpus's; move it elsewhere"
            )
    if new:
        _write_index(replace(old, unfinished=(*old.unfinished, *new)))
    for place in missing:
        write_atomically(folder / place, files[place], durable=True)
    _write_index(replace(corpus, unfinished=tuple(left)))
    if left:
        for place in left:
            _remove(folder, place)
        _write_index(corpus)
    return corpus


def _remove(folder: Path, place: str) -> None:
    """Remove a file of a golden corpus, and the folders that become empty."""
    file = _own(folder, place)
    file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for parent in file.relative_to(folder).parents[:-1]:
            (folder / parent).rmdir()


def _write_index(corpus: Corpus) -> None:
    document = {
        "format": FORMAT,
        "digest": corpus.digest,
        "history": [{**vars(event), "changed": list(event.changed)} for event in corpus.history],
        **({"unfinished": list(corpus.unfinished)} if corpus.unfinished else {}),
        "packs": list(corpus.packs),
        "cases": {name: vars(entry) for name, entry in corpus.entries.items()},
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    write_atomically(_own(corpus.folder, INDEX), text, durable=True)


def case_order(case: StoredCase) -> tuple[int, str]:
    """Return the sort key of a golden case: level, then name."""
    return list(LEVELS).index(case.level) if case.level in LEVELS else len(LEVELS), case.name


def check_levels(levels: Iterable[str], known: Iterable[str] = LEVELS) -> None:
    """Raise InputError for a requested level of golden cases that is not in ``known``."""
    names = tuple(dict.fromkeys(known))
    for level in levels:
        if level not in names:
            raise InputError(f"unknown level '{level}'; choose one of {', '.join(names)}")


def choose(names: Collection[str], levels: Collection[str], cases: Collection[str]) -> list[str]:
    """Return the golden cases in ``names`` whose level or case is among the given ones.

    All names are returned if neither levels nor cases are given.

    A case may be named without its level. Raises InputError for a level or a case that does not
    exist.
    """
    check_levels(levels, (name.partition("/")[0] for name in names))
    by_name = {name: [name] for name in names}
    for name in names:
        by_name.setdefault(name.partition("/")[2], []).append(name)
    for case in cases:
        if case not in by_name:
            raise InputError(f"no case is called '{case}'; 'dla golden list' shows all of a corpus")
    wanted = {name for case in cases for name in by_name[case]}
    return [
        name
        for name in names
        if name in wanted or name.partition("/")[0] in levels or not (levels or cases)
    ]


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


class ObjectWriter:
    """Writer of byte contents that returns a text reference to each.

    It collects long contents as objects in one pack per ``level``.
    """

    def __init__(self) -> None:
        self.level = ""
        self._known: set[str] = set()
        self._packs: dict[str, dict[str, bytes]] = {}

    def reference(self, content: bytes) -> str:
        """Return the text reference of byte content: ``hex:...`` or ``object:...``."""
        if len(content) <= INLINE_BYTES:
            return f"hex:{content.hex()}"
        digest = digest_of(content)
        if digest not in self._known:
            self._known.add(digest)
            self._packs.setdefault(self.level, {})[digest] = content
        return f"object:{digest}"

    def make_packs(self) -> dict[str, bytes]:
        """Return zip files of the collected contents, by name.

        Names and bytes depend only on the contents.
        """
        files = {}
        for level, objects in self._packs.items():
            raw = archive_bytes(dict(sorted(objects.items())), zipfile.ZIP_DEFLATED)
            files[f"objects/{level}-{hashlib.sha256(raw).hexdigest()[:8]}.zip"] = raw
        return files


class Reader:
    """Reader that converts references in a golden corpus back to byte contents.

    ``packs`` are the zip files in ``folder``.
    """

    def __init__(self, folder: Path, packs: Iterable[str]) -> None:
        self._folder = folder
        self._packs = tuple(packs)
        self._places: dict[str, zipfile.ZipFile] | None = None

    def content(self, reference: str) -> bytes:
        """Return the bytes that a reference in a golden corpus stands for.

        Raise InputError if it is malformed or its object missing or damaged.
        """
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
            raise InputError(
                f"object {text[:40]} is in no pack; restore the corpus or record it again"
            )
        return self._read(self._places[text], text)

    def _open(self) -> Iterable[zipfile.ZipFile]:
        for place in self._packs:
            file = _own(self._folder, place)
            if not file.is_file():
                raise InputError(f"pack {place} is missing; restore it or record the corpus again")
            content = read_bytes(file, MAXIMUM_BYTES, "a pack of objects", "restore it")
            yield open_zip(content, f"pack {place}", "restore it")

    @staticmethod
    def _read(pack: zipfile.ZipFile, digest: str) -> bytes:
        if pack.getinfo(digest).file_size > MAXIMUM_BYTES:
            raise InputError(
                f"object {digest} has more than {MAXIMUM_BYTES} bytes; restore the corpus"
            )
        content = zip_member(pack, digest, f"object {digest}", "restore the corpus")
        if digest_of(content) != digest:
            raise InputError(
                f"object {digest} was changed (its SHA-256 is another); restore the corpus"
            )
        return content
