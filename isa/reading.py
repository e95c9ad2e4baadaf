"""Read untrusted files: content is bounded and checked before it is used.

Every fault becomes an InputError with the file, the place in it and the remedy: sizes, text that is
not UTF-8, malformed or too deeply nested JSON and TOML, numbers with too many digits, damaged zip
archives, and arrays whose header does not fit their data. Callers check the meaning of the values.
A dict may replace a TOML file; it is converted to the text of that file.
"""

import errno
import io
import json
import os
import re
import stat
import tomllib
import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import memory
from isa.errors import InputError


def toml_text(values: Mapping[str, Any], source: str) -> str:
    """Return a TOML text with one key per line; tables are inline.

    Numbers may be NumPy's, lists may be tuples or ranges. Raises InputError, starting with
    ``source``, for values that TOML cannot represent.
    """
    try:
        return "".join(
            f"{json.dumps(key)} = {_value(key, value, source)}\n" for key, value in values.items()
        )
    except RecursionError as error:
        raise InputError(
            f"{source}: lists or tables are nested too deep, or in themselves"
        ) from error


def _value(key: str, value: Any, source: str) -> str:
    if isinstance(value, Mapping):
        inside = (
            f"{json.dumps(name)} = {_value(name, inner, source)}" for name, inner in value.items()
        )
        return f"{{ {', '.join(inside)} }}"
    if isinstance(value, str | bool | float):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, list | tuple | range):
        return f"[{', '.join(_value(key, inner, source) for inner in value)}]"
    raise InputError(
        f"{source}: {key} is a {type(value).__name__}; give a text, a number, a list "
        "or a table of them"
    )


MAXIMUM_DEPTH = 64
"""Maximum nesting of lists and tables."""
MAXIMUM_BITS = 64
"""Maximum bits of an integer."""
MAXIMUM_MEMBERS = 1 << 20
"""Maximum members of an archive."""

DAMAGED = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, NotImplementedError,
    RuntimeError, ValueError,
    OSError,
)  # fmt: skip
"""Exceptions of zipfile for archives that are damaged, encrypted or compressed in unknown ways."""

_NPY = b"\x93NUMPY"
_NPY_HEADER = 1 << 16
_ENTRIES = {
    "descr": re.compile(r"""['"]descr['"]\s*:\s*['"]([<>|=]?[?a-zA-Z]\d{0,2})['"]"""),
    "fortran_order": re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)"""),
    "shape": re.compile(r"""['"]shape['"]\s*:\s*\(([\d\s,L]{0,400})\)"""),
}
_MAXIMUM_RANK = 32
_MAXIMUM_LENGTH = 1 << 48


_NO_FILES = {
    stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe, not a file",
    stat.S_IFSOCK: "a socket, not a file",
    stat.S_IFCHR: "a device, not a file", stat.S_IFBLK: "a device, not a file",
}  # fmt: skip


def file_fault(path: Path) -> str:
    """Return why the file ``path`` is not readable, or "" if it is.

    Reasons are such as "no such file" and "a directory".
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return (
            f"a link to {os.readlink(path)}, which does not exist"
            if path.is_symlink()
            else "no such file"
        )
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    except ValueError:  # the path contains a null character
        return "no name that a file can have"
    if kind == stat.S_IFREG and not os.access(path, os.R_OK):
        return f"cannot be read ({os.strerror(errno.EACCES)})"
    return _NO_FILES.get(kind, "")


def check_file(path: Path, remedy: str = "", named: object = None) -> None:
    """Raise InputError if ``path`` is not a readable file.

    The message starts with ``path`` or with ``named``, its name on the command line, and ends with
    the ``remedy``.
    """
    if fault := file_fault(path):
        raise _make_refusal(f"{path if named is None else named}: {fault}", remedy)


def first_bytes(path: Path, count: int) -> bytes:
    """Return the first ``count`` bytes of the file at ``path``.

    Nothing if it is not a readable file.
    """
    if file_fault(path):
        return b""
    with path.open("rb") as file:
        return file.read(count)


def read_bytes(path: Path, most: int, what: str, remedy: str = "") -> bytes:
    """Return the content of a file of at most ``most`` bytes.

    Raise InputError if it is not readable.

    ``what`` is the expected content and ``remedy`` the advice in the message.
    """
    check_file(path, remedy)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise _make_refusal(
            f"{path}: cannot be read ({error.strerror or error})", remedy
        ) from error
    if len(content) > most:
        raise InputError(f"{path}: {path.stat().st_size} bytes; {what} has at most {most}")
    return content


def text_of(content: bytes, source: str, remedy: str = "") -> str:
    """Decode file content as UTF-8; ``source`` names the file in messages."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise _make_refusal(
            f"{source}: not a text file (byte {error.start} is not UTF-8)", remedy
        ) from error


