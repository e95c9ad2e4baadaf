"""``dla models``, ``dla isa``, ``dla support``: the networks, instructions and operators that there are.

Instructions and operators are shown with what installed packages add: as a table to read, as documentation, and the
instruction set as headers for C and Verilog, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from isa.errors import InputError
from isa.files import write_atomically

if TYPE_CHECKING:
    from byoc.operators.registry import SupportRow
    from isa.table import Table


def models(json: options.Json = None, csv: options.Csv = None) -> None:
    """List the built-in networks."""
    from experiments.models import MODELS
    from experiments.report.terminal import plain_table, report_console

    results.write_json(json, {model.name: model.description for model in MODELS.values()})
    results.write_csv(csv, [{"model": model.name, "description": model.description} for model in MODELS.values()])

    table = plain_table(("name", "left"), ("network", "fold"))
    for model in MODELS.values():
        table.add_row(model.name, model.description)
    report_console().print(table)


class IsaFormat(StrEnum):
    """What to print."""

    table = "table"
    markdown = "markdown"
    c = "c"
    verilog = "verilog"


IsaFormatOption = Annotated[IsaFormat, typer.Option("--format", help="A table; docs/isa.md; dla_isa.h; dla_isa.vh.")]
BuiltIn = Annotated[bool, typer.Option("--built-in", help="Leave out what installed packages add.")]


def isa(format: IsaFormatOption = IsaFormat.table, built_in: BuiltIn = False, output: options.Output = None) -> None:
    """Show the instruction set, with what installed packages add to it."""
    from isa import plugins, table

    found = table.built_in() if built_in else plugins.installed()
    if format is IsaFormat.table:
        if output is not None:
            raise InputError(f"--format table is for the terminal; choose markdown, c or verilog for {output}")
        _print_isa(found)
        return
    text = _isa_text(found, format)
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)
        say(f"{output}: {text.count(chr(10))} lines")


def _isa_text(found: Table, format: IsaFormat) -> str:
    from isa.documentation import markdown
    from isa.headers import c_header, verilog_header

    return {IsaFormat.c: c_header, IsaFormat.verilog: verilog_header}.get(format, markdown)(found)


def _print_isa(found: Table) -> None:
    from experiments.report.terminal import line, plain_table, report_console

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
        console.print(line(f"{variant.name}: {variant.description}"))


class SupportFormat(StrEnum):
    """What to print."""

    table = "table"
    markdown = "markdown"


SupportFormatOption = Annotated[SupportFormat, typer.Option("--format", help="A table; docs/support.md.")]


def support(
    format: SupportFormatOption = SupportFormat.table, built_in: BuiltIn = False, output: options.Output = None
) -> None:
    """Show which ONNX operators run on the accelerator, with what installed packages add, and the rules for each."""
    from byoc.operators import registry
    from byoc.operators.registry import markdown, support_table

    rows = support_table(registry.built_in() if built_in else registry.installed())
    if format is SupportFormat.table:
        if output is not None:
            raise InputError(f"--format table is for the terminal; choose markdown for {output}")
        _print_support(rows)
    elif output is None:
        print(markdown(rows), end="")
    else:
        text = markdown(rows)
        write_atomically(output, text)
        say(f"{output}: {text.count(chr(10))} lines")


def _print_support(rows: Sequence[SupportRow]) -> None:
    from experiments.report.terminal import plain_table, report_console

    console = report_console()
    shown = plain_table(("pattern", "left"), ("operators", "fold"), ("needs", "fold"), ("declared by", "left"))
    for row in rows:
        shown.add_row(row.family, ", ".join((*row.operators, *row.closes)), ", ".join(row.instructions), row.owner)
    console.print(shown)
    console.print("The rules that a node must meet: dla support --format markdown")
