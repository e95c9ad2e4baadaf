"""Texts from files as they are printed and as they stand on pages: what a terminal or HTML would obey is an escape."""

from __future__ import annotations

import codecs
import sys
import unicodedata
from html import escape
from typing import Any, TextIO

ASCII = "dla-ascii"
"""Name of the way to encode that shows what an encoding lacks by ASCII characters: ``->`` for an arrow."""
_STANDINS = {
    "→": "->", "←": "<-", "×": "x", "·": "*", "≥": ">=", "≤": "<=", "≠": "!=", "−": "-", "–": "-", "—": "-",
    "…": "...", "⌈": "ceil(", "⌊": "floor(", "⌉": ")", "⌋": ")", "µ": "u", "μ": "u", "²": "^2", "³": "^3", "±": "+-",
    "Σ": "sum ", "√": "sqrt ", "∞": "inf", "•": "*", "✓": "yes", "“": '"', "”": '"', "‘": "'", "’": "'", "°": " deg",
    "π": "pi", "⊗": "(x)", "─": "-", "━": "-", "│": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "╴": "-",
    "╸": "-", "╺": "-",
}  # fmt: skip


def literal(text: str) -> str:
    """``text`` on one line and in its own order, whatever is in it: a line feed becomes ``\\n``, an escape ``\\x1b``.

    So do marks that change the direction of writing, spaces that look like others, and halves of characters.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def escaped(text: str) -> str:
    """``text`` as plotly.js shows it unchanged: it knows a few elements of HTML, but no quotation marks as entities."""
    return escape(text, quote=False)


def neutral(value: Any) -> Any:
    """A value for a cell of CSV: a text that a spreadsheet would compute has an apostrophe before it; a number none."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """The characters that could not be encoded, in ASCII: as above, without accents, else as escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(map(_standin, lacking)), error.end


def _standin(one: str) -> str:
    plain = _STANDINS.get(one) or unicodedata.normalize("NFKD", one).encode("ascii", "ignore").decode()
    return plain or one.encode("ascii", "backslashreplace").decode()


codecs.register_error(ASCII, _in_ascii)


def say(text: str, file: TextIO | None = None) -> None:
    """Print one line of whatever a file, an option or an error says, to standard output unless ``file`` is another."""
    print(literal(text), file=file or sys.stdout)
