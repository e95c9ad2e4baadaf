"""The ``dla`` command, which turns every bad input into one line and exit status 2.

Only the command that is called is imported, or all commands for the help. Each command imports what
it needs when it runs, so that ``dla --help`` answers at once.
"""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from experiments.cli import options
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
        "run": "run:command",
        "generate": "generate:command",
        "partition": "compile:partition",
        "compile": "compile:compile",
        "emit": "compile:emit",
        "export": "export:command",
        "simulate": "program:simulate",
        "asm": "program:asm",
        "disasm": "program:disasm",
        "report": "report:command",
        "runs": "runs:runs",
        "serve": "runs:serve",
    },
    "Machines and schedules": {
        "sweep": "sweep:sweep",
        "explore": "sweep:explore",
        "advise": "advise:command",
        "tune": "tune:command",
        "explain": "tune:explain",
        "system": "system:command",
        "split": "system:split",
        "repro": "repro:command",
    },
    "Information": {
        "help": "catalogue:explain_word",
        "models": "catalogue:models",
        "presets": "catalogue:presets",
        "settings": "catalogue:settings",
        "schema": "schema:command",
        "support": "catalogue:support",
        "isa": "catalogue:isa",
        "cache": "catalogue:cache",
        "doctor": "catalogue:doctor",
    },
    "Verification": {
        "validate": "validate:command",
        "golden": "golden:app",
        "rtl": "rtl:app",
        "new": "new:app",
    },
}
"""Commands by name, grouped as in the help.

A value has the command's file in this folder, and its name in that file.
"""
COMMANDS = {name: place for commands in PANELS.values() for name, place in commands.items()}


def get_command(name: str) -> Any:
    """Return the function of a command, or the application of a group of commands."""
    module, _, attribute = COMMANDS[name].partition(":")
    return getattr(import_module(f"experiments.cli.{module}"), attribute)


def application(words: Sequence[str] = ()) -> typer.Typer:
    """Return the application with the command that a command line names first.

    If ``words`` start with no known command, the application has all commands. The help needs them,
    and the error message after an unknown name.
    """
    app = typer.Typer(
        name="dla",
        help="Compile ONNX and TensorFlow Lite networks for a deep-learning accelerator and "
        "simulate every cycle.",
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_options)
    wanted = [*words[:1]] if words and words[0] in COMMANDS else COMMANDS
    for panel, commands in PANELS.items():
        for name in commands:
            if name not in wanted:
                continue
            found = get_command(name)
            if isinstance(found, typer.Typer):
                app.add_typer(found, name=name, rich_help_panel=panel)
            else:
                app.command(name, rich_help_panel=panel)(options.limit_command(found))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"dla {version('dla-byoc-simulator')}")
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
