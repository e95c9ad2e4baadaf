"""Reference data for RTL simulation of a program.

The data are the memories before the program, after every command and at the end, and the cycles.
The program is a case of a corpus, a built-in case, or one of the user. The files are inputs of
``$readmemh``, a manifest, and a test bench from the template ``testbench.sv``; docs/rtl.md
describes every file.
"""

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from dla_sim.device import Trace
from dla_sim.engine.accounts import CAUSES
from dla_sim.engine.simulation import simulate
from dla_sim.timing import Timing
from experiments.golden.case import GoldenRecord, StoredCase
from experiments.golden.catalogue import find_built_in_case
from experiments.golden.check import require_variant, runnable, timing_of
from experiments.golden.observe import Effects, Watcher, completion_order, run_timing, watch
from experiments.golden.record import own_case, record_case
from experiments.golden.store import choose, open_corpus
from isa.access import Access, Bytes, row_starts
from isa.assembler import command_text
from isa.errors import InputError
from isa.files import folder_beside, replace_folder
from isa.instruction import Command, Machine, Unit
from isa.program import Program, Provenance

FORMAT = "dla-readmemh/1"
MANIFEST = "manifest.json"
_WRITES = "writes"
_FILE = re.compile(
    rf"(?:sram|dram)_(?:before|after)\.hex|(?:commands|operations|counts)\.hex"
    rf"|testbench\.sv|manifest\.json|{_WRITES}/\d{{6,}}_(?:sram|dram)\.hex"
)
BYTES_A_LINE = 16
WRITES_SRAM = 1
WRITES_DRAM = 2
STOPS = 4
"""Bits of the last column of ``operations.hex``."""


SMALLEST_MEMORY = 64

Run = tuple[int, bytes]


@dataclass(frozen=True, eq=False)
class ExportSource:
    """Program to export, with its inputs, its Timing and its golden record.

    ``inputs`` has the bytes of each tensor. ``record`` is None if there is no record.
    """

    name: str
    description: str
    program: Program
    inputs: Mapping[str, bytes]
    timing: Timing
    record: GoldenRecord | None = None


@dataclass(frozen=True, eq=False)
class OperandRows:
    """Bytes of an operand, row by row, at the time when its command runs.

    ``runs`` has the rows of the access as (address, bytes), in order.
    """

    access: Access
    runs: tuple[Run, ...]

    @property
    def content(self) -> bytes:
        """Bytes of the operand's rows, in order."""
        return b"".join(content for _, content in self.runs)


@dataclass(frozen=True, eq=False)
class Operation:
    """One executed command of an export.

    Cycles are ``[start, end)``, including ``waits`` for the scratchpad's ports.

    ``compute_cycles`` follow from the instruction's formula, without fill and drain; 0 for LD, ST
    and ``OP_SYNC``. ``writes`` are the bytes written, read back after the command; empty if the
    command ``stops`` the machine.
    """

    command: Command
    source: Provenance | None
    start: int
    end: int
    compute_cycles: int
    waits: int
    reads: tuple[OperandRows, ...]
    writes: tuple[OperandRows, ...]
    stops: bool = False


@dataclass(frozen=True, eq=False)
class Export:
    """A program executed command by command in stream order, to be exported for RTL simulation.

    Memories are dense images from address 0.

    ``operations`` exclude ``OP_END`` and the commands after one that stopped the machine.
    ``stopped`` is the reason for the stop, or None. ``sram`` images end after the last byte that
    the program can touch.
    """

    source: ExportSource
    trace: Trace
    sram_before: Bytes
    dram_before: Bytes
    operations: tuple[Operation, ...]
    sram_after: Bytes
    dram_after: Bytes
    stopped: str | None


def case_source(case: StoredCase) -> ExportSource:
    """Convert a golden case to the source of an export for RTL simulation.

    Raise InputError if the machine must reject it or lacks its ISA variant.
    """
    require_variant(case)
    if case.record.refused is not None:
        raise InputError(
            f"case {case.name} is a program that the machine refuses ({case.record.refused}); "
            "nothing runs, so there "
            "is nothing to export"
        )
    return ExportSource(
        case.name, case.description, runnable(case), case.inputs, timing_of(case), case.record
    )


def build_export(source: ExportSource) -> Export:
    """Execute ``source`` with the reference semantics and record what RTL must reproduce.

    Raises:
        InputError: the results depend on the order of execution, so that no command has a defined
            result, or they differ from the record.
    """
    program = source.program
    trace = run_timing(program, source.timing, simulate)
    timed = watch(program, source.inputs, completion_order(trace), "reference")
    watcher = Watcher(program, source.inputs, "reference")
    before = watcher.machine.sram.copy(), watcher.machine.dram.copy()
    operations = _operations(watcher, trace)
    effects = watcher.effects()
    _check_order(source, effects, timed)
    _check_record(source, trace, timed)
    after = watcher.machine.sram, watcher.machine.dram
    return Export(source, trace, *before, operations, *after, effects.stopped)


