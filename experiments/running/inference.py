"""Workflow of one run, from a model to a checked report.

``dla run`` and the public Python API use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from byoc.compiled import CompiledNetwork
from byoc.host.runtime import NetworkRun, Runtime, Tensors
from byoc.options import DEFAULTS, CompileOptions
from byoc.package.package import Package
from dla_sim.device import Device, Trace
from dla_sim.kernels.compiled import has_compiled
from dla_sim.presets import Preset, load_hardware
from experiments.models import MODELS
from experiments.report.assemble import RunConditions, assemble
from experiments.report.checks import Accuracy, Check, HardwareCheck, Suspicion
from experiments.report.figures import RegionRun
from experiments.running.answers import find_compiled, is_cacheable
from experiments.running.check import (
    Checker,
    find_warnings,
    load_labelled_samples,
    measure_accuracy,
)
from experiments.running.declared import command_of
from experiments.running.door import door
from experiments.running.given import (
    DEFAULT_PRESET,
    Given,
    MachineChoice,
    RunKeywords,
    RunRequest,
)
from experiments.running.in_memory import ComparedExecutor, Feeds, InputBatch
from experiments.running.network import Network, load, network_batch
from experiments.running.result import Result
from isa.errors import InputError
from isa.files import write_atomically
from isa.program import Executor
from isa.progress import Progress, report_each, silent

if TYPE_CHECKING:
    from experiments.cost.table import CostTable
    from experiments.machines.description import MachineDescription

MANY_COMMANDS = 10_000
"""Commands of all inferences from which loading compiled kernels, half a second, pays off."""


@dataclass(frozen=True, eq=False)
class Inference:
    """One inference of a compiled network on the simulated machine."""

    network: Network
    hardware: Preset
    compiled: CompiledNetwork
    runtime: Runtime[Trace]
    result: NetworkRun[Trace]


def run_requested(wanted: RunRequest) -> Result:
    """Compile a model, simulate an inference, check every bit, and return the report.

    The result also has the outputs. Arguments:

    - ``model``: a built-in name, an .onnx, .tflite or .dla file, an ONNX model, the result of
      ``torch.export.export`` or ``torch.onnx.export``, or a package.
    - ``preset``: name or TOML file of a machine; ``isa`` replaces its instruction set.
    - ``machine``: name of a preset or of a described machine, or the file of a description.
    - ``settings``: changes of its keys (``{"pe.oc": 64, "sram_bytes": "64KiB"}``, or texts such as
      ``"pe.oc=64"``).
    - ``memory_mode``: memory of constants and activations (``"dram"``, ``"flash"``, ``"sram"``).
    - ``options``: options of the compiler; further keywords replace single ones, as in
      ``run(model, schedule="seed")``.
    - ``inputs``: a .npy, .npz or image file, an array, arrays by input name, or several of these, a
      batch. The default is the built-in network's sample, or numbers drawn from ``seed``. With
      ``integer_io`` inputs may be integers; real numbers are quantised first.
    - ``steps``: number of inferences that pass the state on; inputs have the steps along an axis.
    - ``step_ms``: milliseconds of input in a step, for the real-time factor.
    - ``seed``: seed of weights, calibration samples and inputs that are drawn.
    - ``shapes``: shapes of dynamic inputs.
    - ``fixed``: numbers for inputs that become constants; ``state``: outputs by state input.
    - ``cpu``: nodes that stay on the CPU (:func:`keep_on_cpu`).
    - ``calibration``: samples that quantise a float model, in a .npz file, in arrays or one by one.
    - ``quantise``: method of quantising a float model, such as ``"auto"``; ``weight_bits``: bits of
      weights by pattern of node names, for ``"power-of-two"``.
    - ``accuracy``: .npz file with held-out samples and their ``labels``.
    - ``cost``: name or file of a cost table, for an estimate of energy and area.
    - ``sensitivity``: adds the change of the cycles with each parameter and each command.
    - ``timeline``: file to write in the format of Perfetto (``.pftrace``).
    - ``progress``: called with the name of each stage.
    - ``cache``: stores the imported and the compiled network of a file in the user's cache folder
      for later runs; no figure depends on it.
    - ``engine``: makes the executor that replaces the simulator, such as
      ``experiments.rtl.hardware.HardwareDevice`` (extra ``rtl``); the report's ``hardware``
      contains its comparison with the simulator.

    A difference from the oracle is reported in ``check``, not raised. Raises InputError for invalid
    input. Equal arguments give equal reports.
    """
    wanted, described = settle_request(wanted)
    if described is None:
        return _run_simulated(wanted)
    from experiments.running.described import run_described

    return run_described(wanted, described)


def settle_request(wanted: RunRequest) -> tuple[RunRequest, MachineDescription | None]:
    """Return what :func:`experiments.running.described.settle_machine` does.

    The default machine needs no description, and so none is imported.
    """
    if wanted.machine is None and str(wanted.preset) == DEFAULT_PRESET:
        return wanted, None
    from experiments.running.described import settle_machine

    return settle_machine(wanted)


def _run_simulated(wanted: RunRequest) -> Result:
    """Return the report and the outputs of a run on one of our machines."""
    options, progress = wanted.options, wanted.progress
    _check_steps(wanted)
    hardware = hardware_of(wanted)
    table = None if wanted.cost is None else _load_costs(wanted.cost)
    network = load(wanted, progress, keep_float=wanted.accuracy is not None)
    labelled = load_labelled_samples(
        network, None if wanted.accuracy is None else Path(wanted.accuracy)
    )
    batch = network_batch(network, wanted.inputs, wanted.seed, options, wanted.steps)
    machine = None if wanted.engine is None else _get_executor(wanted.engine(hardware, progress))
    runs = len(batch.feeds) + (0 if labelled is None else len(labelled.labels))
    done = infer(
        network, hardware, batch.feeds[0], options, progress, machine, runs, is_cacheable(wanted)
    )
    if wanted.timeline is not None:
        _write_timeline(done, Path(wanted.timeline))
    found = _check_batch(done, batch, progress, carry=wanted.steps is not None)
    measured = (
        None
        if labelled is None
        else measure_accuracy(
            network,
            done.compiled.interface,
            lambda feeds: done.runtime.run(feeds).outputs,
            labelled,
            progress,
            done.compiled.arch.numerics,
        )
    )
    return _make_result(
        wanted, done, batch, found, measured, table, None if machine is None else machine.check
    )


def _check_steps(wanted: RunRequest) -> None:
    """Raise InputError for a step without a positive time, or for the time of no step."""
    time = wanted.step_ms
    if time is not None and not 0 < time < float("inf"):
        raise InputError(f"--step-ms {time:g}: give a positive number of milliseconds")
    if time is not None and wanted.steps is None:
        raise InputError(f"--step-ms {time:g}: the run has no steps; give their number: --steps N")


# Functions that only some runs need; they import what they use.


def _load_costs(cost: str) -> CostTable:
    from experiments.cost.table import load_table

    return load_table(cost)


def _write_timeline(done: Inference, place: Path) -> None:
    from experiments.report.timeline import timeline_trace

    runs = [
        RegionRun(index, done.compiled.programs[index], trace)
        for index, trace in done.result.traces.items()
    ]
    write_atomically(place, timeline_trace(runs))


run = door("run", RunKeywords, RunRequest, run_requested)


def _get_executor(machine: ComparedExecutor) -> ComparedExecutor:
    """Check that an engine returned an executor that can run programs, and return it."""
    if not callable(getattr(machine, "run", None)) or not hasattr(machine, "check"):
        raise InputError(
            f"engine returns {type(machine).__name__}, which runs no programs; "
            "give what makes one with run and check, such as "
            "experiments.rtl.hardware.HardwareDevice"
        )
    return machine


def _import_package(given: Given) -> Package:
    """Import a model as a package for every machine; a float model is quantised.

    The arguments are those of :func:`run`. Raises InputError for a model that cannot be imported.
    """
    return load(given).package


import_model = door("import_model", Given, Given, _import_package)


def hardware_of(machine: MachineChoice) -> Preset:
    """Return the chosen machine; raise InputError as :func:`load_hardware` does."""
    preset = None if machine.preset is None else str(machine.preset)
    return load_hardware(preset, machine.settings, machine.isa, machine.memory_mode)


def _check_batch(
    done: Inference, batch: InputBatch, progress: Progress, *, carry: bool
) -> tuple[Check, tuple[Suspicion, ...], list[Tensors]]:
    """Run the remaining inferences of a batch, and return the check, warnings and outputs of all.

    ``done`` is the first inference, which has already run. With ``carry`` the inferences are steps:
    the state passes from each to the next, and so does the oracle's own state.
    """
    progress("checking every region output")
    compiled = done.compiled
    checker = Checker(compiled, carry=carry, once=len(batch.feeds) == 1)
    outputs: list[Tensors] = []
    suspicions: dict[tuple[str, str], Suspicion] = {}
    state: Tensors = {}
    told = f"checking the {'step' if carry else 'inference'}s of {done.network.name}"
    for number, given in enumerate(report_each(batch.feeds, told, progress)):
        feeds = {**given, **state}
        result = done.runtime.run(feeds) if number else done.result
        if carry:
            state = compiled.interface.next_state(feeds, result.outputs)
        checker.compare(feeds, result)
        outputs.append(result.outputs)
        for suspicion in find_warnings(compiled, feeds, result):
            suspicions.setdefault((suspicion.kind, suspicion.tensor), suspicion)
    return checker.result, tuple(suspicions.values()), outputs


def _make_result(
    request: RunRequest,
    done: Inference,
    batch: InputBatch,
    found: tuple[Check, tuple[Suspicion, ...], list[Tensors]],
    measured: Accuracy | None,
    table: CostTable | None,
    ran_on: HardwareCheck | None,
) -> Result:
    conditions = RunConditions(
        command_of("run", request),
        done.network.name,
        request.seed,
        done.hardware,
        table,
        _weights_of(request),
        request.steps,
        request.step_ms,
    )
    check, suspicions, outputs = found
    given = batch.join_results(batch.feeds)
    traces = done.result.traces
    report = assemble(conditions, done.compiled, given, traces, check, suspicions, measured, ran_on)
    if request.sensitivity:
        from experiments.running.sensitivity import describe_sensitivity

        found_changes = describe_sensitivity(traces, done.hardware.timing, request.progress)
        report = report.model_copy(update={"sensitivity": found_changes})
    return Result(report, batch.join_results(outputs), done.network.package)


def _weights_of(request: RunRequest) -> Literal["trained", "random"] | None:
    """Return whether the weights of a built-in network are trained, or None for other networks."""
    builtin = MODELS.get(request.model) if isinstance(request.model, str) else None
    return None if builtin is None else "trained" if builtin.trained else "random"


def infer(
    network: Network,
    hardware: Preset,
    feeds: Feeds,
    options: CompileOptions = DEFAULTS,
    progress: Progress = silent,
    machine: Executor[Trace] | None = None,
    runs: int = 1,
    cache: bool = False,
) -> Inference:
    """Compile ``network`` for ``hardware`` and run one inference.

    The other arguments are those of :func:`open_runtime`.
    """
    compiled, runtime = open_runtime(network, hardware, options, progress, machine, runs, cache)
    progress(f"simulating {network.name}")
    return Inference(network, hardware, compiled, runtime, runtime.run(feeds))


def open_runtime(
    network: Network,
    hardware: Preset,
    options: CompileOptions = DEFAULTS,
    progress: Progress = silent,
    machine: Executor[Trace] | None = None,
    runs: int = 1,
    cache: bool = False,
) -> tuple[CompiledNetwork, Runtime[Trace]]:
    """Compile ``network`` for ``hardware``, and prepare it for ``runs`` inferences.

    They run on the simulator, or on another ``machine``. If the inferences have at least
    :data:`MANY_COMMANDS` commands in total and numba is installed, the simulator uses compiled
    kernels. With ``cache`` the compiled network may come from the user's cache.
    """
    progress(f"compiling {network.name}")
    package = network.package

    def make() -> CompiledNetwork:
        from byoc import compiler  # a network from the cache needs no compiler

        return compiler.compile(
            package, hardware.arch, options, timing=hardware.timing, progress=progress
        )

    compiled = find_compiled(package, hardware, options, make) if cache else make()
    if machine is None:
        has_tables = hardware.arch.numerics == "onnxruntime"  # compiled kernels know no other
        commands = runs * sum(len(one.commands) for one in compiled.programs.values())
        fast = has_tables and commands >= MANY_COMMANDS and has_compiled()
        machine = Device(hardware.arch, hardware.timing, compiled=fast, progress=progress)
    return compiled, Runtime(compiled, machine)
