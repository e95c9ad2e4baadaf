"""``dla repro``: reproduces a published figure, or repeats the runs of a file, and compares."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from experiments.repro import FIGURES
from isa.errors import InputError

if TYPE_CHECKING:
    from experiments.repro.again import CommandLine, Repetition

What = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE",
        help=f"A figure ({', '.join(FIGURES)}), a results file of dla sweep, or a report (.json) "
        "of dla run.",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Write the files of a figure to this folder. Default: runs/NAME.",
    ),
    results.Destination(folder=True),
]
Points = Annotated[
    int | None,
    typer.Option(
        "--points", metavar="N", help="Repeat N random points of a results file. Default: all."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Set the seed of the random points.")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", help="Use N local processes. Default: one per CPU."),
]
SHOWN = 10


def command(
    context: typer.Context,
    what: What,
    output: Folder = None,
    points: Points = None,
    seed: Seed = 0,
    workers: Workers = None,
) -> int:
    """Reproduce a published figure, or repeat a results file and compare it.

    A reproduced figure is checked against the statements of its publication.

    The exit status is 1 if a statement fails for our numbers, or if a repeated figure differs.
    """
    if what in FIGURES:
        if points is not None:
            raise InputError(
                f"--points does not apply to the figure {what}; it repeats points of a results file"
            )
        return _figure(what, output or Path("runs") / what, workers)
    if output is not None:
        raise InputError(
            f"--output applies to the figures {', '.join(FIGURES)} alone, not to the file {what}"
        )
    return _file(Path(what), points, seed, workers, context.obj)


def _figure(name: str, folder: Path, workers: int | None) -> int:
    """Reproduce a figure, print every claim with its numbers, and return 0 if all claims hold.

    The claims must hold with the published schedule.
    """
    from experiments.repro import claim_lines, figure4, table5

    with options.stages() as progress:
        if name == table5.NAME:
            if workers is not None:
                raise InputError(f"--workers does not apply to {name}, which runs in one process")
            table = table5.reproduce(folder, progress=progress)
            text = "\n".join(claim_lines(table.claims))
            files = table.files
            holds = table.holds
        else:
            figure = figure4.reproduce(folder, workers=workers, stage=progress)
            text = figure4.claims_text(figure.claims)
            files = figure.files
            holds = figure.holds
    print(text)
    for file in files:
        say(f"written: {file}")
    return 0 if holds else 1


def _file(
    path: Path, points: int | None, seed: int, workers: int | None, command_line: CommandLine
) -> int:
    from isa.reading import file_fault

    if fault := file_fault(path):
        fault = f"{fault} or figure" if fault == "no such file" else fault
        raise InputError(
            f"{path}: {fault}; 'dla sweep SPEC.toml' makes results, the figures are "
            f"{', '.join(FIGURES)}"
        )
    if path.suffix == ".json":
        return _run(path, command_line)
    return _sweep(path, points, seed, workers)


def _run(path: Path, command_line: CommandLine) -> int:
    """Repeat the run of a ``dla run`` report and compare; return 0 if all values are equal."""
    from experiments.repro.again import run_again

    with options.stages() as progress:
        progress(f"repeating {path}")
        found = run_again(path, command_line)
    return _status(
        path, found, f"repeated, all {found.compared} values equal", "repeated, {} differ"
    )


def _sweep(path: Path, points: int | None, seed: int, workers: int | None) -> int:
    """Repeat points of ``dla sweep`` results and compare; return 0 if all figures are equal."""
    from experiments.repro.again import repeat_sweep

    with options.stages() as progress:
        found = repeat_sweep(path, points=points, seed=seed, workers=workers, stage=progress)
    total = found.compared
    return _status(
        path, found, f"{total} points repeated, all figures equal", f"{{}} of {total} points differ"
    )


def _status(path: Path, found: Repetition, equal: str, differ: str) -> int:
    """Print whether a repeated run gave equal figures, and return the exit status.

    ``differ`` is a format string with a place for the number of deviations.
    """
    for change in found.changes:
        say(f"note: {change}")
    for deviation in found.deviations[:SHOWN]:
        say(f"difference: {deviation.message()}", file=sys.stderr)
    say(f"{path}: {differ.format(len(found.deviations)) if found.deviations else equal}")
    return 1 if found.deviations else 0
