"""Workload: everything about a program that its timing depends on, command by command; the input of every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.scratchpad import scratchpad_cycles
from dla_sim.engine.transfers import transfer
from dla_sim.timing import Timing
from isa.access import Access
from isa.arch import Arch
from isa.instruction import Command, Operands, Unit

LD, EX, ST = (unit.value for unit in (Unit.LD, Unit.EX, Unit.ST))

UNIT_NAMES = ("LD", "EX", "ST")

TOKEN_QUEUES: tuple[tuple[int, int], ...] = ((LD, EX), (EX, LD), (EX, ST), (ST, EX))
"""(pushing unit, popping unit) of each token counter, in the order of the counters' numbers."""


@dataclass(frozen=True)
class Cost:
    """One command's cycles. It takes ``lead``, then the data phase if ``slots`` > 0, then ``tail`` cycles.

    ``beats`` of the slots move data; ``latency`` cycles of lead and tail wait for the system memory and ``scratchpad``
    cycles for the scratchpad. ``pops`` and ``pushes`` are numbers of token counters, the previous unit's first.
    """

    unit: int
    word: int
    lead: int
    slots: int
    beats: int
    tail: int
    latency: int
    scratchpad: int
    pops: tuple[int, ...]
    pushes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Workload:
    """The commands of one program but for its ``OP_END``, as costs, and its command words as chunks."""

    timing: Timing
    costs: tuple[Cost, ...]
    word_count: int
    chunk_slots: tuple[int, ...]

    @cached_property
    def columns(self) -> dict[str, NDArray[np.int64]]:
        """The numeric fields of the costs as int64 arrays, one entry a command."""
        names = ("unit", "word", "lead", "slots", "beats", "tail", "latency", "scratchpad")
        return {name: np.array([getattr(cost, name) for cost in self.costs], dtype=np.int64) for name in names}

    @cached_property
    def by_unit(self) -> tuple[NDArray[np.int64], ...]:
        """The numbers of the commands of LD, EX and ST, in order."""
        unit = self.columns["unit"]
        return tuple(np.flatnonzero(unit == number) for number in (LD, EX, ST))

    @cached_property
    def pushing(self) -> tuple[NDArray[np.int64], ...]:
        """The numbers of the commands that push each token counter, in order."""
        return self._with_counter([cost.pushes for cost in self.costs])

    @cached_property
    def popping(self) -> tuple[NDArray[np.int64], ...]:
        """The numbers of the commands that pop each token counter, in order: the n-th pop takes the n-th push."""
        return self._with_counter([cost.pops for cost in self.costs])

    @staticmethod
    def _with_counter(counters: list[tuple[int, ...]]) -> tuple[NDArray[np.int64], ...]:
        queues = range(len(TOKEN_QUEUES))
        return tuple(np.array([i for i, c in enumerate(counters) if queue in c], dtype=np.int64) for queue in queues)


def workload(
    commands: Sequence[Command],
    operands: Sequence[Operands],
    arch: Arch,
    timing: Timing,
    word_count: int,
    command_address: int,
) -> Workload:
    """The workload of ``commands`` (without ``OP_END``) with their ``operands``; words lie at ``command_address``."""
    costs = tuple(
        command_cost(command, access, arch, timing) for command, access in zip(commands, operands, strict=True)
    )
    chunks = range(command_address, command_address + 8 * word_count, timing.fetch_bytes)
    end = command_address + 8 * word_count
    slots = tuple(transfer(Access("dram", at, min(timing.fetch_bytes, end - at)), timing)[0] for at in chunks)
    return Workload(timing, costs, word_count, slots)


def command_cost(command: Command, operands: Operands, arch: Arch, timing: Timing) -> Cost:
    """The cost of one command (docs/machine.md, section 5). A command that would take no cycle takes one."""
    unit = command.unit.value
    lead, slots, beats, tail, latency, scratchpad = 0, 0, 0, 0, 0, 0
    if command.instruction.unit is None:
        lead = timing.sync_cycles
    elif unit == EX:
        compute, scratchpad = scratchpad_cycles(command.instruction.cycles(command, arch), operands, arch, timing)
        lead = timing.ex_fill + compute + scratchpad + timing.ex_drain
    else:
        latency = timing.dram_latency
        slots, beats = transfer((operands.reads if unit == LD else operands.writes)[0], timing)
        lead = timing.dma_setup + (latency if unit == LD else 0)
        tail = timing.dma_drain + (latency if unit == ST else 0)
    if not lead + slots + tail:
        lead = 1
    return Cost(unit, command.index, lead, slots, beats, tail, latency, scratchpad, *_tokens(command))


def _tokens(command: Command) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Counters popped and pushed: those of the unit before this one first."""
    unit = command.unit.value
    pops = [(unit - 1, unit)] * command.pop_previous + [(unit + 1, unit)] * command.pop_next
    pushes = [(unit, unit - 1)] * command.push_previous + [(unit, unit + 1)] * command.push_next
    return tuple(map(TOKEN_QUEUES.index, pops)), tuple(map(TOKEN_QUEUES.index, pushes))
