"""What of a program depends neither on data nor on Timing, worked out once: commands, bytes, demands, labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.accounts import Labels, label
from dla_sim.engine.times import CommandTimes
from dla_sim.engine.workload import Demands, crowds, demands
from dla_sim.memory import check_addresses, highest_byte
from isa.access import SPACE_NAMES, Hulls, Range, overlap
from isa.errors import InputError
from isa.instruction import Command, Operands, overwritten
from isa.program import Program, Provenance

# Hazards -------------------------------------------------------------------------------------------------------------
# A command's writes must not overlap, in time and in address, any access of another executing command, nor
# those operands of its own that it may still have to read (docs/machine.md, section 5).
#
# Commands of one unit never overlap in time. For those of two units a test of hulls, over whole arrays, leaves few
# pairs; these are compared exactly, and the outcome, which does not depend on time, is remembered.

Int64 = NDArray[np.int64]

_UNIT_PAIRS = ((0, 1), (0, 2), (1, 2))


class HazardError(InputError):
    """Two executing commands collide in memory, a wait is missing; or one does with itself. The message names commands,
    bytes and layers.
    """


class Footprints:
    """What the commands of a program touch. ``members[u]`` are the commands of unit u that touch anything, in order."""

    def __init__(
        self, commands: Sequence[Command], operands: Sequence[Operands], sources: Sequence[Provenance | None]
    ) -> None:
        self._commands = commands
        self._operands = operands
        self._sources = sources
        self._hulls = Hulls([item.reads for item in operands], [item.writes for item in operands])
        units = np.array([command.unit.value for command in commands], dtype=np.int64)
        touching = (any(access.total for access in (*item.reads, *item.writes)) for item in operands)
        touches = np.fromiter(touching, dtype=np.bool_, count=len(operands))
        self.members = tuple(np.flatnonzero((units == unit) & touches) for unit in range(3))
        self._known: dict[tuple[int, int], tuple[str, int, int] | None] = {}

    def check(self, times: CommandTimes) -> None:
        """Raises HazardError for the first command that collides with itself, then for the first pair, by unit and
        stream order, that collides under ``times``.
        """
        if self._alone is not None:
            number, (low, high) = self._alone
            raise HazardError(
                f"{self._name(number, times)} writes scratchpad bytes {low:#x} to {high:#x} over an operand of its own "
                "that it may still have to read (docs/machine.md, section 5)",
                words=(self._commands[number].index,),
            )
        for first, second in _UNIT_PAIRS:
            left, right = _concurrent(self.members[first], self.members[second], times)
            for pair in self._hulls.meet(left, right).tolist():
                self._check_pair(int(left[pair]), int(right[pair]), times)

    @cached_property
    def _alone(self) -> tuple[int, Range] | None:
        """The first command that collides with itself, and where."""
        for number, (command, item) in enumerate(zip(self._commands, self._operands, strict=True)):
            found = overwritten(command, item)
            if found is not None:
                return number, found
        return None

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


def _concurrent(left: Int64, right: Int64, times: CommandTimes) -> tuple[Int64, Int64]:
    """All pairs of a command of ``left`` and one of ``right``, each in time order, whose executions intersect."""
    first = np.searchsorted(times.end[right], times.start[left], side="right")
    last = np.searchsorted(times.start[right], times.end[left], side="left")
    counts = last - first
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(left, counts), right[np.repeat(first, counts) + offsets]


def _collision(one: Operands, other: Operands) -> tuple[str, int, int] | None:
    """(memory, first byte, end) of an overlap of a write with any access of the other command, or None."""
    pairs = [(write, access) for write in one.writes for access in (*other.writes, *other.reads)]
    pairs += [(write, access) for write in other.writes for access in one.reads]
    for write, access in pairs:
        found = overlap(write, access) if write.total and access.total else None
        if found is not None:
            return SPACE_NAMES[write.space], *found
    return None


@dataclass(frozen=True, eq=False)
class Prepared:
    """A program ready to be timed, without the program. All that has an entry a command is without ``OP_END``."""

    commands: tuple[Command, ...]
    sources: tuple[Provenance | None, ...]
    operands: tuple[Operands, ...]
    demands: Demands
    labels: Labels
    footprints: Footprints
    sram_peak_bytes: int


def prepare(program: Program) -> Prepared:
    """Decode ``program``, check its addresses and work out what its commands demand, touch and are.

    Raises InputError for illegal words, addresses outside the memories and unknown kinds.
    """
    commands, sources = program.commands[:-1], program.sources[:-1]
    operands = tuple(command.instruction.operands(command, program.arch) for command in commands)
    check_addresses(program, commands, operands)
    return Prepared(
        commands,
        sources,
        operands,
        demands(commands, operands, program),
        label(commands, operands, sources),
        Footprints(commands, operands, sources),
        highest_byte(operands, "sram"),
    )


def resized(prepared: Prepared, program: Program) -> Prepared:
    """``program`` prepared; ``prepared`` is of one that differs from it in the size of the scratchpad alone.

    What takes time to work out is shared, all of it where the same operands share banks. Raises InputError as
    :func:`prepare` does.
    """
    check_addresses(program, prepared.commands, prepared.operands)
    crowd = crowds(prepared.commands, prepared.operands, program.arch)
    if np.array_equal(crowd, prepared.demands.crowd):
        return prepared
    return replace(prepared, demands=replace(prepared.demands, crowd=crowd))
