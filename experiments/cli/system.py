"""``dla system``: networks on several accelerators; ``dla split``: one network on all of them.

``dla system`` also reports deadlines.
"""

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from experiments.systems.request import (
    Kept,
    SplitRequest,
    SystemCommand,
    SystemOptions,
    SystemRequest,
    SystemSweepRequest,
)
from isa.errors import InputError
from isa.files import write_atomically

Sweep = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="KEY=VALUE,...",
        help="Run with each of these values of a key of the file, e.g. accelerator.npu.count=1,2,4 "
        "or run.policy=fcfs,edf; repeated, with all combinations.",
    ),
]


@options.expand_options
def command(
    wanted: SystemCommand,
    sweep: Sweep = None,
    json: options.Json = None,
    csv: options.Csv = None,
    trace: options.Timeline = None,
) -> int:
    """Run several networks on several accelerators.

    The exit status is 1 if a job misses its deadline.

    With --sweep, it is 1 if jobs miss deadlines at every point.
    """
    if not sweep:
        for item in fields(Kept):
            if getattr(wanted, item.name) is not None:
                raise InputError(f"--{item.name} is of a sweep; give --sweep KEY=VALUE,... as well")
        return _run(wanted, json, csv, trace)
    for word, given in (("check", wanted.check), ("trace", trace)):
        if given:
            raise InputError(f"--{word} is of one run; leave it out with --sweep")
    return _sweep(wanted, sweep, json, csv)


def _run(wanted: SystemRequest, json: Path | None, csv: Path | None, trace: Path | None) -> int:
    with options.pause_collection():
        from dla_sim.systems.simulate import Interval
        from experiments.systems.report import report_json, task_rows
        from experiments.systems.requested import system_requested

    intervals: list[Interval] = []
    watch = intervals.append if trace is not None else None
    with options.stages() as progress:
        found = system_requested(replace(wanted, watch=watch, progress=progress))
    report = found.report
    found.show()
    if found.rate is not None:
        tried = len(found.rate.tried)
        say(
            f"highest rate without a miss: {found.highest_rate:.3f} of the file's; {tried} rates "
            "tried"
        )
    results.write(json, report_json(report))
    results.write_csv(csv, list(task_rows(report)))
    if trace is not None:
        from experiments.systems.running import timeline_trace

        write_atomically(trace, timeline_trace(report, intervals))
    if report.check is not None and report.check.mismatches:
        return results.report_difference(
            f"{report.check.first} in pieces has other bits than whole"
        )
    if not report.missed:
        return 0
    late = max(report.tasks, key=lambda task: (task.missed, task.name))
    say(
        f"missed: {report.missed} jobs missed their deadlines, {late.missed} of them of task "
        f"'{late.name}'",
        file=sys.stderr,
    )
    return 1


def _sweep(wanted: SystemCommand, texts: list[str], json: Path | None, csv: Path | None) -> int:
    with options.pause_collection():
        from experiments.systems.requested import sweep_requested
        from experiments.systems.sweep import parse_axes, sweep_json

    with options.stoppable(), options.stages() as progress:
        conditions = {
            item.name: getattr(wanted, item.name)
            for item in (*fields(SystemOptions), *fields(Kept))
        }
        found = sweep_requested(
            SystemSweepRequest(axes=parse_axes(texts), **conditions | {"progress": progress})
        )
    found.show()
    results.write(json, sweep_json(found))
    results.write_csv(csv, found.rows)
    return 1 if found.deadlines and not found.without_a_miss else 0


@options.expand_options
def split(wanted: SplitRequest, json: options.Json = None) -> int:
    """Run one network on all accelerators of a system, and explain the speed-up.

    The explanation says why the speed-up is below the number of accelerators.

    The exit status is 1 if the split network computes other bits.
    """
    with options.pause_collection():
        from experiments.systems.requested import split_requested
        from experiments.systems.split import split_json

    with options.stages() as progress:
        report = split_requested(replace(wanted, progress=progress))
    report.show()
    results.write(json, split_json(report))
    if not report.mismatches:
        return 0
    return results.report_difference(
        f"{report.mismatches} elements of the split network have other bits"
    )
