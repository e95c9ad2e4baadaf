"""Atomic file writing that never replaces an input or a file of another kind.

A result may replace an earlier result of its kind. It never replaces an input of the command that
makes it, under any name (:func:`protect_files`), or a file of another kind. The kind of a file
follows from its first bytes and its name.
"""

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

from isa.errors import InputError

HEAD = 4096
"""Number of first bytes that determine a file's kind."""
JSON = "JSON"
PAGE = "a page"
DRAWING = "a drawing"
PICTURE = "a PNG picture"
TEXT = "text"
DATA = "binary data"
ARRAY = "an array (.npy)"
ARRAYS = "arrays (.npz)"
DATABASE = "a database"
PARQUET = "a Parquet table"
PACKAGE = "a package"
PROGRAM = "a program"
SNAPSHOT = "a snapshot"
TFLITE = "a TensorFlow Lite model"
ANSWER = "an answer of the cache"

_BEGINNINGS = {
    b"\x89PNG": PICTURE,
    b"\x93NUMPY": ARRAY,
    b"DLAPROG": PROGRAM,
    b"DLACASE": "a case",
    b"SQLite format 3": DATABASE,
    b"PAR1": PARQUET,
    b"DLAANSW": ANSWER,
}
_ARCHIVES = {b"manifest.json": PACKAGE, b"snapshot.json": SNAPSHOT}
"""Kinds of zip archives by their first member."""
_ENDINGS = {
    ".json": (JSON, JSON), ".jsonl": ("a log", JSON), ".ipynb": ("a notebook", JSON),
    ".csv": ("a table", TEXT),
    ".html": (PAGE, PAGE), ".svg": (DRAWING, DRAWING), ".png": (PICTURE, PICTURE),
    ".toml": ("TOML", TEXT),
    ".md": ("Markdown", TEXT), ".py": ("Python", TEXT), ".s": ("assembly", TEXT),
    ".onnx": ("an ONNX model", DATA),
    ".tflite": (TFLITE, TFLITE), ".dla": (PACKAGE, PACKAGE), ".prog": (PROGRAM, PROGRAM),
    ".npy": (ARRAY, ARRAY),
    ".npz": (ARRAYS, ARRAYS), ".snapshot": (SNAPSHOT, SNAPSHOT), ".sqlite": (DATABASE, DATABASE),
    ".parquet": (PARQUET, PARQUET), ".pftrace": ("a timeline", DATA),
}  # fmt: skip
"""Kind of a file and kind of its content, by the ending of its name."""
_TABLE_OF_TOML = re.compile(r"\[\[?\s*[A-Za-z_][\w.\- ]*\]")


def kind_of(head: bytes) -> str:
    """Return the kind of file whose content begins with ``head``, or "" if it is unknown.

    ``head`` has :data:`HEAD` bytes, or all bytes of a shorter file.
    """
    if not head:
        return ""
    if head.startswith(b"PK\x03\x04"):
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return ARRAYS if name.endswith(b".npy") else _ARCHIVES.get(name, "a zip archive")
    if head[4:8] == b"TFL3":
        return TFLITE
    return next(
        (kind for beginning, kind in _BEGINNINGS.items() if head.startswith(beginning)), ""
    ) or _text(head)


def _text(head: bytes) -> str:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(head) < HEAD or error.start < HEAD - 4:  # otherwise a character extends past the end
            return DATA
        text = head[: error.start].decode()
    if re.search(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]", text):
        return DATA
    first = text.lstrip()
    if first.startswith("{") or (first.startswith("[") and not _TABLE_OF_TOML.match(first)):
        return JSON
    return (PAGE if "<html" in text.lower() else DRAWING) if first.startswith("<") else TEXT


def find_kind(ending: str) -> tuple[str, str] | None:
    """Return the kind of a file with an ending such as ``.json`` and of its content.

    Return None if the ending is unknown.
    """
    return _ENDINGS.get(ending.lower())


READER_SECONDS = 10
"""Seconds that a named pipe waits for its reader."""
_inputs: ContextVar[frozenset[tuple[int, int]]] = ContextVar("inputs", default=frozenset())


