"""Cycles of a run by kind alone: what a sweep needs of the accounts, without a timeline."""

from __future__ import annotations

import numpy as np

from dla_sim.engine.demands import EX, Demands
from dla_sim.engine.labels import DMA, ISSUE, Labels
from dla_sim.engine.schedule import Schedule
from isa.instruction import KINDS


def kind_cycles(labels: Labels, demands: Demands, schedule: Schedule) -> tuple[dict[str, int], dict[str, int]]:
    """(cycles of the run by kind, cycles in which EX executes by kind), as ``dla_sim.engine.accounts`` has them.

    Where EX executes the cycle is its command's; of the others those in which LD or ST executes are DMA. A sum of the
    first that is not the total, or a negative figure, is an AssertionError.
    """
    executing = demands.by_unit[EX]
    durations = schedule.end[executing] - schedule.start[executing]
    table = np.bincount(labels.kind[executing], weights=durations, minlength=len(KINDS)).astype(np.int64)
    ex_cycles = dict(zip(KINDS, table.tolist(), strict=True))
    active = _covered(schedule)
    table[DMA] += active - table.sum()
    table[ISSUE] += schedule.total - active
    if table.sum() != schedule.total or table.min() < 0:
        raise AssertionError("the cycles by kind do not add up to the total")
    return dict(zip(KINDS, table.tolist(), strict=True)), ex_cycles


def _covered(schedule: Schedule) -> int:
    """Cycles in which any unit executes."""
    order = np.argsort(schedule.start, kind="stable")
    start, end = schedule.start[order], schedule.end[order]
    reached = np.maximum.accumulate(end)
    before = np.concatenate(([0], reached[:-1])) if len(end) else reached
    return int(np.maximum(end - np.maximum(start, before), 0).sum())
