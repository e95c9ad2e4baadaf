"""``dla system``: several networks on several accelerators, and what becomes of their deadlines."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from isa.files import check_distinct


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


def command(
    file: File,
    policy: PolicyName = None,
    preempt: PreemptAt = None,
    quantum: Quantum = None,
    until: Until = None,
    highest: Highest = False,
    check: Check = False,
    json: options.Json = None,
    csv: options.Csv = None,
    trace: options.Timeline = None,
) -> int:
    """Run several networks on several accelerators. Exit status 1 if a job missed its deadline."""
    with options.loading():
        from experiments.report.terminal import report_console
        from experiments.systems.presentation import print_system, timeline_json
        from experiments.systems.report import report_json, task_rows
        from experiments.systems.simulate import Interval
        from experiments.systems.workflow import system
    from isa.files import write_atomically

    check_distinct(json=json, csv=csv, trace=trace)
    intervals: list[Interval] = []
    with options.stages() as progress:
        found = system(
            file,
            policy=policy,
            preempt=preempt and preempt.value,
            quantum=quantum,
            until=until,
            search_rate=highest,
            check=check,
            watch=intervals.append if trace is not None else None,
            progress=progress,
        )
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
