"""What the sanitizer looks at and what it reports: a stream without time, and findings on it.

A finding names its commands, bytes and source layers in one line.
"""

from __future__ import annotations

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
"""Kinds that make a stream suspicious rather than wrong."""

_SHOWN_RANGES = 3


@dataclass(frozen=True)
class Site:
    """A command: its word, mnemonic and unit, and the layer and tile that it comes from, where they are known."""

    word: int
    mnemonic: str
    unit: str
    layer: str | None
    tile: int | None

    def __str__(self) -> str:
        source = f" (layer '{self.layer}', tile {self.tile})" if self.layer is not None else ""
        return f"{self.mnemonic} at word {self.word} on {self.unit}{source}"


@dataclass(frozen=True)
class Finding:
    """One thing wrong with a command stream.

    ``sites`` are the commands it is about, the earlier one in the stream first; ``ranges`` the half-open byte ranges of
    ``space`` concerned, ascending.
    """

    kind: Kind
    message: str
    sites: tuple[Site, ...] = ()
    space: Space | None = None
    ranges: tuple[Range, ...] = ()

    @property
    def level(self) -> Level:
        """``error`` for a stream that is not legal or has no defined result, else ``warning``."""
        return "warning" if self.kind in WARNINGS else "error"

    @property
    def text(self) -> str:
        return f"{self.level}: {self.kind}: {self.message}"


def site_of(command: Command, source: Provenance | None) -> Site:
    layer, tile = (source.layer, source.tile) if source is not None else (None, None)
    return Site(command.index, command.instruction.mnemonic_for(command.fields), command.unit.name, layer, tile)


def ranges_text(space: Space, ranges: Sequence[Range]) -> str:
    """The first ranges in words, with the number of further ones and of bytes."""
    shown = ", ".join(f"{low:#x} to {high:#x}" for low, high in ranges[:_SHOWN_RANGES])
    more = len(ranges) - _SHOWN_RANGES
    if more > 0:
        shown += f" and {more} more ranges, {sum(high - low for low, high in ranges)} bytes in all"
    return f"{SPACE_NAMES[space]} bytes {shown}"


@dataclass(frozen=True, eq=False)
class Stream:
    """The operations of a program in stream order, without ``OP_END``, each with its operands and provenance.

    ``given`` are further bytes of system memory that hold data before the run and may be overwritten.
    """

    program: Program
    commands: tuple[Command, ...]
    operands: tuple[Operands, ...]
    sources: tuple[Provenance | None, ...]
    given: tuple[Segment, ...] = ()

    def site(self, number: int) -> Site:
        """Command ``number`` for a finding."""
        return site_of(self.commands[number], self.sources[number])


def stream_of(program: Program, given: Sequence[Segment] = ()) -> Stream:
    """The stream of a program. Raises InputError for words that are not legal."""
    commands = program.commands[:-1]
    operands = tuple(command.instruction.operands(command, program.arch) for command in commands)
    return Stream(program, commands, operands, program.sources[:-1], tuple(given))
