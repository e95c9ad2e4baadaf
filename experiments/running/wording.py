"""Errors of the Python interface: they name keywords, where commands name options."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, wraps
from typing import Any, NamedTuple

from byoc.options import OPTIONS
from experiments.running.declared import list_declared
from experiments.running.given import RunRequest
from isa.errors import InputError, PluginError
from isa.memory import VARIABLE
from isa.plugins import describe_fault
from isa.typed import check_if_function
from isa.variants import VARIANTS

_OPTION = re.compile(r"'dla [^']*'|(?<![\w-])--([a-z][a-z-]*)(?:( )([^\s;]*[^\s;:,.)]))?")
"""A quoted command, or an option and the word after it."""


class Keyword(NamedTuple):
    """Keyword of a Python function that replaces an option of a command.

    ``values`` are words that the option takes; ``state`` is the value that a switch sets.
    ``parse`` converts words NAME=VALUE.
    """

    name: str
    values: tuple[Any, ...] = ()
    state: bool | None = None
    parse: Callable[[Iterable[str]], Any] | None = None

    def spell(self, space: str, word: str) -> str:
        """Return the keyword with its value, if the next word of the message is one."""
        if self.parse is not None and "=" in word:
            with suppress(InputError):
                return f"{self.name}={self.parse([word])}"
            key, _, value = word.partition("=")  # a placeholder, as in --fix NAME=VALUE
            return f"{self.name}={{{key!r}: {value}}}"
        if word in self.values:
            return f"{self.name}={word!r}"
        state = "" if self.state is None else f"={self.state}"
        return f"{self.name}{state}{space}{word}"


def to_python(message: str, record: Any) -> str:
    """Return a message in which the keywords of ``record`` replace the options of the command.

    Quoted commands stay as they are.
    """

    def replace(found: re.Match[str]) -> str:
        option, space, word = found.groups(default="")
        known = _list_keywords(record).get(option) if option else None
        return found[0] if known is None else known.spell(space, word)

    return _OPTION.sub(replace, message)


@cache
def _list_keywords(record: Any) -> Mapping[str, Keyword]:
    """Return the keywords of a request and of the compiler's options, by option."""
    found = {
        "max-memory": Keyword(VARIABLE),
        "pins": Keyword("chosen"),
        "tuned": Keyword("options"),
    }
    for choice in OPTIONS:
        values = () if choice.switch else choice.values
        found[choice.word] = Keyword(choice.name, values, True if choice.switch else None)
    for name, one in list_declared(record).items():
        values = one.kind if isinstance(one.kind, tuple) else ()
        parse = one.parse if one.table is not None else None
        for number, option in enumerate(one.word.split(" ")[0].split("/")):
            state = number == 0 if one.kind is bool else None
            found[option.removeprefix("--")] = Keyword(name, values, state, parse)
    found["set"] = Keyword("settings", parse=lambda texts: dict(t.split("=", 1) for t in texts))
    found["isa"] = Keyword("isa", tuple(VARIANTS))
    return found


@contextmanager
def speak_python(record: Any) -> Iterator[None]:
    """Raise errors of the block in the words of Python.

    Messages name keywords of ``record``. An exception in the code of an installed package becomes a
    :class:`PluginError`.
    """
    try:
        yield
    except InputError as error:
        error.args = (to_python(str(error), record), *error.args[1:])
        raise
    except Exception as error:
        fault = describe_fault(error)
        if not fault:
            raise
        raise PluginError(f"{fault}; correct the package, or uninstall it") from error


def present(found: Any) -> Any:
    """Return a plain function with checks of its arguments and with errors in Python's words.

    Other objects are returned unchanged.
    """
    checked = check_if_function(found)
    if checked is found:
        return found

    @wraps(checked)
    def call(*positional: Any, **named: Any) -> Any:
        with speak_python(RunRequest):
            return checked(*positional, **named)

    return call
