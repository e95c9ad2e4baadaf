"""``dla explore``: the best compromises of two objectives, found by looking at a part of the grid."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.cli.sweep import Results, Scheduler, SpecFile, Workers
from experiments.literal import literal, say
from isa.files import write_atomically
from isa.progress import Progress, silent

if TYPE_CHECKING:
    from experiments.explore.run import Exploration


class Sampler(StrEnum):
    """What proposes the points."""

    tpe = "tpe"
    nsga2 = "nsga2"
    random = "random"


Names = Annotated[
    str, typer.Option("--objectives", metavar="A,B", help="What to trade, e.g. cycles,area (docs/sweeps.md).")
]
Trials = Annotated[int, typer.Option("--trials", metavar="N", help="Points to evaluate.")]
SamplerChoice = Annotated[Sampler, typer.Option("--sampler", help="Optuna's sampler: TPE, NSGA-II or random.")]
SearchSeed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the search.")]
WholeGrid = Annotated[
    bool | None,
    typer.Option(
        "--grid/--no-grid", help="Run the whole grid, too, and say how much the search needed. Default: small grids."
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option("--png", metavar="FILE.png", help="Draw the front and the progress."),
    results.Place(".png"),
]


def command(
    spec: SpecFile,
    objectives: Names = "cycles,area",
    trials: Trials = 100,
    sampler: SamplerChoice = Sampler.tpe,
    seed: SearchSeed = 0,
    cost: options.Cost = None,
    grid: WholeGrid = None,
    output: Results = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    json: options.Json = None,
    csv: options.Csv = None,
    png: Picture = None,
) -> int:
    """Search a sweep's specification for the front of two objectives; run it again to continue or to go further.

    Exit status 1 if no point is ok.
    """
    from experiments.explore.workflow import explore
    from experiments.sweep.spec import load_spec
    from experiments.sweep.workflow import results_file

    checked = load_spec(spec)
    with options.stoppable(), _progress(trials) as (stage, report):
        found = explore(
            checked,
            objectives=objectives,
            trials=trials,
            sampler=sampler.value,
            seed=seed,
            cost=cost,
            grid=grid,
            output=output,
            workers=workers,
            scheduler=scheduler,
            stage=stage,
            report=report,
        )
    _print(found)
    say(f"results in {results_file(checked, output)}")
    _write(found, json, csv, png)
    if any(point.row["status"] == "ok" for point in found.found):
        return 0
    why = found.found[0].row
    say(f"no point is ok; the first {why['status']}: {why['message']}", sys.stderr)
    return 1


def _print(found: Exploration) -> None:
    from experiments.explore.presentation import front_table, lines
    from experiments.report.terminal import line, report_console

    console = report_console()
    console.print(front_table(found))
    for text in lines(found):
        console.print(line(text), soft_wrap=True)


def _write(found: Exploration, json: Path | None, csv: Path | None, png: Path | None) -> None:
    results.write_json(json, found.content())
    results.write_csv(csv, found.rows())
    for place in (json, csv):
        if place is not None:
            say(f"written: {place}")
    if png is not None:
        from experiments.explore.presentation import draw

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