def json_of(content: bytes | str, source: str, what: str, remedy: str = "") -> Any:
    """Parse file content as JSON with bounded size and depth.

    ``source`` names the content and ``what`` is the expected content in messages.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        value = json.loads(text)
    except RecursionError as error:
        raise _too_deep(source, remedy) from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _make_refusal(f"{source}: not {what} (it is not JSON)", remedy) from error
    except ValueError as error:  # Python's limit on the digits of an integer
        raise _too_long(source, remedy) from error
    return _check_bounds(value, source, remedy)


def toml_of(content: bytes | str, source: str, remedy: str = "") -> dict[str, Any]:
    """Parse file content as TOML with bounded size and depth.

    ``source`` names it in messages.
    """
    text = content if isinstance(content, str) else text_of(content, source, remedy)
    try:
        value = tomllib.loads(text)
    except RecursionError as error:
        raise _too_deep(source, remedy) from error
    except tomllib.TOMLDecodeError as error:
        raise _make_refusal(f"{source}: not a TOML file ({error})", remedy) from error
    # Python's limit on the digits of an integer, and dates that do not exist
    except ValueError as error:
        raise _make_refusal(
            f"{source}: not a TOML file (a number of too many digits, or no date)", remedy
        ) from error
    found: dict[str, Any] = _check_bounds(value, source, remedy)
    return found


def _check_bounds(value: Any, source: str, remedy: str = "") -> Any:
    """Return a parsed value after checking the sizes of everything in it.

    These are the bounds of all its lists, tables, integers and texts.
    """
    level = [value]
    for _ in range(MAXIMUM_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.keys()
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, int):
                if item.bit_length() > MAXIMUM_BITS:
                    raise _too_long(source, remedy)
            elif isinstance(item, str) and not item.isascii():
                _check_text(item, source, remedy)
        if not below:
            return value
        level = below
    raise _too_deep(source, remedy)


def _check_text(text: str, source: str, remedy: str = "") -> None:
    """Raise InputError for an unpaired surrogate, which JSON can contain and a file cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _make_refusal(
            f"{source}: a text with half a character ({error.reason})", remedy
        ) from error


def _make_refusal(fault: str, remedy: str) -> InputError:
    """Return an InputError that says why a file is refused and how to repair it."""
    return InputError(f"{fault}; {remedy}" if remedy else fault)


def _too_deep(source: str, remedy: str = "") -> InputError:
    return _make_refusal(
        f"{source}: lists or tables are nested more than {MAXIMUM_DEPTH} deep", remedy
    )


def _too_long(source: str, remedy: str = "") -> InputError:
    return _make_refusal(f"{source}: an integer has more than {MAXIMUM_BITS} bits", remedy)


