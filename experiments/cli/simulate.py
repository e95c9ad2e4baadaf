"""``dla simulate``: a package on an input, or a program on given memory images."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc.options import CompileOptions
from experiments.cli import options, results
from experiments.literal import say
from isa.errors import InputError

if TYPE_CHECKING:
    from experiments.debug.session import Findings
    from experiments.report.schema import Figures
    from experiments.running.simulate import Simulation

What = Annotated[Path, typer.Argument(metavar="DLA|PROGRAM", help="A package (.dla) or a program of dla emit.")]
TensorFiles = Annotated[
    list[str] | None,
    typer.Option("--tensor", metavar="NAME=FILE.npy", help="Contents of a program's input tensor. Repeatable."),
]
Images = Annotated[
    list[str] | None,
    typer.Option("--image", metavar="ADDRESS=FILE", help="Raw bytes in system memory before the run. Repeatable."),
]
Sanitize = Annotated[
    bool,
    typer.Option(
        "--sanitize",
        help="First check the command streams for races, deadlocks and wrong addresses; findings: exit status 1.",
    ),
]
ProgramPreset = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME|FILE.toml", help="Hardware; default: balanced-64, a program's own Arch."),
]

Log = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="Write a line for every command that completes."),
    results.Place(),
]
Against = Annotated[
    Path | None, typer.Option("--against", metavar="LOG", help="Compare with another log, RTL's or an older one's.")
]
BreakAt = Annotated[
    str | None,
    typer.Option(
        "--break",
        metavar="[REGION/]WORD|LAYER[:after]",
        help="Stop where a command starts (:after: completes) and show the machine.",
    ),
]
Until = Annotated[
    int | None, typer.Option("--until", metavar="CYCLE", min=0, help="Stop at a cycle and show the machine.")
]
DumpSram = Annotated[
    list[str] | None,
    typer.Option(
        "--dump-sram", metavar="FIRST..END[:FILE]", help="Show scratchpad bytes at the stop or end. Repeatable."
    ),
]


@dataclass(frozen=True)
class ProgramHardware(options.Hardware):
    """The machine; a program knows its own."""

    preset: ProgramPreset = None


@dataclass(frozen=True)
class Given:
    """What the memory holds before the run."""

    input: options.Input = None
    tensor: TensorFiles = None
    image: Images = None


@dataclass(frozen=True)
class Wishes:
    """What to look at: ``experiments.debug.session.Wishes`` as options."""

    trace: options.Timeline = None
    log: Log = None
    against: Against = None
    break_at: BreakAt = None
    until: Until = None
    dump_sram: DumpSram = None

    @property
    def stop(self) -> bool:
        """Whether the run is to stop before its end."""
        return (self.break_at, self.until) != (None, None)


@options.expanded
def command(
    *,
    file: What,
    hardware: ProgramHardware,
    choices: CompileOptions,
    host: options.Host = options.HostChoice.onnxruntime,
    given: Given,
    sanitize: Sanitize = False,
    seed: options.Seed = 0,
    output: options.Output = None,
    json: options.Json = None,
    csv: options.Csv = None,
    summary: options.Summary = False,
    wishes: Wishes,
) -> int:
    """Run a package or a program without any check; print cycles and accounts, write the outputs (-o FILE.npz).

    With --break or --until it stops there and says what the machine does; with --against a difference is exit status 1.
    """
    from experiments.debug import session
    from experiments.report.store import write_arrays
    from experiments.running.network import is_package

    if not file.is_file():
        raise InputError(f"{file}: no such file; 'dla compile' makes packages and 'dla emit' programs")
    if (output or json or csv) and wishes.stop:
        raise InputError(f"{file}: --output, --json and --csv need the whole run; leave out --break and --until")
    package = is_package(file)
    if sanitize and _sanitize(file, package, hardware, choices, given):
        return 1
    with options.stages() as progress:
        progress(f"simulating {file}")
        simulation = (
            _of_package(file, hardware, choices, host, given, seed) if package else _of_program(file, hardware, given)
        )
        findings = session.Findings()
        if wishes != Wishes():
            looked = session.Wishes(**vars(wishes))
            findings = session.debug(file, simulation.hardware, simulation.regions(), looked)
        finished = None if findings.stopped else simulation.finish()
    if finished is not None:
        outputs, figures = finished
        _present(file, figures, json, csv, summary)
        if output is not None:
            write_arrays(output, outputs)
            say(f"{output}: {', '.join(outputs)}")
    return _tell(findings)


def _of_package(
    file: Path, hardware: ProgramHardware, choices: CompileOptions, host: options.Host, given: Given, seed: int
) -> Simulation:
    from experiments.running.simulate import simulate_package

    if given.tensor or given.image:
        raise InputError(f"{file}: --tensor and --image are for programs; give a package its --input")
    return simulate_package(file, hardware.load(), choices, host.value, given.input, seed)


def _of_program(file: Path, hardware: ProgramHardware, given: Given) -> Simulation:
    from experiments.running.simulate import simulate_program

    machine = hardware.preset, hardware.settings or (), hardware.isa, hardware.memory_mode
    return simulate_program(file, *machine, given.input, given.tensor or (), given.image or ())


def _sanitize(file: Path, package: bool, hardware: ProgramHardware, choices: CompileOptions, given: Given) -> bool:
    """Print the findings on a package or a program, one a line, and their number; whether any is an error."""
    from experiments.running.simulate import sanitize_package, sanitize_program

    images = given.image or ()
    found = sanitize_package(file, hardware.load(), choices) if package else sanitize_program(file, images)
    for name, findings in found.items():
        for finding in findings:
            say(f"{name}: {finding.text}")
    count = sum(len(findings) for findings in found.values())
    said = f"{count or 'no'} finding{'s' * (count != 1)}"
    say(f"{file}: {said} on {len(found)} command stream{'s' * (len(found) != 1)}")
    return any(finding.level == "error" for findings in found.values() for finding in findings)


def _tell(findings: Findings) -> int:
    """Print what was found; the exit status."""
    for line in findings.lines:
        say(line)
    if findings.difference is None:
        return 0
    say(f"difference: {findings.difference}", file=sys.stderr)
    return 1


def _present(file: Path, figures: Figures, json: Path | None, csv: Path | None, summary: bool) -> None:
    """Write and print what the machine did."""
    from experiments.report.rows import figure_rows
    from experiments.report.tables import figures_table, kind_table, unit_table
    from experiments.report.terminal import report_console

    results.write_json(json, figures.model_dump(mode="json", by_alias=True))
    results.write_csv(csv, figure_rows(figures))
    console = report_console()
    for part in () if summary else (figures_table(figures), kind_table(figures), unit_table(figures)):
        console.print(part)
    totals = figures.totals
    say(f"{file}: {totals.cycles:,} cycles, {totals.macs:,} MACs, utilisation {totals.utilization:.1%}")
