"""``dla validate``: compares machine descriptions with published figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from experiments.report.terminal import plain_table, print_parts
from isa.errors import InputError

if TYPE_CHECKING:
    from experiments.machines.validate import FigureComparison, MachineErrors

MachineName = Annotated[
    str | None,
    typer.Argument(metavar="[MACHINE]", help="Machine, or its .py file. Default: all machines."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Leave out figures that need a network to be compiled.")
]


def command(
    machine: MachineName = None,
    quick: Quick = False,
    json: options.Json = None,
    csv: options.Csv = None,
) -> int:
    """Compare machine descriptions with published cycles and times.

    Each row has the prediction, the published value and the error. The role says whether a
    parameter was fitted to the row.

    The exit status is 1 if an error is larger than the row claims.
    """
    from experiments.machines.discovery import find_machine, list_machines
    from experiments.machines.uncompared import UNCOMPARED
    from experiments.machines.validate import compare_machines, summarize

    machines = [find_machine(machine)] if machine else list(list_machines().values())
    published = [one for one in machines if one.published]
    if not published:
        names = ", ".join(name for name, one in list_machines().items() if one.published)
        raise InputError(f"machine {machine} has no published figures; choose one of {names}")
    with options.stages() as progress:
        rows = list(compare_machines(published, quick=quick, stage=progress))
    summary = summarize(rows, published)
    uncompared = () if machine else UNCOMPARED
    written = {
        "figures": [row.to_row() for row in rows],
        "machines": [asdict(errors) for errors in summary],
        "not_compared": [asdict(figure) for figure in uncompared],
    }
    results.write_tables(json, csv, written, written["figures"])
    _print_rows(rows)
    _print_summary(summary)
    if uncompared:
        say(f"{len(uncompared)} published figures are not comparable; docs/validation.md says why")
    failed = [row for row in rows if not row.is_within_claim]
    for row in failed:
        say(
            f"{row.machine}: {row.figure.network}, {row.figure.condition}: "
            f"error {row.error:+.2%}, claimed {row.figure.claim:.2%}",
            file=sys.stderr,
        )
    return 1 if failed else 0


def _print_rows(rows: Sequence[FigureComparison]) -> None:
    numbers = (("ours", "right"), ("published", "right"), ("unit", "left"), ("error", "right"))
    table = plain_table(
        ("machine", "left"), ("network", "fold"), ("condition", "fold"), *numbers, ("role", "left")
    )
    for row in rows:
        figure = row.figure
        places = 0 if figure.unit == "cycles" else 2
        ours = "" if row.ours is None else f"{row.ours:,.{places}f}"
        error = "" if row.error is None else f"{row.error:+.2%}"
        theirs = f"{figure.value:,.{places}f}"
        names = row.machine, figure.network, figure.condition
        table.add_row(*names, ours, theirs, figure.unit, error, figure.role)
    print_parts(table)


def _print_summary(summary: Sequence[MachineErrors]) -> None:
    table = plain_table(
        ("machine", "left"),
        ("role", "left"),
        ("figures", "right"),
        ("mean error", "right"),
        ("worst error", "right"),
        ("of", "fold"),
        ("fitted parameters", "fold"),
    )
    for errors in summary:
        table.add_row(
            errors.machine,
            errors.role,
            str(errors.compared),
            f"{errors.mean:.2%}",
            f"{errors.worst:.2%}",
            errors.network,
            ", ".join(errors.fitted),
        )
    print_parts(table)
