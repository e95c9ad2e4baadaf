"""Input and output of the sanitizer: a command stream without timing, and its findings.

A finding names its commands, bytes and source layers in one line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from isa.access import SPACE_NAMES, Range, Space
from isa.instruction import Command, Operands
from isa.program import Program, Provenance, Segment

Level = Literal["error", "warning"]
Kind = Literal[
    "read-after-write race",
    "write-after-read race",
    "write-after-write race",
    "token underflow",
    "tokens left over",
    "token too late",
    "token on OP_END",
    "deadlock",
    "read of unwritten bytes",
    "output not written",
    "out of range",
    "misaligned",
    "protected write",
    "operand overwritten",
    "layout mismatch",
    "unset register",
    "unused result",
]
WARNINGS: frozenset[Kind] = frozenset({"unset register", "unused result"})
"""Kinds that make a stream suspicious but not wrong."""

_SHOWN_RANGES = 3


@dataclass(frozen=True)
class Site:
    """Position of a command in the stream: word, mnemonic, unit, layer and tile.

    Layer and tile are given if known.
    """

    word: int
    mnemonic: str
    unit: str
    layer: str | None
    tile: int | None

    def __str__(self) -> str:
        source = f" (layer '{self.layer}', tile {self.tile})" if self.layer is not None else ""
        return f"{self.mnemonic} at word {self.word} on {self.unit}{source}"


@dataclass(frozen=True)
class SanitizerFinding:
    """One error or warning about a command stream.

    ``sites`` are the commands involved, in stream order; ``ranges`` are the half-open byte ranges
    of ``space`` involved, ascending.
    """

    kind: Kind
    message: str
    sites: tuple[Site, ...] = ()
    space: Space | None = None
    ranges: tuple[Range, ...] = ()

    @property
    def level(self) -> Level:
        """Severity of the finding: ``error`` or ``warning``.

        An error is a stream that is illegal or has no defined result.
        """
        return "warning" if self.kind in WARNINGS else "error"

    @property
    def text(self) -> str:
        return f"{self.level}: {self.kind}: {self.message}"


def ranges_text(space: Space, ranges: Sequence[Range]) -> str:
    """Return a text that lists the first byte ranges and counts the others."""
    shown = ", ".join(f"{low:#x} to {high:#x}" for low, high in ranges[:_SHOWN_RANGES])
    more = len(ranges) - _SHOWN_RANGES
    if more > 0:
        shown += f" and {more} more ranges, {sum(high - low for low, high in ranges)} bytes in all"
    return f"{SPACE_NAMES[space]} bytes {shown}"


@dataclass(frozen=True, eq=False)
class CommandStream:
    """Operations of a program in stream order, each with its operands and provenance.

    ``OP_END`` is left out. ``given`` are further bytes of system memory that contain data before
    the run and may be overwritten.
    """

    program: Program
    commands: tuple[Command, ...]
    operands: tuple[Operands, ...]
    sources: tuple[Provenance | None, ...]
    given: tuple[Segment, ...] = ()

    def site(self, number: int) -> Site:
        """Return the position of command ``number`` for a finding."""
        command = self.commands[number]
        source = self.sources[number]
        return Site(
            command.index,
            command.instruction.mnemonic_for(command.fields),
            command.unit.name,
            source.layer if source is not None else None,
            source.tile if source is not None else None,
        )


def stream_of(program: Program, given: Sequence[Segment] = ()) -> CommandStream:
    """Return a program's command stream for the sanitizer.

    Raises InputError for illegal words.
    """
    commands = program.commands[:-1]
    operands = tuple(command.instruction.operands(command, program.arch) for command in commands)
    return CommandStream(program, commands, operands, program.sources[:-1], tuple(given))
