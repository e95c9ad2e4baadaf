"""What commands share: options, declared once so that they read and behave the same everywhere, and the status line."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum, StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from byoc.options import OPTIONS, CompileOptions, Option
from experiments.cli import completion, results
from experiments.literal import literal, say
from isa import memory
from isa.errors import InputError
from isa.progress import Progress, silent

if TYPE_CHECKING:
    from dla_sim import presets
    from experiments.running.network import Network

DEFAULT_PRESET = "balanced-64"


class HostChoice(StrEnum):
    """What runs the nodes that stay on the CPU."""

    onnxruntime = "onnxruntime"
    reference = "reference"


class EngineChoice(StrEnum):
    """What runs the programs of a network."""

    simulator = "simulator"
    rtl = "rtl"


_network = partial(typer.Option, rich_help_panel="Network")
_machine = partial(typer.Option, rich_help_panel="Machine")
_compiler = partial(typer.Option, rich_help_panel="Compiler")
_result = partial(typer.Option, rich_help_panel="Results")

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="An .onnx, .tflite or .dla file, or a built-in name (dla models).",
        autocompletion=completion.models,
    ),
]
Preset = Annotated[
    str | None,
    _machine(
        "--preset",
        metavar="NAME|FILE.toml",
        help="Hardware to start from (dla presets).",
        autocompletion=completion.presets,
    ),
]
Settings = Annotated[
    list[str] | None,
    _machine(
        "--set",
        metavar="KEY=VALUE",
        help="Change one key of the hardware, e.g. sram_bytes=64KiB (dla settings). Repeatable.",
        autocompletion=completion.settings,
    ),
]
Isa = Annotated[str | None, _machine("--isa", metavar="v1|v2|v3|…", help="ISA variant, instead of the preset's.")]
MemoryMode = Annotated[
    str | None,
    _machine(
        "--memory-mode",
        metavar="dram|flash|sram",
        help="Where constants and activations lie, instead of the preset's memory (dla presets).",
        autocompletion=completion.memory_modes,
    ),
]
Host = Annotated[HostChoice, _network("--host", help="What runs the nodes on the CPU.")]
Engine = Annotated[
    EngineChoice,
    _machine("--engine", help="rtl: the machine as hardware, compared with the simulator (docs/rtl.md)."),
]
Input = Annotated[
    Path | None,
    _network("--input", metavar="FILE", help="Network input: .npy, .npz or an image. Default: the model's sample."),
]
Shapes = Annotated[
    list[str] | None,
    _network("--shape", metavar="NAME=1,3,224,224", help="Shape of an input that the model leaves open. Repeatable."),
]
Fixed = Annotated[
    list[str] | None,
    _network("--fix", metavar="NAME=16000", help="Make an input a constant, all of it that number. Repeatable."),
]
OnCpu = Annotated[
    list[str] | None,
    _network(
        "--cpu",
        metavar="PATTERN",
        help="Keep the nodes of these names on the CPU, e.g. 'block3*', or of a type, 'op:Softmax'. Repeatable.",
    ),
]
Calibration = Annotated[
    Path | None,
    _network(
        "--calibration",
        metavar="FILE.npz",
        help="What to quantise a float model on: an array for each input, samples along an extra first axis.",
    ),
]
Accuracy = Annotated[
    Path | None,
    _network(
        "--accuracy",
        metavar="FILE.npz",
        help="Held-out samples, an array for each input along an extra first axis, and their classes, 'labels'.",
    ),
]
Seed = Annotated[int, _network("--seed", min=0, help="Seed of weights, calibration and inputs that are drawn.")]
Json = Annotated[
    Path | None,
    _result("--json", metavar="FILE|-", help="Write the result as JSON; -: to standard output, nothing else."),
    results.Place(".json"),
]
Csv = Annotated[
    Path | None,
    _result("--csv", metavar="FILE|-", help="Write the table as CSV; -: to standard output, nothing else."),
    results.Place(".csv"),
]
Summary = Annotated[bool, _result("--summary", help="Print only what is about the whole, no table.")]
Verbose = Annotated[
    bool, _result("--verbose", help="Also say of every layer why it is tiled or computed with others as it is.")
]
Timeline = Annotated[
    Path | None,
    _result("--trace", metavar="FILE.json", help="Write a timeline that Perfetto opens."),
    results.Place(".json"),
]
Cost = Annotated[
    str | None,
    _result("--cost", metavar="NAME|FILE.toml", help="Estimate energy and area by this cost table."),
]
MaximumMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory", metavar="SIZE", help="Refuse what would take more, e.g. 4G. Default: half of the machine's."
    ),
]
Pins = Annotated[
    Path | None,
    _compiler("--pins", metavar="FILE.toml", help="Tilings of layers chosen by hand (docs/tuning.md)."),
]
TunedLog = Annotated[
    Path | None,
    _compiler("--tuned", metavar="FILE.jsonl", help="The best schedule of a log of 'dla tune', exactly."),
]
Cache = Annotated[
    bool, _network("--cache/--no-cache", help="Keep what import makes of models for later runs (dla cache).")
]
Output = Annotated[
    Path | None, _result("--output", "-o", metavar="FILE", help="Where the result goes."), results.Place()
]


@dataclass(frozen=True)
class Opening:
    """What a model leaves open, and which of its nodes stay on the CPU."""

    shape: Shapes = None
    fix: Fixed = None
    cpu: OnCpu = None

    def load(self, model: str, seed: int, calibration: Path | None, progress: Progress) -> Network:
        """The network that MODEL names; raises InputError as ``load_network`` does."""
        from experiments.running.network import load_network

        progress(f"reading {model}")
        found = load_network(model, self.shapes, seed, calibration, self.fixed, progress=progress)
        return found.keeping_on_cpu(self.cpu or ())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by input; raises InputError for what is written otherwise."""
        from experiments.running.network import parse_shapes

        return parse_shapes(self.shape or ())

    @property
    def fixed(self) -> dict[str, float]:
        """The numbers by input; raises InputError for what is written otherwise."""
        from experiments.running.network import parse_fixed

        return parse_fixed(self.fix or ())


