"""Mutants of a command stream: a missing token pair, exchanged commands or a shifted address.

Exchanged commands are the ends of one edge of the dependence graph. A shift changes one address
register of one command.

The dependence graph has three kinds of edges, each from an earlier to a later command of the
stream:

- **token**: from the command that pushes a token to the one that pops it;
- **queue**: from each command of a unit to the next one of that unit;
- **data**: from each command to every later one that touches a byte in common which one of the two
  writes, without those that follow from others (the transitive reduction).

Its two ends are exchanged: each command takes the other's place in the stream, with its registers
and its token flags. Two commands of one unit are exchanged a second time with the token flags left
in their places. The ends of a token edge are exchanged a second time by turning the token round:
the taker pushes it and the giver pops it, both in their places, where neither exchanges such a
token already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from isa.instruction import Command, Operands
from isa.sanitizer.findings import CommandStream
from tests.isa.stream_oracle import Pair, conflict

Family = Literal["token pair", "token edge", "queue edge", "data edge", "address"]
FAMILIES: tuple[Family, ...] = ("token pair", "token edge", "queue edge", "data edge", "address")
SHIFTS = (-64, -1, 1, 8, 4096, 1 << 20)
"""Bytes by which addresses are shifted, from a byte to more than the scratchpad."""
FLAGS = ("pop_previous", "pop_next", "push_previous", "push_next")


class TokenPair(NamedTuple):
    """A push and the pop that takes its token: commands and names of the flags."""

    giver: int
    push: str
    taker: int
    pop: str


@dataclass(frozen=True, eq=False)
class Mutant:
    """A mutated ``stream``; ``name`` describes its difference from the program.

    ``ends`` are the commands it is about; ``pair`` the tokens removed.
    """

    family: Family
    name: str
    stream: CommandStream
    ends: tuple[int, ...]
    pair: TokenPair | None = None


def token_pairs(commands: Sequence[Command]) -> list[TokenPair]:
    """All pairs: the n-th pop of a counter takes its n-th push."""
    found: list[TokenPair] = []
    for giver_unit, taker_unit in ((0, 1), (1, 0), (1, 2), (2, 1)):
        forward = giver_unit < taker_unit
        push, pop = ("push_next", "pop_previous") if forward else ("push_previous", "pop_next")
        pushes = [
            n for n, c in enumerate(commands) if c.unit.value == giver_unit and getattr(c, push)
        ]
        pops = [n for n, c in enumerate(commands) if c.unit.value == taker_unit and getattr(c, pop)]
        found += [
            TokenPair(giver, push, taker, pop) for giver, taker in zip(pushes, pops, strict=True)
        ]
    return sorted(found)


def edges(stream: CommandStream) -> dict[Pair, Family]:
    """The edges of the dependence graph; one that is of several kinds is listed under the first."""
    found: dict[Pair, Family] = {
        (pair.giver, pair.taker): "token edge" for pair in token_pairs(stream.commands)
    }
    for unit in range(3):
        members = [
            number for number, command in enumerate(stream.commands) if command.unit.value == unit
        ]
        for pair in pairwise(members):
            found.setdefault(pair, "queue edge")
    for pair in data_edges(stream.operands):
        found.setdefault(pair, "data edge")
    return found


def data_edges(operands: Sequence[Operands]) -> list[Pair]:
    """Conflicting pairs, earlier first, that do not follow from others."""
    count = len(operands)
    direct = np.zeros((count, count), dtype=np.bool_)
    for late in range(count):
        for early in range(late):
            direct[early, late] = conflict(operands[early], operands[late])
    reach = direct.copy()
    longer = np.zeros_like(direct)
    for early in reversed(range(count)):
        for middle in np.flatnonzero(direct[early]):
            longer[early] |= reach[middle]
        reach[early] |= longer[early]
    return [(int(i), int(j)) for i, j in np.argwhere(direct & ~longer)]


def with_flags(command: Command, flags: Mapping[str, bool]) -> Command:
    """The command with some token flags changed."""
    new = {flag: flags.get(flag, getattr(command, flag)) for flag in FLAGS}
    return replace(
        command,
        pop_previous=new["pop_previous"],
        pop_next=new["pop_next"],
        push_previous=new["push_previous"],
        push_next=new["push_next"],
    )


def without_pair(stream: CommandStream, pair: TokenPair) -> Mutant:
    """The stream without one push and the pop that takes its token."""
    commands = list(stream.commands)
    commands[pair.giver] = with_flags(commands[pair.giver], {pair.push: False})
    commands[pair.taker] = with_flags(commands[pair.taker], {pair.pop: False})
    giver, taker = (commands[number].index for number in (pair.giver, pair.taker))
    name = f"no token from word {giver} to word {taker}"
    return Mutant(
        "token pair",
        name,
        replace(stream, commands=tuple(commands)),
        (pair.giver, pair.taker),
        pair,
    )


def turned(stream: CommandStream, pair: TokenPair) -> Mutant:
    """The stream with one token going the other way."""
    commands = list(without_pair(stream, pair).stream.commands)
    push, pop = _reverse(pair)
    commands[pair.taker] = with_flags(commands[pair.taker], {push: True})
    commands[pair.giver] = with_flags(commands[pair.giver], {pop: True})
    name = (
        f"token from word {commands[pair.giver].index} to word {commands[pair.taker].index} turned "
        "round"
    )
    return Mutant(
        "token edge",
        name,
        replace(stream, commands=tuple(commands)),
        (pair.giver, pair.taker),
        pair,
    )


def _reverse(pair: TokenPair) -> tuple[str, str]:
    """The taker's push flag and the giver's pop flag of the token that goes the other way."""
    return pair.pop.replace("pop", "push"), pair.push.replace("push", "pop")


def _can_turn(commands: Sequence[Command], pair: TokenPair) -> bool:
    push, pop = _reverse(pair)
    return not getattr(commands[pair.taker], push) and not getattr(commands[pair.giver], pop)


def exchanged(stream: CommandStream, pair: Pair, family: Family, tokens_stay: bool) -> Mutant:
    """The stream with two commands in each other's place.

    With ``tokens_stay`` the flags do not move.
    """
    place = list(range(len(stream.commands)))
    place[pair[0]] = pair[1]
    place[pair[1]] = pair[0]
    commands = [stream.commands[number] for number in place]
    if tokens_stay:
        for number in pair:
            flags = {flag: getattr(stream.commands[number], flag) for flag in FLAGS}
            commands[number] = with_flags(commands[number], flags)
    name = f"words {stream.commands[pair[0]].index} and {stream.commands[pair[1]].index} exchanged"
    name += ", tokens in place" if tokens_stay else ""
    operands = tuple(stream.operands[number] for number in place)
    sources = tuple(stream.sources[number] for number in place)
    changed = replace(stream, commands=tuple(commands), operands=operands, sources=sources)
    return Mutant(family, name, changed, pair)


def shifted(stream: CommandStream, number: int, register: str, distance: int) -> Mutant:
    """The stream with ``distance`` added to one address register of one command."""
    command = stream.commands[number]
    moved = replace(
        command, registers={**command.registers, register: command[register] + distance}
    )
    commands = (*stream.commands[:number], moved, *stream.commands[number + 1 :])
    touched = moved.instruction.operands(moved, stream.program.arch)
    operands = (*stream.operands[:number], touched, *stream.operands[number + 1 :])
    name = f"word {command.index}: {register} {distance:+d}"
    return Mutant("address", name, replace(stream, commands=commands, operands=operands), (number,))


class Change(NamedTuple):
    """A mutant that can be made."""

    family: Family
    make: Callable[[], Mutant]


def changes(stream: CommandStream) -> list[Change]:
    """All mutants of a stream, in a fixed order."""
    pairs = token_pairs(stream.commands)
    found = [Change("token pair", partial(without_pair, stream, pair)) for pair in pairs]
    turnable = (pair for pair in pairs if _can_turn(stream.commands, pair))
    found += [Change("token edge", partial(turned, stream, pair)) for pair in turnable]
    for ends, family in edges(stream).items():
        same = stream.commands[ends[0]].unit is stream.commands[ends[1]].unit
        for stay in (False, True) if same else (False,):
            found.append(Change(family, partial(exchanged, stream, ends, family, stay)))
    found += [
        Change("address", partial(shifted, stream, *place)) for place in _shifts(stream.commands)
    ]
    return found


def _shifts(commands: Iterable[Command]) -> Iterator[tuple[int, str, int]]:
    """Command, register and distance, where the result still fits the register."""
    for number, command in enumerate(commands):
        for register, value in command.registers.items():
            if register.endswith("ADDRESS"):
                yield from (
                    (number, register, step) for step in SHIFTS if 0 <= value + step < 1 << 32
                )
