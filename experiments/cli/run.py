"""``dla run``: from a model to a checked report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc.options import CompileOptions
from experiments.cli import options, results
from experiments.cli.tune import print_reasons
from experiments.literal import say
from isa.errors import InputError

if TYPE_CHECKING:
    from dla_sim.presets import Preset
    from experiments.report.schema import RunReport
    from experiments.running.workflow import Held
    from isa.progress import Progress


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
    engine: options.Engine = options.EngineChoice.simulator,
    splitting: Splitting = NOT_SPLIT,
) -> int:
    """Quantise if needed, compile, simulate, check against the CPU, print the per-layer table."""
    if splitting != NOT_SPLIT:
        others = {
            "accuracy": accuracy, "csv": csv, "trace": trace, "cost": cost, "summary": summary, "verbose": verbose,
            "engine": engine is not options.EngineChoice.simulator,
        }  # fmt: skip
        _refuse({**others, **_machine_given(hardware)})
        return _run_split(model, splitting, choices, opening, host, input, calibration, seed, json, cache)
    with options.loading():
        from experiments.report.rows import layer_rows
        from experiments.report.schema import report_json
        from experiments.report.store import default_path
        from experiments.report.tables import print_report
        from experiments.report.terminal import report_console
        from experiments.running.workflow import run

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
            engine=_engine(engine),
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


def _engine(choice: options.EngineChoice) -> Callable[[Preset, Progress], Held] | None:
    """What makes the machine that runs the programs; None for the simulator."""
    if choice is options.EngineChoice.simulator:
        return None
    from experiments.extras import require_amaranth

    require_amaranth()
    from experiments.rtl.device import HardwareDevice

    return HardwareDevice


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
    cache: bool,
) -> int:
    """Exit status 1 where the bits differ."""
    if splitting.system is None or splitting.split is None:
        raise InputError("--system and --split belong together: the accelerators, and how they share the network")
    with options.loading():
        from experiments.report.terminal import report_console
        from experiments.systems.split_report import print_split, split_json
        from experiments.systems.workflow import split

    with options.stages() as progress:
        report = split(
            model, splitting.system, splitting.split, images=splitting.images, options=choices, host=host.value,
            inputs=input, shapes=opening.shapes, fixed=opening.fixed, cpu=opening.cpu or (), calibration=calibration,
            seed=seed, progress=progress, cache=cache,
        )  # fmt: skip
    print_split(report, report_console())
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
