"""What a job does, stage by stage: every task's networks compiled for every accelerator that may run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Literal

import numpy as np

from byoc.compiler import CompiledNetwork
from byoc.compiler import compile as compile_network
from byoc.host.parts import estimate_cycles
from byoc.options import DEFAULTS, CompileOptions
from byoc.partition import HostPart
from dla_sim.device import Device
from dla_sim.engine.recurrence import compute_times
from dla_sim.engine.workload import EX, Workload
from dla_sim.presets import Preset
from dla_sim.systems.pieces import Interruptible, boundaries
from experiments.report.end_to_end import end_to_end, host_estimate
from experiments.running.network import Network, load_network
from experiments.running.package_cache import PackageCache
from experiments.systems.spec import CPU, Preemption, System
from isa.errors import InputError
from isa.program import Program
from isa.progress import Progress, silent


class Piecework:
    """A program on one machine: its workload, what it takes alone, and the same of what is left after giving way."""

    def __init__(self, program: Program, hardware: Preset) -> None:
        self._device = Device(hardware.arch, hardware.timing)
        self.program = program
        self.workload = self._load(program)
        self.alone = compute_times(self.workload).total
        self._stops: dict[Preemption, Interruptible] = {}
        self._left: dict[tuple[Preemption, int], Left] = {}

    def _load(self, program: Program) -> Workload:
        return self._device.load(program).workload

    def stops(self, preemption: Preemption) -> Interruptible:
        """The commands before which it may give way."""
        if preemption not in self._stops:
            found = boundaries(self.program, tiles=preemption == "tile") if preemption != "none" else ()
            self._stops[preemption] = Interruptible(self.program, found)
        return self._stops[preemption]

    def left(self, preemption: Preemption, stop: int) -> Left:
        """What follows when it has given way before command ``stop``."""
        key = preemption, stop
        if key not in self._left:
            interruptible = self.stops(preemption)
            piece = interruptible.piece(stop)
            later = tuple(other - stop + piece.first for other in interruptible.stops if other > stop)
            save = self._load(piece.save) if piece.live else None
            self._left[key] = Left(stop - piece.first, save, self._load(piece.resume), later)
        return self._left[key]


@dataclass(frozen=True, eq=False)
class Left:
    """``save`` the scratchpad, if anything of it is needed; ``resume`` later, which may give way before ``stops``.

    Command n of ``resume`` is the program's command ``shift`` + n, but for those that restore.
    """

    shift: int
    save: Workload | None
    resume: Workload
    stops: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Stage:
    """A part of a job: a program (``work``), or ``cycles`` of a core of speed 1, an estimate (``cpu``, ``transfer``).

    ``cycles`` of a program are those that it takes alone.
    """

    on: Literal["dla", "cpu", "transfer"]
    cycles: int
    work: Piecework | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """A network, or fixed work of the CPU, on one kind of accelerator, or on the cores alone: its stages in order."""

    kind: str
    stages: tuple[Stage, ...]

    @cached_property
    def cycles(self) -> int:
        """What all stages take alone, one after another."""
        return sum(stage.cycles for stage in self.stages)

    @cached_property
    def behind(self) -> tuple[int, ...]:
        """What the stages behind each one take alone."""
        ends = np.cumsum([stage.cycles for stage in self.stages]).tolist()
        return tuple(self.cycles - end for end in ends)


Plans = Mapping[tuple[int, int, str], Plan]
"""By task and variant, counted, and kind of accelerator or :data:`CPU`."""


def make_plans(
    system: System,
    options: CompileOptions = DEFAULTS,
    progress: Progress = silent,
    cache: PackageCache | None = None,
) -> Plans:
    """The plans of all tasks. Networks and programs that several share are read and compiled once.

    A ``cache`` keeps what import makes of a model; no figure depends on it.
    Raises InputError naming the task whose model is wrong.
    """
    networks: dict[str, Network] = {}
    known: dict[tuple[str, str], Plan] = {}
    hardware = {accelerator.kind: accelerator.hardware for accelerator in system.accelerators}
    plans: dict[tuple[int, int, str], Plan] = {}
    for number, task in enumerate(system.tasks):
        if task.cpu is not None:
            stage = Stage("cpu", ceil(task.cpu / system.speed))
            plans[number, 0, CPU] = Plan(CPU, (stage,))
        for variant, choice in enumerate(task.variants):
            for kind in task.on:
                key = choice.model, kind
                try:
                    if choice.model not in networks:
                        progress(f"reading {choice.model}")
                        networks[choice.model] = load_network(system.model_path(choice.model), cache=cache)
                    if key not in known:
                        progress(f"compiling {choice.model} for {kind}")
                        known[key] = _plan(networks[choice.model], kind, hardware.get(kind), system.speed, options)
                except InputError as error:
                    raise InputError(f"{system.source}: task '{task.name}': {error}") from error
                plans[number, variant, kind] = known[key]
    return plans


def _plan(network: Network, kind: str, hardware: Preset | None, speed: float, options: CompileOptions) -> Plan:
    if hardware is None:
        graph = network.package.graph
        whole = HostPart(nodes=tuple(graph.nodes), inputs=graph.inputs, outputs=graph.outputs)
        return Plan(kind, (Stage("cpu", ceil(estimate_cycles(graph, whole) / speed)),))
    compiled = compile_network(network.package, hardware.arch, options)
    return Plan(kind, tuple(_stages(compiled, hardware, speed)))


def _stages(compiled: CompiledNetwork, hardware: Preset, speed: float) -> list[Stage]:
    """The parts of the end-to-end account of ``dla run``; what the CPU takes is divided by its speed."""
    works = {index: Piecework(program, hardware) for index, program in compiled.programs.items()}
    alone = {index: work.alone for index, work in works.items()}
    account = end_to_end(compiled, host_estimate(compiled.partition), alone, hardware.timing.bus_bytes)
    stages = []
    for segment in account.segments:
        if segment.on == "dla":
            assert segment.region is not None
            stages.append(Stage("dla", segment.cycles, works[segment.region]))
        elif segment.on == "cpu":
            stages.append(Stage("cpu", ceil(segment.cycles / speed)))
        else:
            stages.append(Stage("transfer", segment.cycles))
    return stages


def compute_cycles(workload: Workload, commands: int) -> int:
    """Cycles in which EX executes one of the first ``commands``: they depend on nobody else."""
    members = workload.demands.by_unit[EX]
    lead: int = workload.columns["lead"][members[: np.searchsorted(members, commands)]].sum().item()
    return lead
