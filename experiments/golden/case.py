"""Golden case: one program with its inputs and Timing, and everything observed when it ran.

Its file is readable TOML with the command table and the assembly text.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa.errors import InputError
from isa.program import Program, Segment
from isa.reading import toml_of

LEVELS: Mapping[str, str] = {
    "L0": "passthrough: each instruction alone, on values that can be followed by hand",
    "L1": "common shapes of networks, on every shape of the array, and common streams of commands",
    "L2": "corners: smallest and largest values, odd strides, wide padding, saturation, ties, what "
    "must be refused",
    "L10": "seeded random instructions on random machines",
    "networks": "whole networks as the compiler has emitted them",
}
"""Levels of a corpus, in the order in which they are checked."""


@dataclass(frozen=True, eq=False)
class GoldenCase:
    """Program with inputs and settings to run as a golden case.

    ``name`` is ``LEVEL/words-with-hyphens``; ``inputs`` are the bytes of each input tensor;
    ``timing`` has the values of a ``dla_sim.timing.Timing``. With ``contents``, the bytes that each
    command writes are stored, else only their CRC-32 and the outputs. ``words``, if given, replace
    the program's words. They may be illegal, to record a program that the machine must reject.
    """

    name: str
    description: str
    program: Program
    inputs: Mapping[str, bytes]
    timing: Mapping[str, int] = field(default_factory=dict)
    contents: bool = True
    words: NDArray[np.uint64] | None = None

    @property
    def level(self) -> str:
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class CommandRecord:
    """Record of one executed command. Its cycles are ``[start, end)``.

    ``reads`` and ``writes`` are CRC-32 checksums of its operands as in a commit log
    (``dla simulate --log``), separated by commas, ``-`` for none; None if the command did not
    execute or stopped the machine. ``content`` has the bytes written, None if only their checksum
    is stored; ``written`` is their number.
    """

    word: int
    text: str
    start: int
    end: int
    reads: str | None
    writes: str | None
    written: int
    content: bytes | None


@dataclass(frozen=True)
class GoldenCycles:
    """Recorded cycles of a whole run of a golden case.

    For every unit, its causes in ``units`` sum to ``total``; so do the ``kinds``.
    """

    total: int
    units: Mapping[str, Mapping[str, int]]
    kinds: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class GoldenRecord:
    """Recorded observations of one run of a golden case.

    ``refused`` is the reason if the machine rejected the program; then nothing else is recorded.
    ``stopped`` names the command and the exception if an instruction stopped the machine; then
    there are no ``outputs``. ``totals`` are multiply-accumulates, bytes, words and operations.
    """

    refused: str | None = None
    stopped: str | None = None
    commands: tuple[CommandRecord, ...] = ()
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    cycles: GoldenCycles = field(default_factory=lambda: GoldenCycles(0, {}, {}))
    totals: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class StoredCase:
    """A case as stored in a corpus, before it is assembled or decoded.

    ``assembly`` is the program's text without memory images; ``words`` are its command words as
    encoded at recording.
    """

    name: str
    description: str
    isa: str
    assembly: str
    words: NDArray[np.uint64]
    images: tuple[Segment, ...]
    inputs: Mapping[str, bytes]
    timing: Mapping[str, int]
    contents: bool
    record: GoldenRecord

    @property
    def level(self) -> str:
        return self.name.partition("/")[0]


_HEADING = "# word  start    end  CRC-32 of reads            of writes bytes  contents  command"
Reference = Callable[[bytes], str]
Contents = Callable[[str], bytes]


def case_text(case: StoredCase, reference: Reference) -> str:
    """Return the file text of a golden case; ``reference`` stores byte contents.

    Raises InputError for unquotable text.
    """
    record = case.record
    lines = [
        f"name = {_quote(case.name)}",
        f"description = {_quote(case.description)}",
        f"isa = {_quote(case.isa)}",
    ]
    lines += [
        f"contents = {json.dumps(case.contents)}",
        f"words = {_quote(reference(case.words.tobytes()))}",
    ]
    if record.refused is not None:
        lines.append(f"refused = {_quote(record.refused)}")
    if record.stopped is not None:
        lines.append(f"stopped = {_quote(record.stopped)}")
    lines.append(f"timing = {_inline(case.timing)}")
    if record.refused is None:
        lines.append(f"totals = {_inline(record.totals)}")
    if record.commands:
        lines += ["", f"commands = {_block(_table(record.commands, reference))}"]
    lines += ["", f"assembly = {_block(case.assembly)}"]
    lines += _section("inputs", {name: reference(content) for name, content in case.inputs.items()})
    lines += _section(
        "outputs", {name: reference(content) for name, content in record.outputs.items()}
    )
    lines += _section(
        "images", {str(item.address): reference(item.data.tobytes()) for item in case.images}
    )
    if record.refused is None:
        lines += [
            "",
            "[cycles]",
            f"total = {record.cycles.total}",
            f"kinds = {_inline(record.cycles.kinds)}",
        ]
        lines += [
            f"units.{unit} = {_inline(causes)}" for unit, causes in record.cycles.units.items()
        ]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _block(text: str) -> str:
    if "'''" in text or "\r" in text:
        raise InputError("a name in the program holds ''' or a carriage return; rename the layer")
    return f"'''\n{text}'''"


def _inline(values: Mapping[str, int]) -> str:
    return "{ " + ", ".join(f"{name} = {value}" for name, value in values.items()) + " }"


def _section(name: str, values: Mapping[str, str | int]) -> list[str]:
    if not values:
        return []
    shown = (f"{_quote(k)} = {_quote(v) if isinstance(v, str) else v}" for k, v in values.items())
    return ["", f"[{name}]", *shown]


def _table(commands: tuple[CommandRecord, ...], reference: Reference) -> str:
    rows = [_HEADING]
    for row in commands:
        content = "-" if row.content is None or not row.written else reference(row.content)
        sums = f"{row.reads or '*':<26} {row.writes or '*':<8}"
        rows.append(
            f"{row.word:6d} {row.start:6d} {row.end:6d}  {sums} {row.written:6d}  "
            f"{content}  {row.text}"
        )
    return "\n".join(rows) + "\n"


def parse_case(text: str, contents: Contents) -> StoredCase:
    """Parse a golden case's file text; raise InputError that names the malformed part."""
    document = toml_of(text, "not the text of a golden case")
    try:
        return _case(document, contents)
    except InputError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise InputError(
            f"not the text of a golden case ({type(error).__name__}: {error})"
        ) from error


