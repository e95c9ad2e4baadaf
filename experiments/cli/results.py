"""Where results go: a file, or standard output, which then holds nothing else."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from json import dumps
from pathlib import Path
from typing import Any, TextIO

from isa.files import check_distinct, check_writable, write_atomically

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


def check_places(**places: Path | None) -> None:
    """Raises InputError, before any work is done, where results cannot go: two options, named by the keywords, want one
    file, or one cannot be written.
    """
    check_distinct(**places)
    for place in places.values():
        if place is not None and place != STANDARD_OUTPUT:
            check_writable(place)


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


def write_csv(place: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows under the names of their values, in the order of first appearance; nothing without a place for it."""
    if place is None:
        return
    text = io.StringIO()
    table = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write(place, text.getvalue())
