"""``dla partition``: what runs where, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc.options import CompileOptions
from experiments.cli import options

if TYPE_CHECKING:
    from byoc.partition import Partition


@options.expanded
def command(
    model: options.Model,
    hardware: options.Hardware,
    choices: CompileOptions,
    shape: options.Shapes = None,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    """List every node: where it runs, and if on the CPU the reason with the actual values."""
    from experiments.running.network import load_network, parse_shapes

    machine = hardware.load()
    with options.stages() as progress:
        progress(f"reading {model}")
        network = load_network(model, parse_shapes(shape or ()), seed)
        from byoc.pipeline import partition_package, refuse_fallback

        found = partition_package(network.package, machine.arch, choices)
    if json is not None:
        from isa.files import write_atomically

        write_atomically(json, _as_json(found))
    _print(found)
    if choices.strict:
        refuse_fallback(found)


def _print(partition: Partition) -> None:
    from experiments.report.terminal import plain_table, report_console

    console = report_console()
    table = plain_table(("node", "fold"), ("operator", "left"), ("where", "left"), ("reason", "fold"))
    for entry in partition.placement:
        where = "cpu" if entry.region is None else f"dla {entry.region}"
        table.add_row(entry.node, entry.op_type, where, entry.reason or "")
    console.print(table)
    for region in partition.regions:
        ends = f"{', '.join(region.inputs)} → {', '.join(region.outputs)}"
        console.print(f"region {region.index}: {len(region.nodes)} nodes, {ends}", markup=False)
    total = sum(node.macs for node in partition.graph.nodes)
    share = sum(node.macs for region in partition.regions for node in region.nodes) / total if total else 0.0
    count = sum(entry.on == "dla" for entry in partition.placement)
    console.print(f"{count} of {len(partition.placement)} nodes and {share:.2%} of {total:,} MACs on the DLA")


def _as_json(partition: Partition) -> str:
    from json import dumps

    from experiments.report.assemble import placement_entries

    regions = [
        {"region": region.index, "inputs": list(region.inputs), "outputs": list(region.outputs)}
        for region in partition.regions
    ]
    placement = [entry.model_dump() for entry in placement_entries(partition)]
    return dumps({"placement": placement, "regions": regions}, indent=1) + "\n"
