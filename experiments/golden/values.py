"""The first command whose result differs from the recorded one: element, values, how many differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from experiments.golden.case import CommandRecord, StoredCase
from experiments.golden.difference import Difference
from experiments.golden.locate import locate
from experiments.golden.observe import Effects
from isa.program import Program


def value_difference(
    case: StoredCase, program: Program, way: str, effects: Effects, other: Effects
) -> Difference | None:
    """The first command, in stream order, that does not do what was recorded; then what stopped; then the outputs.

    ``other`` is what the other way of execution did: where only sums are recorded and its are right, it has the values.
    """
    for number, row in enumerate(case.record.commands):
        if number >= len(effects.writes):
            return Difference(way, row.word, f"the stream has only {len(effects.writes)} commands")
        found = _command_difference(program, way, number, _completed(row, number, other), effects)
        if found is not None:
            return found
    if len(effects.writes) != len(case.record.commands):
        return Difference(way, None, f"{len(effects.writes)} commands, recorded {len(case.record.commands)}")
    if effects.stopped != case.record.stopped:
        return Difference(way, None, _stops(effects.stopped, case.record.stopped))
    for name, content in case.record.outputs.items():
        if effects.outputs.get(name) != content:
            return Difference(way, None, f"output tensor '{name}' differs")
    return None


def _completed(row: CommandRecord, number: int, other: Effects) -> CommandRecord:
    """The record of a command with the bytes that it writes, where the other way of execution wrote what was summed."""
    if row.content is None and number < len(other.writes) and other.writes[number] == row.writes:
        return replace(row, content=other.contents[number])
    return row


def _stops(now: str | None, before: str | None) -> str:
    return f"{now or 'runs to the end'}, recorded: {before or 'runs to the end'}"


def _command_difference(
    program: Program, way: str, number: int, row: CommandRecord, effects: Effects
) -> Difference | None:
    reads, writes = effects.reads[number], effects.writes[number]
    if reads is not None and row.reads is not None and reads != row.reads:
        summary = f"the operands have CRC-32 {reads}, recorded {row.reads}: other bytes are read"
        return Difference(way, row.word, summary, {"expected_crc": row.reads, "actual_crc": reads})
    if writes == row.writes:
        return None
    if writes is None or row.writes is None:
        return Difference(way, row.word, _stops(effects.stopped, _recorded_stop(row)))
    return _bytes_difference(program, way, number, row, effects)


def _recorded_stop(row: CommandRecord) -> str | None:
    """What the record says about a command that did not complete."""
    return "it does not complete" if row.writes is None else None


def _bytes_difference(program: Program, way: str, number: int, row: CommandRecord, effects: Effects) -> Difference:
    now = effects.contents[number] or b""
    details: dict[str, Any] = {"expected_crc": row.writes, "actual_crc": effects.writes[number]}
    sums = f"CRC-32 {effects.writes[number]}, recorded {row.writes}"
    if len(now) != row.written:
        return Difference(way, row.word, f"writes {len(now)} bytes, recorded {row.written}", details)
    if row.content is None:
        return Difference(way, row.word, f"{sums}; only the sum of its {row.written} bytes is recorded", details)
    command = program.commands[number]
    operands = command.instruction.operands(command, program.arch)
    before, after = np.frombuffer(row.content, np.uint8), np.frombuffer(now, np.uint8)
    offset = int(np.argmax(before != after))
    element = locate(program, command, operands, offset, len(now))
    dtype = "<i4" if element.size == 4 else np.int8
    old, new = before.view(dtype), after.view(dtype)
    expected, actual = int(old[element.number]), int(new[element.number])
    count = int(np.count_nonzero(old != new))
    details |= {"expected": expected, "actual": actual, "element": vars(element), "differ": count, "of": old.size}
    summary = f"{element.text()}: expected {expected}, actual {actual}; {count} of {old.size} elements differ; {sums}"
    return Difference(way, row.word, summary, details)
