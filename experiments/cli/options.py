"""What commands share: options, as records declare them or declared here once, what a shell offers, the status line."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum, StrEnum
from functools import cache, partial
from glob import escape, iglob
from pathlib import Path
from typing import Annotated, Any

import typer

from byoc.options import DEFAULTS, OPTIONS, CompileOptions
from byoc.options import Option as CompilerOption
from experiments.cli import results
from experiments.literal import literal, say
from experiments.running.declared import Option, declared
from experiments.running.given import Given, Machine, RunRequest
from isa import memory
from isa.errors import InputError
from isa.progress import Progress, silent


class EngineChoice(StrEnum):
    """What runs the programs of a network."""

    simulator = "simulator"
    rtl = "rtl"


# What a shell may offer for a word that is not finished yet (dla --install-completion). -------------------------------


def offer_models(begun: str) -> list[str]:
    """Built-in networks, and files."""
    from experiments.models import MODELS

    return _beginning(begun, [*MODELS, *_files(begun)])


def offer_presets(begun: str) -> list[str]:
    """Machines, and files."""
    from dla_sim.presets import preset_names

    return _beginning(begun, [*preset_names(), *_files(begun)])


def offer_memory_modes(begun: str) -> list[str]:
    """Where data can lie."""
    from dla_sim.presets import MEMORY_MODES

    return _beginning(begun, [mode.name for mode in MEMORY_MODES])


def offer_settings(begun: str) -> list[str]:
    """Keys of a machine."""
    from dla_sim.presets import declared_settings

    return _beginning(begun, [f"{setting.key}=" for setting in declared_settings()])


def _files(begun: str) -> list[str]:
    return sorted(iglob(f"{escape(begun)}*"))


def _beginning(begun: str, words: list[str]) -> list[str]:
    return [word for word in words if word.startswith(begun)]


_OFFERED: Mapping[str, Callable[[str], list[str]]] = {
    "models": offer_models,
    "presets": offer_presets,
    "memory_modes": offer_memory_modes,
    "settings": offer_settings,
}


@cache
def _shown(option: Option) -> Any:
    about: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "rich_help_panel": option.panel}
    about |= {"min": option.least} if option.least is not None else {}
    about |= {"autocompletion": _OFFERED[option.completion]} if option.completion else {}
    return typer.Option(*option.word.split(), **about) if option.word else typer.Argument(**about)


def shown(record: type, name: str) -> Any:
    """What Typer has of a record's option, for commands that take it and not the record."""
    return _shown(declared(record)[name])


_compiler = partial(typer.Option, rich_help_panel="Compiler")
_result = partial(typer.Option, rich_help_panel="Results")

Model = Annotated[str, shown(Given, "model")]
Seed = Annotated[int, shown(Given, "seed")]
Settings = Annotated[list[str] | None, shown(Machine, "settings")]
Input = Annotated[Path | None, shown(RunRequest, "inputs")]
Timeline = Annotated[Path | None, shown(RunRequest, "timeline"), results.Place(".json")]
Cost = Annotated[str | None, shown(RunRequest, "cost")]
Engine = Annotated[
    EngineChoice,
    typer.Option(
        "--engine",
        rich_help_panel="Machine",
        help="rtl: the machine as hardware, compared with the simulator (docs/rtl.md).",
    ),
]
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
Output = Annotated[
    Path | None, _result("--output", "-o", metavar="FILE", help="Where the result goes."), results.Place()
]


def _compile_option(option: CompilerOption) -> inspect.Parameter:
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


def _parameter(name: str, option: Option, default: Any) -> inspect.Parameter:
    """The parameter of a command that a declared option is; what may be left out and has no value then is None."""
    kind: Any = _enumeration(option) if isinstance(option.kind, tuple) else option.kind
    if isinstance(default, tuple):
        default = None
    elif isinstance(default, str) and isinstance(option.kind, tuple):
        default = kind(default)
    annotation: Any = Annotated[kind | None if default is None else kind, _shown(option)]
    if option.ending is not None:
        annotation = Annotated[annotation, results.Place(option.ending)]
    shown = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=annotation)


@cache
def _enumeration(option: Option) -> Any:
    return StrEnum(option.word.strip("-"), {value: value for value in option.kind})


def _parameters(record: Any) -> Iterator[inspect.Parameter]:
    """A parameter for every option of a record, in the order of its fields."""
    if record is CompileOptions:
        yield from (*_COMPILE_OPTIONS, *_CHOICES)
        return
    known = declared(record)
    for item in fields(record):
        if item.default is DEFAULTS:
            yield from _parameters(CompileOptions)
        elif item.name in known and known[item.name].kind is not None:
            yield _parameter(item.name, known[item.name], item.default)


def _made(record: Any, given: dict[str, Any]) -> Any:
    """A record of its options among those ``given``, which lose them; what was left out is as the record has it."""
    taken = {part.name: given.pop(part.name) for part in _parameters(record)}
    plain = {key: value.value if isinstance(value, Enum) else value for key, value in taken.items()}
    if record is CompileOptions:
        return _compile_options(**plain)
    known, made = declared(record), dict[str, Any]()
    for item in fields(record):
        if item.default is DEFAULTS:
            made[item.name] = _made(CompileOptions, plain)
        elif plain.get(item.name) is not None:
            parse = known[item.name].parse
            made[item.name] = plain[item.name] if parse is None else parse(plain[item.name])
    return record(**made)


def expanded(command: Command) -> Command:
    """``command`` as Typer wants it: for each parameter that is a record, one option a field in its place."""
    signature = inspect.signature(command, eval_str=True)
    records: dict[str, Any] = {
        p.name: p.annotation for p in signature.parameters.values() if is_dataclass(p.annotation)
    }
    parameters = [
        part.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
        for part in (_parameters(parameter.annotation) if parameter.name in records else [parameter])
    ]

    def taking_options(**given: Any) -> int | None:
        made = {name: _made(record, given) for name, record in records.items()}
        return command(**given, **made)

    return _presented(taking_options, command, parameters)


def _compile_options(pins: Path | None, tuned: Path | None, **options: Any) -> CompileOptions:
    plain = CompileOptions(**options)
    if pins is not None and tuned is not None:
        raise InputError("--pins and --tuned both choose a schedule; give one of them")
    if pins is not None:
        from byoc.options import load_pins

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
