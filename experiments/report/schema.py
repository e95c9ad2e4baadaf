"""Run report: the public JSON format of ``dla run``, with the sums that must hold in every report.

The keys of design section 7 are stable. Other keys (``compile``, ``occupancy``, ``check.first``,
``host.layers``, ``accuracy.differences``) may be extended. Cycles are cycles of the machine's
clock; fractions are from 0 to 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
    model_validator,
)

from byoc.package.package import Fidelity, summary_html
from dla_sim.engine.accounts import CAUSES
from dla_sim.engine.breakdown import PARTS
from experiments.cost.estimate import Estimate
from experiments.figure import (
    SHARE,
    Figure,
    compute_lower_bound,
    describe_figure,
    largest,
    make_sum,
    roofline,
    utilization,
    values_of,
)
from experiments.report.activity import Occupancy, Timeline
from experiments.report.checks import Accuracy, Check, HardwareCheck, Suspicion
from experiments.report.graph import BranchEntry, GraphEdge
from experiments.report.machine import DescribedMachine, drop_absent
from experiments.report.memory import MemoryMap, StepsEntry
from experiments.report.parts import (
    LARGEST_COUNT,
    Count,
    Fraction,
    Part,
    Picojoules,
    Text,
    Word,
    expect,
)
from experiments.report.sensitivity import SensitivityEntry
from isa.arch import flat
from isa.instruction import KINDS

SCHEMA: Literal["dla-run/1"] = "dla-run/1"
UNITS = ("LD", "EX", "ST")
WITHIN = ("busy", "bus", "dram", "flash", "sram")
"""Causes of cycles in which a command executes; all other causes are waits before a command."""

SEPARATE_PART = ":requantise"
"""Suffix of the layer name of a separate requantisation.

