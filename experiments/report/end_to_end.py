"""The account of a whole inference: accelerator, CPU, and what passes between them, one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from byoc.emission.region import Region
from byoc.graph import Graph
from byoc.host.parts import estimate_cycles
from byoc.partition import Partition
from experiments.report.schema import EndToEnd, Fallback, Host, HostLayer, Segment
from isa.instruction import ceil_div


def host_estimate(partition: Partition) -> Host:
    """What runs on the CPU, and the estimate for every node of it."""
    graph = partition.graph
    layers = [
        HostLayer(
            node=node.name,
            op_type=node.op_type,
            macs=node.macs,
            estimated_cycles=estimate_cycles(graph, replace(part, nodes=(node,))),
        )
        for part in partition.host_parts
        for node in part.nodes
    ]
    total = sum(layer.estimated_cycles for layer in layers)
    return Host(nodes=len(layers), estimated_cycles=total, layers=tuple(layers))


def end_to_end(partition: Partition, host: Host, regions: Mapping[int, int], bus_bytes: int) -> EndToEnd:
    """The account of a network whose ``regions`` take so many cycles each, with a bus of ``bus_bytes`` a cycle.

    No part overlaps with another. A tensor that a region reads and no region has made crosses the bus once, as does
    one that a region makes and anybody else reads; what regions hand to each other stays where it is.
    """
    segments = tuple(_segments(partition, {layer.node: layer for layer in host.layers}, regions, bus_bytes))
    cycles = Counter[str]()
    for segment in segments:
        cycles[segment.on] += segment.cycles
    return EndToEnd(
        cycles=sum(cycles.values()),
        dla_cycles=cycles["dla"],
        cpu_cycles=cycles["cpu"],
        transfer_cycles=cycles["transfer"],
        dla_macs=sum(node.macs for region in partition.regions for node in region.nodes),
        cpu_macs=sum(layer.macs for layer in host.layers),
        segments=segments,
        fallbacks=_fallbacks(partition, host),
    )


def _segments(
    partition: Partition, estimates: Mapping[str, HostLayer], regions: Mapping[int, int], bus_bytes: int
) -> Iterator[Segment]:
    """Every part in the order of execution, with the transfers before and behind regions."""
    graph = partition.graph
    made = {name for region in partition.regions for name in region.outputs}
    wanted = {*graph.outputs, *(name for part in partition.host_parts for name in part.inputs)}
    for part in partition.parts:
        if not isinstance(part, Region):
            cycles = sum(estimates[node.name].estimated_cycles for node in part.nodes)
            yield Segment(on="cpu", region=None, nodes=len(part.nodes), cycles=cycles)
            continue
        arriving = [name for name in part.inputs if name not in made]
        made.update(arriving)  # a second region finds it there
        leaving = [name for name in part.outputs if name in wanted]
        yield from _transfer(graph, arriving, part.index, bus_bytes)
        yield Segment(on="dla", region=part.index, nodes=len(part.nodes), cycles=regions[part.index])
        yield from _transfer(graph, leaving, part.index, bus_bytes)


def _transfer(graph: Graph, names: list[str], region: int, bus_bytes: int) -> Iterator[Segment]:
    values = [graph.values[name] for name in names]
    cycles = sum(ceil_div(value.elements * np.dtype(value.dtype).itemsize, bus_bytes) for value in values)
    if cycles:
        yield Segment(on="transfer", region=region, nodes=0, cycles=cycles)


def _fallbacks(partition: Partition, host: Host) -> tuple[Fallback, ...]:
    """What runs on the CPU by operator and rule, the dearest first."""
    estimates = {layer.node: layer for layer in host.layers}
    found: dict[tuple[str, str], Fallback] = {}
    for place in partition.placement:
        if place.on != "cpu":
            continue
        rule, layer = place.rule or "", estimates[place.node]
        first = Fallback(
            op_type=place.op_type, rule=rule, reason=place.reason or "", nodes=0, macs=0, estimated_cycles=0
        )
        so_far = found.get((place.op_type, rule), first)
        found[place.op_type, rule] = so_far.model_copy(
            update={
                "nodes": so_far.nodes + 1,
                "macs": so_far.macs + layer.macs,
                "estimated_cycles": so_far.estimated_cycles + layer.estimated_cycles,
            }
        )
    return tuple(sorted(found.values(), key=lambda item: (-item.estimated_cycles, item.op_type, item.rule)))
