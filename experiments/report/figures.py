"""Figures of a run from its traces, scratchpad occupancy over time, and the timeline of the units.

Regions run one after another: figures add up, peaks take the maximum.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from byoc.compiled import Demand
from dla_sim.device import Trace
from dla_sim.engine.accounts import causes_of
from dla_sim.engine.times import completion_order
from dla_sim.engine.workload import Int64, is_constant_address
from dla_sim.presets import Preset
from experiments.figure import Counts, FigureMachine, measure_figures, sum_tables
from experiments.report.activity import (
    OCCUPANCY_POINTS,
    TIMELINE_SPANS,
    Occupancy,
    Spans,
    Timeline,
)
from experiments.report.memory import MEMORY_BLOCKS, MemoryBlock, MemoryMap
from experiments.report.schema import (
    UNITS,
    Figures,
    Layer,
    RunTotals,
)
from isa.access import sort_distinct
from isa.instruction import KINDS, ceil_div
from isa.program import Program


@dataclass(frozen=True, eq=False)
class RegionRun:
    """Program of one region of a network, with the trace of its simulation.

    The other fields come from the region's compilation, if that is known: ``compulsory_bytes``,
    ``demand``, ``groups`` (the layer names of each group) and ``estimates`` (expected cycles by
    layer).
    """

    region: int
    program: Program
    trace: Trace
    compulsory_bytes: int | None = None
    demand: Demand | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    estimates: Mapping[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> Counts:
        """Counts of a region's run from which the report's figures are computed."""
        if self.compulsory_bytes is None or self.demand is None:
            once, apart = count_moved_once(self.program)
        else:
            once = self.compulsory_bytes
            apart = self.demand.apart
        return Counts(self.trace, once_bytes=once, apart=apart, demand=self.demand)


def figures(hardware: Preset, runs: Sequence[RegionRun]) -> Figures:
    """Return a run's figures over all regions; raise ValueError if a sum does not add up."""
    causes = tuple(causes_of(hardware.timing))
    machine = FigureMachine(hardware.arch, hardware.timing)
    return Figures(
        totals=RunTotals(**measure_figures(RunTotals, machine, [run.counts for run in runs])),
        kinds=sum_tables([run.trace.kinds for run in runs], KINDS),
        ex_cycles=sum_tables([run.trace.ex_cycles for run in runs], KINDS),
        layers=tuple(_layers(machine, runs)),
        units={unit: sum_tables([run.trace.units[unit] for run in runs], causes) for unit in UNITS},
    )


def count_moved_once(program: Program) -> tuple[int, tuple[int, int]]:
    """Return the bytes of inputs, constants and outputs that a program moves.

    Each byte counts once. The second value splits them: bytes in transfers of the main memory, and
    bytes in transfers of constants (docs/machine.md, section 6). The program alone does not tell
    which transfers another schedule could omit.
    """
    regions = [(tensor.address, tensor.nbytes) for tensor in program.tensors]
    regions += [(segment.address, int(segment.data.size)) for segment in program.segments]
    moved = {start: np.zeros((2, size), np.bool_) for start, size in regions}
    for command in program.commands:
        operands = command.instruction.operands(command, program.arch)
        for access in (*operands.reads, *operands.writes):
            if access.space == "dram":
                constant = int(is_constant_address(program, np.array([access.address]))[0])
                for start, size in regions:
                    if access.address < start + size and start < access.end:
                        for first, last in access.runs():
                            moved[start][constant, max(first - start, 0) : max(last - start, 0)] = (
                                True
                            )
    once = sum(int(np.count_nonzero(mask.any(axis=0))) for mask in moved.values())
    main, constants = (
        sum(int(np.count_nonzero(mask[which])) for mask in moved.values()) for which in (0, 1)
    )
    return once, (main, constants)


def _layers(machine: FigureMachine, runs: Sequence[RegionRun]) -> Iterable[Layer]:
    before = 0
    for run in runs:
        groups: dict[str, int] = {}
        for number, names in enumerate(run.groups, start=before):
            for name in names:  # a layer has a group for each image of a batch; report the first
                groups.setdefault(name, number)
        before += len(run.groups)
        for found, parts in zip(run.trace.layers, run.trace.breakdown, strict=True):
            yield Layer(
                name=found.name,
                onnx_nodes=found.onnx_nodes,
                kind=found.kind,
                region=run.region,
                stalls=found.stalls,
                breakdown=parts,
                group=groups.get(found.name),
                estimate=run.estimates.get(found.name),
                **measure_figures(Layer, machine, [found]),
            )


