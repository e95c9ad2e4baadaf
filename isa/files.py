"""Files that appear whole or not at all, and never in the place of what they must not replace.

A result replaces an earlier one of its kind, and nothing else: no input of the command that makes it, under whatever
name (:func:`protecting`), and no file of another kind: what a file is, is known by how it begins and how it is called.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import re
import secrets
import shutil
import stat
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

from isa.errors import InputError

HEAD = 4096
"""Bytes that are looked at."""
JSON, PAGE, DRAWING, PICTURE, TEXT, DATA = "JSON", "a page", "a drawing", "a PNG picture", "text", "binary data"
ARRAY, ARRAYS, DATABASE, PARQUET = "an array (.npy)", "arrays (.npz)", "a database", "a Parquet table"
PACKAGE, PROGRAM, SNAPSHOT, TFLITE = "a package", "a program", "a snapshot", "a TensorFlow Lite model"

_BEGINNINGS = {
    b"\x89PNG": PICTURE,
    b"\x93NUMPY": ARRAY,
    b"DLAPROG": PROGRAM,
    b"DLACASE": "a case",
    b"SQLite format 3": DATABASE,
    b"PAR1": PARQUET,
}
_ARCHIVES = {b"manifest.json": PACKAGE, b"snapshot.json": SNAPSHOT}
"""By their first member."""
_ENDINGS = {
    ".json": (JSON, JSON), ".jsonl": ("a log", JSON), ".ipynb": ("a notebook", JSON), ".csv": ("a table", TEXT),
    ".html": (PAGE, PAGE), ".svg": (DRAWING, DRAWING), ".png": (PICTURE, PICTURE), ".toml": ("TOML", TEXT),
    ".md": ("Markdown", TEXT), ".py": ("Python", TEXT), ".s": ("assembly", TEXT), ".onnx": ("an ONNX model", DATA),
    ".tflite": (TFLITE, TFLITE), ".dla": (PACKAGE, PACKAGE), ".prog": (PROGRAM, PROGRAM), ".npy": (ARRAY, ARRAY),
    ".npz": (ARRAYS, ARRAYS), ".snapshot": (SNAPSHOT, SNAPSHOT), ".sqlite": (DATABASE, DATABASE),
    ".parquet": (PARQUET, PARQUET),
}  # fmt: skip
"""What a file that is called so is, and how it begins."""
_TABLE_OF_TOML = re.compile(r"\[\[?\s*[A-Za-z_][\w.\- ]*\]")


def kind_of(head: bytes) -> str:
    """What begins with these bytes, in words: as many as :data:`HEAD`, or all that there are; empty for none."""
    if not head:
        return ""
    if head.startswith(b"PK\x03\x04"):
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return ARRAYS if name.endswith(b".npy") else _ARCHIVES.get(name, "a zip archive")
    if head[4:8] == b"TFL3":
        return TFLITE
    return next((kind for beginning, kind in _BEGINNINGS.items() if head.startswith(beginning)), "") or _text(head)


def _text(head: bytes) -> str:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(head) < HEAD or error.start < HEAD - 4:  # else a character goes on behind the end
            return DATA
        text = head[: error.start].decode()
    if re.search(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]", text):
        return DATA
    first = text.lstrip()
    if first.startswith("{") or (first.startswith("[") and not _TABLE_OF_TOML.match(first)):
        return JSON
    return (PAGE if "<html" in text.lower() else DRAWING) if first.startswith("<") else TEXT


def named_as(ending: str) -> tuple[str, str] | None:
    """What a file with this ending, such as ``.json``, is in words, and how it begins; None where it does not say."""
    return _ENDINGS.get(ending.lower())


READER_SECONDS = 10
"""How long a named pipe waits for somebody who reads it."""
_inputs: ContextVar[frozenset[tuple[int, int]]] = ContextVar("inputs", default=frozenset())


@contextlib.contextmanager
def protecting(inputs: Iterable[Path]) -> Iterator[None]:
    """Within, nothing that is written replaces one of the files ``inputs``: links to them, ``../`` and names in another
    case lead to the same file.
    """
    token = _inputs.set(_inputs.get() | {_identity(path.stat()) for path in inputs if path.is_file()})
    try:
        yield
    finally:
        _inputs.reset(token)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def write_atomically(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write ``content`` (text as UTF-8) so that a half-written file never appears; missing folders are made.

    Behind a symbolic link the file is replaced, not the link. A device or a pipe, such as ``/dev/stdout``, is written
    to as it is; a named pipe waits :data:`READER_SECONDS` for its reader. A file that replaces another one keeps its
    permissions, and is on the disk before the other one goes; ``durable`` asks for that where there is none, too. What
    is not whole yet has a name that nobody else has. Raises InputError naming the place when it cannot be written to or
    holds what must not be replaced; nothing is left there then.
    """
    data = content.encode() if isinstance(content, str) else content
    with _named(path):
        if is_stream(path):
            _pour(path, data)
            return
        target = _resolved(path)
        _check_replaced(path, target, "", kind_of(data[:HEAD]) or TEXT)
        replaces = target.exists()
        with _beside(target) as (temporary, descriptor):
            with open(descriptor, "wb") as file:
                if replaces:
                    os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
                file.write(data)
                file.flush()
                if replaces or durable:
                    os.fsync(descriptor)
            temporary.replace(target)
        if replaces or durable:
            _settle(target.parent)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where another program may write what becomes ``path`` when the block ends; nothing of it is left if it raises.

    A device or a pipe is ``path`` itself. Raises InputError naming the place when it cannot be written to.
    """
    if is_stream(path):
        yield path
        return
    with contextlib.ExitStack() as stack:
        with _named(path):
            target = _resolved(path)
            temporary, descriptor = stack.enter_context(_beside(target))
            os.close(descriptor)
        yield temporary
        with _named(path):
            _check_replaced(path, target, "", kind_of(_head(temporary)) or TEXT)
            temporary.replace(target)


def archive_bytes(contents: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED, mode: int = 0o600) -> bytes:
    """Return a zip archive of ``contents`` in their order; equal contents give equal bytes."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, data in contents.items():
            information = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            information.compress_type, information.external_attr = compression, mode << 16
            archive.writestr(information, data)
    return whole.getvalue()


