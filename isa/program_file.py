"""The binary form of a Program: magic, JSON header, command words, memory images, CRC-32. Untrusted on reading."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from isa.arch import Arch
from isa.errors import InputError
from isa.files import write_atomically
from isa.program import Program, Provenance, Segment, Tensor

MAGIC = b"DLAPROG\x01"
MAXIMUM_BYTES = 1 << 31
_PREFIX = struct.Struct("<8sI")


def header_of(program: Program) -> dict[str, Any]:
    """Everything but words and data, as plain JSON values."""
    return {
        "name": program.name,
        "arch": program.arch.model_dump(),
        "arch_hash": program.arch.digest(),
        "dram_bytes": program.dram_bytes,
        "command_address": program.command_address,
        "words": len(program.words),
        "tensors": [[t.name, t.role, t.dtype, list(t.shape), t.address] for t in program.tensors],
        "segments": [[s.address, int(s.data.size)] for s in program.segments],
        "provenance": [
            [p.first, p.last, p.layer, p.kind, p.operation, p.tile, list(p.onnx_nodes)] for p in program.provenance
        ],
    }


def to_bytes(program: Program) -> bytes:
    """The file's bytes: the same program gives the same bytes."""
    header = json.dumps(header_of(program), sort_keys=True, separators=(",", ":")).encode()
    body = [_PREFIX.pack(MAGIC, len(header)), header, program.words.astype("<u8").tobytes()]
    body += [segment.data.tobytes() for segment in program.segments]
    content = b"".join(body)
    return content + struct.pack("<I", zlib.crc32(content))


def from_bytes(content: bytes, source: str) -> Program:
    """The program in ``content``; ``source`` names it in messages. Raises InputError unless it is a whole program."""
    if len(content) < _PREFIX.size or not content.startswith(MAGIC):
        raise InputError(
            f"{source}: not a DLA program (it does not start with the magic bytes); make one with 'dla emit'"
        )
    if len(content) < _PREFIX.size + 4 or zlib.crc32(content[:-4]) != struct.unpack("<I", content[-4:])[0]:
        raise InputError(f"{source}: the program is truncated or corrupted (its CRC-32 does not match); emit it again")
    try:
        return _parse(content, source)
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source}: the program's header is malformed; emit it again") from error


def _parse(content: bytes, source: str) -> Program:
    _, length = _PREFIX.unpack_from(content)
    start = _PREFIX.size + length
    header = json.loads(content[_PREFIX.size : start])
    words_end = start + 8 * int(header["words"])
    words = np.frombuffer(content[start:words_end], dtype="<u8").astype(np.uint64)
    segments, position = [], words_end
    for address, size in header["segments"]:
        data = np.frombuffer(content[position : position + size], dtype=np.uint8)
        segments.append(Segment(int(address), data))
        position += size
    if position != len(content) - 4 or len(words) != header["words"]:
        raise InputError(f"{source}: the program's sizes do not add up; emit it again")
    program = program_from_header(header, words, tuple(segments))
    if program.arch.digest() != header["arch_hash"]:
        raise InputError(f"{source}: the program's Arch does not match its hash {header['arch_hash']}; emit it again")
    return program


def program_from_header(header: dict[str, Any], words: Any, segments: tuple[Segment, ...]) -> Program:
    """A program from the values of :func:`header_of`, its words and its memory images, checked for consistency."""
    tensors = tuple(
        Tensor(str(name), role, dtype, tuple(int(size) for size in shape), int(address))
        for name, role, dtype, shape, address in header["tensors"]
    )
    provenance = tuple(
        Provenance(int(first), int(last), str(layer), str(kind), str(operation), int(tile), tuple(nodes))
        for first, last, layer, kind, operation, tile, nodes in header["provenance"]
    )
    arch = Arch.model_validate(header["arch"])
    program = Program(
        name=str(header["name"]),
        arch=arch,
        words=words,
        tensors=tensors,
        segments=segments,
        provenance=provenance,
        dram_bytes=int(header["dram_bytes"]),
        command_address=int(header["command_address"]),
    )
    check_memory(program)
    return program


def check_memory(program: Program) -> None:
    """Raises InputError when a tensor, an image or the command stream lies outside the program's system memory."""
    if not 0 <= program.dram_bytes <= MAXIMUM_BYTES:
        raise InputError(f"the program wants {program.dram_bytes} bytes of system memory; the limit is {MAXIMUM_BYTES}")
    if program.command_address % 8:
        raise InputError(f"the command stream is at {program.command_address:#x}; it must be at a multiple of 8 bytes")
    places = [(f"tensor '{t.name}'", t.address, t.nbytes) for t in program.tensors]
    places += [("a memory image", s.address, int(s.data.size)) for s in program.segments]
    places.append(("the command stream", program.command_address, 8 * len(program.words)))
    for what, address, size in places:
        if address < 0 or size < 0 or address + size > program.dram_bytes:
            raise InputError(
                f"{what} at {address:#x} with {size} bytes lies outside the {program.dram_bytes} bytes of memory"
            )
    for tensor in program.tensors:
        if tensor.role not in ("input", "output") or tensor.dtype not in ("int8", "int32"):
            raise InputError(f"tensor '{tensor.name}': role '{tensor.role}', type '{tensor.dtype}' is not known")


def save(program: Program, path: Path) -> None:
    """Writes the program by the rules of :func:`isa.files.write_atomically`."""
    write_atomically(path, to_bytes(program))


def load(path: Path) -> Program:
    """Reads a program; raises InputError when the file is missing, too large or not a whole program."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.stat().st_size > MAXIMUM_BYTES:
        raise InputError(f"{path}: {path.stat().st_size} bytes; a program has at most {MAXIMUM_BYTES}")
    return from_bytes(path.read_bytes(), str(path))
