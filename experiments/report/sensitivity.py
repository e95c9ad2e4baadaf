"""Entry of a run report about the sensitivity of its cycles, and the entry's tables."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.report.parts import Count, Part, Text, Word
from experiments.report.terminal import Printed, plain_table

SENSITIVITY_NOTE = (
    "Each step of a parameter changes the accelerator's cycles by the number given, up to the "
    "value given; the program stays the same. The signs \u2265 and \u2264 mark ranges that may "
    "be larger. Each cycle by which a command ends later or earlier changes the cycles likewise. "
    "All changes are exact."
)
MOST_COMMANDS = 10
"""Most commands in a table."""
PARAMETER_COLUMNS = (
    "parameter", "value", "step", "up: cycles", "up to", "down: cycles", "down to",
)  # fmt: skip
COMMAND_COLUMNS = (
    "command", "layer", "cycles", "later: cycles", "up to", "earlier: cycles", "up to",
)  # fmt: skip


class ChangeEntry(Part):
    """Change of the run's cycles with each step of a number in one direction.

    ``until`` is the last value, or for a command the number of cycles, for which it holds.
    ``final`` is True if the next step does not exist or has another change; otherwise the change
    may hold further.
    """

    cycles: int
    until: int | float | Text
    final: bool


class ParameterEntry(Part):
    """Sensitivity to one key of the Timing; None is a direction in which no value runs."""

    name: Word
    value: int | float | Text
    step: Text
    up: ChangeEntry | None
    down: ChangeEntry | None


class CommandEntry(Part):
    """Sensitivity to the end of one command of a region's program, in cycles."""

    region: Count
    number: Count
    layer: Text
    instruction: Word
    cycles: Count
    later: ChangeEntry | None
    earlier: ChangeEntry | None


class SensitivityEntry(Part):
    """Sensitivity of a run's cycles to all parameters of its Timing and to all its commands."""

    parameters: tuple[ParameterEntry, ...]
    commands: tuple[CommandEntry, ...]


def list_parameter_rows(found: SensitivityEntry) -> list[tuple[str, ...]]:
    """Return the cells of :data:`PARAMETER_COLUMNS` for each parameter."""
    return [
        (one.name, str(one.value), one.step, *_spell(one.up, "\u2265"), *_spell(one.down, "\u2264"))
        for one in found.parameters
    ]


def list_command_rows(found: SensitivityEntry) -> list[tuple[str, ...]]:
    """Return the cells of :data:`COMMAND_COLUMNS` for the commands with the largest effect.

    They are the longest ones of those that change the run's cycles most.
    """
    ranked = sorted(
        found.commands,
        key=lambda one: (-max(_size(one.later), _size(one.earlier)), -one.cycles, one.number),
    )
    return [
        (
            f"{one.number} {one.instruction}",
            one.layer,
            f"{one.cycles:,}",
            *_spell(one.later, "\u2265"),
            *_spell(one.earlier, "\u2265"),
        )
        for one in ranked[:MOST_COMMANDS]
    ]


def _size(change: ChangeEntry | None) -> int:
    return 0 if change is None else abs(change.cycles)


def _spell(change: ChangeEntry | None, beyond: str) -> tuple[str, str]:
    """Return a change and its range as cells; ``beyond`` marks a range that may be larger."""
    if change is None:
        return "", ""
    until = change.until if isinstance(change.until, str) else f"{change.until:,}"
    return f"{change.cycles:+,}", until if change.final else f"{beyond} {until}"


def sensitivity_tables(found: SensitivityEntry) -> Iterator[Printed]:
    """Yield the table of the parameters, and that of the commands with the largest effect."""
    sides = ("left", "right", "left", "right", "right", "right", "right")
    yield plain_table(*zip(PARAMETER_COLUMNS, sides, strict=True), rows=list_parameter_rows(found))
    sides = ("left", "fold", "right", "right", "right", "right", "right")
    yield plain_table(*zip(COMMAND_COLUMNS, sides, strict=True), rows=list_command_rows(found))
