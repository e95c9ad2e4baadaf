"""Workload: everything that a program's timing depends on, command by command; the input of every engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.demands import EX, LD, ST, TOKEN_QUEUES, UNIT_NAMES, Demands
from dla_sim.engine.transfers import row_slots
from dla_sim.timing import Timing

__all__ = ["EX", "LD", "ST", "TOKEN_QUEUES", "UNIT_NAMES", "Cost", "Demands", "Workload"]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cost:
    """One command's cycles. It takes ``lead``, then the data phase if ``slots`` > 0, then ``tail`` cycles.

    ``pops`` and ``pushes`` are numbers of token counters, the previous unit's first.
    """

    unit: int
    word: int
    lead: int
    slots: int
    tail: int
    pops: tuple[int, ...]
    pushes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Workload:
    """A program's demands under a Timing."""

    demands: Demands
    timing: Timing

    def __len__(self) -> int:
        """Number of commands, without ``OP_END``."""
        return len(self.demands.unit)

    @property
    def word_count(self) -> int:
        """Number of command words."""
        return self.demands.word_count

    @cached_property
    def columns(self) -> dict[str, Int64]:
        """Cycles of each command, as int64 arrays (docs/machine.md, section 5).

        ``lead``, ``slots``, ``tail`` as in :class:`Cost`; ``beats`` of the slots move data; ``latency`` cycles of lead
        and tail wait for the system memory and ``scratchpad`` cycles for the scratchpad.
        """
        demands, timing = self.demands, self.timing
        scratchpad = _scratchpad_cycles(demands.compute, demands.crowd, demands.reads, demands.writes, timing)
        lead = demands.compute + scratchpad + (timing.ex_fill + timing.ex_drain)
        lead[demands.sync] = timing.sync_cycles
        tail, slots, beats, latency = (np.zeros_like(lead) for _ in range(4))
        moving = demands.moving
        loading = demands.unit[moving] == LD
        latency[moving] = timing.dram_latency
        lead[moving] = timing.dma_setup + timing.dram_latency * loading
        tail[moving] = timing.dma_drain + timing.dram_latency * ~loading
        slots[moving], beats[moving] = demands.transfers.cost(timing)
        lead[lead + slots + tail == 0] = 1
        names = ("lead", "slots", "beats", "tail", "latency", "scratchpad")
        return dict(zip(names, (lead, slots, beats, tail, latency, scratchpad), strict=True))

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The same command by command."""
        demands, columns = self.demands, self.columns
        numbers = (demands.unit, demands.word, columns["lead"], columns["slots"], columns["tail"])
        lists = (column.tolist() for column in numbers)
        return tuple(map(Cost, *lists, demands.pops, demands.pushes))

    @cached_property
    def chunk_slots(self) -> list[int]:
        """Slots of the data phase of each chunk of command words."""
        first, timing = self.demands.command_address, self.timing
        starts = np.arange(first, first + 8 * self.word_count, timing.fetch_bytes, dtype=np.int64)
        ends = np.minimum(starts + timing.fetch_bytes, first + 8 * self.word_count)
        slots: list[int] = row_slots(starts, ends - starts, timing).tolist()
        return slots


def _scratchpad_cycles(compute: Int64, streams: Int64, reads: Int64, writes: Int64, timing: Timing) -> Int64:
    """The further cycles x that EX waits for the scratchpad (docs/machine.md, section 5), command by command.

    ``streams`` is the largest number of streams in one bank, ``reads`` and ``writes`` are bytes.
    """
    needed = compute * np.maximum(1, -(-streams // timing.bank_ports))
    if timing.sram_read_bytes:
        needed = np.maximum(needed, -(-reads // timing.sram_read_bytes))
    if timing.sram_write_bytes:
        needed = np.maximum(needed, -(-writes // timing.sram_write_bytes))
    return needed - compute
