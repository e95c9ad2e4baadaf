"""Tokens: which push each pop takes, what finds no partner or finds it too late, and the cycles of waits.

A counter between two units has one giver and one taker, both in order: the n-th pop takes the n-th push. A stream is
legal if every pop comes after its push and none is left over. Then it never stands still, whatever the depth of the
queues: the oldest unfinished command can always run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from isa.instruction import NEXT, PREVIOUS, Command, Unit
from isa.sanitizer.findings import Finding, Site, Stream

Queue = tuple[Unit, Unit]


def waits_for(command: Command) -> tuple[Unit, ...]:
    """The units from which the command pops a token."""
    found = []
    if command.pop_previous:
        found.append(PREVIOUS[command.unit])
    if command.pop_next:
        found.append(NEXT[command.unit])
    return tuple(found)


def gives_to(command: Command) -> tuple[Unit, ...]:
    """The units to which the command pushes a token on completion."""
    found = []
    if command.push_previous:
        found.append(PREVIOUS[command.unit])
    if command.push_next:
        found.append(NEXT[command.unit])
    return tuple(found)


MISSING = -1
"""In place of the giver of a token that no command pushes."""


@dataclass(frozen=True, eq=False)
class Pairing:
    """``givers[i]`` are the commands whose tokens command i pops; ``left`` the pushes nobody pops, by counter."""

    givers: tuple[tuple[int, ...], ...]
    left: dict[Queue, list[int]]


def pair_tokens(commands: Sequence[Command]) -> Pairing:
    """The partner of every pop."""
    pushes: dict[Queue, list[int]] = defaultdict(list)
    for number, command in enumerate(commands):
        for taker in gives_to(command):
            pushes[command.unit, taker].append(number)
    taken: dict[Queue, int] = defaultdict(int)
    givers: list[tuple[int, ...]] = []
    for command in commands:
        found = []
        for giver in waits_for(command):
            queue = giver, command.unit
            given, position = pushes[queue], taken[queue]
            found.append(given[position] if position < len(given) else MISSING)
            taken[queue] += 1
        givers.append(tuple(found))
    left = {queue: given[taken[queue] :] for queue, given in pushes.items() if taken[queue] < len(given)}
    return Pairing(tuple(givers), left)


def check_tokens(stream: Stream, pairing: Pairing) -> list[Finding]:
    """Pops that nothing satisfies, pops of tokens that are given later in the stream, and tokens left at the end."""
    findings: list[Finding] = []
    for number, givers in enumerate(pairing.givers):
        units = waits_for(stream.commands[number])
        for unit, giver in zip(units, givers, strict=True):
            if giver == MISSING:
                findings.append(_underflow(stream, number, unit))
            elif giver > number:
                findings.append(_too_late(stream, number, giver))
    findings += [_left_over(stream, queue, pushes) for queue, pushes in pairing.left.items()]
    end = stream.program.commands[-1]
    if waits_for(end) or gives_to(end):
        findings.append(Finding("token on OP_END", f"OP_END at word {end.index} exchanges tokens; it has no unit"))
    return findings


def _underflow(stream: Stream, number: int, unit: Unit) -> Finding:
    site = stream.site(number)
    return Finding(
        "token underflow",
        f"{site} waits for a token from {unit.name} that no command gives; the program would never end",
        (site,),
    )


def _too_late(stream: Stream, number: int, giver: int) -> Finding:
    taker, given_by = stream.site(number), stream.site(giver)
    return Finding(
        "token too late",
        f"{taker} waits for the token of {given_by}, which comes later in the stream",
        (taker, given_by),
    )


def _left_over(stream: Stream, queue: Queue, pushes: Sequence[int]) -> Finding:
    giver, taker = queue
    sites = tuple(stream.site(number) for number in pushes)
    return Finding(
        "tokens left over",
        f"{len(pushes)} tokens from {giver.name} to {taker.name} are left at the end; the first that nobody waits for "
        f"is that of {sites[0]}",
        sites,
    )


@dataclass(frozen=True)
class Standstill:
    """``heads[u]`` is the command that fills the queue of unit u, None if it is idle; ``blocked`` the one that the
    command processor cannot enqueue, None if all are enqueued; ``done`` those that completed."""

    heads: tuple[int | None, ...]
    blocked: int | None
    done: frozenset[int]


def check_deadlock(stream: Stream, pairing: Pairing, stuck_at_any_depth: bool) -> list[Finding]:
    """The cycle of waits in which the stream ends with queues of depth 1; none where it ends properly.

    Every queue holds one command. No choice is ever made - a counter has one giver and one taker - so what completes
    does not depend on the order of steps, and deeper queues only complete more. A wait for a token that nobody gives is
    not a cycle and reported elsewhere.
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
