"""An export as files that ``$readmemh`` loads, a manifest, and a test bench from the template ``testbench.sv``.

docs/rtl.md describes every file.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments.rtl.export import Export, Moved, Operation, Run
from isa.assembler import command_text
from isa.errors import InputError

FORMAT = "dla-readmemh/1"
MANIFEST = "manifest.json"
_WRITES = "writes"
_FILE = re.compile(
    rf"(?:sram|dram)_(?:before|after)\.hex|(?:commands|operations|counts)\.hex|testbench\.sv|manifest\.json"
    rf"|{_WRITES}/\d{{6,}}_(?:sram|dram)\.hex"
)
BYTES_A_LINE = 16
WRITES_SRAM, WRITES_DRAM, STOPS = 1, 2, 4
"""Bits of the last column of ``operations.hex``."""


SMALLEST_MEMORY = 64


def export_files(export: Export) -> dict[str, bytes]:
    """Every file of an export by its place in the folder; equal exports give equal bytes."""
    files: dict[str, str] = {}
    for (space, when), image in _images(export).items():
        files[f"{space}_{when}.hex"] = _image_text([(0, image)])
    words = export.source.program.words.tolist()
    files["commands.hex"] = "".join(f"{word:016x}\n" for word in words)
    files["operations.hex"] = "".join(f"{_operation_row(item)}\n" for item in export.operations)
    for item in export.operations:
        for space, moved in _by_space(item.writes).items():
            files[_writes_file(item, space)] = _image_text(run for one in moved for run in one.runs)
    counts = [len(words), len(export.operations), export.sram_before.size, export.dram_before.size]
    files["counts.hex"] = "".join(f"{count:08x}\n" for count in counts)
    files["testbench.sv"] = testbench(export)
    files[MANIFEST] = json.dumps(_manifest(export), indent=1, ensure_ascii=False) + "\n"
    return {name: text.encode() for name, text in files.items()}


def write_export(export: Export, folder: Path) -> None:
    """Make ``folder`` with the files of ``export``, whole or not at all; an earlier export there is replaced.

    Raises InputError when the folder holds anything else, or cannot be written.
    """
    if not folder.name:
        raise InputError(f"{folder}: cannot become an export; name a folder in it")
    foreign = _foreign(folder)
    if foreign is not None:
        raise InputError(f"{folder}: holds {foreign}, which no export put there; choose another folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=f".{folder.name}.", ignore_cleanup_errors=True
        ) as at:
            new, old = Path(at) / "new", Path(at) / "old"
            for name, content in export_files(export).items():
                place = new / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            if folder.exists():
                os.replace(folder, old)
            os.replace(new, folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); choose another place") from error


def _foreign(folder: Path) -> str | None:
    """What in a folder is not of an export of this or another version; None where it may be replaced."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return "something else"
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*")} if folder.exists() else {}
    for place, path in found.items():
        own = place == _WRITES if path.is_dir() else _FILE.fullmatch(place)
        if path.is_symlink() or not own:
            return place
    if not found or _says_export(folder / MANIFEST):
        return None
    return "no manifest"


def _says_export(manifest: Path) -> bool:
    try:
        document = json.loads(manifest.read_bytes())
        return isinstance(document, dict) and str(document.get("format")).startswith("dla-readmemh/")
    except (OSError, ValueError, RecursionError):
        return False


def _images(export: Export) -> dict[tuple[str, str], bytes]:
    """The memories by space, and before or after the run."""
    memories = {
        ("sram", "before"): export.sram_before,
        ("dram", "before"): export.dram_before,
        ("sram", "after"): export.sram_after,
        ("dram", "after"): export.dram_after,
    }
    return {name: image.tobytes() for name, image in memories.items()}


def _image_text(runs: Iterable[Run]) -> str:
    """Bytes with the address (hexadecimal, in bytes) before each run, 16 bytes a line."""
    lines: list[str] = []
    for address, content in runs:
        lines.append(f"@{address:x}")
        lines += (content[at : at + BYTES_A_LINE].hex(" ") for at in range(0, len(content), BYTES_A_LINE))
    return "\n".join(lines) + "\n"


