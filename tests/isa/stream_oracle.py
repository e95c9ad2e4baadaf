"""Find the errors of a command stream by brute force, without code of the sanitizer.

There are no clocks and no hulls. Order is reachability in the graph of queues and tokens, one bit a
pair. Touched bytes are lists of intervals, row by row. Contents are a map with a flag a byte. The
oracle judges the sanitizer on random and mutated streams.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from isa.access import Access
from isa.instruction import Command, Operands
from isa.program import Program

Pair = tuple[int, int]
NEIGHBOURS = {"pop_previous": -1, "pop_next": 1, "push_previous": -1, "push_next": 1}


@dataclass(frozen=True, eq=False)
class Truth:
    """``legal``: every pop finds a token in stream order and none is left.

    ``stuck``: commands that never complete, whatever the depth of the queues. ``races``: unordered
    pairs that touch a common byte which one of them writes. ``outside``: commands with accesses
    beyond the memories. ``unwritten``: commands that read bytes without contents. ``missing``:
    bytes of outputs without contents, if all commands complete. ``protected``: commands that write
    over command words, constants or inputs. ``misaligned``: commands with words at odd places.
    ``overwritten``: commands with results over bytes of their own operands that come later in the
    operand than in the result."""

    legal: bool
    stuck: frozenset[int]
    races: frozenset[Pair]
    outside: frozenset[int]
    unwritten: frozenset[int]
    missing: int
    protected: frozenset[int]
    overwritten: frozenset[int]
    misaligned: frozenset[int]

    @property
    def wrong(self) -> bool:
        """True if the stream has any error."""
        flaws = (
            self.stuck,
            self.races,
            self.outside,
            self.unwritten,
            self.missing,
            self.protected,
            self.misaligned,
            self.overwritten,
        )
        return not self.legal or any(map(bool, flaws))


def judge(program: Program, commands: Sequence[Command], operands: Sequence[Operands]) -> Truth:
    """The truth about ``commands``, which need not be the program's own."""
    predecessors = graph(commands)
    order = completion_order(predecessors)
    stuck = frozenset(range(len(commands))) - frozenset(order)
    outside = frozenset(
        i for i, item in enumerate(operands) if any(_leaves(a, program) for a in _all(item))
    )
    clean = [_without_outside(item, program) for item in operands]
    unwritten, missing = _contents(program, clean, order)
    return Truth(
        legal=is_legal(commands),
        stuck=stuck,
        races=races(clean, predecessors, order),
        outside=outside,
        unwritten=unwritten,
        missing=0 if stuck else missing,
        protected=frozenset(i for i, item in enumerate(clean) if _overwrites(item, program)),
        overwritten=frozenset(i for i, item in enumerate(clean) if _over_itself(commands[i], item)),
        misaligned=frozenset(
            i for i, command in enumerate(commands) if _misaligned(command, program)
        ),
    )


def is_legal(commands: Sequence[Command]) -> bool:
    """Return True if every pop finds a token in stream order and none is left over."""
    tokens: dict[Pair, int] = {}
    for command in commands:
        unit = command.unit.value
        for flag, side in NEIGHBOURS.items():
            if getattr(command, flag) and flag.startswith("pop"):
                tokens[unit + side, unit] = tokens.get((unit + side, unit), 0) - 1
                if tokens[unit + side, unit] < 0:
                    return False
        for flag, side in NEIGHBOURS.items():
            if getattr(command, flag) and flag.startswith("push"):
                tokens[unit, unit + side] = tokens.get((unit, unit + side), 0) + 1
    return not any(tokens.values())


def graph(commands: Sequence[Command]) -> list[list[int]]:
    """Return the commands that each command waits for.

    They are the one before it in its queue, and the givers of its tokens (-1: there is none).
    """
    last: dict[int, int] = {}
    waiting: list[list[int]] = []
    given: dict[Pair, deque[int]] = {}
    for number, command in enumerate(commands):
        for flag, side in NEIGHBOURS.items():
            if flag.startswith("push") and getattr(command, flag):
                given.setdefault((command.unit.value, command.unit.value + side), deque()).append(
                    number
                )
    for number, command in enumerate(commands):
        unit = command.unit.value
        found = [last[unit]] if unit in last else []
        last[unit] = number
        for flag, side in NEIGHBOURS.items():
            if flag.startswith("pop") and getattr(command, flag):
                queue = given.get((unit + side, unit))
                found.append(queue.popleft() if queue else -1)
        waiting.append(found)
    return waiting


