"""``dla simulate``: a package on an input, or a program on given memory images."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byoc.options import CompileOptions
from experiments.cli import options
from isa.errors import InputError
from isa.files import check_distinct, write_atomically

if TYPE_CHECKING:
    from experiments.debug.session import Findings
    from experiments.report.schema import Figures

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
    Path | None, typer.Option("--log", metavar="FILE", help="Write a line for every command that completes.")
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


@options.flat
def command(
    file: What,
    hardware: ProgramHardware,
    choices: CompileOptions,
    host: options.Host = options.HostChoice.onnxruntime,
    input: options.Input = None,
    tensor: TensorFiles = None,
    image: Images = None,
    sanitize: Sanitize = False,
    seed: options.Seed = 0,
    output: options.Output = None,
    json: options.Json = None,
    trace: options.Timeline = None,
    log: Log = None,
    against: Against = None,
    break_at: BreakAt = None,
    until: Until = None,
    dump_sram: DumpSram = None,
) -> int:
    """Run a package or a program without any check; print cycles and accounts, write the outputs (-o FILE.npz).

    With --break or --until it stops there and says what the machine does; with --against a difference is exit status 1.
    """
    from experiments.cli.progress import stages
    from experiments.debug import session
    from experiments.network import is_package

    if not file.is_file():
        raise InputError(f"{file}: no such file; 'dla compile' makes packages and 'dla emit' programs")
    check_distinct(output=output, json=json, trace=trace, log=log)
    if (output or json) and not (break_at is None and until is None):
        raise InputError(f"{file}: --output and --json need the whole run; leave out --break and --until")
    machine = hardware.preset, hardware.settings or (), hardware.isa
    if sanitize:
        from experiments.sanitize import print_findings

        if print_findings(file, *machine, choices, image or ()):
            return 1
    with stages() as progress:
        progress(f"simulating {file}")
        if is_package(file):
            if tensor or image:
                raise InputError(f"{file}: --tensor and --image are for programs; give a package its --input")
            from experiments.simulate import simulate_package

            simulation = simulate_package(file, *machine, choices, host.value, input, seed)
        else:
            if input is not None:
                raise InputError(f"{file}: --input is for packages; give a program --tensor NAME=FILE.npy")
            from experiments.simulate import simulate_program

            simulation = simulate_program(file, *machine, tensor or (), image or ())
        wishes = session.Wishes(trace, log, against, break_at, until, tuple(dump_sram or ()))
        findings = session.Findings()
        if wishes:
            findings = session.debug(file, simulation.hardware, simulation.regions(), wishes)
        finished = None if findings.stopped else simulation.finish()
    if finished is not None:
        _present(file, finished[1], finished[0], output, json)
    return _tell(findings)


def _tell(findings: Findings) -> int:
    """Print what was found; the exit status."""
    for line in findings.lines:
        print(line)
    if findings.difference is None:
        return 0
    print(f"difference: {findings.difference}", file=sys.stderr)
    return 1


def _present(file: Path, figures: Figures, outputs: Mapping[str, Any], output: Path | None, json: Path | None) -> None:
    from experiments.report.store import write_arrays
    from experiments.report.tables import figures_table, kind_table, unit_table
    from experiments.report.terminal import report_console

    if json is not None:
        from json import dumps

        write_atomically(json, dumps(figures.model_dump(mode="json", by_alias=True), indent=1) + "\n")
    console = report_console()
    for part in (figures_table(figures), kind_table(figures), unit_table(figures)):
        console.print(part)
    totals = figures.totals
    print(f"{file}: {totals.cycles:,} cycles, {totals.macs:,} MACs, utilisation {totals.utilization:.1%}")
    if output is not None:
        write_arrays(output, outputs)
        print(f"{output}: {', '.join(outputs)}")
