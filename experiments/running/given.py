"""Requests: a run's inputs and machine, declared once for commands and Python.

The declared fields give the options of every command, the keywords of the functions of ``dla``, the
command that repeats a run, the keys of a sweep's specification, the key of a package in the cache,
and the rejection of options that do not apply. A command with further options extends these
records. The module imports little, because ``dla --help`` reads all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

from byoc.options import DEFAULTS, CompileOptions, Quantisation
from experiments.running.declared import list_declared, list_given_options, option, same
from isa.errors import InputError
from isa.progress import Progress, silent

if TYPE_CHECKING:
    from dla_sim.presets import Preset, Settings
    from experiments.running.in_memory import ComparedExecutor, Inputs, Model, Samples

DEFAULT_PRESET = "balanced-64"
Shapes = Mapping[str, tuple[int, ...]]
Fixed = Mapping[str, float]

_network = partial(option, panel="Network")
_machine = partial(option, panel="Machine")
_result = partial(option, panel="Results")


def parse_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return shapes by input name from texts such as ``image=1,3,224,224``.

    Raise InputError for other texts.
    """
    shapes = {}
    for text in texts:
        name, _, dims = text.rpartition("=")
        try:
            shapes[name] = tuple(int(dim) for dim in dims.split(",")) if dims else ()
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"--shape {text}: write it as NAME=1,3,224,224")
    return shapes


def parse_fixed(texts: Iterable[str]) -> dict[str, float]:
    """Return numbers by input name from texts such as ``rate=16000``.

    Raise InputError for other texts.
    """
    fixed = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            fixed[name] = float(number)
        except ValueError:
            name = ""
        if not name or not isfinite(fixed[name]):
            raise InputError(f"--fix {text}: write it as NAME=16000")
    return fixed


def parse_state(texts: Iterable[str]) -> dict[str, str]:
    """Return outputs by input name from texts such as ``h=hn``.

    Raise InputError for other texts.
    """
    pairs = {}
    for text in texts:
        source, _, result = text.partition("=")
        if not source or not result or source in pairs:
            raise InputError(f"--state {text}: write it as INPUT=OUTPUT, once for each input")
        pairs[source] = result
    return pairs


def parse_weight_bits(texts: Iterable[str]) -> dict[str, int]:
    """Return bits by pattern of node names from texts such as ``conv*=4`` or ``4``.

    Raise InputError for other texts.
    """
    pairs = {}
    for text in texts:
        pattern, _, bits = text.rpartition("=")
        if not bits.isdecimal():
            raise InputError(f"--weight-bits {text}: write it as 4 or as NAME=4")
        pairs[pattern or "*"] = int(bits)
    return pairs


def _setting_texts(settings: Settings) -> list[str]:
    if isinstance(settings, Mapping):
        return [f"{key}={'none' if value is None else value}" for key, value in settings.items()]
    return list(settings)


