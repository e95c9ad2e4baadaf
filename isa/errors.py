"""Exceptions for bad input, which the command line turns into exit status 2.

All are an :class:`InputError`.
"""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input from the user.

    The message is one line that names the thing, the value and the remedy.

    ``words`` are the positions in the command stream that it concerns; ``line`` is the line of a
    text, from 1.
    """

    def __init__(self, message: str, words: Iterable[int] = (), line: int | None = None) -> None:
        super().__init__(message)
        self.words = tuple(words)
        self.line = line


class DoesNotFitError(InputError):
    """A network or a layer needs more memory than the machine has, in every schedule."""


class MissingExtraError(InputError):
    """A package of an extra is not installed; the message has the command that installs it."""


class PluginError(InputError):
    """A mistake in an installed package of operators or instructions, which the message names."""


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a "did you mean" hint with the known name closest to ``name``, or "".

    The suggestion is the name in ``known`` that is closest to ``name``.
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}? " if close else ""
