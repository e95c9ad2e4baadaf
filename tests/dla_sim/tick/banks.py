"""The banks of a scratchpad of words, cycle by cycle: docs/machine.md, section 12."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from isa.arch import Arch
from isa.instruction import Command
from tests.dla_sim.tick.scripts import SHARED_PORT, touched_words, words_by_bank


@dataclass
class Passing:
    """A transfer: with each slot the accumulator grows by its words.

    Where it reaches its slots, a word passes.
    """

    words: int
    slots: int
    banks: range
    accumulator: int

    def word_passes(self) -> bool:
        """A slot is granted."""
        self.accumulator += self.words
        passes = self.accumulator >= self.slots
        self.accumulator -= self.slots * passes
        return passes


@dataclass
class BankState:
    """Words that banks and the shared port must still serve to EX, and transfers of LD and ST.

    ``passed`` has the cycles in which a word of LD or ST passed, and the banks that it took.
    """

    arch: Arch
    events: Counter[str]
    left: dict[int | str, Counter[str]] = field(default_factory=dict)
    passing: dict[str, Passing] = field(default_factory=dict)
    passed: dict[int, range] = field(default_factory=dict)
    waited: bool = False
    delayed: bool = False

    def start(self, command: Command, slots: int) -> None:
        """A command starts; ``slots`` are those of its data phase."""
        unit = command.unit.name
        if unit == "EX":
            self.left = words_by_bank(command, self.arch)
            self.events["words: EX command of operands in several banks"] += len(self.left) > 2
            self.waited = self.delayed = False
        elif slots:
            words, banks = touched_words(command, self.arch)
            self.passing[unit] = Passing(words, slots, banks, slots - 1 if unit == "ST" else 0)

    def taken(self, granted: str | None, cycle: int) -> range:
        """The banks that a word of the unit that is granted this cycle's slot takes."""
        transfer = self.passing.get(granted or "")
        if not transfer or not transfer.word_passes():
            return range(0)
        self.passed[cycle] = transfer.banks
        return transfer.banks

    def serve(self, taken: range) -> None:
        """Serve a compute cycle: every bank that LD and ST leave serves a word.

        So does the shared port.
        """
        for number, words in self.left.items():
            if number in taken:
                self.delayed |= words.total() > 0
            elif name := next((name for name in words if words[name]), None):
                words[name] -= 1

    def waits(self) -> bool:
        """The array has had its cycles: EX waits while words are left."""
        waiting = [number for number, words in self.left.items() if words.total()]
        if waiting and not self.waited:
            for number in waiting:
                self._count(number)
            self.waited = True
        elif not waiting:
            self.events["EX command not bound by the scratchpad"] += not self.waited
            self.events["words: EX command delayed by LD or ST"] += self.waited and self.delayed
        return bool(waiting)

    def _count(self, number: int | str) -> None:
        if number == SHARED_PORT:
            self.events["words: EX command bound by the port of records, sums and tables"] += 1
            return
        bank = self.left[number]
        self.events.update(f"words: EX command bound by a bank with {name}" for name in bank)
        self.events[
            f"words: EX command bound by a bank with {'one' if len(bank) == 1 else 'several'}"
        ] += 1
