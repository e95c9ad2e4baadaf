"""``dla export``: a network as C source for a processor without an operating system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from experiments.running.given import Compiling
from isa.errors import InputError

if TYPE_CHECKING:
    from byoc.bare_metal.source import NetworkSample
    from byoc.compiled import CompiledNetwork
    from byoc.host.runtime import Runtime, Tensors
    from dla_sim.device import Trace

BareMetal = Annotated[
    bool,
    typer.Option("--bare-metal", help="Write C99 source for firmware (docs/bare-metal.md)."),
]
Arena = Annotated[
    int | None,
    typer.Option(
        "--arena", min=1, metavar="BYTES", help="Fail if the network needs more arena memory."
    ),
]
NoSamples = Annotated[
    bool, typer.Option("--no-samples", help="Record no inference for main.c to compare with.")
]
Name = Annotated[
    str | None, typer.Option("--name", help="Name the network. Default: the model's name.")
]
Folder = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="DIR", help="Write the files to this folder."),
    results.Destination(folder=True),
]


@options.expand_options
def command(
    wanted: Compiling,
    bare_metal: BareMetal = False,
    no_samples: NoSamples = False,
    arena: Arena = None,
    name: Name = None,
    input: options.Input = None,
    output: Folder = None,
) -> None:
    """Write a network, its driver and its CPU parts as C for a microcontroller.

    A folder may hold several networks: export each into it.
    """
    with options.pause_collection():
        from byoc.bare_metal.bundle import describe_sizes, plan_bundle, write_bundle
        from dla_sim.presets import preset_toml
        from experiments.running.inference import hardware_of, open_runtime
        from experiments.running.network import load, network_batch

    if not bare_metal:
        raise InputError("dla export writes one format; say --bare-metal")
    if no_samples and input is not None:
        raise InputError("--no-samples records no input; leave out --no-samples or --input")
    machine = hardware_of(wanted)
    with options.stages() as progress:
        network = load(wanted, progress)
        compiled, runtime = open_runtime(network, machine, wanted.options, progress=progress)
        plan = plan_bundle(compiled, arena)
        progress(f"simulating {network.name}")
        batch = (
            [] if no_samples else network_batch(network, input, wanted.seed, wanted.options).feeds
        )
        recorded = [_record(compiled, runtime, feeds) for feeds in batch]
    called = name or network.name
    folder = output or Path(f"{called}-bare-metal")
    paths = write_bundle(folder, called, plan, recorded, preset_toml(machine))
    sizes = describe_sizes(plan, recorded)
    say(f"{folder}: {len(paths)} files, {len(plan.regions)} regions; {sizes}")


def _record(compiled: CompiledNetwork, runtime: Runtime[Trace], feeds: Tensors) -> NetworkSample:
    """Run an inference that the bundle's main program compares with."""
    from byoc.bare_metal.source import NetworkSample

    result = runtime.run(feeds)
    cycles = {index: trace.cycles for index, trace in result.traces.items()}
    return NetworkSample(compiled.interface.take_arrays(feeds), result.outputs, cycles)