def _operations(watcher: Watcher, trace: Trace) -> tuple[Operation, ...]:
    """Execute the commands in stream order and return what each one read and wrote.

    The last operation is the program's last command, or the command that stops the machine.
    """
    schedule = trace.times
    waits = trace.causes.commands[:, CAUSES.index("sram")]
    found = []
    for number, command in enumerate(watcher.commands):
        operands = watcher.operands[number]
        reads = tuple(_list_rows(access, watcher.machine) for access in operands.reads)
        goes_on = watcher.step(number)
        writes = (
            tuple(_list_rows(access, watcher.machine) for access in operands.writes)
            if goes_on
            else ()
        )
        compute = (
            command.instruction.cycles(command, watcher.program.arch)
            if command.unit is Unit.EX
            else 0
        )
        cycles = int(schedule.start[number]), int(schedule.end[number]), compute, int(waits[number])
        found.append(Operation(command, trace.sources[number], *cycles, reads, writes, not goes_on))
        if not goes_on:
            break
    return tuple(found)


def _list_rows(access: Access, machine: Machine) -> OperandRows:
    if not access.total:
        return OperandRows(access, ())
    content = machine.read(access).tobytes()
    size = access.nbytes
    starts = row_starts(access).tolist()
    return OperandRows(
        access, tuple((at, content[n * size : (n + 1) * size]) for n, at in enumerate(starts))
    )


def _check_order(source: ExportSource, in_order: Effects, timed: Effects) -> None:
    """Raise InputError if the results depend on the order in which commands complete."""
    if in_order.stopped != timed.stopped:
        return  # the first of two overflowing commands does not determine the memories
    for number, (one, other) in enumerate(zip(in_order.writes, timed.writes, strict=True)):
        if one != other and in_order.stopped is None:
            raise InputError(
                f"{source.name}: what the command at word {source.program.commands[number].index} "
                "writes depends on "
                "the order of execution; 'dla simulate --sanitize' finds the missing token"
            )


def _check_record(source: ExportSource, trace: Trace, timed: Effects) -> None:
    if source.record is None:
        return
    starts = trace.times.start.tolist()
    ends = trace.times.end.tolist()
    for number, row in enumerate(source.record.commands):
        if (row.writes, row.start, row.end) != (timed.writes[number], starts[number], ends[number]):
            raise InputError(
                f"case {source.name} is not as recorded from word {row.word} on; 'dla golden "
                "check' shows what has "
                "changed, 'dla golden bless' accepts it"
            )


def corpus_source(folder: Path, name: str) -> ExportSource:
    """Return the golden case ``name`` of the corpus in ``folder`` as the source of an export.

    The level in ``name`` may be omitted.

    Raises InputError for no case or several cases with that name, and for a case that cannot be
    read or run.
    """
    corpus = open_corpus(folder)
    names = choose(corpus.entries, (), (name,))
    if len(names) > 1:
        raise InputError(f"{' and '.join(names)} are both called '{name}'; write the level, too")
    return case_source(corpus.case(names[0]))


def catalogue_source(name: str) -> ExportSource:
    """Record the built-in golden case ``name`` and return it as the source of an export.

    Without a level the first with that name, except networks.
    """
    case = find_built_in_case(name)
    if case is None:
        raise InputError(
            f"no built-in case is called '{name}' and no file either; 'dla golden list' shows "
            "those of a corpus "
            "(--corpus)"
        )
    return case_source(record_case(case))


def program_source(file: Path, tensors: Iterable[str], settings: Iterable[str]) -> ExportSource:
    """Return the program in ``file``, with inputs and Timing, as the source of an export.

    ``tensors`` are texts "NAME=FILE.npy", ``settings`` are texts "key=value".

    Raises InputError for a file that is no program, and for a program that the machine rejects.
    """
    return case_source(record_case(own_case(file, f"own/{file.stem}", tensors, settings)))


def export_files(export: Export) -> dict[str, bytes]:
    """Return every file of an export by its path in the folder; equal exports give equal bytes."""
    files: dict[str, str] = {}
    for (space, when), image in _images(export).items():
        files[f"{space}_{when}.hex"] = _image_text([(0, image)])
    words = export.source.program.words.tolist()
    files["commands.hex"] = "".join(f"{word:016x}\n" for word in words)
    files["operations.hex"] = "".join(f"{_operation_row(item)}\n" for item in export.operations)
    for item in export.operations:
        for space, moved in _group_by_space(item.writes).items():
            files[_get_writes_file(item, space)] = _image_text(
                run for one in moved for run in one.runs
            )
    counts = [len(words), len(export.operations), export.sram_before.size, export.dram_before.size]
    files["counts.hex"] = "".join(f"{count:08x}\n" for count in counts)
    files["testbench.sv"] = testbench(export)
    files[MANIFEST] = json.dumps(_manifest(export), indent=1, ensure_ascii=False) + "\n"
    return {name: text.encode() for name, text in files.items()}


def write_export(export: Export, folder: Path) -> None:
    """Create ``folder`` with the files of ``export``, completely or not at all.

    An earlier export is replaced.

    Raises InputError if the folder has other content or cannot be written.
    """
    if not folder.name:
        raise InputError(f"{folder}: cannot become an export; name a folder in it")
    foreign = _foreign(folder)
    if foreign is not None:
        raise InputError(
            f"{folder}: holds {foreign}, which no export put there; choose another folder"
        )
    with folder_beside(folder) as passing:
        for name, content in export_files(export).items():
            place = passing / "new" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        replace_folder(passing / "new", folder)


