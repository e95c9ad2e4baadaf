"""Happens-before: what is surely complete when a command starts, whatever the latencies and queue depths.

Two things order commands: each unit executes one after another, and a pop waits for the completion of the command
that pushes its token. Their order in the stream says only when they enter their queues. A vector clock counts, for each
unit, its commands that are complete; as each unit is in order, a count names a set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isa.instruction import Command
from isa.sanitizer.tokens import MISSING

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Order:
    """Happens-before of the commands that can complete (with queues of any depth).

    ``linear`` has them in an order that respects it, the stream's where that is legal. ``unit`` and ``ordinal`` (from
    1) give every command's place in its unit's queue; ``known[i, u]`` is the number of commands of unit u that are
    complete when command i starts. ``members[u]`` are the commands of unit u that can complete, in order.
    """

    linear: tuple[int, ...]
    unit: Int64
    ordinal: Int64
    known: Int64
    members: tuple[Int64, ...]

    def before(self, first: int, second: int) -> bool:
        """Whether ``first`` is complete when ``second`` starts; both must be among those that can complete."""
        return bool(self.known[second, self.unit[first]] >= self.ordinal[first])


def happens_before(commands: Sequence[Command], givers: Sequence[Sequence[int]]) -> Order:
    """The order of ``commands`` with the givers of the tokens that each one pops."""
    units = [command.unit.value for command in commands]
    queues: tuple[list[int], ...] = ([], [], [])
    ordinal = [0] * len(units)
    for number, unit in enumerate(units):
        queues[unit].append(number)
        ordinal[number] = len(queues[unit])
    known = [[0, 0, 0] for _ in units]
    linear = _complete(queues, ordinal, givers, known)
    done = [sum(1 for number in linear if units[number] == unit) for unit in range(3)]
    members = tuple(np.array(queue[:count], dtype=np.int64) for queue, count in zip(queues, done, strict=True))
    table = np.array(known, dtype=np.int64).reshape(-1, 3)
    return Order(tuple(linear), np.array(units, np.int64), np.array(ordinal, np.int64), table, members)


def _complete(
    queues: Sequence[Sequence[int]], ordinal: Sequence[int], givers: Sequence[Sequence[int]], known: list[list[int]]
) -> list[int]:
    """Complete what can complete, first in the stream first; fills in the clocks ``known``."""
    linear: list[int] = []
    heads = [0, 0, 0]
    finished: dict[int, list[int]] = {}  # clock at completion
    current = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]
    while True:
        ready = [
            (queue[head], unit)
            for unit, (queue, head) in enumerate(zip(queues, heads, strict=True))
            if head < len(queue) and all(giver != MISSING and giver in finished for giver in givers[queue[head]])
        ]
        if not ready:
            return linear
        number, unit = min(ready)
        clock = current[unit]
        for giver in givers[number]:
            clock = [max(pair) for pair in zip(clock, finished[giver], strict=True)]
        known[number] = clock
        finished[number] = current[unit] = [*clock[:unit], ordinal[number], *clock[unit + 1 :]]
        heads[unit] += 1
        linear.append(number)
