"""The terminal: how wide it is, how every table on it looks, and what a table leaves out where it is narrow."""

from __future__ import annotations

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
"""Characters a line that a column which folds keeps at least."""


def report_console() -> Console:
    """A console on standard output; wide enough for whole rows where it is no terminal."""
    console = Console(**_LITERAL)
    return console if console.is_terminal else Console(**_LITERAL, width=PIPED_WIDTH)


def status_console() -> Console:
    return Console(**_LITERAL, stderr=True)


_LITERAL: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}


def line(text: str, style: str = "") -> Text:
    """One line of whatever a file says, character by character."""
    return Text(literal(text), style)


class LiteralTable(Table):
    """A table whose texts show as they are, every character of them."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """As of any table; of a Text with a style all of it has that style."""
        super().add_row(*(map(_cell, cells)), **options)


def _cell(cell: Any) -> Any:
    if isinstance(cell, Text):
        return line(cell.plain, str(cell.style))
    return line(cell) if isinstance(cell, str) else cell


class Column(NamedTuple):
    """A column: ``how`` is left, right, or "fold" where long text takes several lines.

    Where there is no room, the columns of the highest ``rank`` are left out first, those of rank 0 never.
    """

    heading: str
    how: str
    rank: int = 0


class ReportTable:
    """Rows of texts, laid out for the width of the console that prints them.

    A figure is never cut and a name never lost. Where the whole is too wide, columns that fold do so down to
    :data:`FOLDED` characters, then headings take a line a word, then columns are left out by their rank, which a
    line below the table says; what is too wide even so takes several lines in every cell.
    """

    def __init__(self, columns: tuple[Column, ...], title: str = "") -> None:
        self.columns = columns
        self.title = title
        self.rows: list[tuple[str, ...]] = []
        self._sections: list[int] = []

    def add_row(self, *cells: str) -> None:
        """One row, a cell a column; trailing ones that are missing are empty."""
        self.rows.append((*cells, *[""] * (len(self.columns) - len(cells))))

    def add_section(self) -> None:
        """Sets the rows from here on apart."""
        self._sections.append(len(self.rows))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(range(len(self.columns)))
        stacked = not self._fits(shown, stacked=False, width=options.max_width)
        while not self._fits(shown, stacked, options.max_width):
            dearest = max(shown, key=lambda place: (self.columns[place].rank, place))
            if not self.columns[dearest].rank:
                break
            shown.remove(dearest)
        yield self._table(shown, stacked, self._fits(shown, stacked, options.max_width))
        missing = [column.heading for place, column in enumerate(self.columns) if place not in shown]
        if missing:
            yield line(f"no room for: {', '.join(missing)}")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        whole = self._table(list(range(len(self.columns))), stacked=False, fits=True)
        return Measurement(1, Measurement.get(console, options, whole).maximum)

    def _fits(self, shown: list[int], stacked: bool, width: int) -> bool:
        """Whether the columns ``shown`` can stand in ``width`` characters: 2 between columns and 1 at either end."""
        return sum(self._least(place, stacked) for place in shown) + 2 * len(shown) <= width

    def _least(self, place: int, stacked: bool) -> int:
        """Characters a line that a column needs at least."""
        column = self.columns[place]
        heading = _stacked(column.heading) if stacked else column.heading
        texts = [*heading.split("\n"), *(row[place] for row in self.rows)]
        longest = max(cell_len(literal(text)) for text in texts)
        return min(longest, FOLDED) if column.how == "fold" else longest

    def _table(self, shown: list[int], stacked: bool, fits: bool) -> LiteralTable:
        table = LiteralTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left")
        table.title = line(self.title) if self.title else None
        for place in shown:
            heading, how, _ = self.columns[place]
            title = Text("\n").join(map(line, _stacked(heading).split("\n"))) if stacked else line(heading)
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
"""What is printed: a table, or a line."""


def _stacked(heading: str) -> str:
    """A heading with a word a line."""
    return heading.replace(" ", "\n")


def plain_table(*columns: tuple[str, str] | tuple[str, str, int], title: str = "") -> ReportTable:
    """An empty table of ``columns``, each a :class:`Column` or its parts."""
    return ReportTable(tuple(Column(*column) for column in columns), title)
