"""``dla report``: a saved run, two runs or a sweep as tables, a page and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options

Files = Annotated[
    list[Path],
    typer.Argument(metavar="RUN|SWEEP.sqlite", help="What dla run --json or dla sweep wrote; two runs with --compare."),
]
Compare = Annotated[bool, typer.Option("--compare", help="Put two runs side by side: dla report --compare A B.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="DIR|FILE.html", help="Where it goes. Default: <name>-report beside RUN."),
]
Pictures = Annotated[Path | None, typer.Option("--png", metavar="DIR", help="Where the pictures go.")]
Tables = Annotated[bool, typer.Option("--tables", help="Print the tables and write nothing.")]
Across = Annotated[
    str | None, typer.Option("--x", metavar="COLUMN", help="Sweeps: Pareto front over this. Default: pe_sram.")
]
Up = Annotated[str | None, typer.Option("--y", metavar="COLUMN", help="Sweeps: the other one. Default: cycles.")]


def command(
    files: Files,
    compare: Compare = False,
    output: Output = None,
    png: Pictures = None,
    tables: Tables = False,
    x: Across = None,
    y: Up = None,
    cost: options.Cost = None,
) -> None:
    """Show a saved run, and write it as an HTML page with charts and as PNG pictures."""
    from experiments.report.documents import comparison_document, run_document, sweep_document
    from experiments.report.output import places
    from experiments.report.sweep_file import is_sweep
    from experiments.report.terminal import report_console
    from isa.errors import InputError
    from isa.files import write_atomically

    _check(files, compare, tables and (output is not None or png is not None))
    sweep = not compare and is_sweep(files[0])
    if not sweep and (x, y, cost) != (None, None, None):
        raise InputError("--x, --y and --cost are for the results of sweeps; leave them out for runs")
    if compare:
        document = comparison_document(files[0], files[1])
    elif sweep:
        document = sweep_document(files[0], x, y, cost)
    else:
        document = run_document(files[0])
    document.show(report_console())
    if tables:
        return
    where = places(document.name, files[0], output, png)
    write_atomically(where.page, document.page())
    print(f"page written to {where.page}")
    if where.pictures is not None:
        made = document.pictures(where.pictures)
        print(f"{len(made)} pictures written to {where.pictures}")


def _check(files: list[Path], compare: bool, contradictory: bool) -> None:
    from isa.errors import InputError

    if contradictory:
        raise InputError("--tables writes nothing; leave out --output and --png, or --tables")
    if len(files) != 1 + compare:
        wanted = "two runs: dla report --compare A B" if compare else "one file, or two runs with --compare"
        raise InputError(f"dla report was given {len(files)} file{'s' * (len(files) != 1)}; give {wanted}")
