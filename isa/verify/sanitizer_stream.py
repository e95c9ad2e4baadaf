"""The command stream as the sanitizer sees it: commands with their byte ranges and sources, nothing of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isa.instruction import Command, Operands
from isa.program import Program, Provenance, Segment
from isa.verify.sanitizer_findings import Site, site_of


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
