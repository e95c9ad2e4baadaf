"""Options of records, declared once: what a field's :class:`Option` says is its place on command lines and its words.

Fields without one are for Python alone. Light, as ``dla --help`` reads all of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from byoc.options import CompileOptions

_KEY = "option"


def spelled(given: object) -> list[str]:
    """What is given as a word of a command: files and names as they are, what is in memory in angle brackets."""
    if isinstance(given, str | Path | int):
        return [str(given)]
    if hasattr(given, "source"):
        return [f"<package {given.source}>"]
    return [f"<model {given.graph.name or 'model'}>" if hasattr(given, "graph") else "<arrays>"]


@dataclass(frozen=True, eq=False)
class Option:
    """How a command line has a field: as ``word`` with a value of ``kind``, or as an argument where there is no word.

    A short word may stand behind ``word``. ``kind`` is ``str``, ``int``, ``bool``, ``Path``, ``list[str]`` (may be
    repeated), or a tuple of the values there are; None where the command has it in its own way. ``parse`` makes the
    field's value of that, ``texts`` of the value the texts that are written; ``least`` is the least number, ``panel``
    and ``metavar`` are for the help; ``completion`` names what a shell is offered. ``repeats``: the command that
    repeats a run has it, as results depend on it. ``ending``: it says where a result goes, in files that
    end so. ``table``: the type where a file of keys has a table of it. ``settled``: why a model that comes quantised
    has no use for it. ``former``: the name that Python had for it before; it works for one version, with a warning.
    """

    word: str
    help: str
    kind: Any = str
    metavar: str | None = None
    panel: str | None = None
    least: int | None = None
    completion: str = ""
    parse: Callable[[Any], Any] | None = None
    texts: Callable[[Any], list[str]] = spelled
    repeats: bool = True
    ending: str | None = None
    table: Any = None
    settled: str = ""
    former: str = ""

    def words(self, value: Any) -> list[str]:
        """The words of a command line that give ``value``."""
        named = self.word.split()[:1]
        return named if self.kind is bool else [word for text in self.texts(value) for word in (*named, text)]


def option(word: str, help: str, kind: Any = str, **more: Any) -> dict[str, Option]:
    """The metadata of a field that command lines have as well: an :class:`Option`."""
    return {_KEY: Option(word, help, kind, **more)}


def specification(help: str, metavar: str, nowhere: str) -> dict[str, Option]:
    """The metadata of an argument that is a file of keys; ``nowhere`` spells what is in none."""

    def spelled(given: Any) -> list[str]:
        return [str(given)] if isinstance(given, str | Path) else [getattr(given, "source", nowhere)]

    return option("", help, Path, metavar=metavar, texts=spelled)


def same(record: Any, name: str) -> dict[str, Option]:
    """The metadata of a field that is the same option as one of another record."""
    return {_KEY: declared(record)[name]}


def declared(record: Any) -> dict[str, Option]:
    """The options of a record, or of its class, by the names of their fields."""
    return {item.name: item.metadata[_KEY] for item in fields(record) if _KEY in item.metadata}


def given_options(record: Any) -> Iterator[tuple[str, Option, Any]]:
    """Name, option and value of the fields of a record that have another value than their default."""
    for item in fields(record):
        value = getattr(record, item.name)
        usual = value is None or (type(value) is type(item.default) and value == item.default)
        if _KEY in item.metadata and not usual:
            yield item.name, item.metadata[_KEY], value


def words_of(record: Any) -> list[str]:
    """The words of a command line that give a record, arguments first; options at their defaults are left out."""
    given = {name: (one, one.words(value)) for name, one, value in given_options(record) if one.repeats}
    words = [word for one, found in given.values() if not one.word for word in found]
    for item in fields(record):
        value = getattr(record, item.name)
        if isinstance(value, CompileOptions):
            words += value.words
        elif item.name in given and given[item.name][0].word:
            words += given[item.name][1]
    return words


def command_of(name: str, record: Any, function: str = "") -> str:
    """The ``dla`` command that repeats what a record asks for; of what is in no file the function in Python.

    Function and command have one name unless another ``function`` is said.
    """
    handed = (one.texts(value) for _, one, value in given_options(record) if one.kind is Path or not one.word)
    in_memory = any(text.startswith("<") for texts in handed for text in texts)
    return shlex.join([*([f"dla.{function or name}"] if in_memory else ["dla", name]), *words_of(record)])
