"""``dla system``: several networks on several accelerators, and what becomes of their deadlines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from isa.errors import InputError
from isa.files import write_atomically


class Preempt(StrEnum):
    """Where a program may give way to another."""

    none = "none"
    layer = "layer"
    tile = "tile"


Check = Annotated[
    bool, typer.Option("--check", help="Run programs that gave way on data, too, and compare with running whole.")
]
File = Annotated[
    Path, typer.Argument(metavar="SYSTEM.toml", help="Accelerators, cores, memory, tasks (docs/systems.md).")
]
PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="In place of the file's: fcfs, priority, round-robin, edf, least-laxity, jit, migration, co-optimised.",
    ),
]
PreemptAt = Annotated[
    Preempt | None, typer.Option("--preempt", help="In place of the file's: at layers, at tiles, or not.")
]
Quantum = Annotated[str | None, typer.Option("--quantum", metavar="TIME", help="Of round-robin: cycles, or 200us.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="When the run ends: cycles, or 1s.")]
Highest = Annotated[
    bool,
    typer.Option(
        "--highest-rate", help="Also search the highest rate of all tasks together at which no deadline is missed."
    ),
]

Sweep = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="KEY=VALUE,...",
        help="Run with each of these values of a key of the file, e.g. accelerator.npu.count=1,2,4 or "
        "run.policy=fcfs,edf; repeated, with all combinations.",
    ),
]


def command(
    file: File,
    policy: PolicyName = None,
    preempt: PreemptAt = None,
    quantum: Quantum = None,
    until: Until = None,
    highest: Highest = False,
    sweep: Sweep = None,
    check: Check = False,
    json: options.Json = None,
    csv: options.Csv = None,
    trace: options.Timeline = None,
) -> int:
    """Run several networks on several accelerators. Exit status 1 if a job missed its deadline, or at every point."""
    conditions = {"policy": policy, "preempt": preempt and preempt.value, "quantum": quantum, "until": until}
    if not sweep:
        return _run(file, conditions, highest, check, json, csv, trace)
    for word, given in (("check", check), ("trace", trace)):
        if given:
            raise InputError(f"--{word} is of one run; leave it out with --sweep")
    return _sweep(file, sweep, conditions, highest, json, csv)


def _run(
    file: Path,
    conditions: Mapping[str, str | None],
    highest: bool,
    check: bool,
    json: Path | None,
    csv: Path | None,
    trace: Path | None,
) -> int:
    """One run."""
    with options.loading():
        from dla_sim.systems.simulate import Interval
        from experiments.report.terminal import report_console
        from experiments.systems.presentation import print_system, timeline_json
        from experiments.systems.report import report_json, task_rows
        from experiments.systems.workflow import system

    intervals: list[Interval] = []
    watch = intervals.append if trace is not None else None
    with options.stages() as progress:
        found = system(file, **conditions, search_rate=highest, check=check, watch=watch, progress=progress)
    report = found.report
    print_system(report, report_console())
    if found.rate is not None:
        tried = len(found.rate.tried)
        say(f"highest rate without a miss: {found.highest_rate:.3f} of the file's; {tried} rates tried")
    if json is not None:
        results.write(json, report_json(report))
    results.write_csv(csv, list(task_rows(report)))
    if trace is not None:
        write_atomically(trace, timeline_json(report, intervals))
    if report.check is not None and report.check.mismatches:
        say(f"difference: {report.check.first} in pieces has other bits than whole", file=sys.stderr)
        return 1
    if not report.missed:
        return 0
    late = max(report.tasks, key=lambda task: (task.missed, task.name))
    say(
        f"missed: {report.missed} jobs missed their deadlines, {late.missed} of them of task '{late.name}'",
        file=sys.stderr,
    )
    return 1


def _sweep(
    file: Path,
    texts: list[str],
    conditions: Mapping[str, str | None],
    highest: bool,
    json: Path | None,
    csv: Path | None,
) -> int:
    """All points of a sweep."""
    with options.loading():
        from experiments.report.terminal import report_console
        from experiments.systems.presentation import print_sweep
        from experiments.systems.sweep import parse_axes, sweep_json
        from experiments.systems.workflow import sweep_system

    with options.stages() as progress:
        found = sweep_system(file, parse_axes(texts), **conditions, search_rate=highest, progress=progress)
    print_sweep(found, report_console())
    if json is not None:
        results.write(json, sweep_json(found))
    results.write_csv(csv, found.rows)
    return 1 if found.deadlines and not found.without_a_miss else 0