def check_writable(path: Path, ending: str = "") -> None:
    """Raises InputError now where :func:`write_atomically` would after the work is done; leaves no trace of it.

    ``ending``, such as ``.json``, says what will be written: what is there, is called or begins otherwise, stays.
    """
    with _named(path):
        if not is_stream(path):
            target = _resolved(path)
            _no_folder(target)
            said = named_as(ending)
            _check_replaced(path, target, *(said or ("", "")))
            there = next(folder for folder in target.parents if folder.exists())  # nearest to those that would be made
            with _new_file(there) as (_, descriptor):
                os.close(descriptor)


def _check_replaced(path: Path, target: Path, called: str, kind: str) -> None:
    """Raises InputError where ``target`` is an input, or has another name or another beginning, unless it is empty.

    ``called`` and ``kind`` are what :mod:`isa.files` says of what will be there; empty where that is not known.
    """
    if not target.is_file():
        return
    if _identity(target.stat()) in _inputs.get():
        raise InputError(f"{path}: the command reads it, and a result never replaces an input; choose another place")
    there, name = kind_of(_head(target)), named_as(target.suffix)
    if there and kind and there != kind:
        raise InputError(f"{path}: is {there}, and the result {kind}; remove it first, or choose another place")
    if there and called and name and name[0] != called:
        raise InputError(f"{path}: is called as {name[0]}, and the result is {called}; choose another place")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _pour(path: Path, data: bytes) -> None:
    """Write to a device or a pipe. Raises InputError where nobody comes to read a named pipe."""
    if not path.is_fifo():
        path.write_bytes(data)
        return
    end = time.monotonic() + READER_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        if time.monotonic() > end:
            raise InputError(f"{path}: a pipe that nobody reads; begin to read it first, or choose another place")
        time.sleep(0.02)
    os.set_blocking(descriptor, True)
    with open(descriptor, "wb") as file:
        file.write(data)


