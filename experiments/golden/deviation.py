"""Differences from a record, and their report.

A difference names the element and the command that differ, and the state at that command.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any
from zlib import crc32

import numpy as np

from dla_sim.device import Trace
from experiments.golden.case import CommandRecord, StoredCase
from experiments.golden.observe import Effects, Watcher, completion_order, read_touched
from isa.access import Access, row_starts
from isa.assembler import command_text
from isa.instruction import Command, Machine, Operands
from isa.program import Program

Axes = tuple[tuple[str, str], ...]
SHAPES: tuple[Axes, ...] = (
    (("channel", "OUTPUT_CHANNELS"), ("row", "OUTPUT_HEIGHT"), ("column", "OUTPUT_WIDTH")),
    (("row", "ROWS"), ("channel", "OUTPUT_CHANNELS"), ("element", "LENGTH")),
    (("row", "ROWS"), ("column", "OUTPUT_CHANNELS")),
    (("element", "LENGTH"),),
    (("box", "COUNT_3"), ("plane", "COUNT_2"), ("row", "COUNT_1"), ("byte", "BYTES")),
)
"""Axes of a result, and the registers with their lengths.

The first entry applies whose registers a command has.
"""
ASPECTS = (
    "encoding", "decoding", "refusal", "reference", "kernels", "device", "cycles", "recurrence",
    "totals",
)  # fmt: skip
"""Aspects that are compared separately, in this order.

Encoding: words from the assembler. Decoding: text and commands decoded from the recorded words.
Refusal: programs that the machine rejects. Reference, kernels: values by the reference semantics
and by the kernels. Device: its outputs. Cycles, recurrence: cycles by the event engine and by the
engine without events. Totals: work and traffic.
"""

SHOWN = 16


@dataclass(frozen=True)
class Deviation:
    """First difference from a golden record in one aspect, such as values or cycles.

    ``word`` is the command's index in the stream, None for the whole case.
    """

    aspect: str
    word: int | None
    summary: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int]:
        """Sort key of a difference: index in the stream, then aspect.

        Differences of the whole case come last.
        """
        return (1 << 62 if self.word is None else self.word), ASPECTS.index(self.aspect)


@dataclass(frozen=True)
class Moment:
    """Machine state at the first command that differs from a golden record, for the report."""

    word: int
    text: str
    layer: str
    onnx_nodes: tuple[str, ...]
    fields: dict[str, int]
    registers: dict[str, int]
    operands: tuple[dict[str, Any], ...]
    cycles_before: tuple[int, int] | None
    cycles_after: tuple[int, int] | None


@dataclass(frozen=True)
class CheckedCase:
    """Outcome of the check of a golden case: the first difference of every aspect, in order.

    ``moment`` is the state at the very first difference. ``deviations`` is empty if nothing
    differs.
    """

    name: str
    deviations: tuple[Deviation, ...] = ()
    moment: Moment | None = None
    total_before: int = 0
    total_after: int | None = None

    @property
    def passed(self) -> bool:
        """True if every aspect of a golden case is as recorded."""
        return not self.deviations


def format_checked_lines(checked: CheckedCase) -> list[str]:
    """Return the report of a golden case that differs from its record, as lines.

    The first wrong command is at the top.
    """
    names = ", ".join(dict.fromkeys(item.aspect for item in checked.deviations))
    lines = [f"{checked.name}: differs in {names}"]
    if checked.moment is not None:
        lines += [f"  {line}" for line in _moment_lines(checked, checked.moment)]
    for item in checked.deviations:
        where = "" if item.word is None else f" at word {item.word}"
        lines.append(f"  {item.aspect}{where}: {item.summary}")
    return lines


def _moment_lines(checked: CheckedCase, moment: Moment) -> list[str]:
    nodes = ", ".join(moment.onnx_nodes) or "none"
    lines = [f"first diverging command: word {moment.word}, {moment.text}"]
    lines.append(f"source: layer '{moment.layer}', ONNX nodes {nodes}")
    now = "no run" if checked.total_after is None else str(checked.total_after)
    lines.append(
        f"cycles: {_span(moment.cycles_before)} before, {_span(moment.cycles_after)} now; "
        f"whole case {checked.total_before} before, {now} now"
    )
    registers = " ".join(
        f"{name}={value}" for name, value in {**moment.fields, **moment.registers}.items()
    )
    lines.append(f"registers: {registers}")
    for operand in moment.operands:
        place = (
            f"{operand['space']} {operand['address']:#x}, {operand['bytes']} bytes, CRC-32 "
            f"{operand['crc']:08x}"
        )
        lines.append(f"operand: {place}: {operand['first']}")
    return lines


def _span(cycles: tuple[int, int] | None) -> str:
    return "no run" if cycles is None else f"{cycles[0]} to {cycles[1]}"


def to_checked_json(checked: CheckedCase) -> dict[str, Any]:
    """Return the outcome of a golden case's check as plain JSON values."""
    return {
        "case": checked.name,
        "passed": checked.passed,
        "cycles": {"before": checked.total_before, "after": checked.total_after},
        "first": None if checked.moment is None else vars(checked.moment),
        "differences": [
            {"aspect": item.aspect, "word": item.word, "summary": item.summary, **item.details}
            for item in checked.deviations
        ],
    }


