"""Deviations from what was recorded: what they are, the command at the moment when it went wrong, and the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from dla_sim.trace import Trace
from experiments.golden.case import StoredCase
from experiments.golden.observe import Watcher, completion_order, touched
from isa.access import Access
from isa.assembler import command_text
from isa.instruction import Machine
from isa.program import Program

ASPECTS = (
    "encoding", "decoding", "refusal", "reference", "kernels", "device", "cycles", "recurrence", "totals",
)  # fmt: skip
"""What is compared, each on its own: words that the assembler makes, text and commands that the decoder makes of the
recorded words, what is refused, values by the reference semantics, by the kernels, outputs of the device, cycles by the
event engine, by the engine without events, and work and traffic."""

SHOWN = 16


@dataclass(frozen=True)
class Deviation:
    """The first difference of one aspect. ``word`` is the command's place in the stream, None for the whole case."""

    aspect: str
    word: int | None
    summary: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int]:
        """Which difference came first: by place in the stream, then by aspect; the whole case comes last."""
        return (1 << 62 if self.word is None else self.word), ASPECTS.index(self.aspect)


@dataclass(frozen=True)
class Moment:
    """A command at the moment at which it went wrong, for the report."""

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
    """The check of one case: no differences, or the first of every aspect, in order, and the moment of the first."""

    name: str
    deviations: tuple[Deviation, ...] = ()
    moment: Moment | None = None
    total_before: int = 0
    total_after: int | None = None

    @property
    def passed(self) -> bool:
        """True when everything is as recorded."""
        return not self.deviations


def checked_lines(checked: CheckedCase) -> list[str]:
    """The report of a case that differs, line by line, the first wrong command on top."""
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
    lines.append(f"cycles: {_span(moment.cycles_before)} before, {_span(moment.cycles_after)} now; " + _totals(checked))
    registers = " ".join(f"{name}={value}" for name, value in {**moment.fields, **moment.registers}.items())
    lines.append(f"registers: {registers}")
    for operand in moment.operands:
        place = f"{operand['space']} {operand['address']:#x}, {operand['bytes']} bytes, CRC-32 {operand['crc']:08x}"
        lines.append(f"operand: {place}: {operand['first']}")
    return lines


def _span(cycles: tuple[int, int] | None) -> str:
    return "no run" if cycles is None else f"{cycles[0]} to {cycles[1]}"


def _totals(checked: CheckedCase) -> str:
    now = "no run" if checked.total_after is None else str(checked.total_after)
    return f"whole case {checked.total_before} before, {now} now"


def checked_json(checked: CheckedCase) -> dict[str, Any]:
    """The same as plain JSON values."""
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


def moment_of(case: StoredCase, program: Program, trace: Trace | None, word: int | None) -> Moment | None:
    """The command that word ``word`` belongs to (a SET belongs to the next operation); None where there is none."""
    if word is None:
        return None
    try:
        number = next((n for n, command in enumerate(program.commands) if command.index >= word), None)
    except ValueError:  # words that cannot be decoded
        return None
    if number is None or number >= len(program.commands) - 1:
        return None
    command, source = program.commands[number], program.sources[number]
    before = next(((row.start, row.end) for row in case.record.commands if row.word == command.index), None)
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


def _operands(case: StoredCase, program: Program, trace: Trace | None, number: int) -> tuple[dict[str, Any], ...]:
    """The byte ranges that the command reads, as the reference semantics of the commands before it left them."""
    if trace is None:
        return ()
    try:
        watcher = Watcher(program, case.inputs, "reference")
        for earlier in completion_order(trace):
            if earlier == number or not watcher.step(earlier):
                break
        return tuple(_operand(access, watcher.machine) for access in watcher.operands[number].reads)
    except Exception:  # what is broken may break here too; the difference itself is reported elsewhere
        return ()


def _operand(access: Access, machine: Machine) -> dict[str, Any]:
    content = touched((access,), machine)
    first = np.frombuffer(content[:SHOWN], np.int8).tolist()
    more = " ..." if len(content) > SHOWN else ""
    return {
        "space": access.space,
        "address": access.address,
        "bytes": len(content),
        "crc": crc32(content),
        "first": " ".join(map(str, first)) + more,
    }
