"""Find by brute force which commands surely end before which others.

This oracle of token flags shares no code with their derivation.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from isa.access import overlap
from isa.arch import Arch
from isa.instruction import Command, Operands, Unit
from isa.sanitizer.order import list_awaited_units, list_notified_units


def predecessors(commands: Sequence[Command]) -> list[set[int]]:
    """For every command all commands that are surely complete when it starts.

    A unit executes in order; the n-th pop of a queue takes the token of the n-th push.
    """
    before: list[set[int]] = []
    last: dict[Unit, int] = {}
    tokens: dict[tuple[Unit, Unit], deque[int]] = defaultdict(deque)
    for number, command in enumerate(commands):
        direct = {tokens[giver, command.unit].popleft() for giver in list_awaited_units(command)}
        if command.unit in last:
            direct.add(last[command.unit])
        before.append(direct.union(*(before[other] for other in direct)))
        last[command.unit] = number
        for taker in list_notified_units(command):
            tokens[command.unit, taker].append(number)
    return before


def unordered_conflicts(commands: Sequence[Command], arch: Arch) -> list[tuple[int, int]]:
    """Return pairs of commands on different units that conflict and may run at the same time.

    Two commands conflict if they share a byte and one of them writes it.
    """
    before = predecessors(commands)
    operands = [command.instruction.operands(command, arch) for command in commands]
    return [
        (first, second)
        for second in range(len(commands))
        for first in range(second)
        if commands[first].unit is not commands[second].unit
        and first not in before[second]
        and _conflict(operands[first], operands[second])
    ]


def _conflict(first: Operands, second: Operands) -> bool:
    pairs = [
        (written, access) for written in first.writes for access in (*second.reads, *second.writes)
    ]
    pairs += [(written, access) for written in second.writes for access in first.reads]
    return any(overlap(written, access) is not None for written, access in pairs)
