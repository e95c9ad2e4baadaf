"""A command at the moment at which it went wrong: source, registers, operands as they were, cycles before and after."""

from __future__ import annotations

from typing import Any

import numpy as np

from dla_sim.trace import Trace
from experiments.golden.case import StoredCase
from experiments.golden.difference import Moment
from experiments.golden.memory import touched
from experiments.golden.observe import Watcher, completion_order
from isa.access import Access
from isa.assembler import command_text
from isa.instruction import Machine
from isa.program import Program

SHOWN = 16


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
        after = int(trace.schedule.start[number]), int(trace.schedule.end[number])
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
    from zlib import crc32

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
