"""The closed form of the bus arbiter equals a slot-by-slot round robin of any number of ports."""

from __future__ import annotations

import random

import pytest

from dla_sim.engine.bus import NEVER, BusArbiter
from dla_sim.systems.machines import MemoryArbiter

Phases = list[list[tuple[int, int]]]
"""For each port: (cycles from the end of the phase before to the begin, slots)."""


def slot_by_slot(phases: Phases) -> list[list[int]]:
    """The end of each phase, with one decision a cycle."""
    ports = range(len(phases))
    ends: list[list[int]] = [[] for _ in ports]
    left = [0] * len(phases)
    last = len(phases) - 1
    now = 0
    while any(len(found) < len(wanted) for found, wanted in zip(ends, phases, strict=True)):
        for port in ports:
            done = len(ends[port])
            if not left[port] and done < len(phases[port]):
                gap, slots = phases[port][done]
                if now == (ends[port][-1] if done else 0) + gap:
                    left[port] = slots
        order = [(last + step) % len(phases) for step in range(1, len(phases) + 1)]
        served = next((port for port in order if left[port]), None)
        now += 1
        if served is not None:
            left[served] -= 1
            last = served
            if not left[served]:
                ends[served].append(now)
    return ends


def in_closed_form(phases: Phases) -> list[list[int]]:
    """The same by the arbiter, from one change to the next.

    Its plan for the next end holds if nothing else begins.
    """
    arbiter = BusArbiter(len(phases))
    ends: list[list[int]] = [[] for _ in phases]
    begins = [wanted[0][0] if wanted else NEVER for wanted in phases]
    while arbiter.waiting or min(begins) < NEVER:
        horizon = min(begins)
        planned = arbiter.next_end() if arbiter.waiting else NEVER
        ended = arbiter.grant(horizon)
        assert arbiter.now == min(planned, horizon)
        assert (ended >= 0) == (planned <= horizon and planned < NEVER)
        if ended >= 0:
            ends[ended].append(arbiter.now)
            following = phases[ended][len(ends[ended]) :]
            begins[ended] = arbiter.now + following[0][0] if following else NEVER
        for port, begin in enumerate(begins):
            if begin == arbiter.now:
                arbiter.begin(port, phases[port][len(ends[port])][1])
                begins[port] = NEVER
    assert not any(arbiter.left)
    return ends


@pytest.mark.parametrize("ports", [1, 2, 3, 5, 8])
def test_grants_are_those_of_a_round_robin(ports: int) -> None:
    for seed in range(60):
        draw = random.Random(1000 * ports + seed)
        phases = [
            [
                (draw.choice((0, 0, 1, 3, 20)), draw.choice((1, 1, 2, 5, 17)))
                for _ in range(draw.randrange(6))
            ]
            for _ in range(ports)
        ]
        assert in_closed_form(phases) == slot_by_slot(phases), f"seed {seed}"


def drawn_arbiter(rng: random.Random) -> tuple[BusArbiter | MemoryArbiter, int]:
    """Draw an arbiter of one bus or of a memory with several ports.

    Return it with the number of its requesters.
    """
    count = rng.randint(1, 6)
    if rng.random() < 0.3:
        return BusArbiter(count), count
    ports: list[list[int]] = [[] for _ in range(rng.randint(1, count))]
    for requester in range(count):
        rng.choice(ports).append(requester)
    ports = [members for members in ports if members]
    return MemoryArbiter(ports, rng.randint(1, len(ports))), count


def test_slots_up_to_a_time_are_those_that_are_granted() -> None:
    """``granted`` says beforehand what ``grant`` takes off, up to the first end of a data phase."""
    foreseen = 0
    for seed in range(300):
        rng = random.Random(seed)
        arbiter, count = drawn_arbiter(rng)
        for _ in range(20):
            for requester in range(count):
                if not arbiter.left[requester] and rng.random() < 0.5:
                    arbiter.begin(requester, rng.randint(1, 40))
            before = list(arbiter.left)
            now = arbiter.now
            waiting = [requester for requester in range(count) if before[requester]]
            times = range(now, now + rng.randint(1, 30))
            said = {
                time: [arbiter.count_granted(requester, time) for requester in waiting]
                for time in times
            }
            arbiter.grant(times[-1])
            if waiting:
                assert said[arbiter.now] == [before[one] - arbiter.left[one] for one in waiting]
                foreseen += arbiter.now > now
    assert foreseen > 3000
