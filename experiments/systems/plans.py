"""Plans of a system's tasks, compiled for every accelerator that may run them.

A plan has the networks of one task.
"""

from collections.abc import Mapping
from math import ceil

from byoc.compiled import CompiledNetwork, HostPart
from byoc.compiler import compile as compile_network
from byoc.estimate.bus import MemoryBus, bus_of
from byoc.host.sessions import estimate_cycles
from byoc.operators.onnx_view import BOUNDARIES
from dla_sim.presets import Preset
from dla_sim.systems.spec import CPU, System
from dla_sim.systems.work import JobStage, Plan, Plans, ProgramWork
from dla_sim.timing import MemoryTiming, Timing
from experiments.report.assemble import end_to_end, host_estimate
from experiments.running.given import Given
from experiments.running.network import Network, load
from isa.arch import Arch
from isa.errors import DoesNotFitError, InputError
from isa.progress import Progress, silent


class PlanMaker:
    """Maker of plans for the tasks of systems; it does work that tasks share only once.

    ``cache`` True uses the user's cache of imported models; no figure depends on it.
    """

    def __init__(self, progress: Progress = silent, cache: bool = True) -> None:
        self._progress = progress
        self._cache = cache
        self._networks: dict[str, Network] = {}
        self._compiled: dict[tuple[str, Arch, MemoryBus], CompiledNetwork] = {}
        self._works: dict[tuple[str, Arch, Timing], dict[int, ProgramWork]] = {}
        self._plans: dict[tuple[str, str, Preset | None, float], Plan] = {}

    def plans(self, system: System) -> Plans:
        """Return the execution plans of all tasks of a system.

        Raises:
            InputError: a model is invalid; the message names the task.
            DoesNotFitError: no part of a network runs on its accelerator.
        """
        hardware = {accelerator.kind: accelerator.hardware for accelerator in system.accelerators}
        plans: dict[tuple[int, int, str], Plan] = {}
        for number, task in enumerate(system.tasks):
            where = f"{system.source}: task '{task.name}'"
            if task.cpu is not None:
                stage = JobStage("cpu", ceil(task.cpu / system.speed))
                plans[number, 0, CPU] = Plan(CPU, (stage,))
            for variant, choice in enumerate(task.variants):
                for kind in task.on:
                    model = system.model_path(choice.model)
                    try:
                        plans[number, variant, kind] = self._plan(
                            model, kind, hardware.get(kind), system.speed
                        )
                    except DoesNotFitError as error:
                        raise DoesNotFitError(f"{where}: {error}") from error
                    except InputError as error:
                        raise InputError(f"{where}: {error}") from error
        return plans

    def digests(self, system: System, progress: Progress = silent) -> dict[str, str]:
        """Return the package digests of all networks, by model.

        Raise InputError for an invalid model.
        """
        found: dict[str, str] = {}
        for task in system.tasks:
            for choice in task.variants:
                model = system.model_path(choice.model)
                progress(f"reading {model}")
                try:
                    found[model] = self.digest(model)
                except InputError as error:
                    raise InputError(f"{system.source}: task '{task.name}': {error}") from error
        return found

    def digest(self, model: str) -> str:
        return self._network(model).package.digest

    def _plan(self, model: str, kind: str, hardware: Preset | None, speed: float) -> Plan:
        key = model, kind, hardware, speed
        if key not in self._plans:
            if hardware is None:
                stages = _stages_on_cores(self._network(model), speed)
            else:
                compiled = self._compile(model, kind, hardware)
                works = self._work(model, compiled, hardware)
                stages = _stages(compiled, works, hardware.timing.main, speed)
            self._plans[key] = Plan(kind, tuple(stages))
        return self._plans[key]

    def _network(self, model: str) -> Network:
        if model not in self._networks:
            self._networks[model] = load(Given(model, cache=self._cache), self._progress)
        return self._networks[model]

    def _compile(self, model: str, kind: str, hardware: Preset) -> CompiledNetwork:
        key = model, hardware.arch, bus_of(hardware.timing)
        if key not in self._compiled:
            network = self._network(model)
            self._progress(f"compiling {model} for {kind}")
            compiled = compile_network(network.package, hardware.arch, timing=hardware.timing)
            if not compiled.programs:
                raise DoesNotFitError(
                    f"nothing of {model} runs on accelerator '{kind}': {_first_refusal(compiled)}"
                )
            self._compiled[key] = compiled
        return self._compiled[key]

    def _work(
        self, model: str, compiled: CompiledNetwork, hardware: Preset
    ) -> dict[int, ProgramWork]:
        key = model, hardware.arch, hardware.timing
        if key not in self._works:
            self._works[key] = {
                index: ProgramWork(program, hardware)
                for index, program in compiled.programs.items()
            }
        return self._works[key]


def _first_refusal(compiled: CompiledNetwork) -> str:
    """Return why the first node of a network runs on the CPU, as text for an error.

    The boundary operators of every float network do not count.
    """
    fallen = [place for place in compiled.partition.placement if place.op_type not in BOUNDARIES]
    why = (
        f"{fallen[0].op_type} '{fallen[0].node}': {fallen[0].reason}"
        if fallen
        else "it has nothing to compute"
    )
    return f"{why}; change the accelerator, or say in 'on' what can run it"


def _stages_on_cores(network: Network, speed: float) -> list[JobStage]:
    graph = network.package.graph
    whole = HostPart(nodes=tuple(graph.nodes), inputs=graph.inputs, outputs=graph.outputs)
    return [JobStage("cpu", ceil(estimate_cycles(graph, whole) / speed))]


def _stages(
    compiled: CompiledNetwork, works: Mapping[int, ProgramWork], memory: MemoryTiming, speed: float
) -> list[JobStage]:
    """Return the stages of a job: regions, CPU parts and transfers, as ``dla run`` has them.

    CPU time is divided by the cores' speed.
    """
    alone = {index: work.alone for index, work in works.items()}
    account = end_to_end(compiled, host_estimate(compiled.partition), alone, memory)
    stages = []
    for segment in account.segments:
        if segment.on == "dla":
            assert segment.region is not None
            stages.append(JobStage("dla", segment.cycles, works[segment.region]))
        elif segment.on == "cpu":
            stages.append(JobStage("cpu", ceil(segment.cycles / speed)))
        else:
            stages.append(JobStage("transfer", segment.cycles))
    return stages
