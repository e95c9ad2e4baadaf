"""The terminal: how wide it is, and how every table on it looks."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.literal import literal

PIPED_WIDTH = 140


def report_console() -> Console:
    """A console on standard output; wide enough for whole rows where it is no terminal."""
    console = Console(**_LITERAL)
    return console if console.is_terminal else Console(**_LITERAL, width=PIPED_WIDTH)


def status_console() -> Console:
    """A console on standard error."""
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


def plain_table(*columns: tuple[str, str]) -> LiteralTable:
    """An empty table of ``columns`` = (heading, how): left or right, or "fold" where long text takes several lines.

    On a narrow terminal only the folding columns shrink: a figure is never cut.
    """
    table = LiteralTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading, how in columns:
        if how == "fold":
            table.add_column(line(heading), overflow="fold")
        else:
            table.add_column(line(heading), justify="right" if how == "right" else "left", no_wrap=True)
    return table
