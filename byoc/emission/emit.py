"""Emission: placed steps become command words with provenance; register writes that change nothing are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.emission.tokens import Ordered, derive_tokens
from byoc.scheduling.steps import Source, Step
from isa.arch import Arch
from isa.encoding import encode_operation, encode_set
from isa.instruction import Command, Instruction, Operands
from isa.ops.control import OP_END, OP_SYNC
from isa.plugins import variant
from isa.program import Provenance
from isa.registers import RESET, RegisterFile

_FLAGS = ("pop_previous", "pop_next", "push_previous", "push_next")


@dataclass(frozen=True, eq=False)
class Emission:
    """Command words, where they come from, and the number of words before redundant register writes were dropped."""

    words: NDArray[np.uint64]
    provenance: tuple[Provenance, ...]
    words_before_elision: int


def emit(steps: Sequence[Step], addresses: Sequence[int], arch: Arch, strict: bool) -> Emission:
    """The words of ``steps`` with scratchpad buffers at ``addresses``; ``strict`` as in :func:`derive_tokens`."""
    registers = [_placed(step, addresses) for step in steps]
    file = variant(arch.isa).register_file
    operands = [_operands(step, values, file.reset, arch) for step, values in zip(steps, registers, strict=True)]
    stream = derive_tokens([step.unit for step in steps], operands, strict)
    issues = [_issue(item, steps, registers) for item in stream]
    issues.append(Issue((), encode_operation(OP_END, {})))
    kept = elide(issues, file.reset)
    provenance = _provenance(kept, [steps[item.serves].source for item in stream])
    return Emission(_words(kept, file), provenance, count_words(issues))


def _placed(step: Step, addresses: Sequence[int]) -> dict[str, int]:
    """The registers of a step with its pointers resolved."""
    values = dict(step.registers)
    for name, pointer in step.pointers.items():
        values[name] = addresses[pointer.buffer] + pointer.offset
    return values


def _operands(step: Step, registers: Mapping[str, int], reset: Mapping[str, int], arch: Arch) -> Operands:
    """The byte ranges of a step. Registers it leaves alone have no influence on them; they read as after reset."""
    snapshot = {name: registers.get(name, reset[name]) for name in step.instruction.registers}
    command = Command(0, step.instruction, step.unit, False, False, False, False, step.fields, snapshot)
    return step.instruction.operands(command, arch)


def _issue(item: Ordered, steps: Sequence[Step], registers: Sequence[dict[str, int]]) -> Issue:
    flags = item.pop_previous, item.pop_next, item.push_previous, item.push_next
    if item.index is None:
        return Issue((), _word(OP_SYNC, flags, (("unit", item.unit),)))
    step = steps[item.index]
    return Issue(tuple(registers[item.index].items()), _word(step.instruction, flags, tuple(step.fields.items())))


@lru_cache(maxsize=1024)
def _word(instruction: Instruction, flags: tuple[int, ...], fields: tuple[tuple[str, int], ...]) -> int:
    """The operation word. Few differ in one program, and few programs differ in them."""
    return encode_operation(instruction, {**dict(zip(_FLAGS, flags, strict=True)), **dict(fields)})


def _words(issues: Iterable[Issue], file: RegisterFile) -> NDArray[np.uint64]:
    words: list[int] = []
    for writes, word in issues:
        words += [encode_set(name, value, file) for name, value in writes]
        words.append(word)
    return np.array(words, dtype=np.uint64)


def _provenance(issues: Sequence[Issue], sources: Sequence[Source]) -> tuple[Provenance, ...]:
    """Ranges of words, neighbours of one source merged. The last issue, OP_END, belongs to no layer."""
    ranges: list[Provenance] = []
    position = start = 0
    for number, source in enumerate(sources):
        position += len(issues[number].writes) + 1
        if number + 1 == len(sources) or sources[number + 1] != source:
            ranges.append(Provenance(start, position, *source))
            start = position
    return tuple(ranges)


class Issue(NamedTuple):
    """One operation word with the register writes before it, each (register name, value)."""

    writes: tuple[tuple[str, int], ...]
    word: int


def elide(issues: Iterable[Issue], reset: Mapping[str, int] = RESET) -> tuple[Issue, ...]:
    """The same operations, each with the same register file, starting from the variant's ``reset`` values."""
    current = dict(reset)
    kept: list[Issue] = []
    for writes, word in issues:
        needed = tuple([write for write in writes if current[write[0]] != write[1]])
        current.update(needed)
        kept.append(Issue(needed, word))
    return tuple(kept)


def count_words(issues: Iterable[Issue]) -> int:
    """Command words of a stream: one a register write, one an operation."""
    return sum(len(issue.writes) + 1 for issue in issues)