def _by_space(writes: Iterable[Moved]) -> dict[str, list[Moved]]:
    found: dict[str, list[Moved]] = {}
    for moved in writes:
        if moved.runs:
            found.setdefault(moved.access.space, []).append(moved)
    return found


def _writes_file(operation: Operation, space: str) -> str:
    return f"{_WRITES}/{operation.command.index:06d}_{space}.hex"


def _operation_row(operation: Operation) -> str:
    spaces = _by_space(operation.writes)
    flags = WRITES_SRAM * ("sram" in spaces) + WRITES_DRAM * ("dram" in spaces) + STOPS * operation.stops
    return f"{operation.command.index:08x}{operation.compute_cycles:08x}{flags:08x}"


def _manifest(export: Export) -> dict[str, Any]:
    source, program = export.source, export.source.program
    words = program.words.astype("<u8").tobytes()
    return {
        "format": FORMAT,
        "name": source.name,
        "description": source.description,
        "isa": program.arch.isa,
        "arch": program.arch.model_dump(mode="json"),
        "arch_digest": program.arch.digest(),
        "timing": source.timing.model_dump(mode="json"),
        "post_lanes": program.arch.lanes,
        "cycles": {"total": export.trace.cycles, "units": export.trace.units, "kinds": export.trace.kinds},
        "stopped": export.stopped,
        "commands": {
            "file": "commands.hex", "word_bits": 64, "words": len(program.words),
            "dram_address": program.command_address, "crc32": _crc(words),
        },
        "memories": [_memory(*name, image) for name, image in _images(export).items()],
        "tensors": [_tensor(item) for item in program.tensors],
        "operations": [_operation(item) for item in export.operations],
    }  # fmt: skip


def _memory(space: str, when: str, image: bytes) -> dict[str, Any]:
    return {
        "file": f"{space}_{when}.hex", "space": space, "when": when, "word_bits": 8, "words": len(image),
        "first_address": 0, "crc32": _crc(image),
    }  # fmt: skip


def _tensor(tensor: Any) -> dict[str, Any]:
    return {**vars(tensor), "shape": list(tensor.shape), "bytes": tensor.nbytes}


def _operation(operation: Operation) -> dict[str, Any]:
    command, source = operation.command, operation.source
    written = [_operand(item) for item in operation.writes]
    for item, moved in zip(written, operation.writes, strict=True):
        item["file"] = _writes_file(operation, moved.access.space) if moved.runs else None
    return {
        "word": command.index, "assembly": command_text(command), "unit": command.unit.name,
        "layer": source.layer if source else "", "onnx_nodes": list(source.onnx_nodes) if source else [],
        "fields": dict(command.fields), "registers": dict(_plain(command.registers)),
        "start": operation.start, "end": operation.end, "compute_cycles": operation.compute_cycles,
        "scratchpad_waits": operation.waits, "stops": operation.stops,
        "reads": [_operand(item) for item in operation.reads], "writes": written,
    }  # fmt: skip


def _plain(values: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((name, int(value)) for name, value in values.items())


def _operand(moved: Moved) -> dict[str, Any]:
    access = moved.access
    return {
        "space": access.space, "address": access.address, "row_bytes": access.nbytes,
        "rows": [list(dimension) for dimension in access.dims], "bytes": len(moved.content),
        "crc32": _crc(moved.content),
    }  # fmt: skip


def _crc(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def testbench(export: Export) -> str:
    """The text of the test bench for ``export``: the template with the case's sizes and the machine's parameters."""
    program, timing = export.source.program, export.source.timing
    values = {
        "NAME": " ".join(export.source.name.split()),
        "WORDS": len(program.words),
        "OPERATIONS": max(1, len(export.operations)),
        "SRAM_BYTES": max(SMALLEST_MEMORY, export.sram_before.size),
        "DRAM_BYTES": max(SMALLEST_MEMORY, export.dram_before.size),
        "FIXED": int(program.arch.numerics == "fixed"),
        "LANES": program.arch.lanes,
        "EX_FILL": timing.ex_fill,
        "EX_DRAIN": timing.ex_drain,
    }
    text = files(__package__).joinpath("testbench.sv").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
