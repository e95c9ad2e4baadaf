"""The event engine, on SimPy: events are per command or per change in the set of bus requesters, never per cycle."""

from __future__ import annotations

import numpy as np

from dla_sim.engine.bus import LD_PORT, ST_PORT, Bus
from dla_sim.engine.deadlock import standstill
from dla_sim.engine.fetch import CommandFetch
from dla_sim.engine.grants import NEVER
from dla_sim.engine.moment import Clock
from dla_sim.engine.processor import CommandProcessor
from dla_sim.engine.schedule import DeadlockError, Schedule
from dla_sim.engine.unit import Tokens, Unit
from dla_sim.engine.workload import TOKEN_QUEUES, Workload


def simulate(workload: Workload) -> Schedule:
    """When each command of ``workload`` arrives, starts and ends, from a drained machine at cycle 0.

    Raises DeadlockError when the program stands still before its ``OP_END``.
    """
    clock = Clock(initial_time=0)
    bus = Bus(clock, [lambda: None] * 3)
    tokens = Tokens()
    times: tuple[list[int], ...] = tuple([0] * len(workload) for _ in range(3))
    arrival, start, end = times
    units = [Unit(clock, workload.costs, tokens, bus, port, (arrival, start, end)) for port in (LD_PORT, 0, ST_PORT)]
    tokens.readers = [units[reader].try_start for _, reader in TOKEN_QUEUES]
    fetch = CommandFetch(clock, bus, workload.chunk_slots, workload.timing.dram_latency)
    processor = CommandProcessor(clock, workload, fetch, units, arrival)
    for _ in range(workload.timing.fetch_buffers):
        fetch.request(0)
    clock.run()
    if not processor.total:
        # Nothing arrives or ends in cycle 0, so that 0 stands for what never came.
        raise DeadlockError(*standstill(workload, [time or NEVER for time in arrival], [time or NEVER for time in end]))
    arrivals, starts, ends = (np.array(column, dtype=np.int64) for column in times)
    return Schedule(arrivals, starts, ends, processor.total)
