"""Shared parts of commands: options, shell completion, and the status line.

Options come from records or are declared here.
"""

import gc
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum, StrEnum
from functools import cache, partial
from glob import escape, iglob
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any

import typer

from byoc.options import DEFAULTS, OPTIONS, CompileOptions
from byoc.options import Option as CompilerOption
from experiments.cli import results
from experiments.literal import literal, say
from experiments.running.declared import CommandOption, list_declared
from experiments.running.given import Compiling, Given, MachineChoice, RunRequest
from experiments.version import other_checkout
from isa import memory
from isa.errors import InputError
from isa.progress import Progress, silent
from isa.sources import HOME

PROGRESS_SECONDS = 10.0
"""Time between two lines of progress of a command whose standard error is no terminal."""
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


EngineChoice = StrEnum("EngineChoice", ["simulator", "rtl"])


# Completion: words that a shell offers for an unfinished word (dla --install-completion).


def offer_models(begun: str) -> list[str]:
    """Return the shell completions of a model: built-in networks and files."""
    from experiments.models import MODELS

    return _complete_beginning(begun, [*MODELS, *_files(begun)])


def offer_presets(begun: str) -> list[str]:
    """Return presets and files that begin with ``begun``, for shell completion."""
    from dla_sim.presets import preset_names

    return _complete_beginning(begun, [*preset_names(), *_files(begun)])


def offer_machines(begun: str) -> list[str]:
    """Return machines and files that begin with ``begun``, for shell completion."""
    from experiments.machines.discovery import list_machines

    return sorted({*offer_presets(begun), *_complete_beginning(begun, [*list_machines()])})


def offer_memory_modes(begun: str) -> list[str]:
    """Return the names of memory modes that begin with ``begun``, for shell completion."""
    from dla_sim.presets import MEMORY_MODES

    return _complete_beginning(begun, [mode.name for mode in MEMORY_MODES])


def offer_settings(begun: str) -> list[str]:
    """Return the keys of machine settings that begin with ``begun``, for shell completion."""
    from dla_sim.presets import list_settings

    return _complete_beginning(begun, [f"{setting.key}=" for setting in list_settings()])


def _files(begun: str) -> list[str]:
    return sorted(iglob(f"{escape(begun)}*"))


def _complete_beginning(begun: str, words: list[str]) -> list[str]:
    return [word for word in words if word.startswith(begun)]


_OFFERED: Mapping[str, Callable[[str], list[str]]] = {
    "models": offer_models,
    "presets": offer_presets,
    "machines": offer_machines,
    "memory_modes": offer_memory_modes,
    "settings": offer_settings,
}


@cache
def _show_option(option: CommandOption) -> Any:
    about: dict[str, Any] = {
        "help": option.help,
        "metavar": option.metavar,
        "rich_help_panel": option.panel,
    }
    about |= {"min": option.least} if option.least is not None else {}
    about |= {"autocompletion": _OFFERED[option.completion]} if option.completion else {}
    return typer.Option(*option.word.split(), **about) if option.word else typer.Argument(**about)


def get_typer_option(record: type, name: str) -> Any:
    """Return the Typer option for one command option that the class ``record`` declares.

    Commands use it to take the option without the record.
    """
    return _show_option(list_declared(record)[name])


_compiler = partial(typer.Option, rich_help_panel="Compiler")
_result = partial(typer.Option, rich_help_panel="Results")

Model = Annotated[str, get_typer_option(Given, "model")]
Seed = Annotated[int, get_typer_option(Given, "seed")]
Settings = Annotated[list[str] | None, get_typer_option(MachineChoice, "settings")]
Input = Annotated[Path | None, get_typer_option(RunRequest, "inputs")]
Timeline = Annotated[
    Path | None, get_typer_option(RunRequest, "timeline"), results.Destination(".pftrace")
]
Cost = Annotated[str | None, get_typer_option(RunRequest, "cost")]
Engine = Annotated[
    EngineChoice,
    typer.Option(
        "--engine",
        rich_help_panel="Machine",
        help="Choose the engine; rtl simulates the hardware and compares it with the simulator "
        "(docs/rtl.md).",
    ),
]
Json = Annotated[
    Path | None,
    _result(
        "--json",
        metavar="FILE|-",
        help="Write the result as JSON; '-' writes it to standard output, and nothing else.",
    ),
    results.Destination(".json"),
]
Csv = Annotated[
    Path | None,
    _result(
        "--csv",
        metavar="FILE|-",
        help="Write the table as CSV; '-' writes it to standard output, and nothing else.",
    ),
    results.Destination(".csv"),
]
Summary = Annotated[
    bool, _result("--summary", help="Print totals only; omit the tables of layers.")
]
All = Annotated[
    bool, _result("--all", help="Print every table and every total, instead of one screen.")
]
MaximumMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Exit with an error if the command would need more memory, e.g. 4G. Default: half of "
        "this computer's.",
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print only results and errors: no progress and no notes."),
]
Pins = Annotated[
    Path | None,
    _compiler("--pins", metavar="FILE.toml", help="Use the tilings of this file (docs/tuning.md)."),
]
TunedLog = Annotated[
    Path | None,
    _compiler(
        "--tuned", metavar="FILE.jsonl", help="Use the best schedule in a log of 'dla tune'."
    ),
]
Output = Annotated[
    Path | None,
    _result("--output", "-o", metavar="FILE", help="Write the result to this file."),
    results.Destination(),
]