def check_distinct(**places: Path | None) -> None:
    """Raises InputError where two options, named by the keywords, ask for one file: one would replace the other."""
    taken: dict[Path, str] = {}
    for option, path in places.items():
        if path is not None and not is_stream(path):
            other = taken.setdefault(Path(os.path.realpath(path)), option)
            if other != option:
                raise InputError(f"--{other} and --{option} both write {path}; give each a file of its own")


def is_stream(path: Path) -> bool:
    """Whether bytes go somewhere else: devices, pipes, and the standard output of a process, wherever that leads."""
    return str(path).startswith(("/dev/", "/proc/")) or (path.exists() and not path.is_file() and not path.is_dir())


def is_leftover(path: Path) -> bool:
    """Whether ``path`` has a name of what was not whole yet, which only a process that was killed leaves."""
    return re.fullmatch(r"\.[0-9a-f]{16}\.part", path.name) is not None


def _resolved(path: Path) -> Path:
    """Where ``path`` leads; links that lead back to themselves lead nowhere."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[tuple[Path, int]]:
    """A new file beside ``target`` for what is not whole yet, and its descriptor; gone in the end unless renamed.

    A folder is no place for a file. Folders that are missing are made.
    """
    _no_folder(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _new_file(target.parent) as made:
        yield made


def _no_folder(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(None, "Is a directory")


@contextlib.contextmanager
def _new_file(folder: Path) -> Iterator[tuple[Path, int]]:
    """It is made, never opened: a file or a link that somebody put there is left alone."""
    temporary = folder / f".{secrets.token_hex(8)}.part"
    ours = True  # before it is made: an interrupt may come between that and the next line
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        except FileExistsError:
            ours = False
            raise
        yield temporary, descriptor
    finally:
        if ours:
            try:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
            except KeyboardInterrupt:  # just now: it goes on when nothing is left
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise


@contextlib.contextmanager
def folder_beside(place: Path) -> Iterator[Path]:
    """A passing folder beside ``place``, gone in the end: for a folder that is not whole yet.

    Raises InputError where nothing can be written there, within the block too.
    """
    passing = place.parent / f".{secrets.token_hex(8)}.part"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            passing.mkdir()
            yield passing
        finally:
            try:
                shutil.rmtree(passing, ignore_errors=True)
            except KeyboardInterrupt:  # just now: it goes on when nothing is left
                shutil.rmtree(passing, ignore_errors=True)
                raise
    except OSError as error:
        raise InputError(f"{place}: cannot be written ({error.strerror}); choose another place") from error


def replace_folder(made: Path, place: Path) -> None:
    """Give the folder ``made`` the name ``place``; a folder that had it before is beside where ``made`` was, or there.

    In one step where the system can exchange two names, so that there is always one of both.
    """
    if place.exists():
        if _exchanged(made, place):
            return
        os.replace(place, made.with_name("older"))
    os.replace(made, place)


_HERE, _EXCHANGE = -100, 2
"""``AT_FDCWD`` and ``RENAME_EXCHANGE`` of Linux."""


def _exchanged(one: Path, other: Path) -> bool:
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # another system
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _settle(folder: Path) -> None:
    """See that a name given in ``folder`` survives a power failure, where the system can do that for folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of the system as one line about ``path``."""
    try:
        yield
    except OSError as error:
        in_the_way = [folder for folder in path.parents if os.path.isfile(folder)]  # False where nobody may look
        reason = f"{in_the_way[0]} is a file, not a folder" if in_the_way else error.strerror or error
        raise InputError(f"{path}: cannot be written ({reason}); choose another place") from error
