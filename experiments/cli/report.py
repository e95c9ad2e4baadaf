"""``dla report``: a saved run, two runs, a system or a sweep as tables, a page and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli import options, results
from experiments.literal import say
from experiments.running.declared import option, same
from experiments.running.given import RunRequest
from isa.errors import InputError
from isa.files import write_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.report.schema import RunReport

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN|SYSTEM|SWEEP.sqlite",
        help="What dla run --json, dla system --json or dla sweep wrote; two runs with --compare.",
    ),
]
Compare = Annotated[bool, typer.Option("--compare", help="Put two runs side by side: dla report --compare A B.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="DIR|FILE.html", help="Where it goes. Default: <name>-report beside RUN."),
    results.Place(folder=True),
]
Pictures = Annotated[
    Path | None, typer.Option("--png", metavar="DIR", help="Where the pictures go."), results.Place(folder=True)
]
Tables = Annotated[bool, typer.Option("--tables", help="Print the tables and write no page.")]
PAGE_ENDINGS = (".html", ".htm")


@dataclass(frozen=True)
class OfSweep:
    """What is shown of a sweep."""

    x: str | None = field(
        default=None,
        metadata=option("--x", "Sweeps: Pareto front over this. Default: pe_sram.", metavar="COLUMN"),
    )
    y: str | None = field(
        default=None, metadata=option("--y", "Sweeps: the other one. Default: cycles.", metavar="COLUMN")
    )
    cost: str | None = field(default=None, metadata=same(RunRequest, "cost"))


@options.expanded
def command(
    files: Files,
    compare: Compare = False,
    output: Output = None,
    png: Pictures = None,
    tables: Tables = False,
    *,
    of_sweep: OfSweep,
    csv: options.Csv = None,
    summary: options.Summary = False,
) -> None:
    """Show a saved run, and write it as an HTML page with charts and as PNG pictures."""
    from experiments.report.terminal import report_console
    from experiments.sweep.results import is_sweep

    _check(files, compare, tables and (output is not None or png is not None))
    sweep = not compare and is_sweep(files[0])
    if not sweep and of_sweep != OfSweep():
        raise InputError("--x, --y and --cost are for the results of sweeps; leave them out for runs")
    if summary and (sweep or compare):
        raise InputError("--summary is for one run; leave it out for sweeps and comparisons")
    if compare:
        document = _comparison(files[0], files[1])
    elif sweep:
        document = _sweep(files[0], of_sweep)
    else:
        document = _saved(files[0], summary)
    if csv is not None:
        results.write_csv(csv, document.rows())
    document.show(report_console())
    if tables:
        return
    page, pictures = _places(document.name, files[0], output, png)
    write_atomically(page, document.page())
    say(f"page written to {page}")
    if pictures is not None:
        made = document.pictures(pictures)
        say(f"{len(made)} pictures written to {pictures}")


def _check(files: list[Path], compare: bool, contradictory: bool) -> None:
    if contradictory:
        raise InputError("--tables writes nothing; leave out --output and --png, or --tables")
    if len(files) != 1 + compare:
        wanted = "two runs: dla report --compare A B" if compare else "one file, or two runs with --compare"
        raise InputError(f"dla report was given {len(files)} file{'s' * (len(files) != 1)}; give {wanted}")


def _places(name: str, beside: Path, output: Path | None, pictures: Path | None) -> tuple[Path, Path | None]:
    """The file of the page, and the folder of the pictures, or None where none are wanted, of the report ``name``.

    ``output``: a file that ends in .html (then pictures are made only if ``pictures`` says where), or a folder for
    both; without it the folder ``<name>-report`` next to ``beside``.
    """
    if output is not None and output.suffix.lower() in PAGE_ENDINGS and not output.is_dir():
        return output, pictures
    folder = output or beside.with_name(f"{name}-report")
    return folder / f"{name}.html", pictures or folder


@dataclass(frozen=True, eq=False)
class _Document:
    """A report called ``name``; nothing is drawn before it is asked for. ``pictures`` writes into a folder."""

    name: str
    show: Callable[[Console], None]
    rows: Callable[[], Sequence[Mapping[str, Any]]]
    page: Callable[[], str]
    pictures: Callable[[Path], tuple[Path, ...]]


def _saved(file: Path, summary: bool) -> _Document:
    """The report of one run, of a network or of a system; raises InputError when the file is none."""
    from experiments.report.store import saved_content, schema_of
    from experiments.systems.report import SCHEMA
    from experiments.systems.sweep import SCHEMA as SWEEP

    content = saved_content(file)
    if schema_of(content) == SWEEP:
        raise InputError(f"{file}: a sweep of a system, of which there is no page; --csv FILE writes it as a table")
    if schema_of(content) != SCHEMA:
        return _run(content, file, summary)
    if summary:
        raise InputError(f"{file}: --summary is for runs of one network; leave it out for systems")
    return _system(content, file)


def _run(content: Any, file: Path, summary: bool) -> _Document:
    """A run of a network."""
    from experiments.report.charts.run import run_charts
    from experiments.report.html_run import run_page
    from experiments.report.plots import save_charts
    from experiments.report.rows import layer_rows
    from experiments.report.store import run_report
    from experiments.report.tables import print_report

    report = run_report(content, file)
    charts = partial(save_charts, run_charts(report))
    show = partial(print_report, report, summary=summary)
    return _Document(file.stem, show, partial(layer_rows, report), partial(run_page, report), charts)


def _system(content: Any, file: Path) -> _Document:
    """A run of a system."""
    from experiments.report.plots import save_charts
    from experiments.systems.charts import system_charts
    from experiments.systems.page import system_page
    from experiments.systems.presentation import print_system
    from experiments.systems.report import system_report, task_rows

    report = system_report(content, file)
    charts = partial(save_charts, system_charts(report))
    shown, page = partial(print_system, report), partial(system_page, report)
    return _Document(file.stem, shown, lambda: list(task_rows(report)), page, charts)


def _comparison(before: Path, after: Path) -> _Document:
    """Two runs side by side; raises InputError when one of the files is none."""
    from experiments.compare.comparison import compare, comparison_rows
    from experiments.compare.page import comparison_charts, comparison_page
    from experiments.compare.sources import report_snapshot
    from experiments.compare.tables import print_comparison
    from experiments.report.plots import save_charts

    found = compare(*(report_snapshot(_run_of(file), file.stem) for file in (before, after)))
    charts = partial(save_charts, comparison_charts(found))
    name = f"{before.stem}-against-{after.stem}"
    shown, rows = partial(print_comparison, found), partial(comparison_rows, found)
    return _Document(name, shown, rows, partial(comparison_page, found), charts)


def _run_of(file: Path) -> RunReport:
    """The report of a run of a network; raises InputError when the file is none."""
    from experiments.report.store import run_report, saved_content, schema_of
    from experiments.systems.report import SCHEMA

    content = saved_content(file)
    if schema_of(content) == SCHEMA:
        remedy = "'dla system FILE --sweep KEY=VALUE,...' puts systems side by side"
        raise InputError(f"{file}: a run of a system, and --compare is for two runs of networks; {remedy}")
    return run_report(content, file)


def _sweep(file: Path, wanted: OfSweep) -> _Document:
    """A sweep's results, with the front over two columns; raises InputError when the file or a column is none.

    A cost table estimates energy and area; they are columns, too.
    """
    from experiments.sweep.frame import flat_rows
    from experiments.sweep.page import sweep_page
    from experiments.sweep.plots import save_sweep
    from experiments.sweep.results import load_sweep
    from experiments.sweep.tables import print_sweep

    sweep = load_sweep(file, wanted.cost)
    chosen = sweep.objectives(wanted.x, wanted.y)
    return _Document(
        file.stem,
        partial(print_sweep, sweep, chosen),
        lambda: list(flat_rows(file, wanted.cost)),
        partial(sweep_page, sweep, chosen),
        partial(save_sweep, sweep, chosen),
    )
