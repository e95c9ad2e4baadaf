"""Binary form of a Program: magic, JSON header, command words, images, CRC-32.

Not trusted on reading.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from isa.arch import Arch
from isa.dataflow import Dataflow, check_dataflow
from isa.errors import InputError
from isa.files import write_atomically
from isa.program import Program, Provenance, Segment, Tensor
from isa.reading import json_of, read_bytes

MAGIC = b"DLAPROG\x01"
MAXIMUM_BYTES = 1 << 31
_PREFIX = struct.Struct("<8sI")
_REMEDY = "emit it again"

_Text = Annotated[str, Field(strict=True, max_length=1 << 16)]
_Count = Annotated[int, Field(strict=True, ge=0, le=1 << 40)]


class ProgramHeader(BaseModel):
    """Header of a program file: all properties of a program except command words and data.

    It is validated because any program may have written it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: _Text
    arch: Arch
    dram_bytes: Annotated[int, Field(strict=True, ge=0, le=MAXIMUM_BYTES)]
    command_address: Annotated[int, Field(strict=True, ge=0, multiple_of=8)]
    tensors: list[
        tuple[
            _Text,
            Literal["input", "output"],
            Literal["int8", "int32"],
            Annotated[list[_Count], Field(max_length=32)],
            _Count,
        ]
    ]
    provenance: list[tuple[_Count, _Count, _Text, _Text, _Text, _Count, list[_Text]]]
    dataflow: Dataflow | None = None


_Header = TypeVar("_Header", bound=ProgramHeader)


class _FileHeader(ProgramHeader):
    arch_hash: _Text
    words: _Count
    segments: list[tuple[_Count, _Count]]


def header_of(program: Program) -> dict[str, Any]:
    """Return the header of a program file as plain JSON values.

    It has everything but words and data.
    """
    stated = {} if program.dataflow is None else {"dataflow": program.dataflow}
    return stated | {
        "name": program.name,
        "arch": program.arch.model_dump(),
        "arch_hash": program.arch.digest(),
        "dram_bytes": program.dram_bytes,
        "command_address": program.command_address,
        "words": len(program.words),
        "tensors": [[t.name, t.role, t.dtype, list(t.shape), t.address] for t in program.tensors],
        "segments": [[s.address, int(s.data.size)] for s in program.segments],
        "provenance": [
            [p.first, p.last, p.layer, p.kind, p.operation, p.tile, list(p.onnx_nodes)]
            for p in program.provenance
        ],
    }


def to_parts(program: Program) -> Iterator[bytes | memoryview]:
    """Yield the content of a program file in parts, without a copy of the memory's data."""
    header = json.dumps(header_of(program), sort_keys=True, separators=(",", ":")).encode()
    body: list[bytes | memoryview] = [_PREFIX.pack(MAGIC, len(header)), header]
    body += [program.words.astype("<u8").tobytes()]
    body += [np.ascontiguousarray(segment.data).data for segment in program.segments]
    total = 0
    for part in body:
        total = zlib.crc32(part, total)
        yield part
    yield struct.pack("<I", total)


def to_bytes(program: Program) -> bytes:
    """Return the content of a program file; equal programs give equal bytes."""
    return b"".join(to_parts(program))


def from_bytes(content: bytes, source: str) -> Program:
    """Read a program from the content of a program file.

    Raises InputError unless it is complete.

    ``source`` names the content in messages.
    """
    if len(content) < _PREFIX.size or not content.startswith(MAGIC):
        raise InputError(
            f"{source}: not a DLA program (it does not start with the magic bytes); make one with "
            "'dla emit'"
        )
    if (
        len(content) < _PREFIX.size + 4
        or zlib.crc32(content[:-4]) != struct.unpack("<I", content[-4:])[0]
    ):
        raise InputError(
            f"{source}: the program is truncated or corrupted (its CRC-32 does not "
            "match); emit it again"
        )
    return _parse(content, source)


