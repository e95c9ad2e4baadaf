"""``dla compile``, ``partition``, ``emit``: a model's package, node placement and programs.

A package is valid for every machine. A partition and its programs, one per region, are made for one
machine.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byoc.options import CompileOptions
from experiments.cli import options, results
from experiments.literal import say
from experiments.running.given import AnyMachine, Compiling, Given
from isa.errors import InputError

if TYPE_CHECKING:
    from byoc.compiled import CompiledNetwork, Partition
    from byoc.package.interface import Interface
    from byoc.package.package import Package
    from dla_sim.presets import Preset
    from dla_sim.timing import Timing
    from experiments.report.schema import EndToEnd
    from experiments.running.network import Network
    from experiments.running.simulate import Tensors
    from isa.program import Program
    from isa.progress import Progress


@options.expand_options
def compile(given: Given, output: options.Output = None) -> None:
    """Quantise a model if needed and write its package (.dla).

    The package contains no tiles, addresses or instructions.
    """
    from byoc.package.package import save_package
    from experiments.running.network import load

    with options.stages() as progress:
        network = load(given, progress)
    place = output or Path(f"{network.name}.dla")
    save_package(network.package, place)
    graph = network.package.graph
    fidelity = network.package.fidelity
    if fidelity is not None and fidelity.calibration is not None:
        from experiments.report.fidelity import calibration_line

        say(calibration_line(fidelity.calibration))
        for line in fidelity.calibration.list_trials():
            say(line)
    _warn(network.package)
    say(
        f"{place}: {len(graph.nodes)} nodes, {place.stat().st_size:,} bytes, SHA-256 "
        f"{network.package.digest[:16]}"
    )


def _warn(package: Package) -> None:
    """Print notes about an open batch size, and about scales chosen on random numbers."""
    if package.fidelity is not None and package.fidelity.opened:
        from experiments.report.fidelity import batch_line

        say(f"note: the batch size is {batch_line(package.fidelity)}", file=sys.stderr)
    if package.fidelity is not None and package.fidelity.calibration is not None:
        found = package.fidelity.calibration
        if found.random:
            inputs = f"{found.samples} inputs of random numbers"
            say(
                f"warning: quantised on {inputs}; give samples with --calibration FILE.npz",
                file=sys.stderr,
            )


Microcontrollers = Annotated[
    bool,
    typer.Option(
        "--microcontrollers",
        help="Compare with a Cortex-M4 and a Cortex-M55, alone and with the accelerator "
        "(estimated).",
    ),
]


@options.expand_options
def partition(
    wanted: AnyMachine,
    microcontrollers: Microcontrollers = False,
    json: options.Json = None,
    csv: options.Csv = None,
    summary: options.Summary = False,
) -> None:
    """List where every node runs, why nodes run on the CPU, and the cost of each reason.

    The compiled programs, or the formulas of a described machine, give the accelerator's cycles.
    The cycles of the CPU are an estimate.
    """
    with options.pause_collection():
        from byoc.compiler import compile as compile_network
        from byoc.compiler import refuse_fallback
        from experiments.machines.report import describe_whole
        from experiments.report.assemble import placement_entries
        from experiments.report.microcontrollers import (
            compare_microcontrollers,
            microcontroller_table,
        )
        from experiments.report.tables import placement_rows
        from experiments.report.terminal import print_parts
        from experiments.running.described import evaluate_requested, settle_machine
        from experiments.running.inference import hardware_of
        from experiments.running.network import load

    wanted, described = settle_machine(wanted)
    choices = replace(wanted.options, strict=False)
    if described is not None:
        done = evaluate_requested(replace(wanted, options=choices), described)
        package, interface, parts = done.network.package, done.interface, done.partition
        _, whole = describe_whole(done.found, parts, package, choices)
    else:
        machine = hardware_of(wanted)
        with options.stages() as progress:
            network = load(wanted, progress)
            progress(f"compiling {network.name}")
            package = network.package
            compiled = compile_network(package, machine.arch, choices, timing=machine.timing)
            interface, parts = compiled.interface, compiled.partition
            whole = _end_to_end(compiled, machine.timing)
    content = _content(interface, parts, whole)
    compared = compare_microcontrollers(parts, whole) if microcontrollers else ()
    if compared:
        content["microcontrollers"] = [entry._asdict() for entry in compared]
    results.write_tables(json, csv, content, placement_rows(placement_entries(parts)))
    _print_partition(interface, parts, whole, summary)
    if compared:
        print_parts(microcontroller_table(compared))
    _warn(package)
    if wanted.options.strict:
        refuse_fallback(parts)


def _end_to_end(compiled: CompiledNetwork, timing: Timing) -> EndToEnd:
    """Return the cycles of a whole inference, with estimates for CPU and transfers."""
    from dla_sim.program_timing import ProgramTiming
    from experiments.report.assemble import end_to_end, host_estimate

    cycles = {
        index: ProgramTiming(program).run(timing).cycles
        for index, program in compiled.programs.items()
    }
    return end_to_end(compiled, host_estimate(compiled.partition), cycles, timing.main)


def _print_partition(
    interface: Interface, partition: Partition, whole: EndToEnd, summary: bool
) -> None:
    from experiments.report.assemble import port_entries
    from experiments.report.tables import end_to_end_line, fallback_table, integer_line, port_line
    from experiments.report.terminal import line, plain_table, print_parts

    if not summary:
        rows = (
            (
                entry.node,
                entry.op_type,
                "cpu" if entry.region is None else f"dla {entry.region}",
                entry.reason or "",
            )
            for entry in partition.placement
        )
        columns = (("node", "fold"), ("operator", "fold", 1), ("where", "left"), ("reason", "fold"))
        print_parts(plain_table(*columns, rows=rows))
    for region in partition.regions:
        ends = f"{', '.join(region.inputs)} → {', '.join(region.outputs)}"
        print_parts(line(f"region {region.index}: {len(region.nodes)} nodes, {ends}"))
    for port in port_entries(interface):
        if port.integer or port.reason:
            print_parts(line(f"{port.role} {port_line(port)}"))
    if whole.fallbacks and not summary:
        print_parts(fallback_table(whole))
    count = sum(entry.on == "dla" for entry in partition.placement)
    macs = whole.dla_macs + whole.cpu_macs
    share = whole.dla_macs / macs if macs else 0.0
    nodes = (
        f"{count} of {len(partition.placement)} nodes and {share:.2%} of {macs:,} MACs on the DLA"
    )
    print_parts(f"{nodes}, {whole.share(whole.dla_cycles):.1%} of the time")
    if whole.interface_cycles:
        print_parts(integer_line(whole))
    print_parts(f"end to end {end_to_end_line(whole)}")


def _content(interface: Interface, partition: Partition, whole: EndToEnd) -> dict[str, Any]:
    from experiments.report.assemble import placement_entries, port_entries

    regions = [
        {"region": region.index, "inputs": list(region.inputs), "outputs": list(region.outputs)}
        for region in partition.regions
    ]
    placement = [entry.model_dump() for entry in placement_entries(partition)]
    ports = [port.model_dump(mode="json") for port in port_entries(interface)]
    whole_json = whole.model_dump(mode="json")
    return {
        "interface": ports,
        "placement": placement,
        "regions": regions,
        "end_to_end": whole_json,
    }


Region = Annotated[
    int | None, typer.Option("--region", min=0, help="Write only the program of this region.")
]
SaveInputs = Annotated[
    bool,
    typer.Option(
        "--save-inputs",
        help="Run the network and save each program's inputs, for dla simulate PROGRAM --input "
        "FILE.",
    ),
]


@options.expand_options
def emit(
    wanted: Compiling,
    region: Region = None,
    save_inputs: SaveInputs = False,
    input: options.Input = None,
    output: options.Output = None,
) -> None:
    """Write the program of each region for one machine.

    Several programs are written into a folder; --region selects one.
    """
    with options.pause_collection():
        from byoc.compiler import compile as compile_network
        from experiments.running.inference import hardware_of
        from experiments.running.network import load
        from isa import program_file

    if input is not None and not save_inputs:
        raise InputError(f"--input {input}: programs do not depend on it; it is for --save-inputs")
    machine = hardware_of(wanted)
    choices = wanted.options
    with options.stages() as progress:
        network = load(wanted, progress)
        progress(f"compiling {network.name}")
        compiled = compile_network(network.package, machine.arch, choices, timing=machine.timing)
        places = _places(network.name, compiled.programs, region, output)
        given = (
            _collect_inputs(network, machine, choices, input, wanted.seed, progress)
            if save_inputs
            else {}
        )
    for place, index in places.items():
        program = compiled.programs[index]
        program_file.save(program, place)
        say(f"{place}: {len(program.words):,} words, {place.stat().st_size:,} bytes")
        if save_inputs:
            from experiments.report.store import write_arrays

            beside = place.with_suffix(".inputs.npz")
            write_arrays(beside, given[index])
            say(
                f"{beside}: {', '.join(given[index])}; dla simulate {quote(str(place))} --input "
                f"{quote(str(beside))}"
            )
    _warn(network.package)


def _collect_inputs(
    network: Network,
    machine: Preset,
    choices: CompileOptions,
    input: Path | None,
    seed: int,
    progress: Progress,
) -> dict[int, Tensors]:
    """Return the inputs of each region in a run of the network, by the region's index."""
    from experiments.running.inference import infer
    from experiments.running.network import network_feeds
    from experiments.running.simulate import list_region_inputs

    feeds = network_feeds(network, input, seed, choices)
    return list_region_inputs(infer(network, machine, feeds, choices, progress=progress))


def _places(
    name: str, programs: Mapping[int, Program], region: int | None, output: Path | None
) -> dict[Path, int]:
    if not programs:
        raise InputError(f"{name}: no node runs on the DLA; 'dla partition' says why")
    if region is not None:
        if region not in programs:
            raise InputError(
                f"--region {region}: the network has the regions 0 to {len(programs) - 1}"
            )
        return {output or Path(f"{name}-region{region}.prog"): region}
    if len(programs) == 1:
        return {output or Path(f"{name}.prog"): next(iter(programs))}
    if output is not None and (output.is_file() or output.suffix):
        raise InputError(
            f"{output}: the network has {len(programs)} regions, a program each; give a folder, or "
            "choose with --region"
        )
    folder = output or Path(f"{name}-programs")
    return {folder / f"region{index}.prog": index for index in programs}
