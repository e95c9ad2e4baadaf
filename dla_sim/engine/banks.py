"""Banks of a banked scratchpad: LD and ST have priority, EX gets the remaining cycles.

The rules are in docs/machine.md, section 12. The words of a transfer are spread evenly over its
slots. The cycles that remain for EX therefore follow in closed form from the granted slots between
two changes in the set of bus requesters.
"""

from dataclasses import dataclass
from typing import Protocol

from dla_sim.memory import Hull


@dataclass(frozen=True, slots=True)
class PassingWords:
    """Words that a transfer moves through the banks ``first`` to ``last`` during its slots.

    Attributes:
        first: first bank.
        last: last bank.
        words: number of words.
        slots: number of slots.
        ahead: 0 for LD, whose words pass with the last slot of their share; ``slots`` - 1 for ST,
            whose words pass with the first.
    """

    first: int
    last: int
    words: int
    slots: int
    ahead: int

    def count_passed(self, granted: int) -> int:
        """Return how many words a transfer has moved after its first ``granted`` bus slots."""
        return (granted * self.words + self.ahead) // self.slots


@dataclass(frozen=True, slots=True)
class BankLoad:
    """Load of an EX command on the scratchpad banks, where LD and ST may delay it.

    ``cycles`` is the minimum between fill and drain; ``words`` lists (bank, words) of the banks
    where LD and ST may delay it.
    """

    cycles: int
    words: tuple[tuple[int, int], ...]


class Grants(Protocol):
    """Interface of a bus arbiter: the number of slots that each requester receives.

    ``now`` is the cycle up to which slots are granted; ``left`` is the number of slots that each
    requester still needs.
    """

    now: int
    left: list[int]

    def count_granted(self, requester: int, time: int) -> int:
        """Return the slots that a requester receives from ``now`` to ``time``.

        The set of requesters must stay the same in these cycles.
        """


class Banks:
    """Banks of one machine; ``busy`` is True while EX still needs cycles."""

    __slots__ = ("_arbiter", "_least", "_left", "_passed", "_passing", "_time", "busy")

    def __init__(self, arbiter: Grants) -> None:
        self._arbiter = arbiter
        self._passing: dict[int, PassingWords] = {}  # latest transfer of each requester
        self._passed: dict[int, int] = {}
        self._left: dict[int, int] = {}  # cycles of each bank that EX needs from cycle _time on
        self._time = self._least = 0
        self.busy = False

    def begin(self, requester: int, passing: PassingWords) -> None:
        """Record that ``requester`` starts to transfer data in this cycle."""
        self._passing[requester] = passing
        self._passed[requester] = 0

    def compute(self, load: BankLoad) -> None:
        """Record that an EX command starts to compute in this cycle."""
        self.busy = True
        self._time = self._arbiter.now
        self._least = self._time + load.cycles
        self._left = dict(load.words)
        self._count()

    def settle(self) -> None:
        """Subtract the cycles that EX has computed until now from the cycles it still needs.

        It must be called before the set of requesters changes.
        """
        if self.busy:
            cycles = self._arbiter.now - self._time
            self._time += cycles
            taken = self._count()
            for bank in self._left:
                self._left[bank] += (
                    sum([words for first, last, words in taken if first <= bank <= last]) - cycles
                )

    def _count(self) -> list[Hull]:
        """Return the words that transfers have moved since the last call, by range of banks."""
        found = []
        for requester, passing in self._passing.items():
            passed = passing.count_passed(passing.slots - self._arbiter.left[requester])
            found.append((passing.first, passing.last, passed - self._passed[requester]))
            self._passed[requester] = passed
        return found

    def end(self) -> int:
        """Return the cycle in which EX finishes if the set of requesters does not change.

        The banks must be settled and busy.
        """
        end = max(self._least, self._time)
        for bank, left in self._left.items():
            while (needed := self._time + left + self._count_taken(bank, end)) > end:
                end = needed
        return end

    def _count_taken(self, bank: int, time: int) -> int:
        """Return the cycles of a bank that LD and ST take from now to ``time``."""
        taken = 0
        for requester, passing in self._passing.items():
            left = self._arbiter.left[requester]
            if left and passing.first <= bank <= passing.last:
                still = max(0, left - self._arbiter.count_granted(requester, time))
                taken += passing.count_passed(passing.slots - still) - self._passed[requester]
        return taken
