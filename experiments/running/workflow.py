"""One run, from a model to a checked report: the workflow behind ``dla run`` and the public Python API."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from byoc.compiler import CompiledNetwork
from byoc.compiler import compile as compile_network
from byoc.host.runtime import NetworkRun, Runtime
from byoc.options import DEFAULTS, CompileOptions
from dla_sim.device import Device, Engine
from dla_sim.engine.recurrence import compute_times
from dla_sim.engine.times import CommandTimes
from dla_sim.engine.workload import Workload
from dla_sim.presets import DEFAULT_PRESET, Preset, load_hardware
from dla_sim.trace import Trace
from experiments.cost.table import load_table
from experiments.report.assemble import Conditions, assemble
from experiments.report.figures import RegionRun
from experiments.report.schema import RunReport
from experiments.report.timeline import timeline_json
from experiments.running import Progress, silent
from experiments.running.accuracy import labelled_samples, measure_accuracy
from experiments.running.check import check_values, find_warnings
from experiments.running.network import Feeds, Fixed, Network, Shapes, load_network, network_feeds
from experiments.running.package_cache import PackageCache
from isa.errors import InputError
from isa.files import write_atomically

Host = Literal["onnxruntime", "reference"]


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
    """All that the figures of a run depend on, as :func:`run` is given it."""

    model: str
    preset: str | None
    settings: tuple[str, ...]
    isa: str | None
    options: CompileOptions
    host: Host
    input: str | Path | None
    shapes: Shapes
    fixed: Fixed
    calibration: str | Path | None
    seed: int
    cost: str | None
    accuracy: str | Path | None
    cpu: tuple[str, ...]

    @property
    def command(self) -> str:
        """The ``dla run`` command that repeats the run; options at their defaults are left out."""
        words = ["dla", "run", self.model]
        words += ["--preset", self.preset] if self.preset not in (None, DEFAULT_PRESET) else []
        words += [word for setting in self.settings for word in ("--set", setting)]
        words += ["--isa", self.isa] if self.isa is not None else []
        words += self.options.words
        words += ["--host", self.host] if self.host != "onnxruntime" else []
        words += ["--calibration", str(self.calibration)] if self.calibration is not None else []
        words += ["--input", str(self.input)] if self.input is not None else []
        words += ["--accuracy", str(self.accuracy)] if self.accuracy is not None else []
        for name, shape in self.shapes.items():
            words += ["--shape", f"{name}={','.join(map(str, shape))}"]
        words += [word for name, number in self.fixed.items() for word in ("--fix", f"{name}={number:.17g}")]
        words += [word for pattern in self.cpu for word in ("--cpu", pattern)]
        words += ["--seed", str(self.seed)] if self.seed else []
        words += ["--cost", self.cost] if self.cost is not None else []
        return shlex.join(words)


def run(
    model: str | Path,
    *,
    preset: str | None = None,
    settings: Iterable[str] = (),
    isa: str | None = None,
    options: CompileOptions = DEFAULTS,
    host: Host = "onnxruntime",
    input: str | Path | None = None,
    shapes: Shapes | None = None,
    fixed: Fixed | None = None,
    cpu: Sequence[str] = (),
    calibration: str | Path | None = None,
    accuracy: str | Path | None = None,
    seed: int = 0,
    timeline: str | Path | None = None,
    cost: str | None = None,
    progress: Progress = silent,
    cache: PackageCache | None = None,
    **choices: Any,
) -> RunReport:
    """Compile ``model``, simulate one inference, check every bit, report.

    ``model`` is a built-in name, an .onnx, .tflite or .dla file.

    ``preset`` is a name or a TOML file, ``settings`` are texts such as ``"sram_bytes=524288"``, ``isa`` replaces
    the preset's variant. ``choices`` replace fields of ``options``, as in ``run(model, schedule="seed")``.
    ``input`` is a .npy, .npz or image file; without one the built-in network's sample, or numbers drawn from
    ``seed``. With ``integer_io`` it may hold integers, too; real numbers are quantised first. ``shapes`` fixes
    dynamic inputs, ``fixed`` makes inputs constants, ``cpu`` keeps nodes on the CPU (:func:`keep_on_cpu`).
    ``calibration`` is a .npz file with the samples that a float model is quantised on, ``accuracy`` one with held-out
    samples and their ``labels``. ``cost`` is a cost table's name or file, for an estimate of energy and area.
    ``progress`` is called with the name of each stage. A ``cache`` keeps what import makes of a model; no figure
    depends on it.

    A difference from the oracle is reported in ``check``, not raised. Raises InputError for bad input. Equal arguments
    give equal reports.
    """
    options, settings = replace(options, **choices), tuple(settings)
    opening = shapes or {}, fixed or {}
    request = Request(
        str(model), preset, settings, isa, options, host, input, *opening, calibration, seed, cost, accuracy, tuple(cpu)
    )
    if not isinstance(model, str | Path):
        raise InputError(f"the model is a {type(model).__name__}: save it, and give the file, which reports name")
    hardware = load_hardware(preset, settings, isa)
    table = load_table(cost) if cost is not None else None
    progress(f"reading {model}")
    samples = Path(calibration) if calibration is not None else None
    network = load_network(str(model), shapes, seed, samples, fixed, cache, keep_float=accuracy is not None)
    network = network.keeping_on_cpu(cpu)
    labelled = labelled_samples(network, Path(accuracy) if accuracy is not None else None)
    feeds = network_feeds(network, Path(input) if input is not None else None, seed, options)
    done = infer(network, hardware, feeds, options, host, progress)
    if timeline is not None:
        runs = [RegionRun(index, done.compiled.programs[index], trace) for index, trace in done.result.traces.items()]
        write_atomically(Path(timeline), timeline_json(runs))
    progress("checking every region output")
    check = check_values(done.compiled, feeds, done.result)
    suspicions = find_warnings(done.compiled, feeds, done.result)
    progress("measuring accuracy")
    measured = measure_accuracy(network, done.compiled, done.runtime, labelled) if labelled is not None else None
    conditions = Conditions(request.command, network.name, seed, hardware)
    return assemble(conditions, done.compiled, feeds, done.result.traces, check, suspicions, measured, table)


def infer(
    network: Network,
    hardware: Preset,
    feeds: Feeds,
    options: CompileOptions = DEFAULTS,
    host: Host = "onnxruntime",
    progress: Progress = silent,
) -> Inference:
    """Compile ``network`` for ``hardware`` and simulate one inference on ``feeds``."""
    progress(f"compiling {network.name}")
    compiled = compile_network(network.package, hardware.arch, options)
    progress(f"simulating {network.name}")
    device = Device(hardware.arch, hardware.timing, engine=once(compute_times))
    runtime = Runtime(compiled, device, host)
    return Inference(network, hardware, compiled, runtime, runtime.run(feeds))


def once(engine: Engine) -> Engine:
    """``engine``, run once a workload: timing depends on the program alone, so further inputs reuse its times."""
    known: WeakKeyDictionary[Workload, CommandTimes] = WeakKeyDictionary()

    def timed(workload: Workload) -> CommandTimes:
        if workload not in known:
            known[workload] = engine(workload)
        return known[workload]

    return timed
