"""Emit command words from scheduled steps, with provenance.

Register writes that change nothing are dropped. Token flags are derived only from overlapping byte
ranges of commands on different units; each unit executes in order. A command's ``clock`` says, for
each unit, how many of its commands are certainly complete when this command completes. A command
waits for another exactly if its unit's clock does not cover it yet. The waits on one queue then
have the same order on both sides, so that counting tokens suffices. LD and ST share no queue: a
wait between them goes through an EX command that waits anyway, or through an inserted ``OP_SYNC``.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.operators.layer import align
from byoc.scheduling.stream import AT_ONCE, CommandStep, StepSource
from isa.access import Access, touch
from isa.arch import Arch
from isa.encoding import encode_operation, encode_set
from isa.instruction import Command, Instruction, Operands, Unit
from isa.ops.control import OP_END, OP_SYNC
from isa.ops.dma import side_registers
from isa.plugins import variant
from isa.program import Provenance
from isa.registers import RESET, RegisterFile

LD = Unit.LD.value
EX = Unit.EX.value
ST = Unit.ST.value
ALIGNMENT = 64
"""Alignment in bytes of tensors, constants and commands in system memory."""
_ADDRESS_REGISTERS = frozenset(side_registers(unit, "dram")[0] for unit in (Unit.LD, Unit.ST))
"""Registers with an address in system memory."""


@dataclass(eq=False, slots=True)
class Ordered:
    """Command in stream order with its token flags.

    ``index`` is its input position, None for an OP_SYNC. ``serves`` is the position of the command
    that an OP_SYNC was inserted for.
    """

    index: int | None
    unit: int
    serves: int
    pop_previous: int = 0
    pop_next: int = 0
    push_previous: int = 0
    push_next: int = 0
    clock: list[int] = field(default_factory=list)


def derive_tokens(
    units: Sequence[Unit],
    operands: Sequence[Operands],
    strict: bool = False,
    store_waits: Mapping[int, int] = AT_ONCE,
) -> tuple[Ordered, ...]:
    """Return the commands with token flags and inserted OP_SYNCs.

    With ``strict`` every command also waits for the previous one. ``store_waits`` has the loads
    that stores wait for, by index.
    """
    state = _State()
    loaded = list(accumulate(unit is Unit.LD for unit in units))
    previous: Ordered | None = None
    for index, (unit, accesses) in enumerate(zip(units, operands, strict=True)):
        item = Ordered(index, unit.value, index)
        touched = _find_touched(accesses)
        if strict:
            needs = [0, 0, 0]
            if previous is not None:
                needs[previous.unit] = previous.clock[previous.unit]
        else:
            needs = state.count_needed(unit.value, touched)
        if index in store_waits:
            needs[LD] = max(needs[LD], loaded[store_waits[index]])
        state.issue(item, needs)
        state.remember(unit.value, touched)
        previous = item
    return tuple(state.stream)


class _State:
    """Clock of each unit's next command, and the bytes that all issued commands access."""

    def __init__(self) -> None:
        self.stream: list[Ordered] = []
        self.known = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]
        self._issued: tuple[list[Ordered], ...] = ([], [], [])
        self._touched: tuple[dict[int, list[tuple[int, _Touched]]], ...] = ({}, {}, {})

    def count_needed(self, unit: int, touched: _Touched) -> list[int]:
        """Return how many commands of each unit must complete before a command's accesses."""
        needs = [0, 0, 0]
        for other in (LD, EX, ST):
            if other != unit:
                needs[other] = self._latest_conflict(other, self.known[unit][other], touched)
        return needs

    def _latest_conflict(self, other: int, known: int, touched: _Touched) -> int:
        latest = known
        pages = self._touched[other]
        for page in touched.pages & pages.keys():
            for ordinal, candidate in reversed(pages[page]):
                if ordinal <= latest:
                    break
                if _meet(candidate, touched):
                    latest = ordinal
                    break
        return latest if latest > known else 0

    def remember(self, unit: int, touched: _Touched) -> None:
        """Record the accesses of the latest command on ``unit``."""
        entry = (len(self._issued[unit]), touched)
        for page in touched.pages:
            self._touched[unit].setdefault(page, []).append(entry)

    def issue(self, item: Ordered, needs: list[int]) -> None:
        """Append a command that waits for the first ``needs[u]`` commands of each unit u."""
        unit = item.unit
        if unit == EX:
            for other in (LD, ST):
                self._wait(item, other, needs[other])
        else:
            far = ST if unit == LD else LD
            self._wait(
                item, EX, max(needs[EX], self._count_through_ex(item, needs[EX], far, needs[far]))
            )
        issued = self._issued[unit]
        clock = self.known[unit]
        clock[unit] = len(issued) + 1
        item.clock = list(clock)
        issued.append(item)
        self.stream.append(item)

    def _count_through_ex(self, item: Ordered, near: int, far: int, needed: int) -> int:
        """Return how many EX commands must end so that ``needed`` of ``far`` have ended too.

        Adds an OP_SYNC on EX if no EX command waits for that many commands of unit ``far``.
        """
        if needed <= self.known[item.unit][far]:
            return 0
        executed = self._issued[EX]
        if near and executed[near - 1].clock[far] >= needed:
            return near
        position = bisect_left(executed, needed, key=lambda command: command.clock[far])
        if position == len(executed):
            needs = [0, 0, 0]
            needs[far] = needed
            self.issue(Ordered(None, EX, item.serves), needs)
        return position + 1

    def _wait(self, item: Ordered, other: int, needed: int) -> None:
        known = self.known[item.unit]
        if needed <= known[other]:
            return
        giver = self._issued[other][needed - 1]
        if other < item.unit:
            giver.push_next = item.pop_previous = 1
        else:
            giver.push_previous = item.pop_next = 1
        for unit in (LD, EX, ST):
            known[unit] = max(known[unit], giver.clock[unit])


