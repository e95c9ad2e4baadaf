"""``dla disasm``: program → assembly text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options

ProgramFile = Annotated[Path, typer.Argument(metavar="PROGRAM", help="A program, as dla emit writes it.")]


def command(program: ProgramFile, output: options.Output = None) -> None:
    """Show a program as assembly text that dla asm reads back to the bit."""
    from isa import program_file
    from isa.assembler import disassemble
    from isa.files import write_atomically

    text = disassemble(program_file.load(program))
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)
        print(f"{output}: {text.count(chr(10))} lines")
