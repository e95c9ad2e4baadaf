"""The ``dla`` command, which turns every bad input into one line and exit status 2.

Only the command that is called is imported; the help needs none. Each command imports what it needs
when it runs.
"""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from experiments.interruption import is_interrupted
from experiments.literal import ASCII, say
from isa.errors import InputError

MAXIMUM_LINE = 2000
"""Maximum length of a message, in characters."""
DONE = 0
DIFFERENT = 1
BAD_INPUT = 2
INTERNAL_ERROR = 3
INTERRUPTED = 130

PANELS = {
    "Networks": {
        "run": (
            "run:command",
            "Compile and simulate a model, check the results, and print one screen about them.",
        ),
        "generate": (
            "generate:command",
            "Generate tokens with a decoder, check each, and show the cycles of every position.",
        ),
        "partition": (
            "compile:partition",
            "List where every node runs, why nodes run on the CPU, and the cost of each reason.",
        ),
        "compile": ("compile:compile", "Quantise a model if needed and write its package (.dla)."),
        "emit": ("compile:emit", "Write the program of each region for one machine."),
        "export": (
            "export:command",
            "Write a network, its driver and its CPU parts as C for a microcontroller.",
        ),
        "simulate": ("program:simulate", "Run a package or a program without checking values."),
        "asm": ("program:asm", "Assemble text into a program."),
        "disasm": ("program:disasm", "Print a program as assembly text."),
        "report": (
            "report:command",
            "Show saved results, and write them as an HTML page with charts and as PNG images.",
        ),
        "runs": (
            "runs:runs",
            "List the runs and sweeps below a folder, newest first, with time and check.",
        ),
        "serve": (
            "runs:serve",
            "Show the runs and sweeps below a folder in a browser, until Ctrl-C.",
        ),
    },
    "Machines and schedules": {
        "sweep": (
            "sweep:sweep",
            "Run a design-space sweep; run it again to continue after an interruption.",
        ),
        "explore": (
            "sweep:explore",
            "Search a sweep's specification for the Pareto front of two objectives.",
        ),
        "advise": (
            "advise:command",
            "Show what limits a network on a machine, and measured changes that make it faster.",
        ),
        "tune": (
            "tune:command",
            "Measure schedules of a network, keep them in a log, and name the best.",
        ),
        "explain": (
            "tune:explain",
            "Show the tilings that the compiler considered for a layer, and why the best one won.",
        ),
        "system": ("system:command", "Run several networks on several accelerators."),
        "split": (
            "system:split",
            "Run one network on all accelerators of a system, and explain the speed-up.",
        ),
        "repro": (
            "repro:command",
            "Reproduce a published figure, or repeat a results file and compare it.",
        ),
    },
    "Information": {
        "help": (
            "catalogue:explain_word",
            "Explain a word in the output of dla, or list all words.",
        ),
        "models": ("catalogue:models", "List the built-in networks."),
        "presets": ("catalogue:presets", "List presets, described machines and memory modes."),
        "settings": (
            "catalogue:settings",
            "List every key of a machine: values, default, unit and meaning.",
        ),
        "schema": ("schema:command", "Print the JSON schema of a TOML file."),
        "support": (
            "catalogue:support",
            "Show which ONNX operators run on the accelerator, and their rules.",
        ),
        "isa": (
            "catalogue:isa",
            "Show the instruction set, including the instructions of installed packages.",
        ),
        "cache": (
            "catalogue:cache",
            "Show the cache of models and hardware, or remove its entries.",
        ),
        "doctor": (
            "catalogue:doctor",
            "Show installed versions and extras, and how to install what is missing.",
        ),
    },
    "Verification": {
        "validate": (
            "validate:command",
            "Compare machine descriptions with published cycles and times.",
        ),
        "golden": ("golden:app", "Record, check, accept and compare golden outputs."),
        "rtl": (
            "rtl:app",
            "Build the machine as hardware, compare it with the simulator, and show its waves.",
        ),
        "new": ("new:app", "Write a package with an operator or an instruction."),
    },
}
"""Commands by name, grouped as in the help of ``dla``.

A value has the command's file in this folder with its name in that file, and the first sentence of
its help. The help of ``dla`` prints these sentences and imports no command.
"""
COMMANDS = {name: place for commands in PANELS.values() for name, (place, _) in commands.items()}


