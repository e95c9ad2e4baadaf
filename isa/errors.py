"""The one exception for bad input, understood by every floor and turned into exit status 2 by the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input from the user: the message is one clear line that names the thing, the value and the remedy.

    ``words`` are the places in the command stream that it is about, ``line`` is the line of a text, counted from 1.
    """

    def __init__(self, message: str, words: Iterable[int] = (), line: int | None = None) -> None:
        super().__init__(message)
        self.words = tuple(words)
        self.line = line


def meant(name: str, known: Iterable[str]) -> str:
    """``"did you mean sram_bytes? "``: the one of ``known`` that is most like ``name``; nothing where none is."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}? " if close else ""
