"""``dla emit``: the programs of a network, one a region."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc.options import CompileOptions
from experiments.cli import options
from isa.errors import InputError

if TYPE_CHECKING:
    from isa.program import Program

Region = Annotated[int | None, typer.Option("--region", min=0, help="Only the program of this region.")]


@options.expanded
def command(
    model: options.Model,
    hardware: options.Hardware,
    choices: CompileOptions,
    shape: options.Shapes = None,
    seed: options.Seed = 0,
    region: Region = None,
    output: options.Output = None,
) -> None:
    """Write the program of each region for one machine; with several regions into a folder, or choose one."""
    from experiments.running.network import load_network, parse_shapes
    from isa import program_file

    machine = hardware.load()
    with options.stages() as progress:
        progress(f"compiling {model}")
        network = load_network(model, parse_shapes(shape or ()), seed)
        from byoc.pipeline import compile as compile_network

        compiled = compile_network(network.package, machine.arch, choices)
    for place, program in _places(network.name, compiled.programs, region, output).items():
        program_file.save(program, place)
        print(f"{place}: {len(program.words):,} words, {place.stat().st_size:,} bytes")


def _places(name: str, programs: Mapping[int, Program], region: int | None, output: Path | None) -> dict[Path, Program]:
    """Where each chosen program goes."""
    if not programs:
        raise InputError(f"{name}: no node runs on the DLA; 'dla partition' says why")
    if region is not None:
        if region not in programs:
            raise InputError(f"--region {region}: the network has the regions 0 to {len(programs) - 1}")
        return {output or Path(f"{name}-region{region}.prog"): programs[region]}
    if len(programs) == 1:
        return {output or Path(f"{name}.prog"): next(iter(programs.values()))}
    if output is not None and (output.is_file() or output.suffix):
        raise InputError(
            f"{output}: the network has {len(programs)} regions, a program each; give a folder, or choose with --region"
        )
    folder = output or Path(f"{name}-programs")
    return {folder / f"region{index}.prog": program for index, program in programs.items()}
