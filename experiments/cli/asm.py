"""``dla asm`` and ``dla disasm``: assembly text → program, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options
from experiments.literal import say
from isa.files import write_atomically

Text = Annotated[Path, typer.Argument(metavar="TEXT", help="Assembly text, as dla disasm writes it.")]


def asm(text: Text, output: options.Output = None) -> None:
    """Assemble text into a program."""
    from isa import program_file
    from isa.assembler import load_text

    program = load_text(text)
    program.commands  # noqa: B018 - decoding proves that the words are legal
    place = output or text.with_suffix(".prog")
    program_file.save(program, place)
    say(f"{place}: {len(program.words)} words")


ProgramFile = Annotated[Path, typer.Argument(metavar="PROGRAM", help="A program, as dla emit writes it.")]


def disasm(program: ProgramFile, output: options.Output = None) -> None:
    """Show a program as assembly text that dla asm reads back to the bit."""
    from isa import program_file
    from isa.assembler import disassemble

    text = disassemble(program_file.load(program))
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)
        say(f"{output}: {text.count(chr(10))} lines")
