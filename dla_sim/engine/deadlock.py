"""The message about a program that stands still: what the command processor and every unit wait for."""

from __future__ import annotations

from collections.abc import Sequence

from dla_sim.engine.grants import NEVER
from dla_sim.engine.workload import TOKEN_QUEUES, UNIT_NAMES, Workload


def standstill(workload: Workload, arrivals: Sequence[int], ends: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    """The message and the words that it names; arrivals and ends that never came are ``NEVER``."""
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
    return f"deadlock: {'; '.join(waits)}; every pop needs a push earlier in the stream", tuple(dict.fromkeys(named))


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
