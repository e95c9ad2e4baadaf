"""What the machine does at given times: the executing command of each unit and the oldest unfinished command."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.schedule import Schedule

Int64 = NDArray[np.int64]


def executing(members: Int64, schedule: Schedule, times: Int64) -> Int64:
    """The command of ``members`` (one unit's) that executes at each of ``times``, or -1."""
    if not len(members):
        return np.full(len(times), -1, dtype=np.int64)
    latest = np.searchsorted(schedule.start[members], times, side="right") - 1
    command = members[np.maximum(latest, 0)]
    return np.where((latest >= 0) & (schedule.end[command] > times), command, -1)


def oldest_unfinished(schedule: Schedule, times: Int64) -> Int64:
    """The oldest command in stream order that is not complete at each of ``times``; the last one when all are.

    There must be a command.
    """
    # It is the first whose completion, and everything's before it, lies after the time.
    finished = np.maximum.accumulate(schedule.end)
    return np.minimum(np.searchsorted(finished, times, side="right"), len(finished) - 1)
