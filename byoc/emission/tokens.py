"""Token flags, derived from nothing but overlapping byte ranges of commands on different units.

Each unit is in order. ``clock`` of a command: for each unit, how many of its commands are surely complete when this one
completes. A command waits for another exactly when its unit's clock does not cover that one yet; the pairs of one queue
then come in the same order on both sides, so that counting tokens suffices. LD and ST are no neighbours: what one waits
for on the other goes through a command of EX that waits for it anyway, or through an inserted ``OP_SYNC``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isa.access import Access, touch
from isa.instruction import Operands, Unit

LD, EX, ST = Unit.LD.value, Unit.EX.value, Unit.ST.value


@dataclass(eq=False, slots=True)
class Ordered:
    """A command in stream order with its token flags. ``index`` is its position in the input, None for an OP_SYNC.

    ``serves`` is the position of the command that an OP_SYNC was inserted for.
    """

    index: int | None
    unit: int
    serves: int
    pop_previous: int = 0
    pop_next: int = 0
    push_previous: int = 0
    push_next: int = 0
    clock: list[int] = field(default_factory=list)


def derive_tokens(units: Sequence[Unit], operands: Sequence[Operands], strict: bool = False) -> tuple[Ordered, ...]:
    """The commands with their flags, OP_SYNCs inserted. ``strict``: every command also waits for the one before it."""
    state = _State()
    previous: Ordered | None = None
    for index, (unit, accesses) in enumerate(zip(units, operands, strict=True)):
        item, touched = Ordered(index, unit.value, index), _touched(accesses)
        if strict:
            needs = [0, 0, 0]
            if previous is not None:
                needs[previous.unit] = previous.clock[previous.unit]
        else:
            needs = state.needs(unit.value, touched)
        state.issue(item, needs)
        state.remember(unit.value, touched)
        previous = item
    return tuple(state.stream)


class _State:
    """What every unit's next command knows, and what all commands so far have touched."""

    def __init__(self) -> None:
        self.stream: list[Ordered] = []
        self.known = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]
        self._issued: tuple[list[Ordered], ...] = ([], [], [])
        self._touched: tuple[list[tuple[int, _Touched]], ...] = ([], [], [])

    def needs(self, unit: int, touched: _Touched) -> list[int]:
        """For each unit the number of its commands that must be complete before a command with these accesses."""
        needs = [0, 0, 0]
        for other in (LD, EX, ST):
            if other != unit:
                needs[other] = self._latest_conflict(other, self.known[unit][other], touched)
        return needs

    def _latest_conflict(self, other: int, known: int, touched: _Touched) -> int:
        for ordinal, candidate in reversed(self._touched[other]):
            if ordinal <= known:
                return 0
            if _meet(candidate, touched):
                return ordinal
        return 0

    def remember(self, unit: int, touched: _Touched) -> None:
        """Record the accesses of the command that was issued last on ``unit``."""
        self._touched[unit].append((len(self._issued[unit]), touched))

    def issue(self, item: Ordered, needs: list[int]) -> None:
        """Append a command that waits for ``needs``."""
        unit = item.unit
        if unit == EX:
            for other in (LD, ST):
                self._wait(item, other, needs[other])
        else:
            far = ST if unit == LD else LD
            self._wait(item, EX, max(needs[EX], self._through_ex(item, needs[EX], far, needs[far])))
        issued = self._issued[unit]
        clock = self.known[unit]
        clock[unit] = len(issued) + 1
        item.clock = list(clock)
        issued.append(item)
        self.stream.append(item)

    def _through_ex(self, item: Ordered, near: int, far: int, needed: int) -> int:
        """The number of EX commands after which ``needed`` commands of unit ``far`` are complete too."""
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
"""Bytes around an access, those of system memory far above, and the access: most pairs are told apart by the hulls."""
_BASES = {"sram": 0, "dram": 1 << 60}


class _Touched(NamedTuple):
    """The accesses of one command."""

    reads: list[_Hull]
    writes: list[_Hull]


def _touched(operands: Operands) -> _Touched:
    return _Touched(_hulls(operands.reads), _hulls(operands.writes))


def _hulls(accesses: Sequence[Access]) -> list[_Hull]:
    return [(_BASES[one.space] + one.address, _BASES[one.space] + one.end, one) for one in accesses]


def conflicts(first: Operands, second: Operands) -> bool:
    """Whether two commands touch a common byte that at least one of them writes."""
    return _meet(_touched(first), _touched(second))


def _meet(first: _Touched, second: _Touched) -> bool:
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