def completion_order(predecessors: Sequence[Sequence[int]]) -> list[int]:
    """Return the commands that can complete, each after those it waits for.

    Otherwise they are in stream order.
    """
    order: list[int] = []
    done: set[int] = set()
    moved = True
    while moved:
        moved = False
        for number, waits in enumerate(predecessors):
            if number not in done and all(giver in done for giver in waits):
                done.add(number)
                order.append(number)
                moved = True
    return order


def reachable(predecessors: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """For each command the set, as bits of a number, of those that are complete when it starts."""
    before = [0] * len(predecessors)
    for number in order:
        for giver in predecessors[number]:
            before[number] |= before[giver] | 1 << giver
    return before


def races(
    operands: Sequence[Operands], predecessors: Sequence[Sequence[int]], order: Sequence[int]
) -> frozenset[Pair]:
    """All unordered pairs of commands that can complete and that conflict."""
    before = reachable(predecessors, order)
    after = [0] * len(before)
    for number in reversed(order):
        for giver in predecessors[number]:
            after[giver] |= after[number] | 1 << number
    able = sum(1 << number for number in order)
    found = set()
    for first in order:
        others = able & ~before[first] & ~after[first] & -(2 << first)
        while others:
            second = (others & -others).bit_length() - 1
            others &= others - 1
            if conflict(operands[first], operands[second]):
                found.add((first, second))
    return frozenset(found)


def conflict(first: Operands, second: Operands) -> bool:
    """Return True if the commands touch a common byte that one of them writes."""
    pairs = [(a, b) for a in first.writes for b in (*second.reads, *second.writes)]
    pairs += [(a, b) for a in first.reads for b in second.writes]
    return any(a.space == b.space and _share(a, b) for a, b in pairs)


@lru_cache(maxsize=1 << 20)
def _share(first: Access, second: Access) -> bool:
    """Return True if two accesses of one memory have a byte in common."""
    (low, high) = intervals(first)
    (other_low, other_high) = intervals(second)
    if not low.size or not other_low.size or low[0] >= other_high[-1] or other_low[0] >= high[-1]:
        return False
    # Intervals are disjoint and ascending: the first that ends behind an interval's start must
    # begin behind its end.
    place = np.searchsorted(high, other_low, side="right")
    inside = place < len(low)
    return bool((low[place[inside]] < other_high[inside]).any())


@lru_cache(maxsize=1 << 16)
def intervals(access: Access) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the starts and ends of the disjoint half-open intervals of an access's bytes.

    They are in ascending order.
    """
    merged: list[list[int]] = []
    for low, high in sorted(set(access.runs())) if access.nbytes else ():
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    table = np.array(merged, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _all(item: Operands) -> tuple[Access, ...]:
    return (*item.reads, *item.writes)


def _leaves(access: Access, program: Program) -> bool:
    limit = program.arch.sram_bytes if access.space == "sram" else program.dram_bytes
    return bool(access.total) and (access.end > limit or access.total > 1 << 32)


def _without_outside(item: Operands, program: Program) -> Operands:
    reads, writes = (
        [a for a in side if a.total and not _leaves(a, program)]
        for side in (item.reads, item.writes)
    )
    return Operands(tuple(reads), tuple(writes))


def _contents(
    program: Program, operands: Sequence[Operands], order: Sequence[int]
) -> tuple[frozenset[int], int]:
    """Commands that read bytes without contents, and the number of such bytes in outputs."""
    ends = [a.end for item in operands for a in _all(item) if a.space == "sram"]
    memory = {
        "sram": np.zeros(max(ends, default=0), np.uint8),
        "dram": np.zeros(program.dram_bytes, np.uint8),
    }
    for tensor in program.inputs:
        memory["dram"][tensor.address : tensor.address + tensor.nbytes] = 1
    for segment in program.segments:
        memory["dram"][segment.address : segment.address + segment.data.size] = 1
    memory["dram"][program.command_address : program.command_address + 8 * len(program.words)] = 1
    unwritten = set()
    for number in order:
        for access in operands[number].reads:
            for low, high in zip(*intervals(access), strict=True):
                if memory[access.space][low:high].min() == 0:
                    unwritten.add(number)
                    memory[access.space][low:high] = 1
        for access in operands[number].writes:
            for low, high in zip(*intervals(access), strict=True):
                memory[access.space][low:high] = 1
    missing = sum(
        int((memory["dram"][t.address : t.address + t.nbytes] == 0).sum()) for t in program.outputs
    )
    return frozenset(unwritten), missing


def _over_itself(command: Command, item: Operands) -> bool:
    """Return True if a result byte replaces one that hardware may still have to read."""
    for write in item.writes:
        for position, read in enumerate(item.reads):
            if read.space != write.space or read.end <= write.address or write.end <= read.address:
                continue
            common, in_order = _overlap(write, read)
            streamed = position in command.instruction.streamed and in_order
            if (
                common
                and not streamed
                and not (position in command.instruction.replaced and read == write)
            ):
                return True
    return False


@lru_cache(maxsize=1 << 16)
def _overlap(write: Access, read: Access) -> tuple[bool, bool]:
    """Return whether two accesses share bytes, and whether each is read no later than written.

    The mutants of a program share most of its accesses, so the results are kept.
    """
    common = set(_bytes(write)) & set(_bytes(read))
    dense = not read.dims and not write.dims and read.total >= write.total
    in_order = dense and all(at - read.address <= at - write.address for at in common)
    return bool(common), in_order


def _bytes(access: Access) -> list[int]:
    return [byte for start, end in access.runs() for byte in range(start, end)]


def _overwrites(item: Operands, program: Program) -> bool:
    stores = [access for access in item.writes if access.space == "dram"]
    return any(_share(access, place) for access in stores for place in _kept(program))


@lru_cache(maxsize=16)
def _kept(program: Program) -> tuple[Access, ...]:
    """Bytes of system memory that no command may overwrite."""
    kept = [(program.command_address, 8 * len(program.words))]
    kept += [(segment.address, segment.data.size) for segment in program.segments]
    results = [Access("dram", tensor.address, tensor.nbytes) for tensor in program.outputs]
    for tensor in program.inputs:
        if not any(
            _share(Access("dram", tensor.address, tensor.nbytes), result) for result in results
        ):
            kept.append((tensor.address, tensor.nbytes))
    return tuple(Access("dram", address, size) for address, size in kept)


WORD_OPERANDS = {
    "OP_CONV": ("EX_CHANNEL_ADDRESS",),
    "OP_DEPTH_CONV": ("EX_CHANNEL_ADDRESS",),
    "OP_GROUP_CONV": ("EX_CHANNEL_ADDRESS",),
    "OP_MAT_MUL": ("EX_CHANNEL_ADDRESS",),
    "OP_REQUANT": ("EX_CHANNEL_ADDRESS", "EX_INPUT_ADDRESS"),
    "OP_E32_ADD": ("EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS"),
    "OP_E32_SHIFT": ("EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS"),
    "OP_SOFTMAX": ("EX_OPERAND_ADDRESS",),
    "OP_NORM": ("EX_OPERAND_ADDRESS",),
}
"""Registers that place words, by instruction.

For those with accumulators, which ``_misaligned`` adds, see there.
"""


def _misaligned(command: Command, program: Program) -> bool:
    names = list(WORD_OPERANDS.get(command.instruction.mnemonic, ()))
    if command.fields.get("requantise") == 0:
        names += [
            name for name in ("EX_OUTPUT_ADDRESS", "EX_OUTPUT_PLANE") if name in command.registers
        ]
    granule = min(4, program.arch.alignment)
    return any(command[name] % granule for name in names)