Other schedules fuse the requantisation into the layer.
"""


_CYCLES = Figure("cycles", "cycles", "less", make_sum("cycles"))
_MACS = Figure("multiply-accumulates", "MACs", of=make_sum("macs"), heading="MACs")
_LOWER_BOUND = Figure("lower bound", "cycles", of=compute_lower_bound)
_ROOFLINE = Figure("roofline", "cycles", of=roofline)
_UTILIZATION = Figure("utilisation", SHARE, "more", utilization)
_DRAM_READ = Figure("DRAM read", "bytes", "less", make_sum("dram_read_bytes"))
_DRAM_WRITTEN = Figure("DRAM written", "bytes", "less", make_sum("dram_write_bytes"))
_SRAM_PEAK = Figure("highest SRAM address used", "bytes", "less", largest("sram_peak_bytes"))
_INSTRUCTIONS = Figure("instructions", "instructions", "less", make_sum("instructions"))
_HOST_CYCLES = Figure(
    "CPU, estimated",
    "cycles",
    "less",
    name="host_estimated_cycles",
    goal="host-cycles",
    estimate=True,
)


class Measured(Part):
    """Performance figures of a run or of a sweep point, over all regions together.

    ``lower_bound_cycles`` is the larger of two bounds: every multiply-accumulate on a full array,
    or inputs, outputs and constants at the width of the bus. ``roofline_cycles`` is the same for
    this array with the best mapping of every layer, and for this bus at the rate that it sustains.
    It is None for programs without their network.
    ``dram_read_bytes`` and ``dram_write_bytes`` count bytes of system memory without command words.
    """

    cycles: Annotated[Count, _CYCLES]
    macs: Annotated[Count, _MACS]
    utilization: Annotated[Fraction, _UTILIZATION]
    lower_bound_cycles: Annotated[Count, _LOWER_BOUND]
    roofline_cycles: Annotated[Count | None, _ROOFLINE] = None
    dram_read_bytes: Annotated[Count, _DRAM_READ]
    dram_write_bytes: Annotated[Count, _DRAM_WRITTEN]


class RunTotals(Part):
    """Total performance figures of a run, over all regions; the figures of :class:`Measured`.

    ``instructions`` counts operations, not register writes. ``flash_read_bytes`` is the part of the
    bytes read from system memory that came from its flash, if it has one. A described machine lacks
    figures that its description does not give.
    """

    cycles: Annotated[Count, _CYCLES]
    macs: Annotated[Count, _MACS]
    utilization: Annotated[Fraction | None, _UTILIZATION] = None
    lower_bound_cycles: Annotated[Count | None, _LOWER_BOUND] = None
    roofline_cycles: Annotated[Count | None, _ROOFLINE] = None
    dram_read_bytes: Annotated[Count | None, _DRAM_READ] = None
    dram_write_bytes: Annotated[Count | None, _DRAM_WRITTEN] = None
    flash_read_bytes: Annotated[
        Count | None, Figure("flash read", "bytes", of=make_sum("flash_read_bytes"))
    ] = None
    sram_peak_bytes: Annotated[Count | None, _SRAM_PEAK] = None
    instructions: Annotated[Count | None, _INSTRUCTIONS] = None


class PointFigures(Measured):
    """Performance figures of a sweep point, stored as columns of its results row.

    ``sram_moved_bytes`` counts the bytes that EX, LD and ST read from and wrote to the scratchpad.
    """

    sram_peak_bytes: Annotated[Count, _SRAM_PEAK]
    sram_moved_bytes: Annotated[
        Count, Figure("SRAM traffic", "bytes", "less", make_sum("sram_moved_bytes"))
    ]
    instructions: Annotated[Count, _INSTRUCTIONS]
    register_writes: Annotated[
        Count, Figure("register writes", "writes", "less", make_sum("register_writes"))
    ]
    regions: Annotated[Count, Figure("regions", "regions", of=lambda machine, parts: len(parts))]


class Bus(Part):
    """Memory bus of ``width_bytes`` per cycle; bursts can use ``sustained_bytes`` of them.

    The bus sustains less than its width if fewer than ``bursts_to_fill`` bursts are in flight
    (``outstanding_bursts``).
    """

    width_bytes: Count
    sustained_bytes: Annotated[float, Field(gt=0, le=LARGEST_COUNT)]
    outstanding_bursts: Count
    bursts_to_fill: Count


class Layer(Part):
    """Report entry with the figures of one layer of one region.

    Attributes:
        stalls: cycles that the layer's commands waited, by unit and cause.
        breakdown: the layer's cycles by part (docs/machine.md, section 7), which add up to
            ``cycles``.
        group: index in ``compile.groups`` of the layer's group, for the first image of a batch;
            None if computed alone.
        estimate: cycles that the compiler expected; None with the published schedule, or for a
            program alone.
        energy_pj: estimate in picojoules by the report's cost table; None without a table.
    """

    name: Text
    onnx_nodes: tuple[Text, ...]
    kind: Text
    region: Count
    cycles: Annotated[Count, _CYCLES]
    macs: Annotated[Count, _MACS]
    utilization: Annotated[Fraction | None, _UTILIZATION] = None
    dram_read_bytes: Annotated[Count | None, _DRAM_READ] = None
    dram_write_bytes: Annotated[Count | None, _DRAM_WRITTEN] = None
    tiles: Annotated[Count | None, Figure("tiles", "tiles", of=make_sum("tiles"))] = None
    stalls: Mapping[str, Mapping[str, Count]] = Field(default_factory=dict)
    breakdown: Mapping[str, Count] = Field(default_factory=dict)
    group: Annotated[Count | None, Figure("in bands with group")] = None
    estimate: Annotated[
        Count | None, Figure("cycles, estimated", "cycles", heading="estimate", estimate=True)
    ] = None
    energy_pj: Annotated[Picojoules | None, Figure("energy, estimated", "pJ")] = None


class PortEntry(Part):
    """One input or output of the network as exchanged with the application, by the model's name.

    ``scale`` and ``zero_point`` belong to quantised integers: real = (q - zero_point) * scale in
    float32. ``integer`` is True if the model's tensor is float and the application exchanges
    integers. ``reason`` says why integers are not exchanged although they were requested.
    """

    name: Text
    role: Literal["input", "output"]
    dtype: Text
    shape: tuple[Count, ...]
    scale: float | None = None
    zero_point: int | None = None
    integer: bool = False
    reason: Text = ""


class PlacementEntry(Part):
    """Placement of one node of the canonical graph.

    ``reason`` says with actual values why the node is on the CPU.
    """

    node: Text
    op_type: Text
    on: Literal["dla", "cpu"]
    region: Count | None
    reason: Text | None


class HostLayer(Part):
    """Estimated cost of one node that runs on the CPU, in accelerator cycles."""

    node: Text
    op_type: Text
    macs: Count
    estimated_cycles: Count


class Host(Part):
    """Estimated cost of all nodes that run on the CPU, in accelerator cycles.

    These cycles are never part of the totals.
    """

    nodes: Annotated[Count, Figure("nodes on the CPU", "nodes", name="host_nodes")]
    estimated_cycles: Annotated[Count, _HOST_CYCLES]
    estimate: Literal[True] = True
    layers: tuple[HostLayer, ...] = ()


class RunSegment(Part):
    """Part of a whole inference: a region, consecutive CPU nodes, or a transfer of tensors.

    ``region`` is the region that runs, or the region that a transfer belongs to. ``nodes`` counts
    the nodes that run.
    """

    on: Literal["dla", "cpu", "transfer"]
    region: Count | None
    nodes: Count
    cycles: Count


class Fallback(Part):
    """All nodes of one operator that run on the CPU because of one ``rule``.

    ``reason`` is the reason of the first node. ``edge_cycles`` are the cycles of QuantizeLinear and
    DequantizeLinear nodes that serve only these nodes and would disappear with them. Those nodes
    have their own entries as well.
    """

    op_type: Text
    rule: Text
    reason: Text
    nodes: Count
    macs: Count
    estimated_cycles: Count
    edge_cycles: Count = 0


class EndToEnd(Part):
    """Estimated cycles of a whole inference on accelerator, CPU and bus.

    All cycles are cycles of the accelerator.

    Attributes:
        dla_cycles: simulated cycles, equal to the report's total.
        cpu_cycles: estimated cycles, equal to those of ``host``.
        transfer_cycles: estimated cycles to move every tensor that enters or leaves the
            accelerator over the bus once, and to pack and unpack it for banked memory; None for a
            described machine without ``transfer_memory``.
        dla_macs: multiply-accumulates of the nodes on the accelerator.
        cpu_macs: multiply-accumulates of the nodes on the CPU.
        interface_cycles: part of ``cpu_cycles`` that integer inputs and outputs
            (``--integer-io``) remove.
        segments: all parts, which run one after another.
        fallbacks: nodes on the CPU by operator and reason, most expensive first.
    """

    cycles: Annotated[
        Count,
        Figure("end to end, estimated", "cycles", "less", name="end_to_end_cycles", estimate=True),
    ]
    dla_cycles: Count
    cpu_cycles: Count
    transfer_cycles: Count | None = None
    estimate: Literal[True] = True
    dla_macs: Count
    cpu_macs: Count
    interface_cycles: Count = 0
    segments: tuple[RunSegment, ...]
    fallbacks: tuple[Fallback, ...]

    @model_validator(mode="after")
    def _consistent(self) -> EndToEnd:
        shares = self.shares
        expect("the sum of end_to_end", sum(shares.values()), self.cycles)
        for place, cycles in shares.items():
            found = sum(segment.cycles for segment in self.segments if segment.on == place)
            expect(f"the sum of the segments on {place}", found, cycles)
        expect(
            "the sum of the fallbacks",
            sum(item.estimated_cycles for item in self.fallbacks),
            self.cpu_cycles,
        )
        if self.interface_cycles > self.cpu_cycles:
            raise ValueError(
                f"{self.interface_cycles} interface_cycles are more than the CPU's "
                f"{self.cpu_cycles}"
            )
        return self

    @property
    def shares(self) -> dict[str, int]:
        """Cycles by place: accelerator, CPU and, if they are known, transfers."""
        moved = {} if self.transfer_cycles is None else {"transfer": self.transfer_cycles}
        return {"dla": self.dla_cycles, "cpu": self.cpu_cycles, **moved}

    def share(self, cycles: int) -> float:
        """Return ``cycles`` as a fraction of the inference's cycles; 0 if it takes none."""
        return cycles / self.cycles if self.cycles else 0.0

    @property
    def integer_cpu_share(self) -> float:
        """CPU's share of the time with integer inputs and outputs (``--integer-io``).

        The share is 0 if nothing takes cycles.
        """
        rest = self.cycles - self.interface_cycles
        return (self.cpu_cycles - self.interface_cycles) / rest if rest else 0.0


