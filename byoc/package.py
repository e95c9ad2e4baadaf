"""The package (``.dla``): one portable file that serves every ISA variant, memory size and schedule.

A zip without compression of ``model.onnx`` (the quantised model, for host parts and the oracle), ``graph.json`` (the
canonical graph and the annotation of every node), ``weights.bin`` (its constants) and ``manifest.json`` (format version
and the SHA-256 of the others). Packages are untrusted: nothing is unpickled, unpacked or written, and members are
stored, so that no file expands.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc.graph import Graph
from byoc.package_graph import ArrayWriter, decode_graph, encode_graph
from byoc.passes.graph_annotate import Annotation, annotate
from isa.errors import InputError

if TYPE_CHECKING:
    import onnx

FORMAT_VERSION = 1
MEMBERS = ("graph.json", "model.onnx", "weights.bin")
MANIFEST = "manifest.json"
MAXIMUM_FILE = 4 << 30
MAXIMUM_JSON = 256 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class Package:
    """A compiled network, before anything that depends on a machine.

    ``rewritten_activations`` counts the groups that :func:`byoc.clamps.integer_clamps` has rewritten in the embedded
    model. ``members`` are the bytes of the file's parts.
    """

    source: str
    graph: Graph
    annotations: tuple[Annotation, ...]
    rewritten_activations: int
    tool: str
    members: Mapping[str, bytes] = field(repr=False)
    label: str = "package"

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The embedded quantised ONNX model, checked and parsed when first needed."""
        import onnx

        try:
            return onnx.load_model_from_string(self.members["model.onnx"])
        except Exception as error:  # protobuf's DecodeError, which has no type information to name it by
            raise InputError(f"{self.label}: its model.onnx is not an ONNX model; compile the model again") from error

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the manifest, and with it of everything in the package."""
        return hashlib.sha256(_manifest(self)).hexdigest()


def build_package(model: onnx.ModelProto, source: str) -> Package:
    """Package of a quantised, prepared model; ``source`` is the name it goes by in reports. Deterministic."""
    from byoc.clamps import integer_clamps
    from byoc.importer import import_model

    graph = import_model(model)
    annotations = annotate(graph)
    embedded, rewritten = integer_clamps(model, graph)
    arrays = ArrayWriter()
    document = encode_graph(graph, annotations, arrays)
    members = {
        "graph.json": json.dumps(document, sort_keys=True, separators=(",", ":")).encode(),
        "model.onnx": embedded.SerializeToString(deterministic=True),
        "weights.bin": arrays.block(),
    }
    return Package(source, graph, annotations, rewritten, _tool(), members)


def _tool() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"dla-byoc-simulator {version('dla-byoc-simulator')}"
    except PackageNotFoundError:
        return "dla-byoc-simulator"


def _manifest(package: Package) -> bytes:
    document = {
        "format": "dla-package",
        "version": FORMAT_VERSION,
        "source": package.source,
        "tool": package.tool,
        "rewritten_activations": package.rewritten_activations,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in package.members.items()},
    }
    return json.dumps(document, sort_keys=True, indent=1).encode()


def save_package(package: Package, path: str | Path) -> None:
    """Write ``package``; the file appears whole or not at all, with equal bytes for equal packages."""
    file = Path(path)
    contents = {MANIFEST: _manifest(package), **{name: package.members[name] for name in MEMBERS}}
    try:
        handle, temporary = tempfile.mkstemp(dir=file.resolve().parent, prefix=f".{file.name}.")
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror})") from error
    try:
        with os.fdopen(handle, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for name, data in contents.items():
                information = zipfile.ZipInfo(name, _EPOCH)
                information.external_attr = 0o644 << 16
                archive.writestr(information, data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_package(path: str | Path) -> Package:
    """Read a package. :class:`InputError` in one line for whatever is wrong with the file."""
    file = Path(path)
    try:
        members = _read_members(file)
        manifest = _read_manifest(members.pop(MANIFEST))
        for name in MEMBERS:
            if hashlib.sha256(members[name]).hexdigest() != manifest["sha256"][name]:
                raise InputError(f"{name} is damaged (its SHA-256 differs from the manifest's)")
        graph, annotations = decode_graph(
            _json(members["graph.json"], "graph.json"), memoryview(members["weights.bin"])
        )
    except InputError as error:
        raise InputError(f"{file}: {error}; compile the model again") from error
    return Package(
        manifest["source"], graph, annotations, manifest["rewritten_activations"], manifest["tool"], members, str(file)
    )


def _read_members(file: Path) -> dict[str, bytes]:
    """The bytes of every member, once the archive has exactly the members of a package, stored, within bounds."""
    try:
        size = file.stat().st_size
        if size > MAXIMUM_FILE:
            raise InputError(f"{size} bytes are more than the {MAXIMUM_FILE} a package may have")
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})") from error
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            names = sorted(entry.filename for entry in entries)
            if names != sorted((MANIFEST, *MEMBERS)):
                raise InputError(f"its members are {', '.join(names[:8]) or 'none'}; those of a package are expected")
            for entry in entries:
                _check_entry(entry, len(data))
            return {entry.filename: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("not a package, or a truncated or damaged one") from error


def _check_entry(entry: zipfile.ZipInfo, available: int) -> None:
    limit = available if not entry.filename.endswith(".json") else min(available, MAXIMUM_JSON)
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size or entry.flag_bits & 1:
        raise InputError(f"{entry.filename} is compressed or encrypted; members of a package are stored")
    if entry.file_size > limit:
        raise InputError(f"{entry.filename} declares {entry.file_size} bytes, {limit} are possible")


def _json(data: bytes, name: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON") from error


def _read_manifest(data: bytes) -> dict[str, Any]:
    manifest = _json(data, MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != "dla-package":
        raise InputError("its manifest is not that of a package")
    if manifest.get("version") != FORMAT_VERSION:
        raise InputError(f"it has format version {manifest.get('version')}, this tool reads version {FORMAT_VERSION}")
    sums = manifest.get("sha256")
    texts = isinstance(manifest.get("source"), str) and isinstance(manifest.get("tool"), str)
    complete = isinstance(sums, dict) and set(MEMBERS) == set(sums)
    if not texts or not complete or type(manifest.get("rewritten_activations")) is not int:
        raise InputError("its manifest is incomplete")
    return manifest
