"""Texts from files as they are printed: every character that a terminal would obey, or not show, is an escape."""

from __future__ import annotations

import sys
from typing import TextIO


def literal(text: str) -> str:
    """``text`` on one line and in its own order, whatever is in it: a line feed becomes ``\\n``, an escape ``\\x1b``.

    So do marks that change the direction of writing, spaces that look like others, and halves of characters.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def say(text: str, file: TextIO | None = None) -> None:
    """Print one line of whatever a file, an option or an error says, to standard output unless ``file`` is another."""
    print(literal(text), file=file or sys.stdout)
