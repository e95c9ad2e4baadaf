"""``dla report``: a saved run, two runs, a system or a sweep as tables, a page and images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from experiments.sweep.request import OfSweep
from isa.errors import InputError
from isa.files import write_atomically

if TYPE_CHECKING:
    from experiments.report.schema import RunReport
    from experiments.report.shown import Shown

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN|SYSTEM|SWEEP.sqlite",
        help="Result of dla run --json, dla system --json or dla sweep; two runs with --compare.",
    ),
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Compare two runs: dla report --compare A B.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR|FILE.html",
        help="Write the report here. Default: the folder <name>-report next to RUN.",
    ),
    results.Destination(folder=True),
]
Pictures = Annotated[
    Path | None,
    typer.Option("--png", metavar="DIR", help="Write the images to this folder."),
    results.Destination(folder=True),
]
Tables = Annotated[bool, typer.Option("--tables", help="Print the tables; write no report.")]
PAGE_ENDINGS = (".html", ".htm")


@options.expand_options
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
    """Show saved results, and write them as an HTML page with charts and as PNG images."""
    from experiments.report.terminal import report_console
    from experiments.sweep.results import is_sweep
    from isa.reading import check_file

    _check(files, compare, tables and (output is not None or png is not None))
    for file in files:
        sweep_file = file.suffix == ".sqlite"
        maker, what = (
            ("sweep SPEC.toml --output", "results")
            if sweep_file
            else ("run MODEL --json", "a report")
        )
        check_file(file, f"'dla {maker} {file}' makes {what}")
    sweep = not compare and is_sweep(files[0])
    if not sweep and of_sweep != OfSweep():
        raise InputError(
            "--x, --y, --where and --cost are for the results of sweeps; leave them out for runs"
        )
    if summary and (sweep or compare):
        raise InputError("--summary is for one run; leave it out for sweeps and comparisons")
    if compare:
        name = f"{files[0].stem}-against-{files[1].stem}"
        document = _comparison(files[0], files[1])
    else:
        name = files[0].stem
        document = _sweep(files[0], of_sweep) if sweep else _load_saved(files[0], summary)
    if csv is not None:
        results.write_csv(csv, document.records())
    document.show(report_console(), "brief" if summary else "tables")
    if tables:
        return
    page, pictures = _places(name, files[0], output, png)
    write_atomically(page, document.page())
    say(f"page written to {page}")
    if pictures is not None:
        made = document.pictures(pictures)
        say(f"{len(made)} images written to {pictures}")


def _check(files: list[Path], compare: bool, contradictory: bool) -> None:
    if contradictory:
        raise InputError("--tables writes nothing; leave out --output and --png, or --tables")
    if len(files) != 1 + compare:
        wanted = (
            "two runs: dla report --compare A B"
            if compare
            else "one file, or two runs with --compare"
        )
        raise InputError(
            f"dla report was given {len(files)} file{'s' * (len(files) != 1)}; give {wanted}"
        )


def _places(
    name: str, beside: Path, output: Path | None, pictures: Path | None
) -> tuple[Path, Path | None]:
    """Return the HTML file of a report and the folder of its images, or None for no images.

    ``name`` is the name of the report. ``output`` is a file that ends in .html, or a folder for
    both. With a file, images are drawn only if ``pictures`` is a folder. Without ``output``, both
    go to the folder ``<name>-report`` next to ``beside``.
    """
    from experiments.report.store import page_path

    if output is not None and output.suffix.lower() in PAGE_ENDINGS and not output.is_dir():
        return output, pictures
    page = page_path(beside, name) if output is None else output / f"{name}.html"
    return page, pictures or page.parent


def _load_saved(file: Path, summary: bool) -> Shown:
    """Return the report of one run of a network or a system.

    Raise InputError if the file contains none.
    """
    from experiments.report.shown import Document
    from experiments.report.store import read_saved, run_report, schema_of
    from experiments.running.result import RUN
    from experiments.systems.report import SCHEMA, system_report
    from experiments.systems.result import SYSTEM
    from experiments.systems.sweep import SCHEMA as SWEEP

    content = read_saved(file)
    if schema_of(content) == SWEEP:
        remedy = "'dla system ... --sweep ... --output FILE' keeps results of which there is one"
        raise InputError(f"{file}: a sweep of a system, of which there is no page; {remedy}")
    if schema_of(content) != SCHEMA:
        return Document(run_report(content, file), RUN)
    if summary:
        raise InputError(f"{file}: --summary is for runs of one network; leave it out for systems")
    return Document(system_report(content, file), SYSTEM)


def _comparison(before: Path, after: Path) -> Shown:
    """Return the comparison of two runs; raise InputError if a file contains none."""
    from experiments.compare.comparison import compare
    from experiments.compare.presentation import COMPARISON
    from experiments.compare.sources import report_snapshot
    from experiments.report.shown import Document

    return Document(
        compare(*(report_snapshot(_run_of(file), file.stem) for file in (before, after))),
        COMPARISON,
    )


def _run_of(file: Path) -> RunReport:
    """Return the report of a run of a network; raise InputError if the file contains none."""
    from experiments.report.store import read_saved, run_report, schema_of
    from experiments.systems.report import SCHEMA

    content = read_saved(file)
    if schema_of(content) == SCHEMA:
        remedy = "'dla system FILE --sweep KEY=VALUE,...' puts systems side by side"
        raise InputError(
            f"{file}: a run of a system, and --compare is for two runs of networks; {remedy}"
        )
    return run_report(content, file)


def _sweep(file: Path, wanted: OfSweep) -> Shown:
    """Load a sweep's results and return them with the Pareto front over two columns.

    Raise InputError for a wrong file or column. The results of a joint sweep are its machines and
    their answer, unless columns are chosen. A cost table adds energy and area.
    """
    from experiments.cost.table import DEFAULT_TABLE
    from experiments.report.shown import Document
    from experiments.sweep.joint import load_joint
    from experiments.sweep.presentation import FRONT
    from experiments.sweep.results import OTHER_NAMES, load_sweep

    if (wanted.x, wanted.y) == (None, None):
        joint = load_joint(file, wanted.cost, wanted.where)
        if joint is not None:
            return joint
    keys = " ".join(filter(None, (wanted.x, wanted.y, wanted.where)))
    priced = any(name in keys for name in ("uJ", "mm2", *list(OTHER_NAMES)[1:]))
    cost = wanted.cost or (DEFAULT_TABLE if priced else None)
    sweep = load_sweep(file, cost, wanted.where)
    return Document((sweep, sweep.objectives(wanted.x, wanted.y)), FRONT)