def _case(document: dict[str, Any], contents: Contents) -> StoredCase:
    images = document.get("images", {})
    return StoredCase(
        name=str(document["name"]),
        description=str(document["description"]),
        isa=str(document["isa"]),
        assembly=str(document["assembly"]),
        words=np.frombuffer(contents(document["words"]), dtype="<u8").astype(np.uint64),
        images=tuple(
            Segment(int(at), np.frombuffer(contents(ref), np.uint8)) for at, ref in images.items()
        ),
        inputs={name: contents(ref) for name, ref in document.get("inputs", {}).items()},
        timing={name: int(value) for name, value in document.get("timing", {}).items()},
        contents=bool(document["contents"]),
        record=_record(document, contents),
    )


def _record(document: dict[str, Any], contents: Contents) -> GoldenRecord:
    cycles = document.get("cycles", {"total": 0})
    rows = [
        line
        for line in document.get("commands", "").splitlines()
        if line and not line.startswith("#")
    ]
    return GoldenRecord(
        refused=document.get("refused"),
        stopped=document.get("stopped"),
        commands=tuple(_row(line, contents) for line in rows),
        outputs={name: contents(ref) for name, ref in document.get("outputs", {}).items()},
        cycles=GoldenCycles(int(cycles["total"]), cycles.get("units", {}), cycles.get("kinds", {})),
        totals=document.get("totals", {}),
    )


def _row(line: str, contents: Contents) -> CommandRecord:
    word, start, end, reads, writes, written, reference, text = line.split(maxsplit=7)
    content = contents(reference) if reference != "-" else b"" if writes == "-" else None
    read, wrote = (None if sums == "*" else sums for sums in (reads, writes))
    return CommandRecord(int(word), text, int(start), int(end), read, wrote, int(written), content)