def _compile_option(option: CompilerOption) -> inspect.Parameter:
    kind: Any = (
        bool if option.switch else StrEnum(option.name, {value: value for value in option.values})
    )
    about = Annotated[kind, _compiler(f"--{option.word}", help=option.help)]
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=kind(option.default), annotation=about
    )


_COMPILE_OPTIONS = tuple(map(_compile_option, OPTIONS))


_CHOICES = tuple(
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=about)
    for name, about in (("pins", Pins), ("tuned", TunedLog))
)
"""Compiler options that take a schedule from a file: ``--pins`` and ``--tuned``."""

Command = Callable[..., int | None]


def _parameter(name: str, option: CommandOption, default: Any) -> inspect.Parameter:
    """Return the function parameter that represents a declared command option.

    An omitted option without a default is None.
    """
    kind: Any = _enumeration(option) if isinstance(option.kind, tuple) else option.kind
    if isinstance(default, tuple):
        default = None
    elif isinstance(default, str) and isinstance(option.kind, tuple):
        default = kind(default)
    annotation: Any = Annotated[kind | None if default is None else kind, _show_option(option)]
    if option.ending is not None:
        annotation = Annotated[annotation, results.Destination(option.ending)]
    shown = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=annotation
    )


@cache
def _enumeration(option: CommandOption) -> Any:
    return StrEnum(option.word.strip("-"), {value: value for value in option.kind})


def _parameters(record: Any) -> Iterator[inspect.Parameter]:
    """Yield a function parameter for every option of a dataclass of options, in field order."""
    if record is CompileOptions:
        yield from (*_COMPILE_OPTIONS, *_CHOICES)
        return
    known = list_declared(record)
    for item in fields(record):
        if item.default is DEFAULTS:
            yield from _parameters(CompileOptions)
        elif item.name in known and known[item.name].kind is not None:
            yield _parameter(item.name, known[item.name], item.default)


def _make_record(record: Any, given: dict[str, Any]) -> Any:
    """Build an options dataclass from parsed option values and remove these from ``given``.

    Omitted options get their defaults.
    """
    taken = {part.name: given.pop(part.name) for part in _parameters(record)}
    plain = {key: value.value if isinstance(value, Enum) else value for key, value in taken.items()}
    if record is CompileOptions:
        return _compile_options(**plain)
    known = list_declared(record)
    made = dict[str, Any]()
    for item in fields(record):
        if item.default is DEFAULTS:
            made[item.name] = _make_record(CompileOptions, plain)
        elif plain.get(item.name) is not None:
            parse = known[item.name].parse
            made[item.name] = plain[item.name] if parse is None else parse(plain[item.name])
    return record(**made)


def expand_options(command: Command) -> Command:
    """Return ``command`` with one Typer option for each field of its dataclass parameters."""
    signature = inspect.signature(command, eval_str=True)
    records: dict[str, Any] = {
        p.name: p.annotation for p in signature.parameters.values() if is_dataclass(p.annotation)
    }
    parameters = [
        part.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
        for part in (
            _parameters(parameter.annotation) if parameter.name in records else [parameter]
        )
    ]

    def take_options(**given: Any) -> int | None:
        made = {name: _make_record(record, given) for name, record in records.items()}
        return command(**given, **made)

    return _present_as(take_options, command, parameters)


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


def parse_words(words: Sequence[str]) -> Compiling:
    """Return the request that the words of a command line state, options and a model.

    Raises InputError for an unknown option or value.
    """

    def return_request(wanted: Compiling) -> Any:
        return wanted

    app = typer.Typer(add_completion=False)
    app.command(add_help_option=False)(expand_options(return_request))
    try:
        made: Compiling = typer.main.get_command(app)(list(words), standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):  # not typer's error for a wrong option
            raise
        raise InputError(error.format_message()) from error
    return made


