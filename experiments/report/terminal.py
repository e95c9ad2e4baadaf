"""The terminal: how wide it is, and how every table on it looks."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

PIPED_WIDTH = 140


def report_console() -> Console:
    """A console on standard output; wide enough for whole rows where it is no terminal."""
    console = Console(highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPED_WIDTH)


def plain_table(*columns: tuple[str, str]) -> Table:
    """An empty table of ``columns`` = (heading, how): left or right, or "fold" where long text takes several lines.

    On a narrow terminal only the folding columns shrink: a figure is never cut.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading, how in columns:
        if how == "fold":
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right" if how == "right" else "left", no_wrap=True)
    return table
