"""Share system memory between intermediate tensors that are not in use at the same time.

Runs after the token flags are known. A tensor may take the bytes of another one only if the flags
already order all their accesses, so that no command waits longer. For that, ``last`` has how many
commands of each unit include all accesses of a tensor, and ``known`` how many are complete before
its first access.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from byoc.operators.layer import align
from isa.instruction import Operands, Unit
from isa.ops.dma import side_registers

ADDRESS_REGISTERS = frozenset(side_registers(unit, "dram")[0] for unit in (Unit.LD, Unit.ST))
"""Registers with an address in system memory."""
_ALIGNMENT = 64


class MovedBuffer(NamedTuple):
    """Buffer that moves from bytes ``start`` to ``end`` of system memory to byte ``target``."""

    start: int
    end: int
    target: int


def share_memory(
    commands: Iterable[tuple[int, list[int], Operands]], buffers: Sequence[tuple[int, int]]
) -> tuple[MovedBuffer, ...]:
    """Return new places of intermediate buffers, in order of their old addresses.

    Args:
        commands: unit, clock (:mod:`byoc.emission.emit`) and operands of each command in order.
        buffers: first and last byte + 1 of each buffer, rising.
    """
    starts = [start for start, _ in buffers]
    seen: set[tuple[int, int]] = set()
    known = np.full((len(buffers), len(Unit)), np.iinfo(np.int64).max)
    last = np.zeros_like(known)
    for unit, clock, operands in commands:
        for access in (*operands.reads, *operands.writes):
            number = bisect(starts, access.address) - 1
            if access.space != "dram" or number < 0 or access.address >= buffers[number][1]:
                continue
            if (number, unit) not in seen:
                seen.add((number, unit))
                before = [count - (other == unit) for other, count in enumerate(clock)]
                known[number] = np.minimum(known[number], before)
            last[number, unit] = clock[unit]
    used = {number for number, _ in seen}
    order = sorted(used, key=lambda one: buffers[one][0] - buffers[one][1])
    targets: list[int] = []
    for number in order:
        start, end = buffers[number]
        others = np.array(order[: len(targets)], np.int64)
        precede = (last[others] <= known[number]).all(axis=1)
        follow = (last[number] <= known[others]).all(axis=1)
        target = starts[0]
        for place in sorted(np.flatnonzero(~(precede | follow)).tolist(), key=targets.__getitem__):
            begin, until = buffers[order[place]]
            if target + end - start <= targets[place]:
                break
            target = max(target, align(targets[place] + until - begin, _ALIGNMENT))
        targets.append(target)
    moves = zip(order, targets, strict=True)
    return tuple(MovedBuffer(*buffers[number], target) for number, target in sorted(moves))


def move_address(address: int, moves: Sequence[MovedBuffer]) -> int:
    """Return the new address of a byte of system memory; ``moves`` are in order."""
    number = bisect(moves, address, key=lambda one: one.start) - 1
    if number < 0 or address >= moves[number].end:
        return address
    return address - moves[number].start + moves[number].target