def limit_command(command: Command) -> Command:
    """Return ``command`` with the options that all commands have, and with protected input files.

    The options are ``--max-memory`` and ``--quiet``. Input files cannot be overwritten, and result
    files are checked before any work is done.
    """
    signature = inspect.signature(command, eval_str=True)
    common = {"max_memory": (None, MaximumMemory), "quiet": (False, Quiet)}
    parameters = [
        *(
            part.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for part in signature.parameters.values()
        ),
        *(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for name, (default, annotation) in common.items()
        ),
    ]

    def take_common(max_memory: str | None = None, quiet: bool = False, **given: Any) -> int | None:
        with (
            _set_quiet(quiet),
            memory.limit_memory(max_memory),
            results.reserve_output(given),
            results.check_destinations(signature, given),
        ):
            return command(**given)

    return _present_as(take_common, command, parameters)


@contextmanager
def _set_quiet(quiet: bool) -> Iterator[None]:
    """Show no progress and no notes in the block if ``quiet``; else note another checkout."""
    token = _quiet.set(quiet)
    _note_other_copy()
    try:
        yield
    finally:
        _quiet.reset(token)


def note(text: str) -> None:
    """Print a note to standard error, unless the command has ``--quiet``."""
    if not is_quiet():
        say(text, file=sys.stderr)


def is_quiet() -> bool:
    """Return whether the command has the option ``--quiet``."""
    return _quiet.get()


def _note_other_copy() -> None:
    """Print a note if the working folder is in a checkout whose code is not the code that runs."""
    with suppress(OSError):
        there = other_checkout(Path.cwd())
        if there is not None:
            note(f"note: dla runs the copy in {HOME}; to run this checkout: pip install -e {there}")


def _present_as(
    taking: Command, command: Command, parameters: Sequence[inspect.Parameter]
) -> Command:
    """Give the wrapper ``taking`` the parameters and docstring of the wrapped ``command``."""
    shown = inspect.signature(command, eval_str=True).replace(parameters=parameters)
    vars(taking).update(__signature__=shown)
    taking.__annotations__ = {part.name: part.annotation for part in parameters}
    taking.__doc__ = command.__doc__
    return taking


@contextmanager
def stoppable() -> Iterator[None]:
    """Print the notes of an interrupted workflow if Ctrl-C stops it in the block.

    The notes say which results are kept, and how to continue.
    """
    try:
        yield
    except KeyboardInterrupt as stop:  # typer turns it into an exit status
        for note in getattr(stop, "__notes__", ()):  # none before work has begun
            say(note, file=sys.stderr)
        raise


@contextmanager
def stages() -> Iterator[Progress]:
    """Yield a function that shows a command's stage, how much of it is done, and the time left.

    Without a terminal on standard error, it prints lines. With ``--quiet``, it shows nothing.
    """
    if is_quiet():
        yield silent
        return
    if not sys.stderr.isatty():
        with _progress_lines() as hear_stage:
            yield hear_stage
        return
    from rich import progress as shown

    from experiments.report.terminal import status_console

    columns = (
        shown.TextColumn("{task.description}", markup=False), shown.BarColumn(),
        shown.TaskProgressColumn(), shown.MofNCompleteColumn(),
        shown.TextColumn("{task.fields[rate]}"), shown.TimeRemainingColumn(),
    )  # fmt: skip
    with shown.Progress(*columns, console=status_console(), transient=True) as bar:
        task = bar.add_task("starting", total=None, rate="")

        def hear(said: str, done: int = 0, total: int = 0) -> None:
            if not done:  # a new stage, whose time begins now
                bar.reset(task, total=total or None)
            speed = bar.tasks[task].speed
            rate = f"{speed:,.0f}/s" if done and speed else ""
            # Without the refresh, a stage that ends before the next repaint is never visible.
            bar.update(
                task, description=literal(said), completed=done, total=total or None, rate=rate,
                refresh=not done,
            )  # fmt: skip

        yield hear


@contextmanager
def _progress_lines() -> Iterator[Progress]:
    """Yield a progress function whose last report a thread prints every ten seconds.

    The first line follows after ten seconds, so that a short command prints none.
    """
    last = ""
    begun = time.monotonic()
    ended = Event()

    def hear(said: str, done: int = 0, total: int = 0) -> None:
        nonlocal last
        last = f"{said}: {done:,} of {total:,}" if total else said

    def print_lines() -> None:
        with suppress(OSError, ValueError):  # nobody reads standard error any more
            while not ended.wait(PROGRESS_SECONDS):
                say(f"{time.monotonic() - begun:.0f} s: {last or 'starting'}", file=sys.stderr)
                sys.stderr.flush()

    thread = Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield hear
    finally:
        ended.set()
        thread.join()


@contextmanager
def pause_collection() -> Iterator[None]:
    """Turn off garbage collection while a command imports its modules.

    Later collections skip the imported objects. Modules stay as long as the process, so the
    collector need not examine them. Only the first use in a process does this, because almost no
    other objects exist then.
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
