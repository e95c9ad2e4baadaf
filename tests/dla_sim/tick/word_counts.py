"""Cycles and words that a command of EX takes, and the helpers with which they are counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from isa.arch import Arch
from isa.instruction import Command

TABLE = 256
"""Bytes of a look-up table."""


@dataclass
class Counted:
    """Compute cycles of a command, and the words of each requester in the order of its operands."""

    cycles: int = 0
    words: dict[str, int] = field(default_factory=dict)

    def add(self, requester: str, words: int) -> None:
        """Add ``words`` to those of a requester."""
        self.words[requester] = self.words.get(requester, 0) + words


def words_of(nbytes: int, arch: Arch) -> int:
    """Return the words that ``nbytes`` bytes touch, which begin with a word."""
    assert arch.words is not None
    return (nbytes + arch.words.word - 1) // arch.words.word


def split_range(size: int, step: int) -> list[list[int]]:
    """Split 0 to ``size`` - 1 into lists of ``step`` numbers; the last one may be shorter."""
    return [list(range(first, min(first + step, size))) for first in range(0, size, step)]


def count_atoms(channels: int, arch: Arch) -> int:
    assert arch.words is not None
    return len(split_range(channels, arch.words.atom))


def count_tables(command: Command) -> int:
    """Return the number of tables that a command looks up as its last step."""
    return [0, 1, command.registers.get("EX_OUTPUT_CHANNELS", 1)][command.fields.get("look_up", 0)]


def lane_cycles(command: Command, results: int, arch: Arch) -> int:
    """Return the cycles of the lanes behind the array, L results a cycle; 0 if they do nothing."""
    fields = command.fields
    if not (fields.get("requantise") or fields.get("accumulate") or fields.get("look_up")):
        return 0
    return len(split_range(results, arch.lanes))


def add_lanes_and_tables(
    counted: Counted, first: int, behind: int, command: Command, arch: Arch, events: Counter[str]
) -> Counted:
    """Add the first weights, the lanes behind the array and the tables to ``counted``."""
    events["words: the lanes take longer than the array"] += behind > counted.cycles
    counted.cycles = first + max(counted.cycles, behind)
    results = counted.words.pop("results")
    if count_tables(command):
        counted.add("tables", words_of(TABLE * count_tables(command), arch))
    counted.add("results", results)
    return counted
