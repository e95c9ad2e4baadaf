"""``dla run``: from a model to a checked report; ``dla split``: on several accelerators; ``dla cache``."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.cli.tune import print_reasons
from experiments.literal import say
from experiments.running.given import RunRequest
from experiments.systems.request import SplitRequest

if TYPE_CHECKING:
    from experiments.report.schema import RunReport


@options.expanded
def command(
    wanted: RunRequest,
    json: options.Json = None,
    csv: options.Csv = None,
    summary: options.Summary = False,
    verbose: options.Verbose = False,
    engine: options.Engine = options.EngineChoice.simulator,
) -> int:
    """Quantise if needed, compile, simulate, check against the CPU, print the per-layer table."""
    with options.loading():
        from experiments.report.rows import layer_rows
        from experiments.report.schema import report_json
        from experiments.report.store import default_path
        from experiments.report.terminal import report_console
        from experiments.running.workflow import hardware_of, run_requested

    if engine is options.EngineChoice.rtl:
        wanted = _on_hardware(wanted)
    with options.stages() as progress:
        done = run_requested(replace(wanted, progress=progress))
    report = done.report
    place = json or default_path(report)
    results.write(place, report_json(report))
    results.write_csv(csv, layer_rows(report))
    if verbose:
        print_reasons(done.package, hardware_of(wanted).arch, wanted.options)
    done.show(report_console(), summary)
    say(f"report written to {place}" + (f", timeline to {wanted.timeline}" if wanted.timeline else ""))
    return _status(report)


def _on_hardware(wanted: RunRequest) -> RunRequest:
    """The same with the hardware in the simulator's place."""
    from experiments.extras import require_amaranth

    require_amaranth()
    from experiments.rtl.device import HardwareDevice

    return replace(wanted, engine=HardwareDevice)


@options.expanded
def split(wanted: SplitRequest, json: options.Json = None) -> int:
    """Run one network on all accelerators of a system, and say why it is not as many times as fast.

    Exit status 1 where the bits differ.
    """
    with options.loading():
        from experiments.report.terminal import report_console
        from experiments.systems.split_report import split_json
        from experiments.systems.workflow import split_requested

    with options.stages() as progress:
        report = split_requested(replace(wanted, progress=progress))
    report.show(report_console())
    if json is not None:
        results.write(json, split_json(report))
    if report.mismatches:
        say(f"difference: {report.mismatches} elements of the split network have other bits", file=sys.stderr)
    return 1 if report.mismatches else 0


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all entries.")] = False,
) -> None:
    """Show where models and hardware are kept; DLA_CACHE_DIR=DIR moves that, DLA_NO_CACHE=1 forbids it."""
    from dla_sim.rtl.simulator import kept
    from experiments.running.package_cache import users_cache

    found = users_cache()
    if found is None:
        say("there is no cache")
    elif clear:
        say(f"{found.folder}: {found.clear() + kept.clear(found.folder)} entries removed")
    else:
        for what, entries, most in (
            ("entries", found.entries(), found.largest), ("of hardware", kept.entries(found.folder), kept.LARGEST)
        ):  # fmt: skip
            sizes = [path.lstat().st_size for path in entries]
            if sizes or what == "entries":
                say(f"{found.folder}: {len(sizes)} {what}, {sum(sizes) / 2**20:.1f} MiB of at most {most >> 20} MiB")


def _status(report: RunReport) -> int:
    """0, or 1 with a line on standard error that says where the accelerator and the oracle first differ."""
    first, accuracy, hardware = report.check.first, report.accuracy, report.hardware
    if hardware is not None and hardware.first is not None:  # says more than what it has made of the results
        say(f"difference: the hardware is not the simulator: {hardware.first}", file=sys.stderr)
    elif first is not None:
        say(f"difference: {first.message()}", file=sys.stderr)
    elif accuracy is not None and accuracy.differences:
        say(f"difference: {accuracy.differences} of {accuracy.images} images have other outputs", file=sys.stderr)
    else:
        return 0
    return 1
