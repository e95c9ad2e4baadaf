"""The account of a whole inference: accelerator, CPU, and what passes between them, one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from byoc.compiler import CompiledNetwork
from byoc.emission.region import Region
from byoc.graph import Graph, Node
from byoc.host.sessions import estimate_cycles
from byoc.interface import connect
from byoc.operators.onnx_view import BOUNDARIES, QUANTIZE
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


def end_to_end(compiled: CompiledNetwork, host: Host, regions: Mapping[int, int], bus_bytes: int) -> EndToEnd:
    """The account of a network whose ``regions`` take so many cycles each, with a bus of ``bus_bytes`` a cycle.

    No part overlaps with another. A tensor that a region reads and no region has made crosses the bus once, as does
    one that a region makes and anybody else reads; what regions hand to each other stays where it is.
    """
    partition = compiled.partition
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
        interface_cycles=_interface_cycles(compiled, host),
        segments=segments,
        fallbacks=_fallbacks(partition, host),
    )


def _interface_cycles(compiled: CompiledNetwork, host: Host) -> int:
    """Those of the nodes that integer inputs and outputs leave to the application."""
    between = connect(compiled.package, replace(compiled.options, integer_io=True)).graph
    kept = {node.name for node in between.nodes}
    return sum(layer.estimated_cycles for layer in host.layers if layer.node not in kept)


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
    keys = {place.node: (place.op_type, place.rule or "") for place in partition.placement if place.on == "cpu"}
    reasons = {keys[place.node]: place.reason or "" for place in reversed(partition.placement) if place.on == "cpu"}
    nodes, macs, cycles, edges = (Counter[tuple[str, str]]() for _ in range(4))
    for name, key in keys.items():
        nodes[key] += 1
        macs[key] += estimates[name].macs
        cycles[key] += estimates[name].estimated_cycles
    for name, served in _served(partition, keys).items():
        edges[served] += estimates[name].estimated_cycles
    found = (
        Fallback(
            op_type=key[0],
            rule=key[1],
            reason=reason,
            nodes=nodes[key],
            macs=macs[key],
            estimated_cycles=cycles[key],
            edge_cycles=edges[key],
        )
        for key, reason in reasons.items()
    )
    return tuple(sorted(found, key=lambda item: (-item.estimated_cycles - item.edge_cycles, item.op_type, item.rule)))


def _served(partition: Partition, keys: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Quantisation on the CPU that stands between the accelerator and one kind of node: whose it is, by its name."""
    graph = partition.graph
    made = {name: node for node in graph.nodes for name in node.outputs}
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    found = {}
    for node in graph.nodes:
        if node.name not in keys or node.op_type not in BOUNDARIES or not node.outputs:
            continue
        inwards = node.op_type == QUANTIZE
        float_name = node.inputs[0] if inwards else node.outputs[0]
        others = (
            [made[float_name]] if inwards and float_name in made else [] if inwards else readers.get(float_name, [])
        )
        kinds = {keys.get(other.name) for other in others}
        ends = float_name in graph.outputs or any(other.op_type in BOUNDARIES for other in others)
        if len(kinds) == 1 and None not in kinds and not ends:
            found[node.name] = kinds.pop()
    return {name: key for name, key in found.items() if key is not None}
