"""Puts a run report together: conditions of the run, figures of the machine, placement, host estimate, compilation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from byoc.compiler import CompiledNetwork
from byoc.interface import Interface, Port
from byoc.partition import Partition
from dla_sim.presets import Preset
from dla_sim.timing import Timing
from dla_sim.trace import Trace
from experiments.cost.estimate import estimate, layer_energies, run_activity
from experiments.report.end_to_end import end_to_end, host_estimate
from experiments.report.figures import RegionRun, figures, occupancy, timeline
from experiments.report.schema import (
    Accuracy,
    Bus,
    Check,
    Compilation,
    HardwareCheck,
    Layer,
    LayerGroup,
    PlacementEntry,
    PortEntry,
    RunReport,
    Suspicion,
)
from experiments.version import tool_version
from isa.program_file import to_bytes

if TYPE_CHECKING:
    from experiments.cost.table import CostTable


@dataclass(frozen=True)
class Conditions:
    """What was asked for: the command line that repeats the run, the network's name, seed, machine and cost table."""

    command: str
    model: str
    seed: int
    hardware: Preset
    costs: CostTable | None = None


def assemble(
    conditions: Conditions,
    compiled: CompiledNetwork,
    inputs: Mapping[str, NDArray[Any]],
    traces: Mapping[int, Trace],
    check: Check,
    warnings: tuple[Suspicion, ...],
    accuracy: Accuracy | None,
    ran_on: HardwareCheck | None = None,
) -> RunReport:
    """The report of one run, with an estimate of energy and area where there is a cost table.

    ``ran_on`` is how the hardware compared that the programs ran on, if they did.

    Raises ValueError (pydantic's) when a sum does not add up.
    """
    hardware, costs = conditions.hardware, conditions.costs
    runs = [
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
    machine = figures(hardware, runs)
    layers = _in_network_order(_with_energy(machine.layers, hardware, traces, costs), compiled.partition)
    host = host_estimate(compiled.partition)
    cycles = {index: trace.cycles for index, trace in traces.items()}
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
        totals=machine.totals,
        kinds=machine.kinds,
        ex_cycles=machine.ex_cycles,
        layers=layers,
        units=machine.units,
        interface=port_entries(compiled.interface),
        placement=placement_entries(compiled.partition),
        host=host,
        end_to_end=end_to_end(compiled, host, cycles, hardware.timing.bus_bytes),
        check=check,
        hardware=ran_on,
        fidelity=compiled.package.fidelity,
        warnings=warnings,
        accuracy=accuracy,
        compile=_compilation(compiled),
        occupancy=occupancy(runs),
        timeline=timeline(runs, layers),
        cost=costs and estimate(costs, hardware.arch, run_activity(traces.values(), hardware.main_memory)),
    )


def _with_energy(
    layers: tuple[Layer, ...], hardware: Preset, traces: Mapping[int, Trace], costs: CostTable | None
) -> tuple[Layer, ...]:
    """Layers with the energy that each takes by ``costs``, an estimate."""
    if costs is None:
        return layers
    found = layer_energies(costs, hardware.arch, traces, hardware.main_memory)
    return tuple(layer.model_copy(update={"energy_pj": found[layer.region, layer.name]}) for layer in layers)


def bus_entry(timing: Timing) -> Bus:
    """What the bus moves at best."""
    return Bus(
        width_bytes=timing.bus_bytes,
        sustained_bytes=max(timing.main.sustained_bytes, timing.constants.sustained_bytes),
        outstanding_bursts=timing.outstanding_bursts,
        bursts_to_fill=timing.main.bursts_to_fill,
    )


def _in_network_order(layers: Iterable[Layer], partition: Partition) -> tuple[Layer, ...]:
    """Layers by region and, within one, in the graph's order: what is fetched early did not run early."""
    position = {name: index for index, node in enumerate(partition.graph.nodes) for name in node.onnx_nodes}
    last = len(position)
    return tuple(
        sorted(layers, key=lambda layer: (layer.region, min((position[n] for n in layer.onnx_nodes), default=last)))
    )


def _hashes(hardware: Preset, compiled: CompiledNetwork, inputs: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """First 16 hexadecimal digits of SHA-256 sums: whatever the figures depend on."""
    timing = json.dumps(hardware.timing.model_dump(), sort_keys=True).encode()
    tensors = (part for name, array in inputs.items() for part in (name.encode(), array.tobytes()))
    chosen = compiled.options.chosen
    return {
        "package": compiled.package.digest[:16],
        **({"choices": chosen.digest} if chosen else {}),
        "arch": hardware.arch.digest(),
        "timing": _digest([timing]),
        "input": _digest(tensors),
        "programs": _digest(to_bytes(program) for program in compiled.programs.values()),
    }


def _digest(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:16]


def port_entries(interface: Interface) -> tuple[PortEntry, ...]:
    """Every input, then every output, as it passes."""
    inputs = tuple(_port_entry(port, "input") for port in interface.inputs)
    return (*inputs, *(_port_entry(port, "output") for port in interface.outputs))


def _port_entry(port: Port, role: Literal["input", "output"]) -> PortEntry:
    value, scale, zero_point = port.value, None, None
    if value.quantization is not None and value.quantization.per_tensor:
        scale, zero_point = float(value.quantization.scale), int(value.quantization.zero_point)
    return PortEntry(
        name=port.name,
        role=role,
        dtype=value.dtype,
        shape=value.shape,
        scale=scale,
        zero_point=zero_point,
        integer=port.integer,
        reason="" if port.reason is None else str(port.reason),
    )


def placement_entries(partition: Partition) -> tuple[PlacementEntry, ...]:
    """Where every node runs, in the graph's order."""
    return tuple(
        PlacementEntry(node=entry.node, op_type=entry.op_type, on=entry.on, region=entry.region, reason=entry.reason)
        for entry in partition.placement
    )


def _compilation(compiled: CompiledNetwork) -> Compilation:
    programs, reports = compiled.programs.values(), compiled.reports.values()
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
