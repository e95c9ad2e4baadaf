"""One run, from a model to a checked report: the workflow behind ``dla run`` and the public Python API."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary

from byoc.compiler import CompiledNetwork
from byoc.compiler import compile as compile_network
from byoc.host.runtime import NetworkRun, Runtime
from byoc.options import DEFAULTS, CompileOptions
from byoc.package.package import Package
from dla_sim.device import Device, Engine
from dla_sim.engine.recurrence import compute_times
from dla_sim.engine.times import CommandTimes
from dla_sim.engine.workload import Workload
from dla_sim.presets import DEFAULT_PRESET, Preset, Settings, load_hardware, setting_texts
from dla_sim.trace import Trace
from experiments.cost.table import CostTable, load_table
from experiments.report.assemble import Conditions, assemble
from experiments.report.figures import RegionRun
from experiments.report.schema import Accuracy, Check, HardwareCheck, Suspicion
from experiments.report.timeline import timeline_json
from experiments.running.accuracy import labelled_samples, measure_accuracy
from experiments.running.check import Tensors, check_values, find_warnings, joint_check
from experiments.running.given import Batch, Feeds, Inputs, Model, Samples, in_onnx, spelled
from experiments.running.network import Fixed, Network, Shapes, load_network, network_batch
from experiments.running.package_cache import users_cache
from experiments.running.result import Result
from isa.files import write_atomically
from isa.program import Executor
from isa.progress import Progress, silent

Host = Literal["onnxruntime", "reference"]


class Held(Executor[Trace], Protocol):
    """An executor that is held to the simulator, as ``experiments.rtl.device.HardwareDevice`` is."""

    @property
    def check(self) -> HardwareCheck:
        """How it compared so far."""
        ...


@dataclass(frozen=True, eq=False)
class Inference:
    """One inference of a compiled network on the simulated machine."""

    network: Network
    hardware: Preset
    compiled: CompiledNetwork
    runtime: Runtime[Trace]
    result: NetworkRun[Trace]


@dataclass(frozen=True)
class Request:
    """All that the figures of a run depend on, as :func:`run` is given it; what is in memory in angle brackets."""

    model: str
    options: CompileOptions
    host: Host
    inputs: str | None
    calibration: str | None
    shapes: Shapes
    fixed: Fixed
    seed: int
    cpu: tuple[str, ...]
    preset: str | None = None
    settings: tuple[str, ...] = ()
    isa: str | None = None
    memory_mode: str | None = None
    accuracy: str | None = None
    cost: str | None = None
    engine: str | None = None

    @property
    def in_memory(self) -> bool:
        """Whether something was given in memory: then no command repeats the run."""
        given = (self.model, self.inputs, self.calibration)
        return any(name is not None and name.startswith("<") for name in given)

    @property
    def command(self) -> str:
        """The ``dla run`` command that repeats the run; it begins with ``dla.run`` where none does."""
        return shlex.join([*(["dla.run"] if self.in_memory else ["dla", "run"]), *self.words])

    @property
    def words(self) -> list[str]:
        """The words of the command behind its name; options at their defaults are left out."""
        words = [self.model]
        words += ["--preset", self.preset] if self.preset not in (None, DEFAULT_PRESET) else []
        words += [word for setting in self.settings for word in ("--set", setting)]
        words += ["--isa", self.isa] if self.isa is not None else []
        words += ["--memory-mode", self.memory_mode] if self.memory_mode is not None else []
        words += self.options.words
        words += ["--host", self.host] if self.host != "onnxruntime" else []
        words += ["--calibration", self.calibration] if self.calibration is not None else []
        words += ["--input", self.inputs] if self.inputs is not None else []
        words += ["--accuracy", self.accuracy] if self.accuracy is not None else []
        for name, shape in self.shapes.items():
            words += ["--shape", f"{name}={','.join(map(str, shape))}"]
        words += [word for name, number in self.fixed.items() for word in ("--fix", f"{name}={number:.17g}")]
        words += [word for pattern in self.cpu for word in ("--cpu", pattern)]
        words += ["--seed", str(self.seed)] if self.seed else []
        words += ["--cost", self.cost] if self.cost is not None else []
        return words + (["--engine", self.engine] if self.engine is not None else [])


def run(
    model: Model,
    *,
    preset: str | Path | None = None,
    settings: Settings = (),
    isa: str | None = None,
    memory_mode: str | None = None,
    options: CompileOptions = DEFAULTS,
    host: Host = "onnxruntime",
    inputs: Inputs | None = None,
    shapes: Shapes | None = None,
    fixed: Fixed | None = None,
    cpu: Sequence[str] = (),
    calibration: Samples | None = None,
    accuracy: str | Path | None = None,
    seed: int = 0,
    timeline: str | Path | None = None,
    cost: str | None = None,
    progress: Progress = silent,
    cache: bool = True,
    engine: Callable[[Preset, Progress], Held] | None = None,
    **choices: Any,
) -> Result:
    """Compile ``model``, simulate an inference, check every bit, report.

    ``model`` is a built-in name, an .onnx, .tflite or .dla file; or an ONNX model, what ``torch.export.export`` or
    ``torch.onnx.export`` gives, or a package.

    ``preset`` is a name or a TOML file, ``settings`` change keys of it (``{"pe.oc": 64, "sram_bytes": "64KiB"}``, or
    texts such as ``"pe.oc=64"``), ``isa`` replaces the preset's variant, ``memory_mode`` says where constants and
    activations lie (``"dram"``, ``"flash"``, ``"sram"``). ``choices`` replace fields of ``options``, as in
    ``run(model, schedule="seed")``.
    ``inputs`` is a .npy, .npz or image file, an array, arrays by input, or many of them, a batch; without any the
    built-in network's sample, or numbers drawn from ``seed``. With ``integer_io`` they may be integers, too; real
    numbers are quantised first. ``shapes`` fixes dynamic inputs, ``fixed`` makes inputs constants, ``cpu`` keeps nodes
    on the CPU (:func:`keep_on_cpu`). ``calibration`` is what a float model is quantised on: a .npz file, arrays with
    samples along the first axis, or samples one by one.
    ``accuracy`` is a .npz file with held-out samples and their ``labels``; ``cost`` is a cost table's name
    or file, for an estimate of energy and area. ``timeline`` is a file for Perfetto. ``progress``
    is called with the name of each stage. ``cache``: what import makes of a file may be kept in the user's cache folder
    for later runs; no figure depends on it. ``engine`` makes what runs the programs in the simulator's place:
    ``experiments.rtl.device.HardwareDevice``, with the extra ``rtl``; how it compared is in the report's ``hardware``.

    A difference from the oracle is reported in ``check``, not raised. Raises InputError for bad input. Equal arguments
    give equal reports.
    """
    model, options, texts = in_onnx(model), options.replaced(choices), setting_texts(settings)
    request = Request(
        model=spelled(model),
        preset=None if preset is None else str(preset),
        settings=texts,
        isa=isa,
        memory_mode=memory_mode,
        options=options,
        host=host,
        inputs=None if inputs is None else spelled(inputs),
        calibration=None if calibration is None else spelled(calibration),
        accuracy=None if accuracy is None else str(accuracy),
        shapes=shapes or {},
        fixed=fixed or {},
        seed=seed,
        cost=cost,
        cpu=tuple(cpu),
        engine=None if engine is None else "rtl",
    )
    hardware = load_hardware(request.preset, texts, isa, memory_mode)
    table = load_table(cost) if cost is not None else None
    progress(f"reading {request.model}")
    kept = users_cache() if cache else None
    network = load_network(model, shapes, seed, calibration, fixed, kept, accuracy is not None, progress)
    network = network.keeping_on_cpu(cpu)
    labelled = labelled_samples(network, Path(accuracy) if accuracy is not None else None)
    batch = network_batch(network, inputs, seed, options)
    machine = None if engine is None else engine(hardware, progress)
    done = infer(network, hardware, batch.feeds[0], options, host, progress, machine)
    if timeline is not None:
        traces = done.result.traces
        runs = [RegionRun(index, done.compiled.programs[index], trace) for index, trace in traces.items()]
        write_atomically(Path(timeline), timeline_json(runs))
    found = _checked(done, batch, progress)
    measured = (
        measure_accuracy(network, done.compiled, done.runtime, labelled, progress) if labelled is not None else None
    )
    return _reported(request, done, batch, found, measured, table, None if machine is None else machine.check)


def import_model(
    model: Model,
    *,
    shapes: Shapes | None = None,
    fixed: Fixed | None = None,
    cpu: Sequence[str] = (),
    calibration: Samples | None = None,
    seed: int = 0,
    cache: bool = True,
) -> Package:
    """The package of whatever :func:`run` takes as ``model``: quantised if it was float, and good for every machine.

    The other arguments are as for :func:`run`. Raises InputError for a model that cannot be imported.
    """
    network = load_network(model, shapes, seed, calibration, fixed, users_cache() if cache else None)
    return network.keeping_on_cpu(cpu).package


@dataclass(frozen=True, eq=False)
class _Checked:
    """What every inference of a batch gave, and how right it was."""

    check: Check
    suspicions: tuple[Suspicion, ...]
    outputs: tuple[Tensors, ...]


def _checked(done: Inference, batch: Batch, progress: Progress) -> _Checked:
    """The inferences of a batch, of which the first is ``done``, each held against the oracle."""
    progress("checking every region output")
    compiled = done.compiled
    checks: list[Check] = []
    outputs: list[Tensors] = []
    suspicions: dict[tuple[str, str], Suspicion] = {}
    for number, feeds in enumerate(batch.feeds):
        result = done.runtime.run(feeds) if number else done.result
        checks.append(check_values(compiled, feeds, result))
        outputs.append(result.outputs)
        for suspicion in find_warnings(compiled, feeds, result):
            suspicions.setdefault((suspicion.kind, suspicion.tensor), suspicion)
    check = joint_check(compiled.package, compiled.arch.numerics, checks)
    return _Checked(check, tuple(suspicions.values()), tuple(outputs))


def _reported(
    request: Request,
    done: Inference,
    batch: Batch,
    found: _Checked,
    measured: Accuracy | None,
    table: CostTable | None,
    ran_on: HardwareCheck | None,
) -> Result:
    conditions = Conditions(request.command, done.network.name, request.seed, done.hardware)
    given, traces = batch.joined(batch.feeds), done.result.traces
    report = assemble(conditions, done.compiled, given, traces, found.check, found.suspicions, measured, table, ran_on)
    return Result(report, batch.joined(found.outputs), done.network.package)


def infer(
    network: Network,
    hardware: Preset,
    feeds: Feeds,
    options: CompileOptions = DEFAULTS,
    host: Host = "onnxruntime",
    progress: Progress = silent,
    machine: Executor[Trace] | None = None,
) -> Inference:
    """Compile ``network`` for ``hardware`` and run one inference, simulated or on another ``machine``."""
    progress(f"compiling {network.name}")
    compiled = compile_network(network.package, hardware.arch, options, progress=progress)
    progress(f"simulating {network.name}")
    device = Device(hardware.arch, hardware.timing, engine=once(compute_times), progress=progress)
    runtime = Runtime(compiled, machine or device, host)
    return Inference(network, hardware, compiled, runtime, runtime.run(feeds))


def once(engine: Engine) -> Engine:
    """``engine``, run once a workload: timing depends on the program alone, so further inputs reuse its times."""
    known: WeakKeyDictionary[Workload, CommandTimes] = WeakKeyDictionary()

    def timed(workload: Workload) -> CommandTimes:
        if workload not in known:
            known[workload] = engine(workload)
        return known[workload]

    return timed
