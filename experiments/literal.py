"""Text from files, made safe for terminals, HTML pages and CSV files.

Control characters become escapes.
"""

import codecs
import sys
import unicodedata
from html import escape
from typing import Any, TextIO

ASCII = "dla-ascii"
"""Name of the encoding error handler that replaces characters by ASCII text, such as ``->`` for
an arrow.
"""
_STANDINS = {
    "→": "->", "←": "<-", "×": "x", "·": "*", "≥": ">=", "≤": "<=", "≠": "!=", "−": "-", "–": "-",
    "—": "-",
    "…": "...", "⌈": "ceil(", "⌊": "floor(", "⌉": ")", "⌋": ")", "µ": "u", "μ": "u", "²": "^2",
    "³": "^3", "±": "+-",
    "Σ": "sum ", "√": "sqrt ", "∞": "inf", "•": "*", "✓": "yes", "“": '"', "”": '"', "‘": "'",
    "’": "'", "°": " deg",
    "π": "pi", "⊗": "(x)", "─": "-", "━": "-", "│": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+",
    "╴": "-",
    "╸": "-", "╺": "-",
}  # fmt: skip


def literal(text: str) -> str:
    """Escape ``text`` so that it prints on one line, in its own order.

    A line feed becomes ``\\n``, an escape character ``\\x1b``. Marks that change the direction of
    writing, spaces that look like other spaces, and lone surrogates are escaped too.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def escape_html(text: str) -> str:
    """Return ``text`` escaped for HTML, except for its quotation marks.

    Quotation marks stay, because plotly.js does not decode their entities.
    """
    return escape(text, quote=False)


def neutral(value: Any) -> Any:
    """Make a value safe for a CSV cell that a spreadsheet opens.

    Text that a spreadsheet would compute as a formula gets a leading apostrophe.

    Text that is a number, such as ``-5``, stays unchanged.
    """
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an output's encoding lacks by ASCII text.

    The replacement is their stand-in, their letter without accent, or an escape.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(map(_standin, lacking)), error.end


def _standin(one: str) -> str:
    plain = (
        _STANDINS.get(one) or unicodedata.normalize("NFKD", one).encode("ascii", "ignore").decode()
    )
    return plain or one.encode("ascii", "backslashreplace").decode()


codecs.register_error(ASCII, _to_ascii)


def say(text: str, file: TextIO | None = None) -> None:
    """Print text from a file, an option or an error on one line.

    It goes to standard output unless ``file`` is given.
    """
    print(literal(text), file=file or sys.stdout)
