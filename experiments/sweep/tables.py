"""A sweep's results as tables for a terminal: how points ended, and the front of every network."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from experiments.report.terminal import ReportTable, line, plain_table
from experiments.report.units import shown
from experiments.sweep.results import Objectives, Sweep, reasons, title, unit

MOST_ROWS = 30
"""Rows of a table at most."""


def print_sweep(sweep: Sweep, objectives: Objectives, console: Console) -> None:
    """Print how the points ended, and every network's front."""
    ended = ", ".join(f"{count} {status}" for status, count in sweep.statuses.items())
    console.print(line(f"{sweep.name}: {sweep.points:,} points: {ended}"))
    for table in _tables(sweep, objectives):
        console.print(table)


def _tables(sweep: Sweep, objectives: Objectives) -> Iterator[ReportTable]:
    if len(sweep.statuses.keys() - {"ok"}):
        yield reasons_table(sweep)
    for network in sweep.networks:
        if sweep.of_network(network):
            yield front_table(sweep, objectives, network)


def reasons_table(sweep: Sweep) -> ReportTable:
    """Why points did not end ok, the most frequent reasons first."""
    found = reasons(sweep)
    table = plain_table(("not ok", "left"), ("why", "fold"), ("points", "right"))
    for status, message, count in found[:MOST_ROWS]:
        table.add_row(status, message, f"{count:,}")
    if len(found) > MOST_ROWS:
        table.add_row("", f"{len(found) - MOST_ROWS} more reasons", "")
    return table


def front_columns(sweep: Sweep, objectives: Objectives) -> tuple[str, ...]:
    """The two objectives, and what else tells the points of a network apart."""
    return (*objectives, *(name for name in sweep.axes if name != "network" and name not in objectives))


def front_table(sweep: Sweep, objectives: Objectives, network: str) -> ReportTable:
    """The points of a network that no other beats in both objectives."""
    points = sweep.of_network(network)
    front = sweep.front(objectives, points)
    names = front_columns(sweep, objectives)
    columns = (
        (title(name), "right") if name in objectives else (name, "right", place) for place, name in enumerate(names)
    )
    table = plain_table(*columns, title=f"{network}: {len(front)} of {len(points):,} points are on the front")
    for point in front[:MOST_ROWS]:
        table.add_row(*(shown(sweep.columns[name][point], unit(name)) for name in names))
    if len(front) > MOST_ROWS:
        table.add_row(f"{len(front) - MOST_ROWS} more", *("" for _ in names[1:]))
    return table