def occupancy(runs: Sequence[RegionRun]) -> Occupancy | None:
    """Return the live scratchpad bytes over time, for regions that run in sequence.

    Returns None if no cycle passed. The values are exact: the peak and the mean of a point cover
    all of its cycles, not samples.
    """
    total = sum(run.trace.cycles for run in runs)
    if not total:
        return None
    width = ceil_div(total, OCCUPANCY_POINTS)
    changes, levels = _steps(runs)
    times = sort_distinct(
        np.concatenate([changes[changes < total], np.arange(0, total, width, dtype=np.int64)])
    )
    live = levels[np.searchsorted(changes, times, side="right") - 1]
    lasting = np.diff(np.append(times, total))
    firsts = np.searchsorted(times, np.arange(0, total, width))
    peaks = np.maximum.reduceat(live, firsts)
    means = np.add.reduceat(live * lasting, firsts) // np.add.reduceat(lasting, firsts)
    return Occupancy(
        cycles_per_point=width, peak_bytes=tuple(peaks.tolist()), mean_bytes=tuple(means.tolist())
    )


def _steps(runs: Sequence[RegionRun]) -> tuple[Int64, Int64]:
    """Return cycles at which the live scratchpad bytes change, and the bytes from then on.

    The first level is 0, because the scratchpad is empty when a region begins.
    """
    # imported lazily: only reports with occupancy need it
    from dla_sim.inspection import live_bytes

    changes: list[Int64] = []
    levels: list[Int64] = []
    offset = 0
    for run in runs:
        trace = run.trace
        order = completion_order(trace.workload, trace.times)
        found, counts = live_bytes(trace.prepared.operands, order, trace.times)
        changes += [np.array([offset], dtype=np.int64), offset + found]
        levels += [np.zeros(1, dtype=np.int64), counts]
        offset += trace.cycles
    return np.concatenate(changes), np.concatenate(levels)


