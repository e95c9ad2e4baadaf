"""The event engine, on SimPy: events are per command or per change in the set of bus requesters, never per cycle."""

from __future__ import annotations

import numpy as np

from dla_sim.engine.bus import LD_PORT, ST_PORT, Bus
from dla_sim.engine.fetch import CommandFetch
from dla_sim.engine.moment import Clock
from dla_sim.engine.processor import CommandProcessor
from dla_sim.engine.schedule import DeadlockError, Schedule
from dla_sim.engine.unit import Tokens, Unit
from dla_sim.engine.workload import TOKEN_QUEUES, UNIT_NAMES, Workload


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
        raise DeadlockError(_standstill(workload, processor, units))
    arrivals, starts, ends = (np.array(column, dtype=np.int64) for column in times)
    return Schedule(arrivals, starts, ends, processor.total)


def _standstill(workload: Workload, processor: CommandProcessor, units: list[Unit]) -> str:
    """The message about a deadlock: what everybody waits for."""
    waits = [processor.waits_for()]
    for name, unit in zip(UNIT_NAMES, units, strict=True):
        if unit.queue:
            word = workload.costs[unit.queue[0]].word
            pushers = " and ".join(UNIT_NAMES[TOKEN_QUEUES[counter][0]] for counter in unit.missing())
            waits.append(f"{name} waits at word {word} for a token from {pushers}")
        else:
            waits.append(f"{name} is idle")
    return f"deadlock: {'; '.join(waits)}; every pop needs a push earlier in the stream"
