"""Hazards: a command's writes must not overlap, in time and in address, any access of another executing command.

Commands of one unit never overlap in time. For those of two units a test of hulls, over whole arrays, leaves few pairs;
these are compared exactly, and the outcome, which does not depend on time, is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.times import CommandTimes
from isa.access import SPACE_NAMES, Access, overlap
from isa.errors import InputError
from isa.instruction import Command, Operands
from isa.program import Provenance

Int64 = NDArray[np.int64]

_UNIT_PAIRS = ((0, 1), (0, 2), (1, 2))
_SPACE_BIT = {"sram": 0, "dram": 1 << 40}


class HazardError(InputError):
    """Two executing commands collide in memory: a wait is missing. The message names both, the bytes and the layers."""


class Footprints:
    """What the commands of a program touch. ``members[u]`` are the commands of unit u that touch anything, in order."""

    def __init__(
        self, commands: Sequence[Command], operands: Sequence[Operands], sources: Sequence[Provenance | None]
    ) -> None:
        self._commands = commands
        self._operands = operands
        self._sources = sources
        writes = [[access for access in item.writes if access.total] for item in operands]
        reads = [[access for access in item.reads if access.total] for item in operands]
        self._writes = _hulls(writes)
        self._all = np.concatenate([self._writes, _hulls(reads)], axis=2)
        units = np.array([command.unit.value for command in commands], dtype=np.int64)
        touches = np.array([bool(w or r) for w, r in zip(writes, reads, strict=True)], dtype=np.bool_)
        self.members = tuple(np.flatnonzero((units == unit) & touches) for unit in range(3))
        self._known: dict[tuple[int, int], tuple[str, int, int] | None] = {}

    def check(self, times: CommandTimes) -> None:
        """Raises HazardError for the first pair, by unit and stream order, that collides under ``times``."""
        for first, second in _UNIT_PAIRS:
            left, right = _concurrent(self.members[first], self.members[second], times)
            suspicious = _touch(self._writes, self._all, left, right) | _touch(self._writes, self._all, right, left)
            for pair in np.flatnonzero(suspicious).tolist():
                self._check_pair(int(left[pair]), int(right[pair]), times)

    def _check_pair(self, one: int, other: int, times: CommandTimes) -> None:
        if (one, other) not in self._known:
            self._known[one, other] = _collision(self._operands[one], self._operands[other])
        found = self._known[one, other]
        if found is not None:
            space, low, high = found
            raise HazardError(
                f"{self._name(one, times)} and {self._name(other, times)} both access {space} bytes "
                f"{low:#x} to {high:#x} and one of them writes; a token between them is missing",
                words=(self._commands[one].index, self._commands[other].index),
            )

    def _name(self, number: int, times: CommandTimes) -> str:
        command, source = self._commands[number], self._sources[number]
        layer = f"layer '{source.layer}', " if source is not None else ""
        cycles = f"cycles {times.start[number]} to {times.end[number]}"
        return f"{command.instruction.mnemonic_for(command.fields)} at word {command.index} ({layer}{cycles})"


def _hulls(accesses: list[list[Access]]) -> Int64:
    """(2, commands, accesses): lowest byte and end of each hull; a high bit tells spaces apart, gaps are empty."""
    width = max((len(items) for items in accesses), default=0)
    hulls = np.zeros((2, len(accesses), width), dtype=np.int64)
    hulls[0] = 1 << 62
    for row, items in enumerate(accesses):
        for column, access in enumerate(items):
            base = _SPACE_BIT[access.space]
            hulls[:, row, column] = base + access.address, base + access.end
    return hulls


def _concurrent(left: Int64, right: Int64, times: CommandTimes) -> tuple[Int64, Int64]:
    """All pairs of a command of ``left`` and one of ``right``, each in time order, whose executions intersect."""
    first = np.searchsorted(times.end[right], times.start[left], side="right")
    last = np.searchsorted(times.start[right], times.end[left], side="left")
    counts = last - first
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(left, counts), right[np.repeat(first, counts) + offsets]


def _touch(writes: Int64, accesses: Int64, left: Int64, right: Int64) -> NDArray[np.bool_]:
    """Whether the hull of any write of ``left`` meets that of any access of ``right``, pair by pair."""
    found = np.zeros(len(left), dtype=np.bool_)
    for i in range(writes.shape[2]):
        low, high = writes[0, left, i], writes[1, left, i]
        for j in range(accesses.shape[2]):
            found |= (low < accesses[1, right, j]) & (accesses[0, right, j] < high)
    return found


def _collision(one: Operands, other: Operands) -> tuple[str, int, int] | None:
    """(memory, first byte, end) of an overlap of a write with any access of the other command, or None."""
    pairs = [(write, access) for write in one.writes for access in (*other.writes, *other.reads)]
    pairs += [(write, access) for write in other.writes for access in one.reads]
    for write, access in pairs:
        found = overlap(write, access) if write.total and access.total else None
        if found is not None:
            return SPACE_NAMES[write.space], *found
    return None