def moment_of(
    case: StoredCase, program: Program, trace: Trace | None, word: int | None
) -> Moment | None:
    """Return the machine state at the command that contains ``word``, or None.

    A SET belongs to the next operation.
    """
    if word is None:
        return None
    try:
        number = next(
            (n for n, command in enumerate(program.commands) if command.index >= word), None
        )
    except ValueError:  # words that cannot be decoded
        return None
    if number is None or number >= len(program.commands) - 1:
        return None
    command = program.commands[number]
    source = program.sources[number]
    before = next(
        ((row.start, row.end) for row in case.record.commands if row.word == command.index), None
    )
    after = None
    if trace is not None:
        after = int(trace.times.start[number]), int(trace.times.end[number])
    return Moment(
        command.index,
        command_text(command),
        source.layer if source is not None else "",
        source.onnx_nodes if source is not None else (),
        dict(command.fields),
        dict(command.registers),
        _operands(case, program, trace, number),
        before,
        after,
    )


def _operands(
    case: StoredCase, program: Program, trace: Trace | None, number: int
) -> tuple[dict[str, Any], ...]:
    """Execute the commands before a command and return the operand bytes that it reads.

    The reference semantics execute the earlier commands first.
    """
    if trace is None:
        return ()
    try:
        watcher = Watcher(program, case.inputs, "reference")
        for earlier in completion_order(trace):
            if earlier == number or not watcher.step(earlier):
                break
        return tuple(_operand(access, watcher.machine) for access in watcher.operands[number].reads)
    # a broken part may fail here too; the difference itself is reported elsewhere
    except Exception:
        return ()


def _operand(access: Access, machine: Machine) -> dict[str, Any]:
    content = read_touched((access,), machine)
    first = np.frombuffer(content[:SHOWN], np.int8).tolist()
    more = " ..." if len(content) > SHOWN else ""
    return {
        "space": access.space,
        "address": access.address,
        "bytes": len(content),
        "crc": crc32(content),
        "first": " ".join(map(str, first)) + more,
    }


def value_deviation(
    case: StoredCase, program: Program, way: str, effects: Effects, other: Effects
) -> Deviation | None:
    """Return the first difference of values from a golden record in stream order, or None.

    Commands are compared first, then the stop, then the outputs. ``other`` has the effects of the
    other way of execution. If only checksums are recorded and the other way matches them, its bytes
    are the expected values.
    """
    for number, row in enumerate(case.record.commands):
        if number >= len(effects.writes):
            return Deviation(way, row.word, f"the stream has only {len(effects.writes)} commands")
        found = _command_deviation(
            program, way, number, _complete_record(row, number, other), effects
        )
        if found is not None:
            return found
    if len(effects.writes) != len(case.record.commands):
        return Deviation(
            way, None, f"{len(effects.writes)} commands, recorded {len(case.record.commands)}"
        )
    if effects.stopped != case.record.stopped:
        return Deviation(way, None, _stops(effects.stopped, case.record.stopped))
    for name, content in case.record.outputs.items():
        if effects.outputs.get(name) != content:
            return Deviation(way, None, f"output tensor '{name}' differs")
    return None


def _complete_record(row: CommandRecord, number: int, other: Effects) -> CommandRecord:
    """Return a command's record completed with the bytes that it wrote.

    If only a checksum is recorded, a matching ``other`` supplies them.
    """
    if row.content is None and number < len(other.writes) and other.writes[number] == row.writes:
        return replace(row, content=other.contents[number])
    return row


def _stops(now: str | None, before: str | None) -> str:
    return f"{now or 'runs to the end'}, recorded: {before or 'runs to the end'}"


def _command_deviation(
    program: Program, way: str, number: int, row: CommandRecord, effects: Effects
) -> Deviation | None:
    reads = effects.reads[number]
    writes = effects.writes[number]
    if reads is not None and row.reads is not None and reads != row.reads:
        summary = f"the operands have CRC-32 {reads}, recorded {row.reads}: other bytes are read"
        return Deviation(way, row.word, summary, {"expected_crc": row.reads, "actual_crc": reads})
    if writes == row.writes:
        return None
    if writes is None or row.writes is None:
        recorded = "it does not complete" if row.writes is None else None
        return Deviation(way, row.word, _stops(effects.stopped, recorded))
    return _bytes_deviation(program, way, number, row, effects)