class _CommandList(TyperGroup):
    """Group whose help lists all commands by panel, from :data:`PANELS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for panel, commands in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl([(name, sentence) for name, (_, sentence) in commands.items()])


def get_command(name: str) -> Any:
    """Return the function of a command, or the application of a group of commands."""
    module, _, attribute = COMMANDS[name].partition(":")
    return getattr(import_module(f"experiments.cli.{module}"), attribute)


def application(words: Sequence[str] = ()) -> typer.Typer:
    """Return the application with the command that a command line names first.

    If ``words`` start with an option, the application has no commands. If they start with an
    unknown command, it has all, which the error message needs. When a shell completes a command
    line, the other commands are only names.
    """
    completed = "_DLA_COMPLETE" in os.environ
    if completed:
        shell = os.environ.get("_TYPER_COMPLETE_ARGS", os.environ.get("COMP_WORDS", ""))
        words = shell.split()[1:]
    is_option = bool(words) and words[0].startswith("-") and words[0] != "--"
    wanted = words[:1] if is_option or set(words[:1]) & COMMANDS.keys() else COMMANDS
    app = typer.Typer(
        name="dla",
        cls=_CommandList,
        help="Compile ONNX and TensorFlow Lite networks for a deep-learning accelerator and "
        "simulate every cycle.",
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None if is_option else "rich",
    )
    app.callback()(_options)
    if completed:
        for panel in PANELS.values():
            for name in (name for name in panel if name not in words[:1]):
                app.command(name, help=panel[name][1])(lambda: None)
        wanted = words[:1]
    for name in filter(wanted.__contains__, COMMANDS):
        from experiments.cli.options import limit_command

        found = get_command(name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(limit_command(found))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from experiments.version import tool_version

        say(f"dla {tool_version()}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Accept the options of ``dla`` itself; the application has the help text."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, by default the process's own, and return its exit status.

    0: done. 1: a check found differences. 2: bad input; one line on standard error starts with
    ``error: ``. 3: a bug of dla. 130: interrupted.
    """
    _degrade()
    # pydantic would search all installed distributions for plugins
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        # A command may run others (dla repro repeats a saved command line): obj tells it how.
        return int(application(words)(words, prog_name="dla", standalone_mode=False, obj=main) or 0)
    except InputError as error:
        _fail(str(error))
        for note in getattr(error, "__notes__", ()):
            for line in note.splitlines():
                say(line, file=sys.stderr)
        return BAD_INPUT
    except MemoryError as error:
        return _fail(
            f"the memory is used up ({error or 'no estimate saw it coming'}); give a "
            "lower --max-memory"
        )
    except (BrokenPipeError, SystemExit) as error:
        # the reader closed the pipe (`dla disasm FILE | head`): typer exits with 1
        if getattr(error, "code", 1) != 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE  # else typer answered a shell's request
    except OSError as error:
        if _fault(error):
            return _report_bug(error)
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's errors for wrong commands and options
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "dla"
            # pydantic, with which typer converts values, adds the name of the exception
            said = error.format_message().replace(": Value error, ", ": ")
            return _fail(f"{said or 'no command given'} (see {command} --help)")
        # a bug is neither a difference nor bad input
        return INTERRUPTED if is_interrupted() else _report_bug(error)


def _fail(message: str) -> int:
    line = " ".join(message.split())
    if len(line) > MAXIMUM_LINE:
        line = f"{line[: MAXIMUM_LINE // 2]} ... {line[-MAXIMUM_LINE // 2 :]}"
    say("error: " + line, file=sys.stderr)
    return BAD_INPUT


def _report_bug(error: Exception) -> int:
    """Print where the traceback of a bug is, and where to report the bug.

    The report goes to an installed package if it is at fault, else to dla.
    """
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="dla-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(text.encode(errors="backslashreplace").decode())
        place = f"its traceback is in {file.name}"
    except OSError as reason:
        place = f"its traceback cannot be written ({reason.strerror})"
    fault = _fault(error)
    if fault:
        return _fail(f"{fault}; {place}: correct the package, or uninstall it")
    _fail(
        f"this is a bug of dla itself ({type(error).__name__}); {place}: please report it with "
        "what you ran"
    )
    return INTERNAL_ERROR


def _fault(error: Exception) -> str:
    """Return what :func:`describe_fault` says, or "" if even that fails."""
    from isa.plugins import describe_fault

    with contextlib.suppress(Exception):
        return describe_fault(error)
    return ""


def _degrade() -> None:
    """Make streams print ASCII text in place of characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ASCII)


if __name__ == "__main__":
    sys.exit(main())
