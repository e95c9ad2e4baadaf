"""Destinations of results: a file, or standard output without any other text.

Never the file of an input.
"""

import csv
import inspect
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, TextIO

from experiments.literal import neutral, say
from isa.files import check_distinct, check_writable, protect_files, write_atomically

STANDARD_OUTPUT = Path("-")
"""Name that stands for standard output."""
RESULTS = ("json", "csv")
"""Options that name the destination of a result."""
_output: ContextVar[TextIO | None] = ContextVar("output", default=None)


@contextmanager
def reserve_output(given: Mapping[str, Any]) -> Iterator[None]:
    """Discard printed text in the block if a result goes to standard output.

    An option of ``given`` sends the result there.
    """
    if STANDARD_OUTPUT not in (given.get(name) for name in RESULTS):
        yield
        return
    token = _output.set(sys.stdout)
    try:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            yield
    finally:
        _output.reset(token)


@dataclass(frozen=True)
class Destination:
    """Marker of a command-line option that names an output file or folder.

    ``ending`` is the usual ending of its files, such as ``.json``.
    """

    ending: str = ""
    folder: bool = False


@contextmanager
def check_destinations(command: inspect.Signature, given: Mapping[str, Any]) -> Iterator[None]:
    """Check the destinations of results, and protect the input files within the block.

    Inputs are the files that an option or argument of ``command`` without a :class:`Destination`
    names. Raises InputError, before any work is done, if two options name one file, a file cannot
    be written, or a file must not be replaced.
    """
    places = {
        name: kind
        for name, part in command.parameters.items()
        if (kind := _place(part)) is not None
    }
    files = [path for name, value in given.items() if name not in places for path in _files(value)]
    wanted = {
        name: path
        for name, kind in places.items()
        if isinstance(path := given.get(name), Path) and not kind.folder
    }
    with protect_files(files):
        check_distinct(**{_word(command.parameters[name]): path for name, path in wanted.items()})
        for name, path in wanted.items():
            if path != STANDARD_OUTPUT:
                check_writable(path, places[name].ending)
        yield


def _place(part: inspect.Parameter) -> Destination | None:
    return next(
        (
            mark
            for mark in getattr(part.annotation, "__metadata__", ())
            if isinstance(mark, Destination)
        ),
        None,
    )


def _word(part: inspect.Parameter) -> str:
    """Return the command-line name of the option that a function parameter represents.

    Typer stores the first name as the default of the annotation.
    """
    words = (
        getattr(mark, "default", None) for mark in getattr(part.annotation, "__metadata__", ())
    )
    return next((word.removeprefix("--") for word in words if isinstance(word, str)), part.name)


def _files(value: Any) -> Iterator[Path]:
    """Yield the files that the value of an option may name, directly or as NAME=FILE."""
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, Path | str):
            for text in (str(one), str(one).partition("=")[2]):
                with suppress(OSError, ValueError):  # too long for a name, or with a null character
                    if text and Path(text).is_file():
                        yield Path(text)


def write(place: Path | None, text: str) -> None:
    """Write the text of a result to a file or to standard output, or nowhere without a place.

    Standard output gets the same bytes as a file, regardless of the terminal's encoding.
    """
    stream = _output.get()
    if place is None:
        return
    if place != STANDARD_OUTPUT or stream is None:
        write_atomically(place, text)
    elif hasattr(stream, "buffer"):
        stream.flush()
        stream.buffer.write(text.encode())
        stream.buffer.flush()
    else:
        stream.write(text)


def report_difference(message: str) -> int:
    """Print a difference from the expected results on standard error; return the exit status."""
    say(f"difference: {message}", file=sys.stderr)
    return 1


def write_text(place: Path | None, text: str) -> None:
    """Write a text to a file and say how many lines it has, or print it if there is no file."""
    if place is None:
        print(text, end="")
    else:
        write_atomically(place, text)
        say(f"{place}: {text.count(chr(10))} lines")


def write_json(place: Path | None, content: Any) -> None:
    """Write content as JSON to a destination; do nothing if there is no destination."""
    if place is not None:
        write(place, dumps(content, indent=1) + "\n")


def write_tables(
    json: Path | None, csv: Path | None, content: Any, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Write a result as JSON and its table as CSV to the destinations that are given."""
    write_json(json, content)
    write_csv(csv, rows)


def write_csv(place: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write table rows as a CSV file, with columns in order of first appearance.

    Do nothing without a destination.
    """
    if place is None:
        return
    text = io.StringIO()
    table = csv.DictWriter(
        text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n"
    )
    table.writeheader()
    table.writerows({name: neutral(value) for name, value in row.items()} for row in rows)
    write(place, text.getvalue())
