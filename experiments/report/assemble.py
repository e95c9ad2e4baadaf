"""Assembly of a run report from the run, the machine and the compiled network.

The report accounts for the whole inference: accelerator, CPU and transfers, one after another.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from byoc.compiled import CompiledNetwork, Partition, Region
from byoc.estimate.constants import HOST_BYTES_PER_CYCLE
from byoc.graph import Graph
from byoc.host.sessions import estimate_cycles
from byoc.layout.boundary import count_packed_bytes
from byoc.operators.onnx_view import BOUNDARIES, QUANTIZE
from byoc.options import CompileOptions
from byoc.package.interface import Interface, NetworkPort, connect
from byoc.package.package import Package
from dla_sim.device import Trace
from dla_sim.presets import Preset
from dla_sim.timing import MemoryTiming, Timing
from experiments.cost.estimate import estimate, layer_energies, run_activity
from experiments.report.checks import Accuracy, Check, HardwareCheck, Suspicion
from experiments.report.figures import RegionRun, figures, memory_map, occupancy, timeline
from experiments.report.graph import BranchEntry, GraphEdge
from experiments.report.memory import StateEntry, StepsEntry
from experiments.report.schema import (
    Bus,
    Compilation,
    EndToEnd,
    Fallback,
    Host,
    HostLayer,
    Layer,
    LayerGroup,
    PlacementEntry,
    PortEntry,
    RunReport,
    RunSegment,
)
from experiments.version import tool_version
from isa.program_file import to_parts

if TYPE_CHECKING:
    from experiments.cost.table import CostTable


@dataclass(frozen=True)
class RunConditions:
    """Conditions of a run: its command, network, seed, machine and cost table.

    The command repeats the run; ``model`` is the network's name. ``weights`` says whether those of
    a built-in network are trained; None for other networks. ``steps`` is the number of inferences
    that passed the state on, ``step_ms`` the time in which the input of one arrives.
    """

    command: str
    model: str
    seed: int
    hardware: Preset
    costs: CostTable | None = None
    weights: Literal["trained", "random"] | None = None
    steps: int | None = None
    step_ms: float | None = None


def _list_region_runs(compiled: CompiledNetwork, traces: Mapping[int, Trace]) -> list[RegionRun]:
    """Return the runs of the regions that have a trace, in order of their index."""
    return [
        RegionRun(
            index,
            compiled.programs[index],
            traces[index],
            report.compulsory_bytes,
            report.demand,
            tuple(group.layers for group in report.choices.groups or ()),
            report.estimates,
        )
        for index, report in ((index, compiled.reports[index]) for index in sorted(traces))
    ]


def _describe_branches(partition: Partition, ran: Collection[int]) -> tuple[BranchEntry, ...]:
    """Return the regions that run only under conditions; ``ran`` has the indices of those run."""
    return tuple(
        BranchEntry(region=one.index, conditions=dict(one.guards), ran=one.index in ran)
        for one in partition.regions
        if one.guards
    )


def assemble(
    conditions: RunConditions,
    compiled: CompiledNetwork,
    inputs: Mapping[str, NDArray[Any]],
    traces: Mapping[int, Trace],
    check: Check,
    warnings: tuple[Suspicion, ...],
    accuracy: Accuracy | None,
    ran_on: HardwareCheck | None = None,
) -> RunReport:
    """Return the report of one run.

    It estimates energy and area if the conditions have a cost table. ``ran_on`` is the comparison
    with the simulator if the programs ran on hardware. Raises ValueError (pydantic's) if a sum does
    not add up.
    """
    hardware, costs = conditions.hardware, conditions.costs
    runs = _list_region_runs(compiled, traces)
    machine = figures(hardware, runs)
    layers = _sort_by_network(
        _add_energy(machine.layers, hardware, traces, costs), compiled.partition
    )
    host = host_estimate(compiled.partition)
    steps, whole = _describe_steps(conditions, compiled, host, traces)
    return RunReport(
        version=tool_version(),
        command=conditions.command,
        model=conditions.model,
        hashes=_hashes(hardware, compiled, inputs),
        arch=hardware.arch.model_dump(),
        timing=hardware.timing.model_dump(),
        bus=bus_entry(hardware.timing),
        memory_mode=hardware.memory_mode,
        schedule=compiled.options.schedule,
        seed=conditions.seed,
        weights=conditions.weights,
        totals=machine.totals,
        kinds=machine.kinds,
        ex_cycles=machine.ex_cycles,
        layers=layers,
        units=machine.units,
        interface=port_entries(compiled.interface),
        placement=placement_entries(compiled.partition),
        edges=graph_edges(compiled.partition.graph),
        host=host,
        end_to_end=whole,
        branches=_describe_branches(compiled.partition, traces),
        check=check,
        hardware=ran_on,
        fidelity=compiled.package.fidelity,
        warnings=warnings,
        accuracy=accuracy,
        steps=steps,
        compile=_compilation(compiled),
        occupancy=occupancy(runs),
        timeline=timeline(runs, layers),
        memory=memory_map(runs, layers),
        cost=costs
        and estimate(costs, hardware.arch, run_activity(traces.values(), hardware.main_memory)),
    )


def _add_energy(
    layers: tuple[Layer, ...],
    hardware: Preset,
    traces: Mapping[int, Trace],
    costs: CostTable | None,
) -> tuple[Layer, ...]:
    """Return the layers with the energy that ``costs`` estimates for each of them."""
    if costs is None:
        return layers
    found = layer_energies(costs, hardware.arch, traces, hardware.main_memory)
    return tuple(
        layer.model_copy(update={"energy_pj": found[layer.region, layer.name]}) for layer in layers
    )


def bus_entry(timing: Timing) -> Bus:
    return Bus(
        width_bytes=timing.bus_bytes,
        sustained_bytes=max(timing.main.sustained_bytes, timing.constants.sustained_bytes),
        outstanding_bursts=timing.outstanding_bursts,
        bursts_to_fill=timing.main.bursts_to_fill,
    )


def _sort_by_network(layers: Iterable[Layer], partition: Partition) -> tuple[Layer, ...]:
    """Sort layers by region and, within a region, in the graph's order.

    Commands prefetch for later layers, so the order in which layers first appear in a trace is not
    the network's order.
    """
    position = {
        name: index for index, node in enumerate(partition.graph.nodes) for name in node.onnx_nodes
    }
    last = len(position)
    return tuple(
        sorted(
            layers,
            key=lambda layer: (
                layer.region,
                min((position[n] for n in layer.onnx_nodes), default=last),
            ),
        )
    )


def _hashes(
    hardware: Preset, compiled: CompiledNetwork, inputs: Mapping[str, NDArray[Any]]
) -> dict[str, str]:
    """Return short hashes of a run's package, machine, inputs and programs, by name.

    Each hash is the first 16 hexadecimal digits of a SHA-256 sum.
    """
    timing = json.dumps(hardware.timing.model_dump(), sort_keys=True).encode()
    tensors = (part for name, array in inputs.items() for part in (name.encode(), array.tobytes()))
    chosen = compiled.options.chosen
    return {
        "package": compiled.package.digest[:16],
        **({"choices": chosen.digest} if chosen else {}),
        "arch": hardware.arch.digest(),
        "timing": digest_parts([timing]),
        "input": digest_parts(tensors),
        "programs": digest_parts(chain.from_iterable(map(to_parts, compiled.programs.values()))),
    }


def digest_parts(parts: Iterable[bytes | memoryview]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:16]


def port_entries(interface: Interface) -> tuple[PortEntry, ...]:
    """Return a report entry for every input, then for every output, of a network.

    An entry describes the tensor that the application and the network exchange.
    """
    inputs = tuple(_port_entry(port, "input") for port in interface.inputs)
    return (*inputs, *(_port_entry(port, "output") for port in interface.outputs))


def _port_entry(port: NetworkPort, role: Literal["input", "output"]) -> PortEntry:
    value = port.value
    how = value.quantization
    single = how if how is not None and how.per_tensor else None
    return PortEntry(
        name=port.name,
        role=role,
        dtype=value.dtype,
        shape=value.shape,
        scale=None if single is None else float(single.scale),
        zero_point=None if single is None else int(single.zero_point),
        integer=port.integer,
        reason="" if port.reason is None else str(port.reason),
    )


def placement_entries(partition: Partition) -> tuple[PlacementEntry, ...]:
    """Return the placement of every node (accelerator or CPU), in the graph's order."""
    return tuple(
        PlacementEntry(
            node=entry.node,
            op_type=entry.op_type,
            on=entry.on,
            region=entry.region,
            reason=entry.reason,
        )
        for entry in partition.placement
    )


def graph_edges(graph: Graph) -> tuple[GraphEdge, ...]:
    """Return the tensors between the nodes of a network, in the order of their consumers.

    A tensor without a producer comes from the application, one without a consumer goes to it.
    Constants are omitted.
    """
    producers = {name: number for number, node in enumerate(graph.nodes) for name in node.outputs}
    consumed = [
        (name, number)
        for number, node in enumerate(graph.nodes)
        for name in dict.fromkeys(node.inputs)
        if name in producers or name in graph.inputs
    ]
    return tuple(
        GraphEdge(
            producer=producers.get(name),
            consumer=consumer,
            tensor=name,
            dtype=graph.values[name].dtype,
            shape=graph.values[name].shape,
        )
        for name, consumer in (*consumed, *((name, None) for name in graph.outputs))
    )


def _compilation(compiled: CompiledNetwork) -> Compilation:
    programs = compiled.programs.values()
    reports = compiled.reports.values()
    words = sum(len(program.words) for program in programs)
    return Compilation(
        regions=len(programs),
        words=words,
        sets=words - sum(len(program.commands) for program in programs),
        sets_elided=sum(report.words_before_elision - report.words for report in reports),
        dram_bytes=max((program.dram_bytes for program in programs), default=0),
        groups=tuple(
            LayerGroup(region=index, layers=group.layers, rows=group.rows, kept=group.kept or ())
            for index in sorted(compiled.reports)
            for group in compiled.reports[index].choices.groups or ()
        ),
    )


def host_estimate(partition: Partition) -> Host:
    """Return estimated run times of the nodes that run on the CPU, and their total."""
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


def _describe_steps(
    conditions: RunConditions, compiled: CompiledNetwork, host: Host, traces: Mapping[int, Trace]
) -> tuple[StepsEntry | None, EndToEnd]:
    """Return the account of a run's steps, and the cycles of the last one from end to end."""
    timing = conditions.hardware.timing
    cycles = {index: trace.cycles for index, trace in traces.items()}
    account = partial(end_to_end, compiled, host, cycles, timing.main)
    if not compiled.package.graph.state:
        return None, account()
    state = tuple(_state_entries(compiled))
    ports = {port.name: port.tensors for port in compiled.interface.ports}
    stay = [one for one in state if one.resident]
    outputs = [tensor for one in stay for tensor in ports[one.output]]
    inputs = [tensor for one in stay for tensor in ports[one.input]]
    first, steady = account(resident=outputs), account(resident=[*inputs, *outputs])
    milliseconds = steady.cycles / timing.clock_hz * 1e3
    steps = StepsEntry(
        count=conditions.steps or 1,
        first_cycles=first.cycles,
        steady_cycles=steady.cycles,
        state=state,
        state_bytes=sum(one.nbytes for one in state),
        step_ms=conditions.step_ms,
        real_time_factor=conditions.step_ms and milliseconds / conditions.step_ms,
    )
    whole = account() if conditions.steps is None else first if steps.count == 1 else steady
    return steps, whole


def _state_entries(compiled: CompiledNetwork) -> Iterator[StateEntry]:
    """Yield the state of a network, and whether it stays in system memory between steps.

    It stays if only regions produce and consume it, in one layout.
    """
    ports = {port.name: port for port in compiled.interface.ports}
    graph = compiled.graph
    on_cpu = {
        name
        for part in compiled.partition.host_parts
        for node in part.nodes
        for name in (*node.inputs, *node.outputs)
    }
    stored: dict[str, set[tuple[Any, ...]]] = {}
    for program in compiled.programs.values():
        for tensor in (*program.inputs, *program.outputs):
            layout = graph.values[tensor.name].layout
            order = None if layout is None else (layout.factors, layout.order)
            stored.setdefault(tensor.name, set()).add((tensor.shape, tensor.dtype, order))
    for one in compiled.package.graph.state:
        value = ports[one.input].value
        ends = {*ports[one.input].tensors, *ports[one.output].tensors}
        forms = [stored.get(name, {name}) for name in ends]
        yield StateEntry(
            name=one.name,
            input=one.input,
            output=one.output,
            dtype=value.dtype,
            shape=value.shape,
            nbytes=value.elements * np.dtype(value.dtype).itemsize,
            resident=not ends & on_cpu and len(set().union(*forms)) == 1,
        )


def end_to_end(
    compiled: CompiledNetwork,
    host: Host,
    regions: Mapping[int, int],
    memory: MemoryTiming,
    resident: Collection[str] = (),
) -> EndToEnd:
    """Return the estimated cycles of a whole inference, whose segments run in sequence.

    ``regions`` are the cycles of each region that runs; ``memory`` is the main memory. A
    region's input that no other region produces crosses the bus once, and so does a region's output
    that the CPU or the application consumes. Tensors that pass from region to region are not moved,
    nor is the ``resident`` state of a network, which passes from step to step. With banked memory,
    tensors cross the bus packed, and the host moves the same number of bytes to pack or unpack
    them.
    """
    partition = compiled.partition
    packed = count_packed_bytes(compiled.programs)
    estimates = {layer.node: layer for layer in host.layers}
    segments = tuple(
        list_segments(
            partition,
            estimates,
            regions,
            partial(_transfer, partition.graph, packed, memory),
            resident,
        )
    )
    cycles = Counter[str]()
    for segment in segments:
        cycles[segment.on] += segment.cycles
    return EndToEnd(
        cycles=sum(cycles.values()),
        dla_cycles=cycles["dla"],
        cpu_cycles=cycles["cpu"],
        transfer_cycles=cycles["transfer"],
        dla_macs=sum(
            node.macs
            for region in partition.regions
            if region.index in regions
            for node in region.nodes
        ),
        cpu_macs=sum(layer.macs for layer in host.layers),
        interface_cycles=count_interface_cycles(compiled.package, compiled.options, host),
        segments=segments,
        fallbacks=group_fallbacks(partition, host),
    )


def count_interface_cycles(package: Package, options: CompileOptions, host: Host) -> int:
    """Return the CPU cycles that integer inputs and outputs (``--integer-io``) save.

    They are the cycles of the nodes that the option removes.
    """
    between = connect(package, replace(options, integer_io=True)).graph
    kept = {node.name for node in between.nodes}
    return sum(layer.estimated_cycles for layer in host.layers if layer.node not in kept)


def list_segments(
    partition: Partition,
    estimates: Mapping[str, HostLayer],
    regions: Mapping[int, int],
    transfer: Callable[[Sequence[str], int], Iterator[RunSegment]],
    resident: Collection[str],
) -> Iterator[RunSegment]:
    """Yield the regions, CPU parts and transfers of an inference in execution order."""
    graph = partition.graph
    made = {name for region in partition.regions for name in region.outputs} | {*resident}
    wanted = {*graph.outputs} - {*resident} | {
        *(name for part in partition.host_parts for name in part.inputs),
        *(name for region in partition.regions for name, _ in region.guards),
    }
    for part in partition.parts:
        if not isinstance(part, Region):
            cycles = sum(estimates[node.name].estimated_cycles for node in part.nodes)
            yield RunSegment(on="cpu", region=None, nodes=len(part.nodes), cycles=cycles)
            continue
        if part.index not in regions:
            continue
        arriving = [name for name in part.inputs if name not in made]
        made.update(arriving)  # another region that reads it needs no second transfer
        leaving = [name for name in part.outputs if name in wanted]
        yield from transfer(arriving, part.index)
        yield RunSegment(
            on="dla", region=part.index, nodes=len(part.nodes), cycles=regions[part.index]
        )
        yield from transfer(leaving, part.index)


def _transfer(
    graph: Graph,
    packed: Mapping[tuple[int, str], int],
    memory: MemoryTiming,
    names: Sequence[str],
    region: int,
) -> Iterator[RunSegment]:
    """Yield the transfer of tensors into or out of a region, unless it takes no cycles.

    ``packed`` gives the bytes of tensors, by region and name, that the host packs or unpacks.
    """
    values = {name: graph.values[name] for name in names}
    plain = {
        name: value.elements * np.dtype(value.dtype).itemsize for name, value in values.items()
    }
    cycles = sum(
        memory.data_cycles(packed.get((region, name), nbytes)) for name, nbytes in plain.items()
    )
    cycles += sum(math.ceil(packed.get((region, name), 0) / HOST_BYTES_PER_CYCLE) for name in names)
    if cycles:
        yield RunSegment(on="transfer", region=region, nodes=0, cycles=cycles)


def group_fallbacks(partition: Partition, host: Host) -> tuple[Fallback, ...]:
    """Group the nodes that run on the CPU by operator and rule, most expensive first."""
    estimates = {layer.node: layer for layer in host.layers}
    keys = {
        place.node: (place.op_type, place.rule or "")
        for place in partition.placement
        if place.on == "cpu"
    }
    reasons = {
        keys[place.node]: place.reason or ""
        for place in reversed(partition.placement)
        if place.on == "cpu"
    }
    nodes, macs, cycles, edges = (Counter[tuple[str, str]]() for _ in range(4))
    for name, key in keys.items():
        nodes[key] += 1
        macs[key] += estimates[name].macs
        cycles[key] += estimates[name].estimated_cycles
    for name, served in _map_served(partition, keys).items():
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
    return tuple(
        sorted(
            found,
            key=lambda item: (-item.estimated_cycles - item.edge_cycles, item.op_type, item.rule),
        )
    )


def _map_served(
    partition: Partition, keys: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """Map quantisation nodes on the CPU to the operator and rule of the CPU nodes that they serve.

    Only nodes between the accelerator and CPU nodes of a single operator and rule are included.
    """
    graph = partition.graph
    found = {}
    for node in graph.nodes:
        if node.name not in keys or node.op_type not in BOUNDARIES or not node.outputs:
            continue
        inwards = node.op_type == QUANTIZE
        float_name = node.inputs[0] if inwards else node.outputs[0]
        others = (
            [graph.producers[float_name]]
            if inwards and float_name in graph.producers
            else []
            if inwards
            else graph.consumers.get(float_name, [])
        )
        kinds = {keys.get(other.name) for other in others}
        ends = float_name in graph.outputs or any(other.op_type in BOUNDARIES for other in others)
        if len(kinds) == 1 and None not in kinds and not ends:
            found[node.name] = kinds.pop()
    return {name: key for name, key in found.items() if key is not None}