class LayerGroup(Part):
    """Layers of a region that are computed together, in bands of rows.

    ``rows`` is the number of rows per band of the last layer's result. 0 means two layers, of which
    the second is element-wise and is computed on every tile of the first. ``kept`` are tensors
    whose rows stay in the scratchpad from band to band; rows of other tensors are computed or
    loaded again.
    """

    region: Count
    layers: tuple[Text, ...]
    rows: Count
    kept: tuple[Text, ...]


class Compilation(Part):
    """Results of the compilation, summed over all regions.

    ``sets_elided`` counts the register writes that the compiler saved.
    """

    regions: Count
    words: Count
    sets: Count
    sets_elided: Count
    dram_bytes: Count
    groups: tuple[LayerGroup, ...] = ()


class MeasuredChange(Part):
    """Command that was measured after a run, and the share of the run's cycles that it saves."""

    saves: Fraction
    command: Text


class Figures(Part):
    """Performance figures of a simulated run: totals, layers, and each unit's cycles by cause.

    Validation checks that kinds, layers and every unit's causes add up to the total.
    """

    totals: RunTotals
    kinds: Mapping[str, Count]
    ex_cycles: Mapping[str, Count]
    layers: tuple[Layer, ...]
    units: Mapping[str, Mapping[str, Count]]

    @model_validator(mode="after")
    def _consistent(self) -> Figures:
        _check_names(self)
        _check_sums(self)
        return self


