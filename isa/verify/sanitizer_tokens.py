"""Tokens: which push each pop takes, and the pops and pushes that find no partner or find it too late.

A counter between two units has one giver and one taker, both in order: the n-th pop takes the n-th push.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from isa.instruction import Command, Unit
from isa.verify.legality import Queue, gives_to, waits_for
from isa.verify.sanitizer_findings import Finding
from isa.verify.sanitizer_stream import Stream

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
