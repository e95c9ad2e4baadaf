"""Terminal output: console width, table style, and omission of columns in narrow tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from experiments.literal import literal

PIPED_WIDTH = 140
FOLDED = 10
"""Minimum width of a column that folds, in characters."""


def report_console(columns: int | None = None) -> Console:
    """Return a console on standard output, of at most ``columns`` characters a line.

    If that is not a terminal, it is wide enough for whole rows.
    """
    console = Console(**_LITERAL)
    width = console.width if console.is_terminal else PIPED_WIDTH
    if columns is not None or not console.is_terminal:
        return Console(**_LITERAL, width=min(width, columns or width))
    return console


def print_parts(*parts: Printed | str) -> None:
    """Print tables and texts on standard output, broken at its width."""
    console = report_console()
    for part in parts:
        console.print(part)


def print_lines(*texts: str) -> None:
    """Print each text as one line on standard output, however long it is."""
    console = report_console()
    for text in texts:
        console.print(line(text), soft_wrap=True)


def status_console() -> Console:
    return Console(**_LITERAL, stderr=True)


_LITERAL: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}


def line(text: str, style: str = "") -> Text:
    """Return one line of text from a file, in which special characters are escaped."""
    return Text(literal(text), style)


def wrap_text(text: str, width: int = 80) -> list[str]:
    """Return a text in lines that break only at spaces."""
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def command_lines(commands: Iterable[str], width: int = 80) -> list[str]:
    """Return shell commands, run one after another, in lines that a shell reads as one text."""
    found: list[str] = []
    for command in commands:
        words = (shlex.quote(word).replace(" ", "\0") for word in shlex.split(command))
        kept = re.sub(r"(--\S+) (?!--)", "\\1\0", " ".join(words))  # an option and its value
        first, *rest = wrap_text(kept, width - 7)
        lines = [first, *(f"    {text}" for text in rest)]
        found += [*(f"{text} \\" for text in lines[:-1]), f"{lines[-1]} &&"]
    return [text.replace("\0", " ") for text in "\n".join(found).removesuffix(" &&").split("\n")]


class LiteralTable(Table):
    """Table that shows every character of its texts, without markup."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row to the table; the style of a Text applies to its whole cell."""
        super().add_row(*(map(_cell, cells)), **options)


def _cell(cell: Any) -> Any:
    if isinstance(cell, Text):
        return line(cell.plain, str(cell.style))
    return line(cell) if isinstance(cell, str) else cell


class Column(NamedTuple):
    """Column of a table: ``how`` is left, right, or "fold" if long text takes several lines.

    If the table is too wide, columns of the highest ``rank`` are omitted first; columns of rank 0
    always stay.
    """

    heading: str
    how: str
    rank: int = 0


class ReportTable:
    """Table of texts, laid out for the width of the console that prints it.

    The table never cuts off a figure and never loses a name. If it is too wide, it takes these
    steps: columns that fold become narrower, down to :data:`FOLDED` characters; headings take a
    line per word; columns are omitted by rank, and a line below the table names them. If it is
    still too wide, the text of every cell takes several lines.
    """

    def __init__(self, columns: tuple[Column, ...], title: str = "") -> None:
        self.columns = columns
        self.title = title
        self.rows: list[tuple[str, ...]] = []
        self._sections: list[int] = []

    def add_row(self, *cells: str) -> None:
        """Add a row to the table, a cell per column; missing cells at the end are empty."""
        self.rows.append((*cells, *[""] * (len(self.columns) - len(cells))))

    def add_section(self) -> None:
        """Separate the table rows that follow from the rows before."""
        self._sections.append(len(self.rows))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(range(len(self.columns)))
        stacked = not self._can_fit(shown, stacked=False, width=options.max_width)
        while not self._can_fit(shown, stacked, options.max_width):
            dearest = max(shown, key=lambda place: (self.columns[place].rank, place))
            if not self.columns[dearest].rank:
                break
            shown.remove(dearest)
        yield self._table(shown, stacked, self._can_fit(shown, stacked, options.max_width))
        missing = [
            column.heading for place, column in enumerate(self.columns) if place not in shown
        ]
        if missing:
            yield line(f"no room for: {', '.join(missing)}")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        whole = self._table(list(range(len(self.columns))), stacked=False, fits=True)
        return Measurement(1, Measurement.get(console, options, whole).maximum)

    def _can_fit(self, shown: list[int], stacked: bool, width: int) -> bool:
        """Return whether the table columns ``shown`` fit in ``width`` characters.

        Between columns are 2 characters, and 1 at either end.
        """
        return sum(self._least(place, stacked) for place in shown) + 2 * len(shown) <= width

    def _least(self, place: int, stacked: bool) -> int:
        """Return the minimum width of a table column, in characters."""
        column = self.columns[place]
        heading = _stack_words(column.heading) if stacked else column.heading
        texts = [*heading.split("\n"), *(row[place] for row in self.rows)]
        longest = max(cell_len(literal(text)) for text in texts)
        return min(longest, FOLDED) if column.how == "fold" else longest

    def _table(self, shown: list[int], stacked: bool, fits: bool) -> LiteralTable:
        table = LiteralTable(
            box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left"
        )
        table.title = line(self.title) if self.title else None
        for place in shown:
            heading, how, _ = self.columns[place]
            title = (
                Text("\n").join(map(line, _stack_words(heading).split("\n")))
                if stacked
                else line(heading)
            )
            folds = how == "fold" or not fits
            table.add_column(
                title,
                justify="right" if how == "right" else "left",
                overflow="fold" if folds else "ellipsis",
                no_wrap=not folds,
                min_width=self._least(place, stacked) if fits else None,
            )
        for number, row in enumerate(self.rows):
            if number in self._sections:
                table.add_section()
            table.add_row(*(row[place] for place in shown))
        return table


Printed = ReportTable | LiteralTable | Text
"""Output of a console: a table, or a line."""


def _stack_words(heading: str) -> str:
    """Return a column heading with one word per line."""
    return heading.replace(" ", "\n")


def plain_table(
    *columns: tuple[str, str] | tuple[str, str, int],
    title: str = "",
    rows: Iterable[Sequence[str]] = (),
) -> ReportTable:
    """Return a table of ``columns``, each a :class:`Column` or its parts, with the given rows."""
    table = ReportTable(tuple(Column(*column) for column in columns), title)
    for row in rows:
        table.add_row(*row)
    return table
