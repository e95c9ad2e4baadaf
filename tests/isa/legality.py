"""Check token legality: in stream order, every pop finds a token, and none is left over.

A legal program cannot deadlock, whatever the depth of the units' queues: the oldest unfinished
command can always run.
"""

from __future__ import annotations

from collections.abc import Iterable

from isa.errors import InputError
from isa.instruction import Command
from isa.sanitizer.order import Queue, list_awaited_units, list_notified_units


def check_legality(commands: Iterable[Command]) -> None:
    """Raise InputError if a pop has no earlier push or a queue keeps tokens.

    The error names the first such command, or the queue.
    """
    tokens: dict[Queue, int] = {}
    for command in commands:
        for giver in list_awaited_units(command):
            queue = giver, command.unit
            if not tokens.get(queue, 0):
                raise InputError(
                    f"word {command.index}: {command.instruction.mnemonic} on {command.unit.name} "
                    "waits for a token "
                    f"from {giver.name}, but no earlier command gives one; the program would never "
                    "end",
                    words=(command.index,),
                )
            tokens[queue] -= 1
        for taker in list_notified_units(command):
            queue = command.unit, taker
            tokens[queue] = tokens.get(queue, 0) + 1
    for (giver, taker), count in tokens.items():
        if count:
            raise InputError(
                f"{count} tokens from {giver.name} to {taker.name} are left over at the end; "
                "pushes and pops must balance"
            )
