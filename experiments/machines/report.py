"""Report of a run on a described machine, from its evaluation and partition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from byoc.compiled import Partition
from byoc.graph import Graph
from byoc.options import CompileOptions
from byoc.package.package import Package
from experiments.machines.evaluate import (
    EvaluatedLayer,
    Evaluation,
    call_description,
    check_count,
)
from experiments.report.assemble import (
    count_interface_cycles,
    digest_parts,
    graph_edges,
    group_fallbacks,
    host_estimate,
    list_segments,
    placement_entries,
)
from experiments.report.machine import DescribedMachine
from experiments.report.schema import EndToEnd, Host, Layer, RunReport, RunSegment, RunTotals
from experiments.version import tool_version

MIN_TRANSFER_RATE = 1e-6
"""Smallest rate between CPU and machine in bytes per cycle."""


def describe_whole(
    found: Evaluation, partition: Partition, package: Package, options: CompileOptions
) -> tuple[Host, EndToEnd]:
    """Return the estimated cycles of the CPU and of a whole inference."""
    host = host_estimate(partition)
    cycles = Counter[int]()
    for layer, region in _place_layers(found, partition):
        cycles[region] += layer.cycles
    regions = {region.index: cycles[region.index] for region in partition.regions}
    estimates = {layer.node: layer for layer in host.layers}
    rate = _find_transfer_rate(found)
    transfer = partial(_list_transfers, partition.graph, rate)
    segments = tuple(list_segments(partition, estimates, regions, transfer, ()))
    moved = sum(segment.cycles for segment in segments if segment.on == "transfer")
    macs = sum(node.macs for region in partition.regions for node in region.nodes)
    return host, EndToEnd(
        cycles=found.cycles + host.estimated_cycles + moved,
        dla_cycles=found.cycles,
        cpu_cycles=host.estimated_cycles,
        transfer_cycles=None if rate is None else moved,
        dla_macs=macs,
        cpu_macs=sum(layer.macs for layer in host.layers),
        interface_cycles=count_interface_cycles(package, options, host),
        segments=segments,
        fallbacks=group_fallbacks(partition, host),
    )


def _find_transfer_rate(found: Evaluation) -> float | None:
    """Return the bytes per cycle between CPU and machine; None if they are not declared."""
    rates = {memory.name: memory.rate for memory in found.machine.memories}
    rate = rates.get(found.machine.transfer_memory)
    value = getattr(found.parameters, rate) if isinstance(rate, str) else rate
    if value is not None and not value >= MIN_TRANSFER_RATE:
        raise found.machine.fault(
            f"{rate} is {value}; transfers need a rate of {MIN_TRANSFER_RATE} bytes/cycle or more"
        )
    return value


def _list_transfers(
    graph: Graph, rate: float | None, names: Sequence[str], region: int
) -> Iterator[RunSegment]:
    """Yield the transfer of tensors into or out of a region, if it takes cycles."""
    values = [graph.values[name] for name in names]
    moved = sum(value.elements * np.dtype(value.dtype).itemsize for value in values)
    if rate is not None and moved:
        yield RunSegment(on="transfer", region=region, nodes=0, cycles=ceil(moved / rate))


def _place_layers(found: Evaluation, partition: Partition) -> Iterator[tuple[EvaluatedLayer, int]]:
    """Yield each layer with its region; cycles besides the layers belong to the last region."""
    places = {node.name: region.index for region in partition.regions for node in region.nodes}
    for layer in found.layers:
        last = len(partition.regions) - 1
        yield layer, last if layer.work is None else places[layer.work.nodes[0].name]


def describe_machine(found: Evaluation) -> DescribedMachine:
    """Return the entry of a report about a described machine and its parameters."""
    machine = found.machine
    assert machine.kind != "preset"
    return DescribedMachine(
        name=machine.name,
        kind=machine.kind,
        summary=machine.summary,
        validated=machine.validated,
        clock_hz=getattr(found.parameters, machine.clock),
        parameters=found.parameters.model_dump(),
    )


def describe_layers(found: Evaluation, partition: Partition) -> tuple[Layer, ...]:
    """Return the report entries of the layers, in order of regions."""
    peak = find_peak(found)
    entries = (
        Layer(
            name=layer.name,
            onnx_nodes=_onnx_nodes(layer),
            kind=layer.operation,
            region=region,
            cycles=layer.cycles,
            macs=0 if layer.work is None else layer.work.macs,
            utilization=_use(0 if layer.work is None else layer.work.macs, layer.cycles, peak),
            breakdown=layer.parts,
        )
        for layer, region in _place_layers(found, partition)
    )
    return tuple(sorted(entries, key=lambda layer: layer.region))


def _onnx_nodes(layer: EvaluatedLayer) -> tuple[str, ...]:
    nodes = () if layer.work is None else layer.work.nodes
    return tuple(dict.fromkeys(name for node in nodes for name in node.onnx_nodes))


def find_peak(found: Evaluation) -> int | None:
    """Return the multiply-accumulates per cycle of the machine; None if they are not declared."""
    machine = found.machine
    if machine.peak_macs is None:
        return None
    peak = call_description(machine, "peak_macs", machine.peak_macs, found.parameters)
    check_count(machine, "peak_macs", peak)
    if not peak:
        raise machine.fault("peak_macs is 0; return at least 1, or leave it out")
    return peak


def _use(macs: int, cycles: int, peak: int | None) -> float | None:
    """Return the utilisation: multiply-accumulates divided by the largest possible number.

    It is at most 1, because a machine may skip the multiplications by padding that ``macs`` counts.
    """
    if peak is None:
        return None
    return min(1.0, macs / (cycles * peak)) if cycles else 0.0


def describe_totals(found: Evaluation, layers: Sequence[Layer]) -> RunTotals:
    """Return the figures of the whole run that a described machine has."""
    macs = sum(layer.macs for layer in layers)
    return RunTotals(
        cycles=found.cycles, macs=macs, utilization=_use(macs, found.cycles, find_peak(found))
    )


def assemble_described(
    found: Evaluation,
    partition: Partition,
    package: Package,
    options: CompileOptions,
    inputs: Mapping[str, Any],
    about: Mapping[str, Any],
) -> RunReport:
    """Return the report of one run on a described machine.

    ``about`` has the fields of the report about the request, the values and the check by name.
    """
    host, whole = describe_whole(found, partition, package, options)
    layers = describe_layers(found, partition)
    machine = describe_machine(found)
    content = json.dumps(machine.model_dump(mode="json"), sort_keys=True).encode()
    tensors = (part for name, array in inputs.items() for part in (name.encode(), array.tobytes()))
    return RunReport(
        version=tool_version(),
        hashes={
            "package": package.digest[:16],
            "machine": digest_parts([content]),
            "input": digest_parts(tensors),
        },
        machine=machine,
        totals=describe_totals(found, layers),
        layers=layers,
        units=found.units,
        placement=placement_entries(partition),
        edges=graph_edges(partition.graph),
        host=host,
        end_to_end=whole,
        fidelity=package.fidelity,
        **about,
    )