@dataclass(frozen=True, eq=False)
class NetworkChoice:
    """A network: a built-in name, a file, or a model in memory."""

    model: Model = field(
        metadata=option(
            "",
            "An .onnx, .tflite or .dla file, or a built-in name (dla models).",
            metavar="MODEL",
            completion="models",
        )
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Given(NetworkChoice):
    """Arguments that determine how a network is imported as a package.

    ``shapes`` fixes dynamic inputs, ``fixed`` makes inputs constants, ``state`` names outputs by
    the input whose next value they are, ``cpu`` keeps nodes on the CPU (:func:`keep_on_cpu`).
    ``calibration`` are the samples that quantise a float model: a .npz file, arrays with samples
    along the first axis, or samples one by one; ``quantise`` is the method. ``weight_bits`` has the
    bits of weights by pattern of node names. ``seed`` is the seed of all random numbers. ``cache``
    stores the imported and the compiled network of a file in the user's cache folder for later
    runs; no figure depends on it.
    """

    calibration: Samples | None = field(
        default=None,
        metadata=_network(
            "--calibration",
            "Quantise the float parts of a model on these samples: an array for each input, "
            "samples along an extra first axis.",
            Path,
            metavar="FILE.npz",
            settled="is quantised already",
        ),
    )
    quantise: Quantisation | None = field(
        default=None,
        metadata=_network(
            "--quantise",
            "Choose how a float model is quantised (docs/inputs.md); auto compares minmax, "
            "percentile and mse, and keeps tensors in float if none is accurate enough. "
            "Default: minmax.",
            get_args(Quantisation),
            table=Quantisation,
            settled="is quantised already",
        ),
    )
    weight_bits: Mapping[str, int] | None = field(
        default=None,
        metadata=_network(
            "--weight-bits",
            "Quantise weights to 1, 2, 4 or 8 bits with --quantise power-of-two: those of all "
            "nodes, or of those whose name matches a pattern. Repeatable; the last match counts.",
            list[str],
            metavar="[PATTERN=]BITS",
            parse=parse_weight_bits,
            texts=lambda weight_bits: [f"{name}={bits}" for name, bits in weight_bits.items()],
            table=dict[str, int],
            settled="is quantised already",
        ),
    )
    shapes: Shapes | None = field(
        default=None,
        metadata=_network(
            "--shape",
            "Give an input with free dimensions a shape. Repeatable.",
            list[str],
            metavar="NAME=1,3,224,224",
            parse=parse_shapes,
            texts=lambda shapes: [
                f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items()
            ],
            table=dict[str, list[int]],
            settled="has fixed shapes",
        ),
    )
    fixed: Fixed | None = field(
        default=None,
        metadata=_network(
            "--fix",
            "Make an input a constant whose elements all have this value. Repeatable.",
            list[str],
            metavar="NAME=16000",
            parse=parse_fixed,
            texts=lambda fixed: [f"{name}={number:.17g}" for name, number in fixed.items()],
            table=dict[str, float],
            settled="has fixed inputs",
        ),
    )
    state: Mapping[str, str] | None = field(
        default=None,
        metadata=_network(
            "--state",
            "Make an output the next value of an input, in addition to those found by name. "
            "Repeatable.",
            list[str],
            metavar="INPUT=OUTPUT",
            parse=parse_state,
            texts=lambda state: [f"{source}={result}" for source, result in state.items()],
            table=dict[str, str],
            settled="has its state already",
        ),
    )
    cpu: Sequence[str] = field(
        default=(),
        metadata=_network(
            "--cpu",
            "Run nodes on the CPU: by name, e.g. 'block3*', or by type, e.g. 'op:Softmax'. "
            "Repeatable.",
            list[str],
            metavar="PATTERN",
            parse=tuple,
            texts=list,
        ),
    )
    seed: int = field(
        default=0,
        metadata=_network(
            "--seed",
            "Set the seed of random weights, calibration samples and inputs.",
            int,
            least=0,
        ),
    )
    cache: bool = field(
        default=True,
        metadata=_network(
            "--cache/--no-cache",
            "Store imported and compiled models for later runs (dla cache).",
            bool,
            repeats=False,
        ),
    )

    def drop_settled(self) -> Self:
        """Return a copy without the arguments that do not apply to a quantised model."""
        settled: dict[str, Any] = {
            name: None for name, one in list_declared(self).items() if one.settled
        }
        return replace(self, **settled)

    def refuse(self, source: str | Path, what: str, remedy: str) -> None:
        """Raise InputError for an option that does not apply to ``what`` in ``source``.

        ``remedy`` is a text that names the option as {option}.
        """
        for _, one, value in list_given_options(self):
            if one.settled and one.texts(value):
                raise InputError(
                    f"{source}: {what} {one.settled}; {remedy.format(option=one.word)}"
                )


@dataclass(frozen=True, eq=False, kw_only=True)
class MachineChoice:
    """Choice of a machine: a preset's name or file, and changes of it.

    ``settings`` change keys (``{"pe.oc": 64, "sram_bytes": "64KiB"}``, or texts such as
    ``"pe.oc=64"``), ``isa`` replaces the variant, ``memory_mode`` selects the memories of constants
    and activations.
    """

    preset: str | Path | None = field(
        default=DEFAULT_PRESET,
        metadata=_machine(
            "--preset",
            "Start from this hardware (dla presets).",
            metavar="NAME|FILE.toml",
            completion="presets",
        ),
    )
    settings: Settings = field(
        default=(),
        metadata=_machine(
            "--set",
            "Change one key of the hardware, e.g. sram_bytes=64KiB (dla settings). Repeatable; the "
            "last value counts.",
            list[str],
            metavar="KEY=VALUE",
            completion="settings",
            parse=tuple,
            texts=_setting_texts,
        ),
    )
    isa: str | None = field(
        default=None,
        metadata=_machine("--isa", "Replace the preset's ISA variant.", metavar="v1|v2|v3|…"),
    )
    memory_mode: str | None = field(
        default=None,
        metadata=_machine(
            "--memory-mode",
            "Choose the memory of constants and activations, instead of the preset's (dla "
            "presets).",
            metavar="dram|flash|sram",
            completion="memory_modes",
        ),
    )

    def __post_init__(self) -> None:
        """Store the settings as a tuple, because an iterator can be read only once."""
        if not isinstance(self.settings, str | Mapping):
            object.__setattr__(self, "settings", tuple(self.settings))


@dataclass(frozen=True, eq=False, kw_only=True)
class Compiling(Given, MachineChoice):
    """Arguments that choose a network to compile and the machine to compile it for."""

    options: CompileOptions = DEFAULTS


@dataclass(frozen=True, eq=False, kw_only=True)
class AnyMachine(Compiling):
    """Arguments that choose a network, and one of our machines or a described machine."""

    machine: str | None = field(
        default=None,
        metadata=_machine(
            "--machine",
            "Use this machine: a preset, or a machine that a description declares (dla presets).",
            metavar="NAME|FILE.py",
            completion="machines",
        ),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Inferring:
    """Argument of an inference: its inputs."""

    inputs: Inputs | None = field(
        default=None,
        metadata=_network(
            "--input",
            "Read the network's input from an .npy, .npz or image file. Default: the model's "
            "sample.",
            Path,
            metavar="FILE",
        ),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramRequest(Inferring, MachineChoice):
    """Request of ``dla simulate``, for a program or a package.

    A program brings its own machine, and has tensors and memory images.
    """

    preset: str | Path | None = field(
        default=None,
        metadata=_machine(
            "--preset",
            "Start from this hardware. Default: balanced-64, for a program its own machine.",
            metavar="NAME|FILE.toml",
            completion="presets",
        ),
    )
    options: CompileOptions = DEFAULTS
    tensor: Sequence[str] = field(
        default=(),
        metadata=option(
            "--tensor",
            "Read an input tensor of a program from a file. Repeatable.",
            list[str],
            metavar="NAME=FILE.npy",
        ),
    )
    image: Sequence[str] = field(
        default=(),
        metadata=option(
            "--image",
            "Copy the bytes of a file to system memory before the run. Repeatable.",
            list[str],
            metavar="ADDRESS=FILE",
        ),
    )
    seed: int = field(default=0, metadata=same(Given, "seed"))


@dataclass(frozen=True, eq=False, kw_only=True)
class RunRequest(Inferring, AnyMachine):
    """Request of ``dla run`` and ``dla.run``."""

    steps: int | None = field(
        default=None,
        metadata=_network(
            "--steps",
            "Run this many inferences that pass the network's state on; --input then has the steps "
            "along a first axis.",
            int,
            metavar="N",
            least=1,
        ),
    )
    step_ms: float | None = field(
        default=None,
        metadata=_network(
            "--step-ms",
            "Compare the time of a step with the milliseconds of input that it processes.",
            float,
            metavar="MS",
        ),
    )
    accuracy: str | Path | None = field(
        default=None,
        metadata=_network(
            "--accuracy",
            "Measure accuracy on these samples: an array for each input, and the classes, "
            "'labels'.",
            Path,
            metavar="FILE.npz",
        ),
    )
    timeline: str | Path | None = field(
        default=None,
        metadata=_result(
            "--trace",
            "Write a timeline in the format of Perfetto.",
            Path,
            metavar="FILE.pftrace",
            repeats=False,
            ending=".pftrace",
        ),
    )
    sensitivity: bool = field(
        default=False,
        metadata=_result(
            "--sensitivity",
            "Print how each parameter of the timing and each command changes the cycles.",
            bool,
        ),
    )
    cost: str | None = field(
        default=None,
        metadata=_result(
            "--cost", "Estimate energy and area with this cost table.", metavar="NAME|FILE.toml"
        ),
    )
    engine: Callable[[Preset, Progress], ComparedExecutor] | None = field(
        default=None,
        metadata=option("--engine", "What runs the programs.", None, texts=lambda engine: ["rtl"]),
    )
    progress: Progress = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class RunKeywords(RunRequest, CompileOptions, NetworkChoice):
    """Keywords of ``dla.run``: the fields of the request, and the single fields of its options."""


@dataclass(frozen=True)
class Wishes:
    """Debugging options of ``dla simulate``: files to write and the place to stop.

    An option that is not requested is None.
    """

    trace: Path | None = field(default=None, metadata=same(RunRequest, "timeline"))
    log: Path | None = field(
        default=None,
        metadata=option(
            "--log", "Write one line for each completed command.", Path, metavar="FILE", ending=""
        ),
    )
    against: Path | None = field(
        default=None,
        metadata=option(
            "--against",
            "Compare the run with another log, e.g. of RTL or of an older version.",
            Path,
            metavar="LOG",
        ),
    )
    break_at: str | None = field(
        default=None,
        metadata=option(
            "--break",
            "Stop when a command starts (with :after: when it completes) and show the machine.",
            metavar="[REGION/]WORD|LAYER[:after]",
        ),
    )
    until: int | None = field(
        default=None,
        metadata=option(
            "--until", "Stop at this cycle and show the machine.", int, metavar="CYCLE", least=0
        ),
    )
    dump_sram: Sequence[str] = field(
        default=(),
        metadata=option(
            "--dump-sram",
            "Show bytes of the scratchpad at the stop or at the end. Repeatable.",
            list[str],
            metavar="FIRST..END[:FILE]",
        ),
    )

    @property
    def stop(self) -> bool:
        """True if the simulation is asked to stop before its end."""
        return (self.break_at, self.until) != (None, None)