def _parse(content: bytes, source: str) -> Program:
    _, length = _PREFIX.unpack_from(content)
    start = _PREFIX.size + length
    written = json_of(
        content[_PREFIX.size : start], f"{source}: the program's header", "one", _REMEDY
    )
    header = _check_header(_FileHeader, written, source)
    words_end = start + 8 * header.words
    end = words_end + sum(size for _, size in header.segments)
    if end != len(content) - 4:
        raise InputError(f"{source}: the program's sizes do not add up; {_REMEDY}")
    words = np.frombuffer(content[start:words_end], dtype="<u8").astype(np.uint64)
    segments = []
    position = words_end
    for address, size in header.segments:
        data = np.frombuffer(content[position : position + size], dtype=np.uint8)
        segments.append(Segment(address, data))
        position += size
    if header.arch.digest() != header.arch_hash:
        raise InputError(
            f"{source}: the program's Arch does not match its hash {header.arch_hash}; {_REMEDY}"
        )
    return _program(header, words, tuple(segments), source)


def program_from_header(
    values: dict[str, Any], words: Any, segments: tuple[Segment, ...], source: str
) -> Program:
    """Return a program from the values of :func:`header_of`, its words and images.

    The values are checked for consistency.

    Raises InputError whose message starts with ``source``.
    """
    return _program(_check_header(ProgramHeader, values, source), words, segments, source)


def _check_header(kind: type[_Header], values: Any, source: str) -> _Header:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "all of it"
        raise InputError(
            f"{source}: the program's header is malformed ({place}: {first['msg']}); {_REMEDY}"
        ) from error


def _program(
    header: ProgramHeader, words: Any, segments: tuple[Segment, ...], source: str
) -> Program:
    program = Program(
        name=header.name,
        arch=header.arch,
        words=words,
        tensors=tuple(
            Tensor(name, role, dtype, tuple(dims), at)
            for name, role, dtype, dims, at in header.tensors
        ),
        segments=segments,
        provenance=tuple(Provenance(*entry[:-1], tuple(entry[-1])) for entry in header.provenance),
        dram_bytes=header.dram_bytes,
        command_address=header.command_address,
        dataflow=header.dataflow,
    )
    try:
        check_memory(program)
        _check_provenance(program)
        if program.dataflow is not None:
            check_dataflow(
                program.dataflow, [tensor.nbytes for tensor in program.tensors], program.dram_bytes
            )
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    return program


def _check_provenance(program: Program) -> None:
    """Raise InputError unless the ranges of words follow one another."""
    last = 0
    for entry in program.provenance:
        if not last <= entry.first <= entry.last <= len(program.words):
            raise InputError(
                f"words {entry.first} to {entry.last} of {entry.layer} are no part of "
                "the command stream"
            )
        last = entry.last


def check_memory(program: Program) -> None:
    """Raise InputError if a tensor, segment or command word exceeds the system memory.

    Tensors, images and the command stream are checked.
    """
    places = [(f"tensor '{t.name}'", t.address, t.nbytes) for t in program.tensors]
    places += [("a memory image", s.address, int(s.data.size)) for s in program.segments]
    places.append(("the command stream", program.command_address, 8 * len(program.words)))
    for what, address, size in places:
        if address < 0 or size < 0 or address + size > program.dram_bytes:
            raise InputError(
                f"{what} at {address:#x} with {size} bytes lies outside the {program.dram_bytes} "
                "bytes of memory"
            )


def save(program: Program, path: Path) -> None:
    """Write a program to a file atomically."""
    write_atomically(path, to_bytes(program))


def load(path: Path) -> Program:
    """Read a program from a file.

    Raises InputError if the file is missing, too large or incomplete.
    """
    return from_bytes(
        read_bytes(path, MAXIMUM_BYTES, "a program", "'dla emit' makes one"), str(path)
    )