def open_zip(content: Path | bytes, source: str, remedy: str = "") -> zipfile.ZipFile:
    """Open a zip archive that is a file or bytes in memory.

    Its unpacked size must be within the memory limit.
    """
    try:
        archive = zipfile.ZipFile(content if isinstance(content, Path) else io.BytesIO(content))
    except DAMAGED as error:
        raise _make_refusal(
            f"{source}: not a whole zip archive ({first_line(error)})", remedy
        ) from error
    names = archive.namelist()
    if len(names) > MAXIMUM_MEMBERS or len(set(names)) != len(names):
        archive.close()
        raise _make_refusal(
            f"{source}: an archive with too many members, or two of one name", remedy
        )
    try:
        memory.require(2 * sum(item.file_size for item in archive.infolist()), source)
    except InputError:
        archive.close()
        raise
    return archive


def zip_member(archive: zipfile.ZipFile, name: str, source: str, remedy: str = "") -> bytes:
    """Return the bytes of one file in a zip archive.

    The archive is from :func:`open_zip`.
    """
    try:
        return archive.read(name)
    except KeyError as error:
        raise _make_refusal(f"{source}: it has no member {name}", remedy) from error
    except DAMAGED as error:
        raise _make_refusal(
            f"{source}: member {name} is damaged ({first_line(error)})", remedy
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type."""
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )


def read_npy(path: Path, source: str) -> NDArray[Any]:
    """Return the array in a ``.npy`` file: plain numbers of any shape."""
    memory.require(path.stat().st_size, source)
    return array_of(read_bytes(path, path.stat().st_size, "a .npy file", "give another"), source)


def read_npz(path: Path, source: str) -> dict[str, NDArray[Any]]:
    """Return the arrays in a ``.npz`` file by name, all of plain numbers."""
    remedy = "numpy.savez writes such files"
    with open_zip(path, f"{source}: not a readable .npz file of plain numbers", remedy) as archive:
        return {
            name.removesuffix(".npy"): array_of(
                zip_member(archive, name, source, remedy), f"{source}, array {name}"
            )
            for name in archive.namelist()
        }


def array_of(content: bytes, source: str) -> NDArray[Any]:
    """Return the array in the bytes of a ``.npy`` file, whose size must match its header."""
    header, start = _npy_header(content, source)
    found = {name: pattern.findall(header) for name, pattern in _ENTRIES.items()}
    if any(len(values) != 1 for values in found.values()):
        raise InputError(
            f"{source}: not a readable .npy file of plain numbers; numpy.save writes such files"
        )
    try:
        dtype = np.dtype(found["descr"][0])
    except TypeError as error:
        raise InputError(
            f"{source}: element type {found['descr'][0]} is not known; give plain numbers"
        ) from error
    shape = tuple(int(text) for text in re.findall(r"\d+", found["shape"][0]))
    count = prod(shape)
    if (
        dtype.kind not in "biufc"
        or len(shape) > _MAXIMUM_RANK
        or max(shape, default=0) > _MAXIMUM_LENGTH
    ):
        raise InputError(
            f"{source}: not a readable .npy file of plain numbers ({dtype} in "
            f"{len(shape)} dimensions)"
        )
    if count * dtype.itemsize != len(content) - start:
        raise InputError(
            f"{source}: {list(shape)} elements of type {dtype} take {count * dtype.itemsize} bytes "
            "and "
            f"{len(content) - start} are there; write the file again"
        )
    order: Any = "F" if found["fortran_order"][0] == "True" else "C"
    array = np.frombuffer(content, dtype, count, start).reshape(shape, order=order)
    return array.astype(dtype.newbyteorder("="))


def _npy_header(content: bytes, source: str) -> tuple[str, int]:
    """Return the header text of a ``.npy`` file and the byte at which its data start."""
    width = 2 if content[6:7] == b"\x01" else 4
    length = int.from_bytes(content[8 : 8 + width], "little")
    start = 8 + width + length
    known = content.startswith(_NPY) and content[6:7] in (b"\x01", b"\x02", b"\x03")
    if not known or length > _NPY_HEADER or start > len(content):
        raise InputError(
            f"{source}: not a readable .npy file of plain numbers; numpy.save writes such files"
        )
    return content[8 + width : start].decode("latin-1"), start
