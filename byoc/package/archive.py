"""The archive of a package on disk: written whole or not at all, read with nothing trusted."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from isa import memory
from isa.errors import InputError
from isa.reading import DAMAGED

MANIFEST = "manifest.json"
MODELS = ("model.onnx", "model.tflite")
"""What the embedded model is called, by its format."""
MAXIMUM_FILE = 4 << 30
MAXIMUM_JSON = 256 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)


def members(model: str) -> tuple[str, ...]:
    """The members of a package whose embedded model has this name, the manifest apart, in their order."""
    return "graph.json", model, "weights.bin"


def archive_bytes(contents: Mapping[str, bytes]) -> bytes:
    """An archive of members, stored, in their order. Equal contents make equal bytes."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
        for name, data in contents.items():
            information = zipfile.ZipInfo(name, _EPOCH)
            information.external_attr = 0o644 << 16
            archive.writestr(information, data)
    return whole.getvalue()


def read_archive(file: Path | bytes, names: Iterable[str]) -> dict[str, bytes]:
    """The bytes of some members, once the archive has exactly those of a package, stored, within bounds.

    ``file`` is where it is, or its content. Raises :class:`InputError`, whose message does not name the file.
    """
    try:
        size = len(file) if isinstance(file, bytes) else file.stat().st_size
        if size > MAXIMUM_FILE:
            raise InputError(f"{size} bytes are more than the {MAXIMUM_FILE} a package may have")
        memory.require(2 * size, "the package")
        with zipfile.ZipFile(io.BytesIO(file) if isinstance(file, bytes) else file) as archive:
            _check_entries(archive.infolist(), size)
            return {name: archive.read(name) for name in names}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or 'damaged'})") from error
    except DAMAGED as error:
        raise InputError("not a package, or a truncated or damaged one") from error


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    names = sorted(entry.filename for entry in entries)
    if names not in [sorted((MANIFEST, *members(model))) for model in MODELS]:
        raise InputError(f"its members are {', '.join(names[:8]) or 'none'}; those of a package are expected")
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size or entry.flag_bits & 1:
            raise InputError(f"{entry.filename} is compressed or encrypted; members of a package are stored")
        limit = min(size, MAXIMUM_JSON) if entry.filename.endswith(".json") else size
        if entry.file_size > limit:
            raise InputError(f"{entry.filename} declares {entry.file_size} bytes, {limit} are possible")
