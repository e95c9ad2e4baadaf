"""The arbiter of the bus: in closed form what a round robin of any number of ports grants slot by slot."""

from __future__ import annotations

import random

import pytest

from dla_sim.engine.bus import NEVER, Arbiter

Phases = list[list[tuple[int, int]]]
"""For each port: (cycles from the end of the phase before to the begin, slots)."""


def slot_by_slot(phases: Phases) -> list[list[int]]:
    """The end of each phase, with one decision a cycle."""
    ports = range(len(phases))
    ends: list[list[int]] = [[] for _ in ports]
    left, last, now = [0] * len(phases), len(phases) - 1, 0
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
    """The same by the arbiter, from one change to the next; its plan for the next end holds if nothing else begins."""
    arbiter = Arbiter(len(phases))
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
            [(draw.choice((0, 0, 1, 3, 20)), draw.choice((1, 1, 2, 5, 17))) for _ in range(draw.randrange(6))]
            for _ in range(ports)
        ]
        assert in_closed_form(phases) == slot_by_slot(phases), f"seed {seed}"
