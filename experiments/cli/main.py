"""The ``dla`` command: collects the commands and turns every bad input into one line and exit status 2.

Of the commands only the one that is called is imported, all of them where their help is asked for; each imports what it
needs when it runs, so that ``dla --help`` answers at once.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.interruption import interrupted
from experiments.literal import ASCII, say
from experiments.version import HOME, other_checkout
from isa.errors import InputError

MAXIMUM_LINE = 2000
"""Characters of a message."""
DONE, DIFFERENT, BAD_INPUT, INTERNAL_ERROR, INTERRUPTED = 0, 1, 2, 3, 130

PANELS = {
    "Networks": {
        "run": "run:command",
        "partition": "compile:partition",
        "compile": "compile:compile",
        "emit": "compile:emit",
        "simulate": "program:simulate",
        "asm": "program:asm",
        "disasm": "program:disasm",
        "report": "report:command",
    },
    "Many machines, many schedules": {
        "sweep": "sweep:sweep",
        "explore": "sweep:explore",
        "advise": "advise:command",
        "tune": "tune:command",
        "explain": "tune:explain",
        "system": "system:command",
        "split": "system:split",
        "repro": "repro:command",
    },
    "What there is": {
        "models": "catalogue:models",
        "presets": "catalogue:presets",
        "settings": "catalogue:settings",
        "support": "catalogue:support",
        "isa": "catalogue:isa",
        "cache": "catalogue:cache",
        "doctor": "catalogue:doctor",
    },
    "Proof": {
        "golden": "golden:app",
        "rtl": "rtl:app",
    },
}
"""The commands by name, as the help groups them: in which file of this folder, and under which name there."""
COMMANDS = {name: place for commands in PANELS.values() for name, place in commands.items()}


def command_called(name: str) -> Any:
    """The function that a command is, or the application that a group of commands is."""
    module, _, attribute = COMMANDS[name].partition(":")
    return getattr(import_module(f"experiments.cli.{module}"), attribute)


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The command that a command line names first; where it names none, for its help or by a slip, all of them."""
    app = typer.Typer(
        name="dla",
        help="Compile ONNX networks for a deep-learning accelerator and simulate it, exact to the bit and the cycle.",
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
            found = command_called(name)
            if isinstance(found, typer.Typer):
                app.add_typer(found, name=name, rich_help_panel=panel)
            else:
                app.command(name, rich_help_panel=panel)(options.limited(found))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"dla {version('dla-byoc-simulator')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of ``dla`` itself; the docstring of the application is its help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit status.

    0 done, 1 a check found differences, 2 bad input: one line on standard error that starts with ``error: ``.
    """
    _degrade()
    _say_which_copy()
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        # A command may run others (dla repro repeats a saved one): it finds how in its context.
        return int(application(words)(words, prog_name="dla", standalone_mode=False, obj=main) or 0)
    except InputError as error:
        return _fail(str(error))
    except MemoryError as error:
        return _fail(f"the memory is used up ({error or 'no estimate saw it coming'}); give a lower --max-memory")
    except (BrokenPipeError, SystemExit) as error:
        if getattr(error, "code", 1) != 0:  # our reader went away, as in `dla disasm FILE | head`: typer exits with 1
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE  # else typer told a shell what it asked
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's errors in the use of commands and options
            context = getattr(error, "ctx", None)
            return _fail(f"{error.format_message()} (see {context.command_path if context else 'dla'} --help)")
        return INTERRUPTED if interrupted() else _report_bug(error)  # neither a difference nor bad input


def _fail(message: str) -> int:
    line = " ".join(message.split())
    if len(line) > MAXIMUM_LINE:
        line = f"{line[: MAXIMUM_LINE // 2]} ... {line[-MAXIMUM_LINE // 2 :]}"
    say("error: " + line, file=sys.stderr)
    return BAD_INPUT


def _report_bug(error: Exception) -> int:
    """Print one line that names the traceback's file and where to report it: an installed package at fault, or dla."""
    import tempfile
    import traceback

    from isa.plugins import package_at_fault

    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="dla-bug-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(text.encode(errors="backslashreplace").decode())
        place = f"its traceback is in {file.name}"
    except OSError as reason:
        place = f"its traceback cannot be written ({reason.strerror})"
    package = ""
    with contextlib.suppress(Exception):
        package = package_at_fault(error)
    if package:
        what = f"{type(error).__name__}: {error}"
        return _fail(f"{package} makes dla end with {what:.200}; {place}: correct the package, or uninstall it")
    _fail(f"this is a bug of dla itself ({type(error).__name__}); {place}: please report it with what you ran")
    return INTERNAL_ERROR


def _say_which_copy() -> None:
    """Where somebody is in a checkout, and something else runs than what is edited there."""
    with contextlib.suppress(OSError):
        there = other_checkout(Path.cwd())
        if there is not None:
            say(f"note: {there} is a checkout, but {HOME} runs; pip install -e there makes it run", file=sys.stderr)


def _degrade() -> None:
    """Where a stream's encoding lacks a character, it shows what stands for it in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ASCII)


if __name__ == "__main__":
    sys.exit(main())
