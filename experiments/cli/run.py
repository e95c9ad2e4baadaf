"""``dla run``: from a model to a checked report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc.options import CompileOptions
from experiments.cli import options, results
from experiments.cli.tune import print_reasons
from experiments.literal import say
from isa.errors import InputError
from isa.files import check_distinct

if TYPE_CHECKING:
    from experiments.report.schema import RunReport


@dataclass(frozen=True)
class Splitting:
    """One network on the accelerators of a system."""

    system: Annotated[
        Path | None,
        typer.Option("--system", metavar="SYSTEM.toml", help="With --split: the accelerators (docs/systems.md)."),
    ] = None
    split: Annotated[
        str | None,
        typer.Option(
            "--split", metavar="batch|channels|rows|pipeline", help="Run on all accelerators of --system, so shared."
        ),
    ] = None
    images: Annotated[
        int | None, typer.Option("--images", metavar="N", help="Inferences that batch and pipeline time. [default: 8]")
    ] = None


NOT_SPLIT = Splitting()


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
    splitting: Splitting = NOT_SPLIT,
) -> int:
    """Quantise if needed, compile, simulate, check against the CPU, print the per-layer table."""
    if splitting != NOT_SPLIT:
        others = {
            "accuracy": accuracy, "csv": csv, "trace": trace, "cost": cost, "summary": summary, "verbose": verbose
        }  # fmt: skip
        _refuse({**others, **_machine_given(hardware)})
        return _run_split(model, splitting, choices, opening, host, input, calibration, seed, json)
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


def _machine_given(hardware: options.Hardware) -> dict[str, bool]:
    """Which options that say what the machine is differ from their defaults."""
    usual = options.Hardware()
    names = {"preset": "preset", "settings": "set", "isa": "isa", "memory_mode": "memory-mode"}
    return {word: (getattr(hardware, name) or None) != getattr(usual, name) for name, word in names.items()}


def _refuse(given: Mapping[str, object]) -> None:
    """Raises InputError for the first option that was given."""
    for word, value in given.items():
        if value:
            raise InputError(f"--{word} does not go with --system and --split; leave it out")


def _run_split(
    model: str,
    splitting: Splitting,
    choices: CompileOptions,
    opening: options.Opening,
    host: options.HostChoice,
    input: Path | None,
    calibration: Path | None,
    seed: int,
    json: Path | None,
) -> int:
    """Exit status 1 where the bits differ."""
    if splitting.system is None or splitting.split is None:
        raise InputError("--system and --split belong together: the accelerators, and how they share the network")
    with options.loading():
        from experiments.report.terminal import report_console
        from experiments.running.workflow import Request
        from experiments.systems.spec import load_system
        from experiments.systems.split_report import print_split, split_json, split_network

    system = load_system(splitting.system, idle=True)
    images = 8 if splitting.images is None else splitting.images
    request = Request(
        model=model, preset=None, settings=(), isa=None, memory_mode=None, options=choices, host=host.value,
        inputs=None if input is None else str(input), calibration=None if calibration is None else str(calibration),
        accuracy=None, shapes=opening.shapes, fixed=opening.fixed, seed=seed, cost=None, cpu=tuple(opening.cpu or ()),
    )  # fmt: skip
    words = ["--system", str(splitting.system), "--split", splitting.split]
    words += ["--images", str(images)] if splitting.images is not None else []
    command = f"{request.command} {shlex.join(words)}"
    with options.stages() as progress:
        report = split_network(
            opening.load(model, seed, calibration, progress), system, splitting.split, images=images, options=choices,
            host=host.value, inputs=input, seed=seed, command=command, progress=progress,
        )  # fmt: skip
    print_split(report, report_console())
    if json is not None:
        results.write(json, split_json(report))
    wrong = report.check.mismatches + report.check.oracle.mismatches
    if wrong:
        say(f"difference: {wrong} elements of the split network have other bits", file=sys.stderr)
    return 1 if wrong else 0


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