class RunReport(Part):
    """Report of one run; its figures are validated like :class:`Figures`.

    ``machine`` is set for a machine that a description declares. Such a report lacks the fields of
    :data:`experiments.report.machine.ABSENT` that the description does not give, also in its file.
    """

    schema_: Literal["dla-run/1"] = Field(default=SCHEMA, alias="schema")
    version: Word
    command: Text
    model: Text
    hashes: Mapping[Word, Word]
    machine: DescribedMachine | None = None
    arch: Mapping[str, Any] = Field(default_factory=dict)
    timing: Mapping[str, Any] = Field(default_factory=dict)
    bus: Bus | None = None
    memory_mode: Word | None = None
    schedule: Word | None = None
    seed: int
    weights: Literal["trained", "random"] | None = None
    totals: RunTotals
    kinds: Mapping[str, Count] = Field(default_factory=dict)
    ex_cycles: Mapping[str, Count] = Field(default_factory=dict)
    layers: tuple[Layer, ...]
    units: Mapping[str, Mapping[str, Count]] = Field(default_factory=dict)
    interface: tuple[PortEntry, ...] = ()
    placement: tuple[PlacementEntry, ...]
    edges: tuple[GraphEdge, ...]
    host: Host
    end_to_end: EndToEnd
    branches: tuple[BranchEntry, ...] = ()
    check: Check
    hardware: HardwareCheck | None = None
    fidelity: Fidelity | None = None
    warnings: tuple[Suspicion, ...] = ()
    accuracy: Accuracy | None = None
    steps: StepsEntry | None = None
    compile: Compilation | None = None
    occupancy: Occupancy | None = None
    timeline: Timeline | None = None
    memory: MemoryMap | None = None
    cost: Estimate | None = None
    advice: tuple[MeasuredChange, ...] = ()
    sensitivity: SensitivityEntry | None = None

    @model_serializer(mode="wrap")
    def _drop_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return drop_absent(dump(self))

    @property
    def clock_hz(self) -> int:
        """Clock of the machine in Hz."""
        return int(self.timing["clock_hz"]) if self.machine is None else self.machine.clock_hz

    def _repr_html_(self) -> str:
        rows = {
            "command": self.command,
            "mismatches": f"{self.check.mismatches:,} of {self.check.elements:,} elements",
        }
        rows |= {
            figure.words: describe_figure(figure, value)
            for figure, value in values_of(self)
            if value is not None
        }
        return summary_html(f"{self.model}: run report", rows)

    @model_validator(mode="after")
    def _consistent(self) -> RunReport:
        if self.machine is None:
            _check_machine(self)
            _check_complete(self)
            _check_names(self)
        _check_sums(self)
        if self.occupancy is not None:
            points = -(-self.totals.cycles // self.occupancy.cycles_per_point)
            expect("the number of points of peak_bytes", len(self.occupancy.peak_bytes), points)
            expect("the number of points of mean_bytes", len(self.occupancy.mean_bytes), points)
        if self.timeline is not None:
            working = {
                unit: sum(causes.get(cause, 0) for cause in WITHIN)
                for unit, causes in self.units.items()
            }
            self.timeline.check(working, self.totals.cycles, len(self.layers))
        if self.memory is not None:
            peak = self.totals.sram_peak_bytes or 0
            self.memory.check(self.totals.cycles, peak, len(self.layers))
        ends = [end or 0 for edge in self.edges for end in (edge.producer, edge.consumer)]
        if max(ends, default=-1) >= len(self.placement):
            raise ValueError("the edges' nodes are not all within the placement")
        expect("end_to_end.dla_cycles", self.end_to_end.dla_cycles, self.totals.cycles)
        expect("end_to_end.cpu_cycles", self.end_to_end.cpu_cycles, self.host.estimated_cycles)
        return self


_WORD = TypeAdapter(Word)
_NUMBERS = ("pe.ic", "pe.oc", "pe.ow", "sram_bytes", "bus_bytes", "clock_hz")
"""Keys that every machine must have, with a positive integer."""


def _check_machine(report: RunReport) -> None:
    """Check that all values of Arch and Timing are words or numbers.

    Other versions may have other keys.
    """
    machine = flat(report.arch) | flat(report.timing)
    for key, value in machine.items():
        _WORD.validate_python(key)
        if isinstance(value, str):
            _WORD.validate_python(value)
        elif value is not None and not (
            isinstance(value, int | float) and abs(value) <= LARGEST_COUNT
        ):
            raise ValueError(f"{key} of the machine is {value!r:.40}")
    for key in _NUMBERS:
        if not isinstance(machine.get(key), int) or machine[key] < 1:
            raise ValueError(f"{key} of the machine is {machine.get(key)!r:.40}")
    if not isinstance(machine.get("isa"), str):
        raise ValueError(f"isa of the machine is {machine.get('isa')!r:.40}")


def _check_complete(report: RunReport) -> None:
    """Check that the report of our machine has all figures that described machines may lack."""
    expect("compile is there", report.compile is not None, True)
    expect("schedule is there", report.schedule is not None, True)
    for part in (report.totals, *report.layers):
        missing = [name for name in _NEEDED if getattr(part, name, 0) is None]
        expect("the missing figures", missing, [])


_NEEDED = (
    "utilization",
    "lower_bound_cycles",
    "dram_read_bytes",
    "dram_write_bytes",
    "sram_peak_bytes",
    "instructions",
    "tiles",
)


def _check_names(figures: Figures | RunReport) -> None:
    expect("the kinds", set(figures.kinds), set(KINDS))
    expect("the kinds of ex_cycles", set(figures.ex_cycles), set(KINDS))
    expect("the units", set(figures.units), set(UNITS))
    for unit, causes in figures.units.items():
        # machines without a flash lack its cause
        expect(f"the causes of {unit}", {*causes, "flash"}, set(CAUSES))


def _check_sums(figures: Figures | RunReport) -> None:
    total = figures.totals.cycles
    described = isinstance(figures, RunReport) and figures.machine is not None
    if not described:
        expect("the sum of kinds", sum(figures.kinds.values()), total)
    # OP_END alone has no layer (machine.md, section 7)
    in_layers = total if figures.totals.instructions != 1 else 0
    expect(
        "the sum of the layers' cycles", sum(layer.cycles for layer in figures.layers), in_layers
    )
    expect(
        "the sum of the layers' MACs",
        sum(layer.macs for layer in figures.layers),
        figures.totals.macs,
    )
    for unit, causes in figures.units.items():
        expect(f"the sum of the causes of {unit}", sum(causes.values()), total)
    for layer in figures.layers:
        if not described:
            expect(f"the parts of layer {layer.name}", set(layer.breakdown), set(PARTS))
        expect(
            f"the sum of the breakdown of {layer.name}",
            sum(layer.breakdown.values()),
            layer.cycles,
        )
    if described:
        return
    executing = figures.units["EX"]["busy"] + figures.units["EX"]["sram"]
    expect("the sum of ex_cycles", sum(figures.ex_cycles.values()), executing)
    for bound in (figures.totals.lower_bound_cycles, figures.totals.roofline_cycles):
        if bound is not None and total < bound:
            raise ValueError(f"{total} cycles are below the bound of {bound}")


def report_json(report: RunReport) -> str:
    """Return the report as indented JSON text with a final newline.

    Equal reports give equal text.
    """
    return (
        json.dumps(report.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False)
        + "\n"
    )