@dataclass(frozen=True)
class Hardware:
    """The machine: a preset, a memory mode and settings on top, and the ISA variant."""

    preset: Preset = DEFAULT_PRESET
    settings: Settings = None
    isa: Isa = None
    memory_mode: MemoryMode = None

    def load(self) -> presets.Preset:
        """What the options describe; raises InputError as ``load_hardware`` does."""
        from dla_sim.presets import load_hardware

        return load_hardware(self.preset, self.settings or (), self.isa, self.memory_mode)


def _compile_option(option: Option) -> inspect.Parameter:
    kind: Any = bool if option.switch else StrEnum(option.name, {value: value for value in option.values})
    about = Annotated[kind, _compiler(f"--{option.word}", help=option.help)]
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=kind(option.default), annotation=about
    )


_COMPILE_OPTIONS = tuple(map(_compile_option, OPTIONS))


_CHOICES = tuple(
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=about)
    for name, about in (("pins", Pins), ("tuned", TunedLog))
)
"""Where choices of schedules come from: options beside those with a few values each."""

Command = Callable[..., int | None]


def expanded(command: Command) -> Command:
    """``command`` as Typer wants it: for each parameter that is a record, one option a field in its place."""
    signature = inspect.signature(command, eval_str=True)
    records: dict[str, Any] = {
        p.name: p.annotation for p in signature.parameters.values() if is_dataclass(p.annotation)
    }
    parameters = [
        part.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
        for part in (_fields(parameter.annotation) if parameter.name in records else [parameter])
    ]

    def taking_options(**given: Any) -> int | None:
        for name, record in records.items():
            taken = {part.name: given.pop(part.name) for part in _fields(record)}
            plain = {key: value.value if isinstance(value, Enum) else value for key, value in taken.items()}
            given[name] = _compile_options(**plain) if record is CompileOptions else record(**plain)
        return command(**given)

    return _presented(taking_options, command, parameters)


def _compile_options(pins: Path | None, tuned: Path | None, **options: Any) -> CompileOptions:
    plain = CompileOptions(**options)
    if pins is not None and tuned is not None:
        raise InputError("--pins and --tuned both choose a schedule; give one of them")
    if pins is not None:
        from byoc.pins import load_pins

        return replace(plain, chosen=load_pins(pins))
    if tuned is not None:
        from byoc.tuning.log import load_tuned
        from experiments.version import compiler_version

        return replace(plain, chosen=load_tuned(tuned, plain, compiler_version()))
    return plain


def limited(command: Command) -> Command:
    """``command`` with the option ``--max-memory`` beside its own."""
    signature = inspect.signature(command, eval_str=True)
    limit = inspect.Parameter("max_memory", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=MaximumMemory)
    parameters = [part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for part in (*signature.parameters.values(), limit)]

    def taking_limit(max_memory: str | None = None, **given: Any) -> int | None:
        with memory.limited(max_memory), results.reserved(given), results.placed(signature, given):
            return command(**given)

    return _presented(taking_limit, command, parameters)


def _presented(taking: Command, command: Command, parameters: Sequence[inspect.Parameter]) -> Command:
    """``taking`` as it shows itself to Typer: ``command`` with these parameters."""
    shown = inspect.signature(command, eval_str=True).replace(parameters=parameters)
    vars(taking).update(__signature__=shown)
    taking.__annotations__ = {part.name: part.annotation for part in parameters}
    taking.__doc__ = command.__doc__
    return taking


def _fields(record: Any) -> Iterator[inspect.Parameter]:
    """A parameter for every field of a record; the compiler's options say by themselves what they are."""
    if record is CompileOptions:
        yield from (*_COMPILE_OPTIONS, *_CHOICES)
        return
    kinds = get_type_hints(record, include_extras=True)
    for item in fields(record):
        yield inspect.Parameter(
            item.name, inspect.Parameter.KEYWORD_ONLY, default=item.default, annotation=kinds[item.name]
        )


@contextmanager
def stoppable() -> Iterator[None]:
    """Whoever interrupts the command within reads the notes of the workflow: what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:  # typer makes an exit status of it
        for note in getattr(stop, "__notes__", ()):  # none while nothing has begun
            say(note, file=sys.stderr)
        raise


@contextmanager
def stages() -> Iterator[Progress]:
    """A function that shows what a command is doing, how much of it is done and the time that is left.

    Silent unless standard error is a terminal.
    """
    if not sys.stderr.isatty():
        yield silent
        return
    from rich import progress as shown

    from experiments.report.terminal import status_console

    columns = (
        shown.TextColumn("{task.description}", markup=False), shown.BarColumn(), shown.TaskProgressColumn(),
        shown.TimeRemainingColumn(),
    )  # fmt: skip
    with shown.Progress(*columns, console=status_console(), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def hear(said: str, done: int = 0, total: int = 0) -> None:
            if not done:  # something new, whose time begins now
                bar.reset(task, total=total or None)
            bar.update(task, description=literal(said), completed=done, total=total or None)

        yield hear


@contextmanager
def loading() -> Iterator[None]:
    """For the imports of a command: modules stay as long as the process, so that the collector need not look at them.

    Neither while they are made nor later; only the first time in a process, when there is next to nothing else.
    """
    if gc.get_freeze_count() or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