_Hull = tuple[int, int, Access]
"""Byte range of an access, and the access.

The range is offset by its memory's base, so that memories never overlap. Comparing these ranges
first rules out most pairs of accesses.
"""
_BASES = {"sram": 0, "dram": 1 << 60}
_SRAM_PAGE = 1 << 12
_DRAM_PAGE = 1 << 16


class _Touched(NamedTuple):
    reads: list[_Hull]
    writes: list[_Hull]
    pages: set[int]


def _find_touched(operands: Operands) -> _Touched:
    reads, writes = map(_hulls, (operands.reads, operands.writes))
    return _Touched(reads, writes, _pages((*reads, *writes)))


def _hulls(accesses: Sequence[Access]) -> list[_Hull]:
    return [(_BASES[one.space] + one.address, _BASES[one.space] + one.end, one) for one in accesses]


def _pages(hulls: Iterable[_Hull]) -> set[int]:
    """Return the numbers of the memory pages that a command's accesses touch.

    Commands that share no page share no byte. The search for a conflict visits only commands of the
    same pages, instead of every earlier command of a unit.
    """
    pages: set[int] = set()
    for start, end, _ in hulls:
        unit = _DRAM_PAGE if start >= _BASES["dram"] else _SRAM_PAGE
        pages.update(range(start // unit, (end - 1) // unit + 1))
    return pages


def _meet(first: _Touched, second: _Touched) -> bool:
    """Return whether two commands touch a common byte that at least one of them writes."""
    return (
        _any_touch(first.writes, second.writes)
        or _any_touch(first.writes, second.reads)
        or _any_touch(second.writes, first.reads)
    )


def _any_touch(writes: Sequence[_Hull], others: Sequence[_Hull]) -> bool:
    for start, end, written in writes:
        for low, high, access in others:
            if start < high and low < end and touch(written, access):
                return True
    return False


_FLAGS = ("pop_previous", "pop_next", "push_previous", "push_next")


@dataclass(frozen=True, eq=False)
class Emission:
    """Command words, their provenance, and the word count before elision.

    ``steps`` pairs the number of each command with its step; inserted commands have none.
    """

    words: NDArray[np.uint64]
    provenance: tuple[Provenance, ...]
    words_before_elision: int
    steps: tuple[tuple[int, CommandStep], ...]


def emit(
    steps: Sequence[CommandStep],
    addresses: Sequence[int],
    arch: Arch,
    strict: bool,
    store_waits: Mapping[int, int],
    intermediates: Sequence[tuple[int, int]] = (),
) -> Emission:
    """Emit the words of ``steps`` with scratchpad buffers at ``addresses``.

    ``strict`` and ``store_waits`` are as in :func:`derive_tokens`. ``intermediates`` are byte
    ranges of system memory in rising order; those that are not in use at the same time share bytes.
    """
    registers = [_place_pointers(step, addresses) for step in steps]
    file = variant(arch.isa).register_file
    operands = [
        _operands(step, values, file.reset, arch)
        for step, values in zip(steps, registers, strict=True)
    ]
    stream = derive_tokens([step.unit for step in steps], operands, strict, store_waits)
    issues = [_issue(item, steps, registers) for item in stream]
    issues.append(Issue((), encode_operation(OP_END, {})))
    move = share_memory(
        (
            (item.unit, item.clock, operands[item.index])
            for item in stream
            if item.index is not None
        ),
        intermediates,
    )
    kept = [
        Issue(
            tuple([(name, move(n) if name in _ADDRESS_REGISTERS else n) for name, n in writes]),
            word,
        )
        for writes, word in elide(issues, file.reset)
    ]
    provenance = _provenance(kept, [steps[item.serves].source for item in stream])
    numbered = ((number, item.index) for number, item in enumerate(stream))
    by_number = tuple((number, steps[index]) for number, index in numbered if index is not None)
    return Emission(_words(kept, file), provenance, count_words(issues), by_number)


def share_memory(
    commands: Iterable[tuple[int, list[int], Operands]], buffers: Sequence[tuple[int, int]]
) -> Callable[[int], int]:
    """Return a function that moves an address in system memory to its buffer's new place.

    Buffers that are not in use at the same time share bytes. A buffer may take the bytes of another
    one only if the token flags already order all their accesses, so that no command waits longer.
    For that, ``last`` has how many commands of each unit include all accesses of a buffer, and
    ``known`` how many are complete before its first access.

    Args:
        commands: unit, clock (:mod:`byoc.emission.emit`) and operands of each command in order.
        buffers: first and last byte + 1 of each buffer, rising.
    """
    starts = [start for start, _ in buffers]
    known = np.full((len(buffers), len(Unit)), np.iinfo(np.int64).max)
    last = np.zeros_like(known)
    for unit, clock, operands in commands:
        for access in (*operands.reads, *operands.writes):
            number = bisect(starts, access.address) - 1
            if access.space == "dram" and number >= 0 and access.address < buffers[number][1]:
                if not last[number, unit]:  # the first access: clocks only rise
                    before = [count - (other == unit) for other, count in enumerate(clock)]
                    known[number] = np.minimum(known[number], before)
                last[number, unit] = clock[unit]
    sizes = [end - start for start, end in buffers]
    order = sorted(np.flatnonzero(last.any(axis=1)).tolist(), key=lambda one: -sizes[one])
    targets = starts.copy()
    for place, number in enumerate(order):
        others = np.array(order[:place], np.int64)
        precede = (last[others] <= known[number]).all(axis=1)
        follow = (last[number] <= known[others]).all(axis=1)
        target = starts[0]
        for other in sorted(others[~(precede | follow)].tolist(), key=targets.__getitem__):
            if target + sizes[number] <= targets[other]:
                break
            target = max(target, align(targets[other] + sizes[other], ALIGNMENT))
        targets[number] = target

    def move(address: int) -> int:
        number = bisect(starts, address) - 1
        if number < 0 or address >= buffers[number][1]:
            return address
        return address - starts[number] + targets[number]

    return move


def _place_pointers(step: CommandStep, addresses: Sequence[int]) -> dict[str, int]:
    """Return the registers of a step with its pointers resolved to addresses."""
    values = dict(step.registers)
    for name, pointer in step.pointers.items():
        values[name] = addresses[pointer.buffer] + pointer.offset
    return values


def _operands(
    step: CommandStep, registers: Mapping[str, int], reset: Mapping[str, int], arch: Arch
) -> Operands:
    """Return the byte ranges that a step accesses.

    Registers it does not set have their reset values.
    """
    snapshot = {name: registers.get(name, reset[name]) for name in step.instruction.registers}
    command = Command(
        0, step.instruction, step.unit, False, False, False, False, step.fields, snapshot
    )
    return step.instruction.operands(command, arch)


def _issue(
    item: Ordered, steps: Sequence[CommandStep], registers: Sequence[dict[str, int]]
) -> Issue:
    flags = item.pop_previous, item.pop_next, item.push_previous, item.push_next
    if item.index is None:
        return Issue((), _word(OP_SYNC, flags, (("unit", item.unit),)))
    step = steps[item.index]
    return Issue(
        tuple(registers[item.index].items()),
        _word(step.instruction, flags, tuple(step.fields.items())),
    )


@lru_cache(maxsize=1024)
def _word(
    instruction: Instruction, flags: tuple[int, ...], fields: tuple[tuple[str, int], ...]
) -> int:
    """Encode the operation word of an instruction with token flags and fields.

    The result is cached, because programs contain few distinct words.
    """
    return encode_operation(instruction, {**dict(zip(_FLAGS, flags, strict=True)), **dict(fields)})


def _words(issues: Iterable[Issue], file: RegisterFile) -> NDArray[np.uint64]:
    words: list[int] = []
    for writes, word in issues:
        words += [encode_set(name, value, file) for name, value in writes]
        words.append(word)
    return np.array(words, dtype=np.uint64)


def _provenance(issues: Sequence[Issue], sources: Sequence[StepSource]) -> tuple[Provenance, ...]:
    """Return the command words of each source as ranges, merging adjacent equal sources.

    The last issue, OP_END, belongs to no layer.
    """
    ranges: list[Provenance] = []
    position = start = 0
    for number, source in enumerate(sources):
        position += len(issues[number].writes) + 1
        if number + 1 == len(sources) or sources[number + 1] != source:
            ranges.append(Provenance(start, position, *source))
            start = position
    return tuple(ranges)


class Issue(NamedTuple):
    """Operation word and the register writes before it, each (register name, value)."""

    writes: tuple[tuple[str, int], ...]
    word: int


def elide(issues: Iterable[Issue], reset: Mapping[str, int] = RESET) -> tuple[Issue, ...]:
    """Drop register writes that keep a register's value.

    Registers start with the variant's ``reset`` values.
    """
    current = dict(reset)
    kept: list[Issue] = []
    for writes, word in issues:
        needed = tuple([write for write in writes if current[write[0]] != write[1]])
        current.update(needed)
        kept.append(Issue(needed, word))
    return tuple(kept)


def count_words(issues: Iterable[Issue]) -> int:
    """Count the command words of a stream: one for each register write and each operation."""
    return sum(len(issue.writes) + 1 for issue in issues)
