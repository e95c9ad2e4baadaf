"""``dla sweep`` runs every point of a specification; ``dla explore`` finds the Pareto front.

The front is that of two objectives. Both write a results file that stays valid if the process ends
at any time.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli import options, results
from experiments.literal import say
from experiments.sweep.request import ExploreRequest, SweepRequest
from isa.errors import InputError
from isa.files import write_atomically

if TYPE_CHECKING:
    from experiments.explore.exploration import Exploration
    from experiments.sweep.driver import Tally
    from experiments.sweep.spec import Spec

Export = Annotated[
    Path | None,
    typer.Option(
        "--export", metavar="FILE.csv|.parquet", help="Also write the results as a table."
    ),
    results.Destination(),
]


@options.expand_options
def sweep(
    wanted: SweepRequest,
    export: Export = None,
    json: options.Json = None,
    csv: options.Csv = None,
) -> int:
    """Run a design-space sweep; run it again to continue after an interruption.

    A joint sweep ends with the best machine for all its networks; --json and --csv have one row a
    machine. A specification with the key machine sweeps described machines (docs/machines.md).

    Exit status 1 if no point is ok.
    """
    from experiments.sweep.grid import Grid
    from experiments.sweep.joint import content
    from experiments.sweep.results import check_export
    from experiments.sweep.results import export as export_table
    from experiments.sweep.session import read_machines, read_specification, sweep_requested

    if export is not None:
        check_export(export)
    machines = read_machines(wanted)
    checked = read_specification(wanted) if machines is None else machines.networks
    _check_uses(wanted.cost, export, json or csv, checked)
    points = Grid(checked).points if machines is None else machines.points
    with options.stoppable(), options.stages() as progress:

        def report(tally: Tally) -> None:
            progress("points", tally.done, points)

        spec: Any = machines or checked
        swept = sweep_requested(replace(wanted, spec=spec, stage=progress, report=report))
    say(swept.summary)
    say(f"results in {swept.path}")
    if swept.tally.new["failed"]:
        say(f"why points failed: dla report {shlex.quote(str(swept.path))} --tables")
    if export is not None:
        say(f"{export}: {export_table(swept.path, export, wanted.cost)} rows")
    if swept.joint is not None:
        results.write_tables(json, csv, content(swept.joint), swept.joint.records())
        swept.joint.show()
    if swept.failure is None:
        return 0
    say(swept.failure, file=sys.stderr)
    return 1


def _check_uses(cost: str | None, export: Path | None, table: Path | None, spec: Spec) -> None:
    """Raise InputError for an invalid cost table, and for an option that the sweep does not use.

    The check precedes all work.
    """
    if table is not None and spec.goal is None:
        raise InputError(
            f"{table}: --json and --csv are for joint sweeps; add joint = true to {spec.source}, "
            "or give --export FILE.csv"
        )
    if cost is None:
        return
    from experiments.cost.table import load_table

    load_table(cost)
    if export is None and spec.goal is None:
        raise InputError(
            f"--cost {cost}: it adds estimates to the table of --export FILE.csv and to a joint "
            "sweep; add one of them"
        )


Picture = Annotated[
    Path | None,
    typer.Option(
        "--png", metavar="FILE.png", help="Draw the Pareto front and the progress of the search."
    ),
    results.Destination(".png"),
]


@options.expand_options
def explore(
    wanted: ExploreRequest, json: options.Json = None, csv: options.Csv = None, png: Picture = None
) -> int:
    """Search a sweep's specification for the Pareto front of two objectives.

    Run it again to continue or go further.

    The exit status is 1 if no point is ok.
    """
    from experiments.explore.exploring import explore_requested
    from experiments.sweep.session import read_specification, results_file

    checked = read_specification(wanted)
    with options.stoppable(), options.stages() as progress:

        def report(done: int) -> None:
            progress("points", done, wanted.trials)

        found = explore_requested(replace(wanted, spec=checked, stage=progress, report=report))
    found.show()
    say(f"results in {results_file(checked, wanted.output)}")
    _write(found, json, csv, png)
    if any(point.row["status"] == "ok" for point in found.found):
        return 0
    why = found.found[0].row
    say(f"no point is ok; the first {why['status']}: {why['message']}", sys.stderr)
    return 1


def _write(found: Exploration, json: Path | None, csv: Path | None, png: Path | None) -> None:
    results.write_tables(json, csv, found.content(), found.rows())
    for place in (json, csv):
        if place is not None:
            say(f"written: {place}")
    if png is not None:
        from experiments.explore.exploration import draw

        write_atomically(png, draw(found))
        say(f"written: {png}")
