"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from isa.errors import InputError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content`` (text as UTF-8) so that a half-written file never appears; missing folders are made.

    Behind a symbolic link the file is replaced, not the link. A device or a pipe, such as ``/dev/stdout``, is written
    to as it is. Raises InputError naming the place when it cannot be written to; nothing is left there then.
    """
    data = content.encode() if isinstance(content, str) else content
    with _named(path):
        if is_stream(path):
            path.write_bytes(data)
            return
        target = path.resolve()
        temporary = _beside(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def check_writable(path: Path) -> None:
    """Raises InputError now where :func:`write_atomically` would after the work is done; leaves no trace of a file."""
    with _named(path):
        if not is_stream(path):
            target = path.resolve()
            temporary = _beside(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.touch()
            temporary.unlink()


def check_distinct(**places: Path | None) -> None:
    """Raises InputError where two options, named by the keywords, ask for one file: one would replace the other."""
    taken: dict[Path, str] = {}
    for option, path in places.items():
        if path is not None and not is_stream(path):
            other = taken.setdefault(path.resolve(), option)
            if other != option:
                raise InputError(f"--{other} and --{option} both write {path}; give each a file of its own")


def is_stream(path: Path) -> bool:
    """Whether bytes go somewhere else: devices, pipes, and the standard output of a process, wherever that leads."""
    return str(path).startswith(("/dev/", "/proc/")) or (path.exists() and not path.is_file() and not path.is_dir())


def _beside(target: Path) -> Path:
    """The place for what is not whole yet. A folder is no place for a file, and one of them has not even a name."""
    if target.is_dir():
        raise IsADirectoryError(None, "Is a directory")
    return target.with_name(target.name + ".part")


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of the system as one line about ``path``."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}); choose another place") from error
