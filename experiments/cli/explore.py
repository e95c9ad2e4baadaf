"""``dla explore``: the best compromises of two objectives, found by looking at a part of the grid."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.literal import literal, say
from experiments.sweep.request import ExploreRequest
from isa.files import write_atomically
from isa.progress import Progress, silent

if TYPE_CHECKING:
    from experiments.explore.exploration import Exploration


Picture = Annotated[
    Path | None,
    typer.Option("--png", metavar="FILE.png", help="Draw the front and the progress."),
    results.Place(".png"),
]


@options.expanded
def command(wanted: ExploreRequest, json: options.Json = None, csv: options.Csv = None, png: Picture = None) -> int:
    """Search a sweep's specification for the front of two objectives; run it again to continue or to go further.

    Exit status 1 if no point is ok.
    """
    from experiments.explore.exploring import explore_requested
    from experiments.report.terminal import report_console
    from experiments.sweep.session import results_file, specified

    checked = specified(wanted)
    with options.stoppable(), _progress(wanted.trials) as (stage, report):
        found = explore_requested(replace(wanted, spec=checked, stage=stage, report=report))
    found.show(report_console())
    say(f"results in {results_file(checked, wanted.output)}")
    _write(found, json, csv, png)
    if any(point.row["status"] == "ok" for point in found.found):
        return 0
    why = found.found[0].row
    say(f"no point is ok; the first {why['status']}: {why['message']}", sys.stderr)
    return 1


def _write(found: Exploration, json: Path | None, csv: Path | None, png: Path | None) -> None:
    results.write_json(json, found.content())
    results.write_csv(csv, found.rows())
    for place in (json, csv):
        if place is not None:
            say(f"written: {place}")
    if png is not None:
        from experiments.explore.exploration import draw

        write_atomically(png, draw(found))
        say(f"written: {png}")


@contextmanager
def _progress(trials: int) -> Iterator[tuple[Progress, Callable[[int], None]]]:
    """What goes on, and a bar; silent unless standard error is a terminal."""
    if not sys.stderr.isatty():
        yield silent, silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from experiments.report.terminal import status_console

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Bar(*columns, console=status_console()) as bar:
        task = bar.add_task("reading", total=trials)

        def stage(said: str, done: int = 0, total: int = 0) -> None:
            bar.update(task, description=literal(said))

        yield stage, (lambda count: bar.update(task, completed=count))
