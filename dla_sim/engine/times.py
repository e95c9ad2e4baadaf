"""When each command arrived, started and ended: what an engine finds out, and all else follows from.

And if it does not end: what the command processor and every unit wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.bus import NEVER
from dla_sim.engine.workload import TOKEN_QUEUES, UNIT_NAMES, Workload
from isa.errors import InputError

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CommandTimes:
    """int64 arrays, one entry a command but for ``OP_END``, and the program's ``total`` cycles.

    ``arrival`` is the first cycle in which the command counts as being in its unit's queue: the one after the command
    processor executed its word. The command executes in the cycles ``[start, end)``.
    """

    arrival: Int64
    start: Int64
    end: Int64
    total: int


class DeadlockError(InputError):
    """The program stands still: the message names what each unit and the command processor wait for."""


def executing(members: Int64, times: CommandTimes, cycles: Int64) -> Int64:
    """The command of ``members`` (one unit's) that executes at each of ``cycles``, or -1."""
    if not len(members):
        return np.full(len(cycles), -1, dtype=np.int64)
    latest = np.searchsorted(times.start[members], cycles, side="right") - 1
    command = members[np.maximum(latest, 0)]
    return np.where((latest >= 0) & (times.end[command] > cycles), command, -1)


def oldest_unfinished(times: CommandTimes, cycles: Int64) -> Int64:
    """The oldest command in stream order that is not complete at each of ``cycles``; the last one when all are.

    There must be a command.
    """
    # It is the first whose completion, and everything's before it, lies after the time.
    finished = np.maximum.accumulate(times.end)
    return np.minimum(np.searchsorted(finished, cycles, side="right"), len(finished) - 1)


def completion_order(workload: Workload, times: CommandTimes) -> list[int]:
    """The commands by completion, ties by unit: the order in which a device carries out their effects."""
    order: list[int] = np.lexsort((workload.demands.unit, times.end)).tolist()
    return order


def standstill(workload: Workload, arrivals: Sequence[int], ends: Sequence[int]) -> DeadlockError:
    """What everybody waits for; arrivals and ends that never came are ``NEVER``."""
    demands = workload.demands
    words = demands.word.tolist()
    commands, named = range(len(workload)), []
    waiting = next((number for number in commands if arrivals[number] == NEVER), None)
    if waiting is None:
        waits = ["OP_END waits until all units are drained"]
    else:
        named.append(words[waiting])
        unit = UNIT_NAMES[int(demands.unit[waiting])]
        waits = [f"word {words[waiting]} waits for room in the queue of {unit}"]
    for name, members in zip(UNIT_NAMES, demands.by_unit, strict=True):
        head = next((number for number in members.tolist() if ends[number] == NEVER), None)
        if head is None or arrivals[head] == NEVER:
            waits.append(f"{name} is idle")
        else:
            named.append(words[head])
            pushers = " and ".join(UNIT_NAMES[TOKEN_QUEUES[counter][0]] for counter in _missing(workload, head, ends))
            waits.append(f"{name} waits at word {words[head]} for a token from {pushers}")
    message = f"deadlock: {'; '.join(waits)}; every pop needs a push earlier in the stream"
    return DeadlockError(message, dict.fromkeys(named))


def _missing(workload: Workload, number: int, ends: Sequence[int]) -> list[int]:
    """The token counters that command ``number`` waits for."""
    demands = workload.demands
    missing = []
    for counter in demands.pops[number]:
        order = demands.popping[counter].tolist().index(number)
        pushers = demands.pushing[counter].tolist()
        if order >= len(pushers) or ends[pushers[order]] == NEVER:
            missing.append(counter)
    return missing
