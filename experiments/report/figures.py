"""Figures of a run from the traces, and how full the scratchpad was.

Regions run one after another: figures add, peaks take the maximum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from byoc.emission.demand import Demand
from dla_sim.engine.causes import causes_of
from dla_sim.engine.times import completion_order
from dla_sim.engine.workload import among_constants
from dla_sim.occupancy import live_bytes
from dla_sim.presets import Preset
from dla_sim.trace import Trace
from experiments.report.schema import OCCUPANCY_POINTS, UNITS, Figures, Layer, Occupancy, Totals
from isa.instruction import KINDS, ceil_div
from isa.program import Program

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RegionRun:
    """One region's program and its trace.

    ``compulsory_bytes``, ``demand`` and ``groups``, the names of the layers of each: those of its compilation, where
    that is known.
    """

    region: int
    program: Program
    trace: Trace
    compulsory_bytes: int | None = None
    demand: Demand | None = None
    groups: tuple[tuple[str, ...], ...] = ()


def figures(hardware: Preset, runs: Sequence[RegionRun]) -> Figures:
    """The figures of all regions together; raises ValueError when a sum does not add up."""
    causes = causes_of(hardware.timing)
    return Figures(
        totals=_totals(hardware, runs),
        kinds=_summed((run.trace.kinds for run in runs), KINDS),
        ex_cycles=_summed((run.trace.ex_cycles for run in runs), KINDS),
        layers=tuple(_layers(runs, hardware.arch.pe.count)),
        units={unit: _summed((run.trace.units[unit] for run in runs), causes) for unit in UNITS},
    )


def _summed(tables: Iterable[Mapping[str, int]], names: Iterable[str]) -> dict[str, int]:
    total: Counter[str] = Counter(dict.fromkeys(names, 0))
    for table in tables:
        total.update(table)
    return dict(total)


def _totals(hardware: Preset, runs: Sequence[RegionRun]) -> Totals:
    cycles = sum(run.trace.cycles for run in runs)
    macs = sum(run.trace.macs for run in runs)
    return Totals(
        cycles=cycles,
        macs=macs,
        utilization=_utilization(macs, cycles, hardware.arch.pe.count),
        lower_bound_cycles=sum(_lower_bound(hardware, run) for run in runs),
        roofline_cycles=_roofline(hardware, runs),
        dram_read_bytes=sum(run.trace.dram_read_bytes for run in runs),
        dram_write_bytes=sum(run.trace.dram_write_bytes for run in runs),
        flash_read_bytes=sum(run.trace.flash_read_bytes for run in runs),
        sram_peak_bytes=max((run.trace.sram_peak_bytes for run in runs), default=0),
        instructions=sum(run.trace.instructions for run in runs),
    )


def _utilization(macs: int, cycles: int, processing_elements: int) -> float:
    return macs / (cycles * processing_elements) if cycles else 0.0


def _lower_bound(hardware: Preset, run: RegionRun) -> int:
    """Cycles that no schedule can beat: every MAC on a busy array, or inputs, outputs and constants once on the bus."""
    if run.compulsory_bytes is None or run.demand is None:
        nbytes, apart = moved_once(run.program)
    else:
        nbytes, apart = run.compulsory_bytes, run.demand.apart
    return hardware.timing.lower_bound(run.trace.macs, hardware.arch.pe.count, nbytes, apart)


def _roofline(hardware: Preset, runs: Sequence[RegionRun]) -> int | None:
    """Cycles that no schedule, tiling or mapping can beat; None where no compilation has said what it needs.

    Of each region no less than its lower bound.
    """
    demands = [run.demand for run in runs if run.demand is not None]
    if len(demands) < len(runs):
        return None
    least = (hardware.timing.least_cycles(one.compute_cycles, one.commands, one.apart) for one in demands)
    return sum(max(cycles, _lower_bound(hardware, run)) for cycles, run in zip(least, runs, strict=True))


def moved_once(program: Program) -> tuple[int, tuple[int, int]]:
    """Bytes of the inputs and constants that a program loads and of the outputs that it stores, each byte once.

    And how many of them in transfers of the main memory, how many in those of constants (docs/machine.md, section 6).
    Of a program alone nobody knows what another schedule could leave out.
    """
    regions = [(tensor.address, tensor.nbytes) for tensor in program.tensors]
    regions += [(segment.address, int(segment.data.size)) for segment in program.segments]
    moved = {start: np.zeros((2, size), np.bool_) for start, size in regions}
    for command in program.commands:
        operands = command.instruction.operands(command, program.arch)
        for access in (*operands.reads, *operands.writes):
            if access.space == "dram":
                constant = int(among_constants(program, np.array([access.address]))[0])
                for start, size in regions:
                    if access.address < start + size and start < access.end:
                        for first, last in access.runs():
                            moved[start][constant, max(first - start, 0) : max(last - start, 0)] = True
    once = sum(int(np.count_nonzero(mask.any(axis=0))) for mask in moved.values())
    main, constants = (sum(int(np.count_nonzero(mask[which])) for mask in moved.values()) for which in (0, 1))
    return once, (main, constants)


def _layers(runs: Sequence[RegionRun], processing_elements: int) -> Iterable[Layer]:
    before = 0
    for run in runs:
        groups: dict[str, int] = {}
        for number, names in enumerate(run.groups, start=before):
            for name in names:  # a layer of several images is in a group for each: the first
                groups.setdefault(name, number)
        before += len(run.groups)
        for found, parts in zip(run.trace.layers, run.trace.breakdown, strict=True):
            yield Layer(
                name=found.name,
                onnx_nodes=found.onnx_nodes,
                kind=found.kind,
                region=run.region,
                cycles=found.cycles,
                macs=found.macs,
                utilization=_utilization(found.macs, found.cycles, processing_elements),
                dram_read_bytes=found.dram_read_bytes,
                dram_write_bytes=found.dram_write_bytes,
                tiles=found.tiles,
                stalls=found.stalls,
                breakdown=parts,
                group=groups.get(found.name),
            )


def occupancy(runs: Sequence[RegionRun]) -> Occupancy | None:
    """Live bytes of the scratchpad over all regions, one after another; None where no cycle went by.

    Exact: each point's peak and mean are those of its cycles, not of samples.
    """
    total = sum(run.trace.cycles for run in runs)
    if not total:
        return None
    width = ceil_div(total, OCCUPANCY_POINTS)
    changes, levels = _steps(runs)
    times = np.unique(np.concatenate([changes[changes < total], np.arange(0, total, width, dtype=np.int64)]))
    live = levels[np.searchsorted(changes, times, side="right") - 1]
    lasting = np.diff(np.append(times, total))
    firsts = np.searchsorted(times, np.arange(0, total, width))
    peaks = np.maximum.reduceat(live, firsts)
    means = np.add.reduceat(live * lasting, firsts) // np.add.reduceat(lasting, firsts)
    return Occupancy(cycles_per_point=width, peak_bytes=tuple(peaks.tolist()), mean_bytes=tuple(means.tolist()))


def _steps(runs: Sequence[RegionRun]) -> tuple[Int64, Int64]:
    """(cycles, bytes): from each of ``cycles`` on so many bytes are live; the first is 0, every region begins empty."""
    changes: list[Int64] = []
    levels: list[Int64] = []
    offset = 0
    for run in runs:
        trace = run.trace
        operands = [command.instruction.operands(command, run.program.arch) for command in trace.commands]
        found, counts = live_bytes(operands, completion_order(trace.workload, trace.times), trace.times)
        changes += [np.array([offset], dtype=np.int64), offset + found]
        levels += [np.zeros(1, dtype=np.int64), counts]
        offset += trace.cycles
    return np.concatenate(changes), np.concatenate(levels)
