"""The banks of a scratchpad of words: LD and ST come first, EX has the cycles that they leave.

docs/machine.md, section 12. Words of a transfer pass evenly in its slots, so that what EX has left follows from the
slots granted: in closed form between two changes in the set of requesters of the bus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dla_sim.memory import Hull


@dataclass(frozen=True, slots=True)
class PassingWords:
    """The ``words`` that pass in the ``slots`` of a transfer, each in one of the banks ``first`` to ``last``.

    ``ahead`` is 0 for LD, whose words pass with the last slot of their share, and ``slots`` - 1 for ST, whose words
    pass with the first.
    """

    first: int
    last: int
    words: int
    slots: int
    ahead: int

    def passed(self, granted: int) -> int:
        """Words that have passed with the first ``granted`` slots."""
        return (granted * self.words + self.ahead) // self.slots


@dataclass(frozen=True, slots=True)
class BankLoad:
    """A command of EX: the least ``cycles`` between fill and drain, and (bank, words) where LD and ST may delay it."""

    cycles: int
    words: tuple[tuple[int, int], ...]


class Grants(Protocol):
    """The arbiter of a bus: slots are granted up to cycle ``now``, ``left`` are those that each requester needs."""

    now: int
    left: list[int]

    def granted(self, requester: int, time: int) -> int:
        """Slots of a requester in its data phase from ``now`` to ``time`` if the set of requesters does not change."""


class Banks:
    """The banks of one machine. ``busy``: EX has not had all its cycles yet."""

    __slots__ = ("_arbiter", "_least", "_left", "_passed", "_passing", "_time", "busy")

    def __init__(self, arbiter: Grants) -> None:
        self._arbiter = arbiter
        self._passing: dict[int, PassingWords] = {}  # the latest transfer of each requester
        self._passed: dict[int, int] = {}
        self._left: dict[int, int] = {}  # cycles of each bank that EX needs from cycle _time on
        self._time = self._least = 0
        self.busy = False

    def begin(self, requester: int, passing: PassingWords) -> None:
        """A data phase begins now."""
        self._passing[requester] = passing
        self._passed[requester] = 0

    def compute(self, load: BankLoad) -> None:
        """The first compute cycle of a command of EX is now."""
        self.busy = True
        self._time = self._arbiter.now
        self._least = self._time + load.cycles
        self._left = dict(load.words)
        self._count()

    def settle(self) -> None:
        """Take off what EX has had up to now. Must be called before the set of requesters changes."""
        if self.busy:
            cycles = self._arbiter.now - self._time
            self._time += cycles
            taken = self._count()
            for bank in self._left:
                self._left[bank] += sum([words for first, last, words in taken if first <= bank <= last]) - cycles

    def _count(self) -> list[Hull]:
        """The words that have passed since the last count."""
        found = []
        for requester, passing in self._passing.items():
            passed = passing.passed(passing.slots - self._arbiter.left[requester])
            found.append((passing.first, passing.last, passed - self._passed[requester]))
            self._passed[requester] = passed
        return found

    def end(self) -> int:
        """The cycle in which EX has had all its cycles if the set of requesters does not change; settled, and busy."""
        end = max(self._least, self._time)
        for bank, left in self._left.items():
            while (needed := self._time + left + self._taken(bank, end)) > end:
                end = needed
        return end

    def _taken(self, bank: int, time: int) -> int:
        """Cycles of a bank that LD and ST take from now to ``time``."""
        taken = 0
        for requester, passing in self._passing.items():
            left = self._arbiter.left[requester]
            if left and passing.first <= bank <= passing.last:
                still = max(0, left - self._arbiter.granted(requester, time))
                taken += passing.passed(passing.slots - still) - self._passed[requester]
        return taken
