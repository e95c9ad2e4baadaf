"""``dla simulate``: a package on an input, or a program on given memory images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli import options
from isa.errors import InputError

if TYPE_CHECKING:
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
ProgramPreset = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME|FILE.toml", help="Hardware; default: balanced-64, a program's own Arch."),
]


def command(
    file: What,
    preset: ProgramPreset = None,
    settings: options.Settings = None,
    isa: options.Isa = None,
    schedule: options.ScheduleOption = options.Schedule.default,
    emulate_depthwise: options.Emulate = False,
    strict: options.Strict = False,
    host: options.Host = options.HostChoice.onnxruntime,
    input: options.Input = None,
    tensor: TensorFiles = None,
    image: Images = None,
    seed: options.Seed = 0,
    output: options.Output = None,
    json: options.Json = None,
) -> None:
    """Run a package or a program without any check; print cycles and accounts, write the outputs (-o FILE.npz)."""
    from experiments.cli.progress import stages
    from experiments.network import is_package

    if not file.is_file():
        raise InputError(f"{file}: no such file; 'dla compile' makes packages and 'dla emit' programs")
    with stages() as progress:
        progress(f"simulating {file}")
        if is_package(file):
            if tensor or image:
                raise InputError(f"{file}: --tensor and --image are for programs; give a package its --input")
            from experiments.simulate import simulate_package
            from experiments.workflow import Choices

            choices = Choices(schedule.value, emulate_depthwise, strict, host.value, seed)
            outputs, figures = simulate_package(file, preset, settings or (), isa, choices, input)
        else:
            if input is not None:
                raise InputError(f"{file}: --input is for packages; give a program --tensor NAME=FILE.npy")
            from experiments.simulate import simulate_program

            outputs, figures = simulate_program(file, preset, settings or (), isa, tensor or (), image or ())
    _present(file, figures, outputs, output, json)


def _present(file: Path, figures: Figures, outputs: Mapping[str, Any], output: Path | None, json: Path | None) -> None:
    from experiments.report.store import write_arrays, write_atomically
    from experiments.report.tables import figures_table, kind_table, report_console, unit_table

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
