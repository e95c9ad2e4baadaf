"""``dla isa``: the instruction set, as a table to read, as documentation, and as headers for C and Verilog."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options
from isa.errors import InputError

if TYPE_CHECKING:
    from isa.table import Table


class Format(StrEnum):
    """What to print."""

    table = "table"
    markdown = "markdown"
    c = "c"
    verilog = "verilog"


FormatOption = Annotated[Format, typer.Option("--format", help="A table; docs/isa.md; dla_isa.h; dla_isa.vh.")]
BuiltIn = Annotated[bool, typer.Option("--built-in", help="Leave out what installed packages add.")]


def command(format: FormatOption = Format.table, built_in: BuiltIn = False, output: options.Output = None) -> None:
    """Show the instruction set, with what installed packages add to it."""
    from isa import plugins, table

    found = table.built_in() if built_in else plugins.installed()
    if format is Format.table:
        if output is not None:
            raise InputError(f"--format table is for the terminal; choose markdown, c or verilog for {output}")
        _print(found)
        return
    from isa.files import write_atomically

    text = _text(found, format)
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)
        print(f"{output}: {text.count(chr(10))} lines")


def _text(found: Table, format: Format) -> str:
    from isa.documentation import markdown
    from isa.headers import c_header, verilog_header

    return {Format.c: c_header, Format.verilog: verilog_header}.get(format, markdown)(found)


def _print(found: Table) -> None:
    from experiments.report.terminal import plain_table, report_console

    names = [variant.name for variant in found.variants]
    columns = [("instruction", "left"), ("opcode", "left"), ("unit", "left"), ("kind", "left")]
    shown = plain_table(*columns, *((name, "left") for name in names), ("declared by", "left"))
    for item in found.instructions:
        unit = item.unit.name if item.unit else "any"
        marks = ("yes" if item in variant.instructions else "" for variant in found.variants)
        shown.add_row(item.mnemonic, f"{item.opcode:#04x}", unit, item.kind, *marks, found.owner(item.mnemonic))
    console = report_console()
    console.print(shown)
    for variant in found.variants:
        console.print(f"{variant.name}: {variant.description}")
