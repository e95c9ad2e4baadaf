"""How full the scratchpad is over a run, in a bounded number of points: what a chart of it needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dla_sim.effects import completion_order
from dla_sim.occupancy import live_bytes
from experiments.report.figures import RegionRun
from experiments.report.schema import OCCUPANCY_POINTS, Occupancy
from isa.instruction import ceil_div

Int64 = NDArray[np.int64]


def occupancy(runs: Sequence[RegionRun]) -> Occupancy | None:
    """Live bytes of the scratchpad over all regions, one after another; None where no cycle went by.

    Exact: each point's peak and mean are those of its cycles, not of samples.
    """
    total = sum(run.trace.cycles for run in runs)
    if not total:
        return None
    width = ceil_div(total, OCCUPANCY_POINTS)
    changes, levels = _steps(runs)
    times = np.unique(np.concatenate([changes[changes < total], np.arange(0, total, width, dtype=np.int64)]))
    live = levels[np.searchsorted(changes, times, side="right") - 1]
    lasting = np.diff(np.append(times, total))
    firsts = np.searchsorted(times, np.arange(0, total, width))
    peaks = np.maximum.reduceat(live, firsts)
    means = np.add.reduceat(live * lasting, firsts) // np.add.reduceat(lasting, firsts)
    return Occupancy(cycles_per_point=width, peak_bytes=tuple(peaks.tolist()), mean_bytes=tuple(means.tolist()))


def _steps(runs: Sequence[RegionRun]) -> tuple[Int64, Int64]:
    """(cycles, bytes): from each of ``cycles`` on so many bytes are live; the first is 0, every region begins empty."""
    changes: list[Int64] = []
    levels: list[Int64] = []
    offset = 0
    for run in runs:
        trace = run.trace
        operands = [command.instruction.operands(command, run.program.arch) for command in trace.commands]
        found, counts = live_bytes(operands, completion_order(trace.workload, trace.schedule), trace.schedule)
        changes += [np.array([offset], dtype=np.int64), offset + found]
        levels += [np.zeros(1, dtype=np.int64), counts]
        offset += trace.cycles
    return np.concatenate(changes), np.concatenate(levels)