def timeline(runs: Sequence[RegionRun], layers: Sequence[Layer]) -> Timeline:
    """Return the activity of each unit over a run, condensed to a limited number of spans.

    The window is the smallest power of two for which no unit has more than :data:`TIMELINE_SPANS`
    spans.
    """
    units = [_list_executed(runs, unit, layers) for unit in range(len(UNITS))]
    window = 1
    while any(len(sort_distinct(begin // window)) > TIMELINE_SPANS for begin, _, _ in units):
        window *= 2
    return Timeline(
        window=window,
        units=dict(zip(UNITS, (_spans(*unit, window) for unit in units), strict=True)),
    )


def _list_executed(
    runs: Sequence[RegionRun], unit: int, layers: Sequence[Layer]
) -> tuple[Int64, Int64, Int64]:
    """Return begin, end and layer of every command of a unit, in order of time."""
    found = [np.zeros((3, 0), dtype=np.int64)]
    offset = 0
    for run in runs:
        trace = run.trace
        members = trace.workload.demands.by_unit[unit]
        times = (offset + trace.times.start[members], offset + trace.times.end[members])
        found.append(np.stack([*times, _index_layers(run, layers)[members]]))
        offset += trace.cycles
    begin, end, layer = np.concatenate(found, axis=1)
    return begin, end, layer


def _index_layers(run: RegionRun, layers: Sequence[Layer]) -> Int64:
    """Return the index in ``layers`` of each command's layer; -1 if none."""
    position = {
        layer.name: place for place, layer in enumerate(layers) if layer.region == run.region
    }
    labels = run.trace.labels
    places = np.array([position.get(name, -1) for name in labels.layers], dtype=np.int64)
    return places[labels.layer]


def memory_map(runs: Sequence[RegionRun], layers: Sequence[Layer]) -> MemoryMap | None:
    """Return the tensors and tiles in the scratchpad over a run; None if it stays empty.

    Tiles of one layer become one block if they overlap in addresses and in cycles.
    """
    blocks: list[MemoryBlock] = []
    offset = 0
    for run in runs:
        tiles: dict[tuple[int, str], list[MemoryBlock]] = {}
        for tile in _list_tiles(run, _index_layers(run, layers).tolist(), offset):
            tiles.setdefault((tile.layer, tile.role), []).append(tile)
        for found in tiles.values():
            blocks += _merge_tiles(found)
        offset += run.trace.cycles
    if not blocks:
        return None
    ranked = sorted(range(len(blocks)), key=lambda number: (-blocks[number].byte_cycles, number))
    kept = [blocks[number] for number in ranked[:MEMORY_BLOCKS]]
    return MemoryMap(
        blocks=tuple(sorted(kept, key=lambda block: (block.begin, block.address))),
        omitted=len(blocks) - len(kept),
        share=sum(block.byte_cycles for block in kept) / sum(one.byte_cycles for one in blocks),
    )


def _list_tiles(run: RegionRun, layers: Sequence[int], offset: int) -> Iterator[MemoryBlock]:
    """Yield the scratchpad bytes that each command writes, in the order of the first cycles.

    ``layers`` has the index of each command's layer, ``offset`` is the region's first cycle.
    """
    # imported lazily: only reports with a memory map need it
    from dla_sim.inspection import find_residents

    trace = run.trace
    operands = trace.prepared.operands
    start = trace.times.start.tolist()
    ends = find_residents(operands, completion_order(trace.workload, trace.times), trace.times)
    for number in sorted(ends, key=lambda one: (start[one], one)):
        written = [access for access in operands[number].writes if access.space == "sram"]
        loaded = [access.address for access in operands[number].reads if access.space == "dram"]
        constant = is_constant_address(run.program, np.array(loaded, dtype=np.int64)).any()
        source = trace.sources[number]
        address = min(access.address for access in written)
        yield MemoryBlock(
            layer=layers[number],
            role="weights" if constant else "input" if loaded else "result",
            tile=0 if source is None else source.tile,
            address=address,
            bytes=max(access.end for access in written) - address,
            begin=offset + start[number],
            end=offset + ends[number],
        )


def _merge_tiles(tiles: Iterable[MemoryBlock]) -> list[MemoryBlock]:
    """Merge the tiles of a tensor that meet and overlap in cycles.

    They come in order of their first cycles.
    """
    done: list[MemoryBlock] = []
    resident: list[MemoryBlock] = []
    for tile in tiles:
        done += [one for one in resident if one.end <= tile.begin]
        resident = [one for one in resident if one.end > tile.begin]
        meeting = [one for one in resident if _meet(one, tile)]
        resident = [one for one in resident if one not in meeting]
        merged = [*meeting, tile]
        address = min(one.address for one in merged)
        place = {
            "address": address,
            "bytes": max(one.address + one.bytes for one in merged) - address,
            "end": max(one.end for one in merged),
        }
        first = min(merged, key=lambda one: one.begin)
        resident.append(first.model_copy(update=place))
    return done + resident


def _meet(one: MemoryBlock, other: MemoryBlock) -> bool:
    """Return whether two tiles of one tensor share addresses, or adjoin if they are results.

    Loaded tiles that adjoin are the two halves of a double buffer.
    """
    low, high = sorted((one, other), key=lambda block: block.address)
    return high.address < low.address + low.bytes + (one.role == "result")


def _spans(begin: Int64, end: Int64, layer: Int64, window: int) -> Spans:
    """Merge a unit's commands that begin in the same window of cycles into one span.

    A span has the layer that takes most of its cycles. Of layers with equally many cycles, it is
    the first in the report.
    """
    _, first = np.unique(begin // window, return_index=True)
    last = np.append(first, len(begin))[1:] - 1
    active = end - begin
    most = layer[first]
    for span in np.flatnonzero(last > first).tolist():
        members = slice(first[span], last[span] + 1)
        known, place = np.unique(layer[members], return_inverse=True)
        most[span] = known[np.bincount(place, weights=active[members]).argmax()]
    return Spans(
        begin=tuple(begin[first].tolist()),
        end=tuple(end[last].tolist()),
        active=tuple(np.add.reduceat(active, first).tolist()) if len(first) else (),
        commands=tuple((last - first + 1).tolist()),
        layer=tuple(most.tolist()),
    )
