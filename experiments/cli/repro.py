"""``dla repro``: makes again what a file says it holds, and compares."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isa.errors import InputError

if TYPE_CHECKING:
    from experiments.sweep.repeat import Repetition

What = Annotated[str, typer.Argument(metavar="FILE", help="A results file of dla sweep.")]
Points = Annotated[int | None, typer.Option("--points", metavar="N", help="Repeat N points, drawn. Default: all.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the points that are drawn.")]
Workers = Annotated[int | None, typer.Option("--workers", metavar="N", help="Local processes. Default: one a CPU.")]
SHOWN = 10


def command(what: What, points: Points = None, seed: Seed = 0, workers: Workers = None) -> int:
    """Run what made a results file again and compare every figure, exactly; exit status 1 where one differs."""
    from experiments.cli.progress import stages
    from experiments.sweep.repeat import repeat_sweep

    path = Path(what)
    if not path.is_file():
        raise InputError(f"{what}: no such file; 'dla sweep SPEC.toml' makes results")
    with stages() as progress:
        found = repeat_sweep(path, points=points, seed=seed, workers=workers, stage=progress)
    return _status(path, found)


def _status(path: Path, found: Repetition) -> int:
    for change in found.changes:
        print(f"note: {change}")
    for difference in found.differences[:SHOWN]:
        print(f"difference: {difference.message()}", file=sys.stderr)
    if not found.differences:
        print(f"{path}: {found.points} points repeated, all figures equal")
        return 0
    print(f"{path}: {len(found.differences)} of {found.points} points differ")
    return 1
