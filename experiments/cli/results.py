"""Where results go: a file, or standard output, which then holds nothing else; never in the place of an input."""

from __future__ import annotations

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

from experiments.literal import neutral
from isa.files import check_distinct, check_writable, protecting, write_atomically

STANDARD_OUTPUT = Path("-")
"""In place of a file."""
RESULTS = ("json", "csv")
"""Options that name where a result goes."""
_output: ContextVar[TextIO | None] = ContextVar("output", default=None)


@contextmanager
def reserved(given: Mapping[str, Any]) -> Iterator[None]:
    """Within, what a command prints for people goes nowhere if the options ``given`` want a result instead."""
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
class Place:
    """Marks an option that says where a result goes, and what files with it are usually called, such as ``.json``."""

    ending: str = ""
    folder: bool = False


@contextmanager
def placed(command: inspect.Signature, given: Mapping[str, Any]) -> Iterator[None]:
    """Within, no result replaces a file that an option or argument of ``command`` names and that is no :class:`Place`.

    Raises InputError, before any work is done, where results cannot go: two options want one file, one cannot be
    written, or it holds what must not be replaced.
    """
    places = {name: kind for name, part in command.parameters.items() if (kind := _place(part)) is not None}
    files = [path for name, value in given.items() if name not in places for path in _files(value)]
    wanted = {
        name: path for name, kind in places.items() if isinstance(path := given.get(name), Path) and not kind.folder
    }
    with protecting(files):
        check_distinct(**{_word(command.parameters[name]): path for name, path in wanted.items()})
        for name, path in wanted.items():
            if path != STANDARD_OUTPUT:
                check_writable(path, places[name].ending)
        yield


def _place(part: inspect.Parameter) -> Place | None:
    return next((mark for mark in getattr(part.annotation, "__metadata__", ()) if isinstance(mark, Place)), None)


def _word(part: inspect.Parameter) -> str:
    """What an option is called on command lines: Typer has the first of its words as the default of a mark."""
    words = (getattr(mark, "default", None) for mark in getattr(part.annotation, "__metadata__", ()))
    return next((word.removeprefix("--") for word in words if isinstance(word, str)), part.name)


def _files(value: Any) -> Iterator[Path]:
    """The files that the value of an option may name, as it stands or as NAME=FILE."""
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, Path | str):
            for text in (str(one), str(one).partition("=")[2]):
                with suppress(OSError, ValueError):  # too long for a name, or with a null character
                    if text and Path(text).is_file():
                        yield Path(text)


def write(place: Path, text: str) -> None:
    """Write a result: the same bytes to standard output as to a file, whatever the encoding of the terminal."""
    stream = _output.get()
    if place != STANDARD_OUTPUT or stream is None:
        write_atomically(place, text)
    elif hasattr(stream, "buffer"):
        stream.flush()
        stream.buffer.write(text.encode())
        stream.buffer.flush()
    else:
        stream.write(text)


def write_json(place: Path | None, content: Any) -> None:
    """Write what JSON can hold; nothing where there is no place for it."""
    if place is not None:
        write(place, dumps(content, indent=1) + "\n")


def write_tables(json: Path | None, csv: Path | None, content: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a result as JSON and its table as CSV, each where it has a place."""
    write_json(json, content)
    write_csv(csv, rows)


def write_csv(place: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows under the names of their values, in the order of first appearance; nothing without a place for it."""
    if place is None:
        return
    text = io.StringIO()
    table = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    table.writeheader()
    table.writerows({name: neutral(value) for name, value in row.items()} for row in rows)
    write(place, text.getvalue())
