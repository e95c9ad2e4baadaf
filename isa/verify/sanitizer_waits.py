"""Deadlock: the machine with the shallowest queues, carried out without time, and the cycle of waits it ends in.

Every queue holds one command. No choice is ever made - a counter has one giver and one taker - so what completes does
not depend on the order of steps, and deeper queues only complete more. A stream that is legal (each pop after its
push) never stands still: the oldest unfinished command can always run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isa.verify.sanitizer_findings import Finding, Site
from isa.verify.sanitizer_stream import Stream
from isa.verify.sanitizer_tokens import MISSING, Pairing


@dataclass(frozen=True)
class Standstill:
    """``heads[u]`` is the command that fills the queue of unit u, None if it is idle; ``blocked`` the one that the
    command processor cannot enqueue, None if all are enqueued; ``done`` those that completed."""

    heads: tuple[int | None, ...]
    blocked: int | None
    done: frozenset[int]


def check_deadlock(stream: Stream, pairing: Pairing, stuck_at_any_depth: bool) -> list[Finding]:
    """The cycle of waits in which the stream ends with queues of depth 1; none where it ends properly.

    A wait for a token that nobody gives is not a cycle and reported elsewhere.
    """
    if all(giver < number for number, givers in enumerate(pairing.givers) for giver in givers if giver != MISSING):
        return []
    units = [command.unit.value for command in stream.commands]
    end = run_with_single_entries(units, pairing.givers)
    cycle = next((found for head in end.heads if head is not None for found in [_cycle(units, pairing, end, head)]), [])
    if not cycle:
        return []
    sites = [stream.site(number) for number in cycle]
    depth = "queues of any depth" if stuck_at_any_depth else "queues of depth 1"
    waits = "; ".join(_wait_text(units, pairing, end, cycle, sites, place) for place in range(len(cycle)))
    return [Finding("deadlock", f"with {depth}: {waits}", tuple(sites))]


def run_with_single_entries(units: Sequence[int], givers: Sequence[Sequence[int]]) -> Standstill:
    """Carry out the stream with one entry a queue until nothing moves."""
    heads: list[int | None] = [None, None, None]
    done: set[int] = set()
    fetched = 0
    moved = True
    while moved:
        moved = False
        while fetched < len(units) and heads[units[fetched]] is None:
            heads[units[fetched]] = fetched
            fetched += 1
            moved = True
        for unit, head in enumerate(heads):
            if head is not None and all(giver in done for giver in givers[head]):
                done.add(head)
                heads[unit] = None
                moved = True
    return Standstill(tuple(heads), fetched if fetched < len(units) else None, frozenset(done))


def _cycle(units: Sequence[int], pairing: Pairing, end: Standstill, start: int) -> list[int]:
    """Follow the waits from command ``start``: the cycle that they run into, or nothing where they end."""
    path: list[int] = []
    current = start
    while current not in path:
        path.append(current)
        following = _waits_for(units, pairing, end, current)
        if following is None:
            return []
        current = following
    return path[path.index(current) :]


def _waits_for(units: Sequence[int], pairing: Pairing, end: Standstill, number: int) -> int | None:
    """The command that ``number`` waits for: giver of its token, the blocked word, or the head of its queue."""
    if number in end.heads:
        missing = [giver for giver in pairing.givers[number] if giver not in end.done]
        return None if MISSING in missing else missing[0]
    return end.heads[units[number]] if number == end.blocked else end.blocked


def _wait_text(
    units: Sequence[int], pairing: Pairing, end: Standstill, cycle: Sequence[int], sites: Sequence[Site], place: int
) -> str:
    number, following = sites[place], sites[(place + 1) % len(sites)]
    if cycle[place] in end.heads:
        return f"{number} waits for the token of word {following.word}"
    if cycle[place] == end.blocked:
        return f"{number} waits for room in the queue of {number.unit} behind word {following.word}"
    return f"{number} waits behind word {following.word} in the stream"
