"""Options of records, declared once as a field's :class:`CommandOption`.

The :class:`CommandOption` gives the field's form on command lines. Fields without an option exist
only in Python. The module imports little, because ``dla --help`` reads all options.
"""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from byoc.options import CompileOptions

_KEY = "option"


def spell_value(given: object) -> list[str]:
    """Return a value as the words that give it on a command line.

    Files and names are unchanged; objects in memory are in angle brackets.
    """
    if isinstance(given, str | Path | int | float):
        return [str(given)]
    if hasattr(given, "source"):
        return [f"<package {given.source}>"]
    return [f"<model {given.graph.name or 'model'}>" if hasattr(given, "graph") else "<arrays>"]


@dataclass(frozen=True, eq=False)
class CommandOption:
    """Command-line form of a field: an option called ``word``, or an argument if ``word`` is empty.

    Attributes:
        word: name of the option; a short name may follow it.
        kind: ``str``, ``int``, ``bool``, ``Path``, ``list[str]`` (repeatable), or a tuple of the
            allowed values; None if the command defines the option in its own way.
        metavar: placeholder of the value in the help.
        panel: group of the option in the help.
        least: smallest allowed number.
        completion: name of the words that a shell offers.
        parse: converts the command line's value to the field's value.
        texts: converts the field's value to texts of a command line.
        repeats: True if results depend on the option, so that the command that repeats a run
            contains it.
        ending: usual ending of the file if the option says where a result goes.
        table: type of the option if a file of keys has a table for it.
        settled: why the option does not apply to a model that is already quantised.
    """

    word: str
    help: str
    kind: Any = str
    metavar: str | None = None
    panel: str | None = None
    least: int | None = None
    completion: str = ""
    parse: Callable[[Any], Any] | None = None
    texts: Callable[[Any], list[str]] = spell_value
    repeats: bool = True
    ending: str | None = None
    table: Any = None
    settled: str = ""

    def words(self, value: Any) -> list[str]:
        """Return the command-line words that set this option to ``value``."""
        named = self.word.split()[:1]
        if self.kind is bool:  # a switch such as --model/--no-model
            return [named[0].split("/")[0 if value else -1]]
        return [word for text in self.texts(value) for word in (*named, text)]


def option(word: str, help: str, kind: Any = str, **more: Any) -> dict[str, CommandOption]:
    """Return the metadata of a record's field that is a command-line option."""
    return {_KEY: CommandOption(word, help, kind, **more)}


def specification(help: str, metavar: str, nowhere: str) -> dict[str, CommandOption]:
    """Return the metadata of a record's field that names a specification file.

    ``nowhere`` spells a value that is in no file.
    """

    def spell_file(given: Any) -> list[str]:
        return (
            [str(given)] if isinstance(given, str | Path) else [getattr(given, "source", nowhere)]
        )

    return option("", help, Path, metavar=metavar, texts=spell_file)


def same(record: Any, name: str) -> dict[str, CommandOption]:
    """Return the metadata of a record's field that shares the option of another record."""
    return {_KEY: list_declared(record)[name]}


def list_declared(record: Any) -> dict[str, CommandOption]:
    """Return the command-line options of a record, or of its class, by field name."""
    return {item.name: item.metadata[_KEY] for item in fields(record) if _KEY in item.metadata}


def list_given_options(record: Any) -> Iterator[tuple[str, CommandOption, Any]]:
    """Yield name, option and value of the fields of a record that differ from their default."""
    for item in fields(record):
        value = getattr(record, item.name)
        usual = value is None or (type(value) is type(item.default) and value == item.default)
        if _KEY in item.metadata and not usual:
            yield item.name, item.metadata[_KEY], value


def words_of(record: Any) -> list[str]:
    """Return the command-line words that reproduce a record, arguments first.

    Options at their defaults are omitted.
    """
    given = {
        name: (one, one.words(value))
        for name, one, value in list_given_options(record)
        if one.repeats
    }
    words = [word for one, found in given.values() if not one.word for word in found]
    for item in fields(record):
        value = getattr(record, item.name)
        if isinstance(value, CompileOptions):
            words += value.words
        elif item.name in given and given[item.name][0].word:
            words += given[item.name][1]
    return words


def command_of(name: str, record: Any, function: str = "") -> str:
    """Return the ``dla`` command that repeats a request.

    If a value is in memory, the call of the Python function.

    ``function`` is the name of the Python function if it differs from the name of the command.
    """
    handed = (
        one.texts(value)
        for _, one, value in list_given_options(record)
        if one.kind is Path or not one.word
    )
    in_memory = any(text.startswith("<") for texts in handed for text in texts)
    return shlex.join(
        [*([f"dla.{function or name}"] if in_memory else ["dla", name]), *words_of(record)]
    )
