"""``dla run``: from a model to a checked report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from byoc.options import CompileOptions
from experiments.cli import options, results
from experiments.cli.tune import print_reasons
from experiments.literal import say
from isa.files import check_distinct

if TYPE_CHECKING:
    from experiments.report.schema import RunReport


@options.expanded
def command(
    model: options.Model,
    hardware: options.Hardware,
    choices: CompileOptions,
    opening: options.Opening,
    host: options.Host = options.HostChoice.onnxruntime,
    input: options.Input = None,
    calibration: options.Calibration = None,
    accuracy: options.Accuracy = None,
    seed: options.Seed = 0,
    json: options.Json = None,
    csv: options.Csv = None,
    summary: options.Summary = False,
    verbose: options.Verbose = False,
    trace: options.Timeline = None,
    cost: options.Cost = None,
    cache: options.Cache = True,
) -> int:
    """Quantise if needed, compile, simulate, check against the CPU, print the per-layer table."""
    with options.loading():
        from experiments.report.rows import layer_rows
        from experiments.report.schema import report_json
        from experiments.report.store import default_path
        from experiments.report.tables import print_report
        from experiments.report.terminal import report_console
        from experiments.running.workflow import run

    check_distinct(json=json, csv=csv, trace=trace)
    with options.stages() as progress:
        done = run(
            model,
            preset=hardware.preset,
            settings=hardware.settings or (),
            isa=hardware.isa,
            memory_mode=hardware.memory_mode,
            options=choices,
            host=host.value,
            inputs=input,
            shapes=opening.shapes,
            fixed=opening.fixed,
            cpu=opening.cpu or (),
            calibration=calibration,
            accuracy=accuracy,
            seed=seed,
            timeline=trace,
            cost=cost,
            progress=progress,
            cache=cache,
        )
    report = done.report
    place = json or default_path(report)
    results.write(place, report_json(report))
    results.write_csv(csv, layer_rows(report))
    if verbose:
        print_reasons(done.package, hardware.load().arch, choices)
    print_report(report, report_console(), summary)
    say(f"report written to {place}" + (f", timeline to {trace}" if trace else ""))
    return _status(report)


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all entries.")] = False,
) -> None:
    """Show where imported models are kept for later runs; DLA_CACHE_DIR=DIR moves that, DLA_NO_CACHE=1 forbids it."""
    from experiments.running.package_cache import users_cache

    found = users_cache()
    if found is None:
        say("there is no cache")
    elif clear:
        say(f"{found.folder}: {found.clear()} entries removed")
    else:
        sizes = [path.lstat().st_size for path in found.entries()]
        say(f"{found.folder}: {len(sizes)} entries, {sum(sizes) / 2**20:.1f} MiB of at most {found.largest >> 20} MiB")


def _status(report: RunReport) -> int:
    """0, or 1 with a line on standard error that says where the accelerator and the oracle first differ."""
    first, accuracy = report.check.first, report.accuracy
    if first is not None:
        say(f"difference: {first.message()}", file=sys.stderr)
    elif accuracy is not None and accuracy.differences:
        say(f"difference: {accuracy.differences} of {accuracy.images} images have other outputs", file=sys.stderr)
    else:
        return 0
    return 1