def _foreign(folder: Path) -> str | None:
    """Return a file in the folder that no version of the export wrote, or None.

    The result is None if the folder may be replaced.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return "something else"
    found = (
        {str(path.relative_to(folder)): path for path in folder.rglob("*")}
        if folder.exists()
        else {}
    )
    for place, path in found.items():
        own = place == _WRITES if path.is_dir() else _FILE.fullmatch(place)
        if path.is_symlink() or not own:
            return place
    if not found or _is_export(folder / MANIFEST):
        return None
    return "no manifest"


def _is_export(manifest: Path) -> bool:
    try:
        document = json.loads(manifest.read_bytes())
        return isinstance(document, dict) and str(document.get("format")).startswith(
            "dla-readmemh/"
        )
    except (OSError, ValueError, RecursionError):
        return False


def _images(export: Export) -> dict[tuple[str, str], bytes]:
    """Return the contents of scratchpad and system memory, before and after the run."""
    memories = {
        ("sram", "before"): export.sram_before,
        ("dram", "before"): export.dram_before,
        ("sram", "after"): export.sram_after,
        ("dram", "after"): export.dram_after,
    }
    return {name: image.tobytes() for name, image in memories.items()}


def _image_text(runs: Iterable[Run]) -> str:
    """Format ranges of memory bytes as text for Verilog's ``$readmemh``.

    Each run begins with its hexadecimal address; a line has 16 bytes.
    """
    lines: list[str] = []
    for address, content in runs:
        lines.append(f"@{address:x}")
        lines += (
            content[at : at + BYTES_A_LINE].hex(" ") for at in range(0, len(content), BYTES_A_LINE)
        )
    return "\n".join(lines) + "\n"


def _group_by_space(writes: Iterable[OperandRows]) -> dict[str, list[OperandRows]]:
    found: dict[str, list[OperandRows]] = {}
    for moved in writes:
        if moved.runs:
            found.setdefault(moved.access.space, []).append(moved)
    return found


def _get_writes_file(operation: Operation, space: str) -> str:
    return f"{_WRITES}/{operation.command.index:06d}_{space}.hex"


def _operation_row(operation: Operation) -> str:
    spaces = _group_by_space(operation.writes)
    flags = (
        WRITES_SRAM * ("sram" in spaces)
        + WRITES_DRAM * ("dram" in spaces)
        + STOPS * operation.stops
    )
    return f"{operation.command.index:08x}{operation.compute_cycles:08x}{flags:08x}"


def _manifest(export: Export) -> dict[str, Any]:
    source = export.source
    program = export.source.program
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
        "cycles": {
            "total": export.trace.cycles, "units": export.trace.units, "kinds": export.trace.kinds,
        },
        "stopped": export.stopped,
        "commands": {
            "file": "commands.hex", "word_bits": 64, "words": len(program.words),
            "dram_address": program.command_address, "crc32": _crc(words),
        },
        "memories": [_memory(*name, image) for name, image in _images(export).items()],
        "tensors": [
            {**vars(item), "shape": list(item.shape), "bytes": item.nbytes}
            for item in program.tensors
        ],
        "operations": [_operation(item) for item in export.operations],
    }  # fmt: skip


def _memory(space: str, when: str, image: bytes) -> dict[str, Any]:
    return {
        "file": f"{space}_{when}.hex", "space": space, "when": when, "word_bits": 8,
        "words": len(image),
        "first_address": 0, "crc32": _crc(image),
    }  # fmt: skip


def _operation(operation: Operation) -> dict[str, Any]:
    command = operation.command
    source = operation.source
    written = [_operand(item) for item in operation.writes]
    for item, moved in zip(written, operation.writes, strict=True):
        item["file"] = _get_writes_file(operation, moved.access.space) if moved.runs else None
    return {
        "word": command.index, "assembly": command_text(command), "unit": command.unit.name,
        "layer": source.layer if source else "",
        "onnx_nodes": list(source.onnx_nodes) if source else [],
        "fields": dict(command.fields),
        "registers": {name: int(value) for name, value in command.registers.items()},
        "start": operation.start, "end": operation.end, "compute_cycles": operation.compute_cycles,
        "scratchpad_waits": operation.waits, "stops": operation.stops,
        "reads": [_operand(item) for item in operation.reads], "writes": written,
    }  # fmt: skip


def _operand(moved: OperandRows) -> dict[str, Any]:
    access = moved.access
    return {
        "space": access.space, "address": access.address, "row_bytes": access.nbytes,
        "rows": [list(dimension) for dimension in access.dims], "bytes": len(moved.content),
        "crc32": _crc(moved.content),
    }  # fmt: skip


def _crc(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def testbench(export: Export) -> str:
    """Return the text of the Verilog test bench for ``export``.

    It is the template with the sizes of the case and the machine's parameters.
    """
    program = export.source.program
    timing = export.source.timing
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