def _bytes_deviation(
    program: Program, way: str, number: int, row: CommandRecord, effects: Effects
) -> Deviation:
    now = effects.contents[number] or b""
    details: dict[str, Any] = {"expected_crc": row.writes, "actual_crc": effects.writes[number]}
    sums = f"CRC-32 {effects.writes[number]}, recorded {row.writes}"
    if len(now) != row.written:
        return Deviation(way, row.word, f"writes {len(now)} bytes, recorded {row.written}", details)
    if row.content is None:
        return Deviation(
            way, row.word, f"{sums}; only the sum of its {row.written} bytes is recorded", details
        )
    command = program.commands[number]
    operands = command.instruction.operands(command, program.arch)
    before = np.frombuffer(row.content, np.uint8)
    after = np.frombuffer(now, np.uint8)
    offset = int(np.argmax(before != after))
    element = locate(program, command, operands, offset, len(now))
    dtype = "<i4" if element.size == 4 else np.int8
    old = before.view(dtype)
    new = after.view(dtype)
    expected = int(old[element.number])
    actual = int(new[element.number])
    count = int(np.count_nonzero(old != new))
    details |= {
        "expected": expected,
        "actual": actual,
        "element": vars(element),
        "differ": count,
        "of": old.size,
    }
    summary = (
        f"{element.text()}: expected {expected}, actual {actual}; {count} of {old.size} elements "
        f"differ; {sums}"
    )
    return Deviation(way, row.word, summary, details)


@dataclass(frozen=True)
class Element:
    """One element of a command's result, with its index, its address and its tensor.

    ``index`` is by axis, ``address`` is a byte in ``space``, and ``tensor`` is None outside all
    tensors.
    """

    number: int
    size: int
    index: Mapping[str, int]
    space: str
    address: int
    tensor: str | None = None
    coordinates: tuple[int, ...] = ()

    def text(self) -> str:
        """Text of a result's element, such as ``[channel 2, row 0] (scratchpad 0x1c4)``."""
        inside = ", ".join(f"{axis} {value}" for axis, value in self.index.items())
        memory = "scratchpad" if self.space == "sram" else "system memory"
        tensor = (
            f", tensor '{self.tensor}' {list(self.coordinates)}" if self.tensor is not None else ""
        )
        return f"[{inside}] ({memory} {self.address:#x}{tensor})"


def result_shape(command: Command, nbytes: int) -> tuple[dict[str, int], int]:
    """Return the shape and the bytes per element of a command's result of ``nbytes`` bytes."""
    unit = command.unit.name
    for axes in SHAPES:
        names = [f"{unit}_{register}" for _, register in axes]
        if all(name in command.registers for name in names):
            lengths = {axis: command[name] for (axis, _), name in zip(axes, names, strict=True)}
            elements = prod(lengths.values())
            if elements and nbytes in (elements, 4 * elements):
                return lengths, nbytes // elements
    return {"byte": nbytes}, 1


def locate(
    program: Program, command: Command, operands: Operands, offset: int, nbytes: int
) -> Element:
    """Return the element that contains one byte of a command's result.

    ``offset`` counts from the first of the ``nbytes`` bytes that ``command`` wrote.
    """
    lengths, size = result_shape(command, nbytes)
    number = offset // size
    index = [int(value) for value in np.unravel_index(number, tuple(lengths.values()))]
    space, address = _address(operands, number * size)
    tensor, coordinates = _tensor(program, space, address)
    return Element(
        number, size, dict(zip(lengths, index, strict=True)), space, address, tensor, coordinates
    )


def _address(operands: Operands, offset: int) -> tuple[str, int]:
    for access in operands.writes:
        if offset < access.total:
            return access.space, int(
                row_starts(access)[offset // access.nbytes]
            ) + offset % access.nbytes
        offset -= access.total
    return "sram", 0


def _tensor(program: Program, space: str, address: int) -> tuple[str | None, tuple[int, ...]]:
    """Return the program's tensor that contains a byte of system memory.

    The second result has the coordinates of the element in the tensor.
    """
    for tensor in program.tensors:
        if space == "dram" and tensor.address <= address < tensor.address + tensor.nbytes:
            element = (address - tensor.address) // np.dtype(tensor.dtype).itemsize
            return tensor.name, tuple(int(i) for i in np.unravel_index(element, tensor.shape))
    return None, ()