@contextlib.contextmanager
def protect_files(inputs: Iterable[Path]) -> Iterator[None]:
    """Protect the files ``inputs`` from being replaced while the ``with`` block runs.

    Links to them, ``../`` and other spellings of a name lead to the same file.
    """
    token = _inputs.set(
        _inputs.get() | {_identity(path.stat()) for path in inputs if path.is_file()}
    )
    try:
        yield
    finally:
        _inputs.reset(token)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def write_atomically(
    path: Path, content: str | bytes | Sequence[bytes | memoryview], *, durable: bool = False
) -> None:
    """Write ``content`` (text as UTF-8, or parts) so that no incomplete file ever appears.

    Missing folders are created. A symbolic link stays; the file behind it is replaced. Devices and
    pipes, such as ``/dev/stdout``, are written directly, and a named pipe waits
    :data:`READER_SECONDS` for its reader. A replacing file keeps the old file's permissions and is
    flushed to disk before the old one is removed. The temporary name is unique, and nothing is left
    after an error.

    Args:
        path: file to write.
        content: its content.
        durable: flush to disk even if no file is replaced.

    Raises:
        InputError: the file cannot be written, or would replace a protected file.
    """
    data = [content.encode()] if isinstance(content, str) else content
    parts = [data] if isinstance(data, bytes) else data
    with _convert_system_errors(path):
        if is_stream(path):
            _pour(path, b"".join(parts))
            return
        target = _resolve_path(path)
        _check_replaced(path, target, kind_of(bytes(parts[0][:HEAD])) or TEXT)
        replaces = target.exists()
        with _create_temporary(target) as (temporary, descriptor):
            with open(descriptor, "wb") as file:
                if replaces:
                    os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
                file.writelines(parts)
                file.flush()
                if replaces or durable:
                    os.fsync(descriptor)
            temporary.replace(target)
        if replaces or durable:
            _settle(target.parent)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose file becomes ``path`` when the ``with`` block ends.

    After an exception nothing is left. A device or a pipe is ``path`` itself. Raises InputError
    naming the file if it cannot be written.
    """
    if is_stream(path):
        yield path
        return
    with contextlib.ExitStack() as stack:
        with _convert_system_errors(path):
            target = _resolve_path(path)
            temporary, descriptor = stack.enter_context(_create_temporary(target))
            os.close(descriptor)
        yield temporary
        with _convert_system_errors(path):
            _check_replaced(path, target, kind_of(_head(temporary)) or TEXT)
            temporary.replace(target)


def archive_bytes(
    contents: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED, mode: int = 0o600
) -> bytes:
    """Return the bytes of a zip archive of ``contents``; equal contents give equal bytes."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, data in contents.items():
            information = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            information.compress_type = compression
            information.external_attr = mode << 16
            archive.writestr(information, data)
    return whole.getvalue()


def check_writable(path: Path, ending: str = "") -> None:
    """Raise InputError if :func:`write_atomically` could not write a file; leave no trace.

    ``ending``, such as ``.json``, is the kind of the result: its name has no ending of another
    kind, and an existing file of another content is not replaced.
    """
    with _convert_system_errors(path):
        if not is_stream(path):
            target = _resolve_path(path)
            _no_folder(target)
            called, kind = find_kind(ending) or ("", "")
            name = find_kind(target.suffix)
            _check_replaced(path, target, kind)
            if called and name and name[0] != called:
                raise InputError(
                    f"{path}: is called as {name[0]}, and the result is {called}; name it "
                    f"{path.with_suffix(ending)}"
                )
            # the nearest existing folder
            there = next(folder for folder in target.parents if folder.exists())
            with _new_file(there) as (_, descriptor):
                os.close(descriptor)


def _check_replaced(path: Path, target: Path, kind: str) -> None:
    """Raise InputError if a file to be replaced is an input or of another kind.

    An empty file is never of another kind. ``kind`` is that of the new content; empty if unknown.
    """
    if not target.is_file():
        return
    if _identity(target.stat()) in _inputs.get():
        raise InputError(
            f"{path}: the command reads it, and a result never replaces an input; "
            "choose another place"
        )
    there = kind_of(_head(target))
    if there and kind and there != kind:
        raise InputError(
            f"{path}: is {there}, and the result {kind}; remove it first, or choose another place"
        )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _pour(path: Path, data: bytes) -> None:
    """Write to a device or a pipe; raise InputError if a named pipe gets no reader."""
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
            raise InputError(
                f"{path}: a pipe that nobody reads; begin to read it first, or choose another place"
            )
        time.sleep(0.02)
    os.set_blocking(descriptor, True)
    with open(descriptor, "wb") as file:
        file.write(data)


