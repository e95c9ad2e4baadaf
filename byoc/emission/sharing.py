"""Share system memory between intermediate tensors that are not in use at the same time.

Runs after the token flags are known. A tensor may take the bytes of another one only if the flags
already order all their accesses, so that no command waits longer. For that, ``last`` has how many
commands of each unit include all accesses of a tensor, and ``known`` how many are complete before
its first access.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from byoc.operators.layer import align
from isa.instruction import Operands, Unit
from isa.ops.dma import side_registers

ADDRESS_REGISTERS = frozenset(side_registers(unit, "dram")[0] for unit in (Unit.LD, Unit.ST))
"""Registers with an address in system memory."""
_ALIGNMENT = 64


def share_memory(
    commands: Iterable[tuple[int, list[int], Operands]], buffers: Sequence[tuple[int, int]]
) -> Callable[[int], int]:
    """Return a function that moves an address in system memory to its buffer's new place.

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
            target = max(target, align(targets[other] + sizes[other], _ALIGNMENT))
        targets[number] = target

    def move(address: int) -> int:
        number = bisect(starts, address) - 1
        if number < 0 or address >= buffers[number][1]:
            return address
        return address - starts[number] + targets[number]

    return move
