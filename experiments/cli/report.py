"""``dla report``: a saved run report as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunFile = Annotated[Path, typer.Argument(metavar="RUN", help="A run report, as dla run --json writes it.")]


def command(run: RunFile) -> None:
    """Show the tables of a saved run."""
    from experiments.report.store import load_report
    from experiments.report.tables import print_report, report_console

    print_report(load_report(run), report_console())
