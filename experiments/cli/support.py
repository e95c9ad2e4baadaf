"""``dla support``: which ONNX operators run on the accelerator, and the rules that a node must meet."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options
from isa.errors import InputError

if TYPE_CHECKING:
    from byoc.patterns.support import SupportRow


class Format(StrEnum):
    """What to print."""

    table = "table"
    markdown = "markdown"


FormatOption = Annotated[Format, typer.Option("--format", help="A table; docs/support.md.")]
BuiltIn = Annotated[bool, typer.Option("--built-in", help="Leave out what installed packages add.")]


def command(format: FormatOption = Format.table, built_in: BuiltIn = False, output: options.Output = None) -> None:
    """Show which ONNX operators run on the accelerator, with what installed packages add, and the rules for each."""
    from byoc.patterns import registry
    from byoc.patterns.support import markdown, support_table

    rows = support_table(registry.built_in() if built_in else registry.installed())
    if format is Format.table:
        if output is not None:
            raise InputError(f"--format table is for the terminal; choose markdown for {output}")
        _print(rows)
    elif output is None:
        print(markdown(rows), end="")
    else:
        from isa.files import write_atomically

        text = markdown(rows)
        write_atomically(output, text)
        print(f"{output}: {text.count(chr(10))} lines")


def _print(rows: Sequence[SupportRow]) -> None:
    from experiments.report.terminal import plain_table, report_console

    console = report_console()
    shown = plain_table(("pattern", "left"), ("operators", "fold"), ("needs", "fold"), ("declared by", "fold"))
    for row in rows:
        shown.add_row(row.pattern, ", ".join(row.operators), ", ".join(row.instructions), row.owner)
    console.print(shown)
    console.print("The rules that a node must meet: dla support --format markdown", markup=False)
