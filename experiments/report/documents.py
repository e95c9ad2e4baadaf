"""What ``dla report`` can show: a run, two runs, a sweep; each as tables, as a page and as pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Pictures = Callable[[Path], tuple[Path, ...]]


@dataclass(frozen=True, eq=False)
class Document:
    """A report called ``name``; nothing is drawn before it is asked for. ``pictures`` writes into a folder."""

    name: str
    show: Callable[[Console], None]
    page: Callable[[], str]
    pictures: Pictures


def run_document(file: Path) -> Document:
    """The report of one run; raises InputError when the file is none."""
    from experiments.report.breakdown import breakdown_table
    from experiments.report.charts.run import run_charts
    from experiments.report.html_run import run_page
    from experiments.report.plots import save_charts
    from experiments.report.store import load_report
    from experiments.report.tables import print_report

    report = load_report(file)

    def show(console: Console) -> None:
        print_report(report, console)
        breakdown = breakdown_table(report)
        if breakdown is not None:
            console.print(breakdown)

    return Document(file.stem, show, partial(run_page, report), partial(save_charts, run_charts(report)))


def comparison_document(before: Path, after: Path) -> Document:
    """Two runs side by side; raises InputError when one of the files is none."""
    from experiments.report.charts.comparison import comparison_charts
    from experiments.report.comparison import compare
    from experiments.report.comparison_tables import print_comparison
    from experiments.report.html_compare import comparison_page
    from experiments.report.plots import save_charts
    from experiments.report.store import load_report

    found, names = compare(load_report(before), load_report(after)), (before.stem, after.stem)
    return Document(
        f"{names[0]}-against-{names[1]}",
        partial(print_comparison, found, names),
        partial(comparison_page, found, names),
        partial(save_charts, comparison_charts(found)),
    )


def sweep_document(file: Path, across: str | None, up: str | None, cost: str | None) -> Document:
    """A sweep's results, with the front over two columns; raises InputError when the file or a column is none.

    ``cost`` names a table by which energy and area are estimated; they are columns, too.
    """
    from experiments.report.html_sweep import sweep_page
    from experiments.report.plots_sweep import save_sweep
    from experiments.report.sweep_table import load_sweep
    from experiments.report.sweep_text import print_sweep

    sweep = load_sweep(file, cost)
    chosen = sweep.objectives(across, up)
    return Document(
        file.stem,
        partial(print_sweep, sweep, chosen),
        partial(sweep_page, sweep, chosen),
        partial(save_sweep, sweep, chosen),
    )
