"""The engine without events: everything happens in order, so that every time is the latest of others.

Command processor, command fetch, LD, EX and ST are each in order; the n-th pop of a token counter takes its n-th push;
room in a queue appears when the command ``queue_depth`` before completes. So a start is the latest of the arrival, the
unit's last end and the ends of the pushers: each sequence runs on until it needs a time that is not known yet. Data
phases alone interact: when nothing can go on, the bus grants them in closed form up to the next end of one. Whatever is
still unknown depends on such an end and comes after it, so that no data phase has been missed.
"""

from __future__ import annotations

import numpy as np

from dla_sim.engine.deadlock import standstill
from dla_sim.engine.grants import Bus, Grants, OwnBuses
from dla_sim.engine.schedule import DeadlockError, Schedule
from dla_sim.engine.sequences import NEVER, Fetch, Issue, Sequence, Times, Transfers, UnitSequence
from dla_sim.engine.workload import EX, LD, ST, Workload


def compute_schedule(workload: Workload) -> Schedule:
    """When each command of ``workload`` arrives, starts and ends, from a drained machine at cycle 0.

    Equal to :func:`dla_sim.engine.simulation.simulate`. Raises DeadlockError when the program stands still before its
    ``OP_END``.
    """
    times = Times(workload)
    return _schedule(workload, times, Grants(times.known))


def schedule_without_sharing(workload: Workload) -> Schedule:
    """The same if fetch, LD and ST had a bus each (docs/machine.md, section 8). No total is below this one's.

    Raises DeadlockError as :func:`compute_schedule` does.
    """
    times = Times(workload)
    return _schedule(workload, times, OwnBuses(times.known))


def _schedule(workload: Workload, times: Times, bus: Bus) -> Schedule:
    issue = Issue(workload, times)
    units = (
        Transfers(workload, times, LD, bus),
        UnitSequence(workload, times, EX),
        Transfers(workload, times, ST, bus),
    )
    _settle((issue, Fetch(workload, times, bus), units[EX], units[ST], units[LD]), times.known, bus)
    count = times.commands
    ends, arrivals = times.known[:count], times.known[count : 2 * count]
    if issue.position < count or NEVER in ends:
        raise DeadlockError(*standstill(workload, arrivals, ends))
    total = max(issue.time, max(ends, default=0)) + 1
    starts = times.starts
    return Schedule(_column(arrivals), _column(starts), _column(ends), total)


def _column(values: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def _settle(sequences: tuple[Sequence, ...], known: list[int], bus: Bus) -> None:
    """Let the sequences run on as far as they can, then the bus to its next end, until there is none."""
    issue, fetch, ex, st, ld = sequences
    while True:
        running = True
        while running:
            running = False
            if known[issue.wait] < NEVER:
                issue.proceed()
                running = True
            if known[fetch.wait] < NEVER:
                fetch.proceed()
            if known[ex.wait] < NEVER:
                ex.proceed()
                running = True
            if known[st.wait] < NEVER:
                st.proceed()
                running = True
            if known[ld.wait] < NEVER:
                ld.proceed()
                running = True
        if not bus.proceed():
            return
