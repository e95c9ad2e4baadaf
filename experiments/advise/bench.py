"""Cycle-exact measurement of a network, compiled without data, on several machines."""

from dataclasses import dataclass, replace

from byoc.compiled import CompiledNetwork
from byoc.compiler import CompilerPool, compile
from byoc.estimate.bus import MemoryBus, bus_of
from byoc.host.sessions import estimate_cycles
from byoc.options import CompileOptions
from byoc.package.package import Package
from dla_sim.device import Device, Trace
from dla_sim.presets import Preset
from dla_sim.program_timing import ProgramTiming
from experiments.cost.estimate import (
    MICROJOULE,
    SQUARE_MILLIMETRE,
    estimate,
    row_activity,
    run_activity,
)
from experiments.cost.table import CostTable, load_table
from experiments.figure import Counts, FigureMachine, measure_figures
from experiments.report.figures import RegionRun, figures
from experiments.report.limits import Limit, layer_limit
from experiments.report.schema import Figures, PointFigures
from isa.arch import Arch


@dataclass(frozen=True)
class AdvicePoint:
    """Cycles, time, area and energy of a network on one machine.

    ``cycles`` are the accelerator's; ``host_cycles`` are estimated CPU cycles of ``host_nodes``
    nodes. ``square_millimetres`` and ``microjoules`` are estimates by the cost table.
    """

    cycles: int
    host_cycles: int
    host_nodes: int
    milliseconds: float
    square_millimetres: float
    microjoules: float

    @property
    def both(self) -> int:
        """Cycles of accelerator and CPU together."""
        return self.cycles + self.host_cycles


@dataclass(frozen=True, eq=False)
class _Made:
    network: CompiledNetwork
    timed: tuple[ProgramTiming, ...]
    host_cycles: int


class Bench:
    """Measurements of one network on several machines.

    Machines of one Arch and bus share one compilation for equal options.
    """

    def __init__(self, package: Package, options: CompileOptions, table: CostTable) -> None:
        self._package = package
        self._options = options
        self._table = table
        self._made: dict[tuple[Arch, MemoryBus, CompileOptions], _Made] = {}
        self._pool = CompilerPool()

    def point(self, hardware: Preset, options: CompileOptions | None = None) -> AdvicePoint:
        """Measure the network on a machine, with other options if there are any.

        Raise InputError if it cannot be compiled for the machine.
        """
        made = self._compile_for(hardware, options or self._options)
        timing = hardware.timing
        counts = [
            Counts(
                one.run(timing),
                one,
                once_bytes=report.compulsory_bytes,
                apart=report.demand.apart,
                demand=report.demand,
            )
            for one, report in zip(made.timed, made.network.reports.values(), strict=True)
        ]
        found = PointFigures(
            **measure_figures(PointFigures, FigureMachine(hardware.arch, timing), counts)
        )
        activity = row_activity(vars(found))
        if hardware.main_memory != "DRAM":
            activity = replace(activity, dram_bytes=0, unpriced_bytes=activity.dram_bytes)
        elif timing.flash_bytes:  # only traces tell which bytes come from the flash
            activity = run_activity(self._trace(hardware, made.network))
        priced = estimate(self._table, hardware.arch, activity)
        return AdvicePoint(
            cycles=found.cycles,
            host_cycles=made.host_cycles,
            host_nodes=sum(len(part.nodes) for part in made.network.partition.host_parts),
            milliseconds=1000 * found.cycles / timing.clock_hz,
            square_millimetres=priced.area_um2.total / SQUARE_MILLIMETRE,
            microjoules=priced.energy_pj.total / MICROJOULE,
        )

    def figures(self, hardware: Preset) -> Figures:
        network = self._compile_for(hardware, self._options).network
        runs = [
            RegionRun(index, program, trace, report.compulsory_bytes, report.demand)
            for (index, program), trace, report in zip(
                network.programs.items(),
                self._trace(hardware, network),
                network.reports.values(),
                strict=True,
            )
        ]
        return figures(hardware, runs)

    def _trace(self, hardware: Preset, network: CompiledNetwork) -> list[Trace]:
        device = Device(hardware.arch, hardware.timing)
        return [
            device.run(program, {}, timing_only=True).trace for program in network.programs.values()
        ]

    def _compile_for(self, hardware: Preset, options: CompileOptions) -> _Made:
        key = hardware.arch, bus_of(hardware.timing), options
        if key not in self._made:
            network = compile(
                self._package,
                hardware.arch,
                options,
                timing=hardware.timing,
                data=False,
                pool=self._pool,
            )
            timed = tuple(ProgramTiming(program) for program in network.programs.values())
            host = sum(
                estimate_cycles(network.graph, part) for part in network.partition.host_parts
            )
            self._made[key] = _Made(network, timed, host)
        return self._made[key]


def find_layer_limit(
    package: Package, hardware: Preset, options: CompileOptions, region: int, layer: str
) -> Limit:
    """Return the limiter of one layer of a network on a machine."""
    found = Bench(package, options, load_table()).figures(hardware)
    return next(
        layer_limit(one) for one in found.layers if (one.region, one.name) == (region, layer)
    )