def check_distinct(**places: Path | None) -> None:
    """Raise InputError if two options name the same file.

    Options are given as keywords. The file of one would replace that of the other.
    """
    taken: dict[Path, str] = {}
    for option, path in places.items():
        if path is not None and not is_stream(path):
            other = taken.setdefault(Path(os.path.realpath(path)), option)
            if other != option:
                raise InputError(
                    f"--{other} and --{option} both write {path}; give each a file of its own"
                )


def is_stream(path: Path) -> bool:
    """Return True if ``path`` is a device, a pipe or a process's standard output.

    Standard output counts even if it is redirected.
    """
    return str(path).startswith(("/dev/", "/proc/")) or (
        path.exists() and not path.is_file() and not path.is_dir()
    )


def is_leftover(path: Path) -> bool:
    """Return True if ``path`` has the name of an incomplete file.

    Only a killed process leaves such a file.
    """
    return re.fullmatch(r"\.[0-9a-f]{16}\.part", path.name) is not None


def _resolve_path(path: Path) -> Path:
    """Return the file that a path refers to after following links.

    Raises OSError for links that form a loop.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


@contextlib.contextmanager
def _create_temporary(target: Path) -> Iterator[tuple[Path, int]]:
    """Create a temporary file in the folder of ``target`` and yield it with its descriptor.

    The file is deleted at the end unless it was renamed. Missing folders are created. Raises
    IsADirectoryError if ``target`` is a folder.
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
    """Create a new temporary file; an existing file or link of that name is never opened."""
    temporary = folder / f".{secrets.token_hex(8)}.part"
    # set first, because an interrupt may come between creating the file and the next line
    ours = True
    try:
        try:
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666
            )
        except FileExistsError:
            ours = False
            raise
        yield temporary, descriptor
    finally:
        if ours:
            try:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
            # a second interrupt during cleanup: clean up, then pass it on
            except KeyboardInterrupt:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise


@contextlib.contextmanager
def folder_beside(place: Path) -> Iterator[Path]:
    """Yield a temporary folder in the same folder as ``place``; it is deleted at the end.

    Raises InputError if the folder, or a file in it within the block, cannot be written.
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
            except KeyboardInterrupt:  # an interrupt during cleanup: clean up, then pass it on
                shutil.rmtree(passing, ignore_errors=True)
                raise
    except OSError as error:
        raise InputError(
            f"{place}: cannot be written ({error.strerror}); choose another place"
        ) from error


def replace_folder(made: Path, place: Path) -> None:
    """Rename a finished folder ``made`` to ``place``, replacing an existing folder.

    The existing folder is renamed to ``made`` in the same step, so that ``place`` always exists. If
    the system cannot exchange two names, it is renamed to ``older`` next to ``made``.
    """
    if place.exists():
        if _try_exchange(made, place):
            return
        os.replace(place, made.with_name("older"))
    os.replace(made, place)


_HERE = -100
_EXCHANGE = 2
"""``AT_FDCWD`` and ``RENAME_EXCHANGE`` of Linux."""


def _try_exchange(one: Path, other: Path) -> bool:
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # not available on this system
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _settle(folder: Path) -> None:
    """Flush a folder to disk if the system can.

    A new name in the folder then survives a power failure.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _convert_system_errors(path: Path) -> Iterator[None]:
    """Convert operating system errors to an InputError with one line about ``path``."""
    try:
        yield
    except OSError as error:
        # isfile is False if the folder is not accessible
        in_the_way = [folder for folder in path.parents if os.path.isfile(folder)]
        reason = (
            f"{in_the_way[0]} is a file, not a folder" if in_the_way else error.strerror or error
        )
        raise InputError(f"{path}: cannot be written ({reason}); choose another place") from error
