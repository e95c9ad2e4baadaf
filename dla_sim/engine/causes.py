"""Causes: why every cycle of every unit went by (docs/machine.md, section 7), command by command, from its times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.times import CommandTimes
from dla_sim.engine.workload import TOKEN_QUEUES, UNIT_NAMES, Workload
from dla_sim.timing import Timing

CAUSES = ("busy", "token_LD", "token_EX", "token_ST", "bus", "dram", "flash", "sram", "queue_empty", "drained")
BUSY, TOKEN, BUS, DRAM, FLASH, SRAM, QUEUE_EMPTY, DRAINED = 0, 1, 4, 5, 6, 7, 8, 9


def causes_of(timing: Timing) -> tuple[str, ...]:
    """The causes that cycles of a machine can have: ``flash`` only where it has one."""
    return tuple(cause for cause in CAUSES if cause != CAUSES[FLASH] or timing.flash is not None)


@dataclass(frozen=True, eq=False)
class Causes:
    """``commands`` int64 (commands, 10): cycles before a command's start and within it, for each of :data:`CAUSES`.

    ``drained`` is 0 for every command; it is what remains of a unit's cycles after its last one. ``names`` are those
    that the machine can have.
    """

    commands: NDArray[np.int64]
    by_unit: tuple[NDArray[np.int64], ...]
    total: int
    names: tuple[str, ...]

    @cached_property
    def units(self) -> dict[str, dict[str, int]]:
        """Cycles by cause of LD, EX and ST; each sums to ``total``, which is asserted where the causes are made."""
        tables = {}
        for name, members in zip(UNIT_NAMES, self.by_unit, strict=True):
            sums = self.commands[members].sum(axis=0)
            sums[DRAINED] = self.total - sums.sum()
            by_cause = dict(zip(CAUSES, sums.tolist(), strict=True))
            tables[name] = {cause: by_cause[cause] for cause in self.names}
        return tables


def explain(workload: Workload, times: CommandTimes) -> Causes:
    """The causes of all cycles of a run.

    The rules of the machine are applied anew to the times that the engine found: a start that they do not explain to
    the cycle, a negative figure or a sum that is not the total is an AssertionError.
    """
    columns = workload.columns
    causes = np.zeros((len(workload), len(CAUSES)), dtype=np.int64)
    tokens = _token_times(workload, times)
    for members in workload.demands.by_unit:
        _explain_waits(members, times, tokens, causes)
    shared = (columns["slots"] > 0) * (times.end - times.start - columns["lead"] - columns["tail"] - columns["slots"])
    causes[:, BUS] = shared
    memory = columns["latency"] + columns["slots"] - columns["beats"]
    causes[:, FLASH] = memory * columns["flash"]
    causes[:, DRAM] = memory - causes[:, FLASH]
    causes[:, SRAM] = columns["scratchpad"]
    constant = columns["lead"] + columns["tail"] + columns["beats"] - columns["latency"] - columns["scratchpad"]
    causes[:, BUSY] = constant
    _check(workload, times, causes)
    return Causes(causes, workload.demands.by_unit, times.total, causes_of(workload.timing))


def _token_times(workload: Workload, times: CommandTimes) -> NDArray[np.int64]:
    """(commands, 4): the cycle in which the token that a command pops from each counter was there; -1 for no pop."""
    there = np.full((len(workload), len(TOKEN_QUEUES)), -1, dtype=np.int64)
    for counter in range(len(TOKEN_QUEUES)):
        pushing, popping = workload.demands.pushing[counter], workload.demands.popping[counter]
        there[popping, counter] = times.end[pushing[: len(popping)]]
    return there


def _explain_waits(
    members: NDArray[np.int64], times: CommandTimes, tokens: NDArray[np.int64], causes: NDArray[np.int64]
) -> None:
    """Fill in what the commands ``members`` of one unit waited for before they started."""
    if not len(members):
        return
    arrival, start = times.arrival[members], times.start[members]
    free = np.concatenate(([0], times.end[members[:-1]]))
    causes[members, QUEUE_EMPTY] = np.maximum(arrival - free, 0)
    waited = np.maximum(arrival, free)
    # Counters are in the order LD to EX, EX to LD, EX to ST, ST to EX: only EX has two, and LD's comes first.
    for counter, (pusher, _) in enumerate(TOKEN_QUEUES):
        there = np.maximum(tokens[members, counter], waited)
        causes[members, TOKEN + pusher] += there - waited
        waited = there
    if not np.array_equal(waited, start):
        raise AssertionError("a command started at a time that its arrival, unit and tokens do not explain")


def _check(workload: Workload, times: CommandTimes, causes: NDArray[np.int64]) -> None:
    """Assert that no figure is negative and that the cycles up to each unit's last command are all explained."""
    if causes.min(initial=0) < 0:
        raise AssertionError("an account of cycles is negative")
    for name, members in zip(UNIT_NAMES, workload.demands.by_unit, strict=True):
        last = int(times.end[members].max(initial=0))
        if causes[members].sum() != last or last >= times.total:
            raise AssertionError(f"the cycles of unit {name} do not add up to the total")
