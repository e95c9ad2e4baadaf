"""Package file format: an archive with the graph as JSON and one block of little-endian arrays.

Files are written completely or not at all. Reading trusts nothing: no pickle, all bounds checked,
constants not copied.
"""

import io
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.graph import (
    Annotation,
    Graph,
    ModelView,
    Node,
    Quantization,
    StatePair,
    Value,
    verify_size,
)
from byoc.runtimes.protobuf import SHARED_BYTES
from isa import memory
from isa.errors import InputError
from isa.program_file import MAGIC
from isa.reading import DAMAGED, first_bytes

MANIFEST = "manifest.json"
MODELS = ("model.onnx", "model.tflite")
"""Possible names of the embedded model, by format."""
MAXIMUM_FILE = 4 << 30
MAXIMUM_JSON = 256 << 20


def members(model: str) -> tuple[str, ...]:
    """Return the names of a package's members in order, without the manifest.

    ``model`` is the embedded model's name.
    """
    return "graph.json", model, "weights.bin"


def read_archive(file: Path | bytes, names: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of a package's members ``names``, after checking the whole archive.

    The checks cover members, storage and bounds. ``file`` is a path or the content. Raises
    :class:`InputError`, whose message does not name the file.
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
    except (*DAMAGED, KeyError) as error:
        head = file[: len(MAGIC)] if isinstance(file, bytes) else first_bytes(file, len(MAGIC))
        if head == MAGIC:
            raise InputError("a program, which 'dla simulate' runs, and no package") from error
        raise InputError("not a package, or a truncated or damaged one") from error


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    names = sorted(entry.filename for entry in entries)
    if names not in [sorted((MANIFEST, *members(model))) for model in MODELS]:
        raise InputError(
            f"its members are {', '.join(names[:8]) or 'none'}; those of a package are expected"
        )
    for entry in entries:
        if (
            entry.compress_type != zipfile.ZIP_STORED
            or entry.file_size != entry.compress_size
            or entry.flag_bits & 1
        ):
            raise InputError(
                f"{entry.filename} is compressed or encrypted; members of a package are stored"
            )
        limit = min(size, MAXIMUM_JSON) if entry.filename.endswith(".json") else size
        if entry.file_size > limit:
            raise InputError(
                f"{entry.filename} declares {entry.file_size} bytes, {limit} are possible"
            )


ALIGNMENT = 64
MAXIMUM_TEXT = 1 << 15
_ARRAY_TYPES = frozenset(
    {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}
    | {"float32", "float64"}
)
Json = Any


class ArrayWriter:
    """Writer that collects a package's arrays into one block of bytes.

    The same arrays in the same order give the same block.
    """

    def __init__(self) -> None:
        self._chunks: list[bytes | memoryview] = []
        self._size = 0

    def add(self, array: NDArray[Any]) -> dict[str, Json]:
        """Append ``array`` and return its start, element type and shape."""
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        padding = -self._size % ALIGNMENT
        self._chunks += [bytes(padding), data.reshape(-1).view(np.uint8).data]
        start = self._size + padding
        self._size = start + data.nbytes
        return {"start": start, "dtype": array.dtype.name, "shape": list(array.shape)}

    def block(self) -> bytes:
        """Return all arrays added to the writer so far as one block of bytes."""
        return b"".join(self._chunks)


def read_array(entry: Json, block: memoryview) -> NDArray[Any]:
    """Return the array that :meth:`ArrayWriter.add` described, as a read-only view of ``block``."""
    dtype = entry["dtype"]
    shape = _shape(entry["shape"])
    start = entry["start"]
    if dtype not in _ARRAY_TYPES:
        raise InputError(f"element type {dtype!r} is not one a package holds")
    element = np.dtype(dtype).newbyteorder("<")
    count = prod(shape)
    end = start + count * element.itemsize
    if type(start) is not int or start < 0 or start % ALIGNMENT or end > len(block):
        raise InputError(f"an array of {count} elements at {start} lies outside the weights")
    found = np.frombuffer(block[start:end], np.uint8 if dtype == "bool" else element).reshape(shape)
    return found != 0 if dtype == "bool" else found


def _shape(entry: Json) -> tuple[int, ...]:
    if (
        not isinstance(entry, list)
        or len(entry) > 32
        or not all(type(n) is int and 0 <= n < 1 << 48 for n in entry)
    ):
        raise InputError(f"{entry!r} is not a shape")
    return tuple(entry)


def encode_graph(graph: Graph, annotations: tuple[Annotation, ...], arrays: ArrayWriter) -> Json:
    """Return the graph as JSON values; constants and channel scales go to ``arrays``."""
    document = {
        "name": graph.name,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "values": [_encode_value(value, arrays) for value in graph.values.values()],
        "nodes": [
            _encode_node(node, note) for node, note in zip(graph.nodes, annotations, strict=True)
        ],
    }
    if graph.state:
        document["state"] = [
            {**vars(one), "initial": arrays.add(one.initial)} for one in graph.state
        ]
    return document


def view_constants(graph: Graph, document: Json, block: memoryview) -> Graph:
    """Return a graph whose large constants are those that ``block`` has of its ``document``."""
    large = {
        entry["name"]: read_array(entry["constant"], block)
        for entry in document["values"]
        if "constant" in entry and prod(entry["shape"]) >= SHARED_BYTES
    }
    values = {
        name: replace(value, constant=large[name]) if name in large else value
        for name, value in graph.values.items()
    }
    return replace(graph, values=values) if large else graph


def _encode_value(value: Value, arrays: ArrayWriter) -> Json:
    entry: dict[str, Json] = {"name": value.name, "shape": list(value.shape), "dtype": value.dtype}
    quantization = value.quantization
    if quantization is not None and quantization.per_tensor:
        entry["scale"] = float(quantization.scale)
        entry["zero_point"] = int(quantization.zero_point)
    elif quantization is not None:
        entry["scales"] = arrays.add(quantization.scale)
        entry["axis"] = quantization.axis
        entry["zero_points"] = (
            arrays.add(quantization.zero_point) if quantization.zero_point.any() else None
        )
    if value.constant is not None:
        entry["constant"] = arrays.add(value.constant)
    if value.open:
        entry["open"] = True
    if value.layout is not None:
        entry["layout"] = asdict(value.layout)
    return entry


def _encode_node(node: Node, annotation: Annotation) -> Json:
    return {
        "name": node.name,
        "op_type": node.op_type,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "attributes": dict(node.attributes),
        "onnx_nodes": list(node.onnx_nodes),
        "remark": node.remark,
        "macs": node.macs,
        "integer": node.integer,
        "pattern": annotation.family,
        "reason": annotation.reason,
        "rule": annotation.rule,
    }


def decode_graph(
    document: Json, block: memoryview, *, trusted: bool = False
) -> tuple[Graph, tuple[Annotation, ...]]:
    """Return graph and annotations from JSON values.

    Raises :class:`InputError` for malformed values and arrays out of bounds, and for inconsistent
    graphs unless they are ``trusted``.
    """
    try:
        values = [_decode_value(entry, block) for entry in document["values"]]
        nodes = tuple(_decode_node(entry) for entry in document["nodes"])
        annotations = tuple(
            Annotation(
                _text_or_none(e["pattern"]), _text_or_none(e["reason"]), _text(e.get("rule", ""))
            )
            for e in document["nodes"]
        )
        graph = Graph(
            name=_text(document["name"]),
            inputs=_texts(document["inputs"]),
            outputs=_texts(document["outputs"]),
            values={value.name: value for value in values},
            nodes=nodes,
            state=tuple(_decode_state(entry, block) for entry in document.get("state", ())),
        )
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(
            f"graph.json has an entry of a wrong form ({type(error).__name__}: {error})"
        ) from error
    if trusted:
        verify_size(graph.values.values())
    else:
        from byoc.operators.verify import verify_graph  # imported lazily: the cache is trusted

        verify_graph(graph)
    return graph, annotations


def _decode_state(entry: Json, block: memoryview) -> StatePair:
    name, source, result = (_text(entry[key]) for key in ("name", "input", "output"))
    return StatePair(name, source, result, read_array(entry["initial"], block))


def _decode_value(entry: Json, block: memoryview) -> Value:
    quantization = None
    if "scale" in entry:
        zero_point = np.asarray(_integer(entry["zero_point"]), np.int32)
        quantization = Quantization(np.asarray(float(entry["scale"]), np.float32), zero_point)
    elif "scales" in entry:
        scale = read_array(entry["scales"], block)
        zeros = entry["zero_points"]
        zero_points = np.zeros(scale.shape, np.int32) if zeros is None else read_array(zeros, block)
        if scale.dtype != np.float32 or zero_points.dtype != np.int32:
            raise InputError(
                f"the scales of '{entry['name']}' are not float32 with int32 zero points"
            )
        quantization = Quantization(scale, zero_points, _integer(entry["axis"]))
    constant = read_array(entry["constant"], block) if "constant" in entry else None
    name = _text(entry["name"])
    shape = _shape(entry["shape"])
    dtype = _text(entry["dtype"])
    layout = _layout(entry["layout"]) if "layout" in entry else None
    return Value(name, shape, dtype, quantization, constant, entry.get("open") is True, layout)


def _layout(entry: Json) -> ModelView:
    shape, factors, order = (_shape(entry[key]) for key in ("shape", "factors", "order"))
    return ModelView(_text(entry["tensor"]), shape, factors, order, _text(entry["dtype"]))


def _decode_node(entry: Json) -> Node:
    return Node(
        name=_text(entry["name"]),
        op_type=_text(entry["op_type"]),
        inputs=_texts(entry["inputs"]),
        outputs=_texts(entry["outputs"]),
        attributes={_text(key): _tuples(found) for key, found in entry["attributes"].items()},
        onnx_nodes=_texts(entry["onnx_nodes"]),
        remark=_text(entry["remark"]),
        macs=_count(entry["macs"]),
        integer=entry["integer"] is True,
    )


def _tuples(found: Json, depth: int = 0) -> Any:
    if isinstance(found, list) and depth < 4:
        return tuple(_tuples(one, depth + 1) for one in found)
    if isinstance(found, (str, int, float, bool)):
        return found
    raise InputError(f"{found!r} is not an attribute")


def _text(found: Json) -> str:
    if not isinstance(found, str):
        raise InputError(f"{found!r:.80} is not text")
    if len(found) > MAXIMUM_TEXT:
        raise InputError(f"a text has {len(found)} characters; at most {MAXIMUM_TEXT} are expected")
    return found


def _text_or_none(found: Json) -> str | None:
    return None if found is None else _text(found)


def _texts(found: Json) -> tuple[str, ...]:
    if not isinstance(found, list):
        raise InputError(f"{found!r} is not a list")
    return tuple(_text(one) for one in found)


def _count(found: Json) -> int:
    if _integer(found) < 0:
        raise InputError(f"{found!r} is a negative count")
    return _integer(found)


def _integer(found: Json) -> int:
    if type(found) is not int:
        raise InputError(f"{found!r} is not an integer")
    return found
