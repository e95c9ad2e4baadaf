"""Happens-before: what is surely complete when a command starts, whatever the latencies and queue depths; and races.

Two things order commands: each unit executes one after another, and a pop waits for the completion of the command
that pushes its token. Their order in the stream says only when they enter their queues. A vector clock counts, for each
unit, its commands that are complete; as each unit is in order, a count names a set.

A race: two commands of different units touch a common byte, one of them writes it, and nothing orders them. Clocks only
grow along a unit, so what a command is unordered with is a run of neighbours in every other unit's queue. Pairs from
these runs are tested by hulls, over whole arrays, and exactly where the hulls meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isa.access import Access, Hulls, Range, overlap
from isa.instruction import Command, Operands
from isa.sanitizer.findings import Finding, Kind, Stream, ranges_text
from isa.sanitizer.tokens import MISSING

Int64 = NDArray[np.int64]
_PAIRS_AT_ONCE = 1 << 20
_UNIT_PAIRS = ((0, 1), (0, 2), (1, 2))
_SIDES: tuple[tuple[Kind, str, str, str], ...] = (
    ("read-after-write race", "writes", "reads", "reads {} that {} writes"),
    ("write-after-read race", "reads", "writes", "writes {} that {} reads"),
    ("write-after-write race", "writes", "writes", "writes {} that {} writes too"),
)
"""Kind, what the earlier command does, what the later one does, and how to say it of the later one."""


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


def check_races(stream: Stream, operands: Sequence[Operands], order: Order) -> list[Finding]:
    """All races but those that end with another: order the pairs reported, and every pair is ordered.

    Of two racing pairs of one kind and the same units, one whose commands lie both inside the other's is left out.
    """
    hulls = Hulls([item.reads for item in operands], [item.writes for item in operands])
    suspects: list[tuple[int, int]] = []
    for first, second in _UNIT_PAIRS:
        for left, right in _unordered(order, first, second):
            hit = hulls.meet(left, right)
            suspects += zip(left[hit].tolist(), right[hit].tolist(), strict=True)
    latest: dict[tuple[Kind, int, int], int] = {}
    findings = []
    pairs = sorted(((min(pair), max(pair)) for pair in suspects), key=lambda pair: (pair[1], -pair[0]))
    for early, late in pairs:
        for kind, before, after, words in _SIDES:
            queue = kind, int(order.unit[early]), int(order.unit[late])
            if latest.get(queue, -1) >= early:
                continue
            found = _first_overlap(getattr(operands[early], before), getattr(operands[late], after))
            if found is not None:
                latest[queue] = early
                findings.append(_race(stream, kind, words, early, late, *found))
    return findings


def _unordered(order: Order, first: int, second: int) -> Iterator[tuple[Int64, Int64]]:
    """All unordered pairs of commands of two units, in pieces."""
    left, right = order.members[first], order.members[second]
    low = order.known[left, second]  # the commands of `second` complete before each of `left` starts
    high = np.searchsorted(order.known[right, first], np.arange(1, len(left) + 1), side="left")  # those it precedes
    counts = high - low
    ends = np.cumsum(counts)
    start = 0
    while start < len(left):
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] + _PAIRS_AT_ONCE, side="right")))
        part = counts[start:stop]
        offsets = np.arange(part.sum()) - np.repeat(np.cumsum(part) - part, part)
        yield np.repeat(left[start:stop], part), right[np.repeat(low[start:stop], part) + offsets]
        start = stop


def _first_overlap(early: Sequence[Access], late: Sequence[Access]) -> tuple[Access, Range] | None:
    for access in early:
        for other in late:
            found = overlap(access, other)
            if found is not None:
                return access, found
    return None


def _race(stream: Stream, kind: Kind, words: str, early: int, late: int, access: Access, found: Range) -> Finding:
    one, other = stream.site(early), stream.site(late)
    bytes_text = ranges_text(access.space, [found])
    message = f"{other} {words.format(bytes_text, one)}; neither waits for the other"
    return Finding(kind, message, (one, other), access.space, (found,))
