"""A sweep's results for people: how points ended, and the front of every network; with page and pictures."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.report.shown import Presentation
from experiments.report.terminal import Printed, ReportTable, line, plain_table
from experiments.report.units import shown
from experiments.sweep.charts import sweep_charts
from experiments.sweep.page import sweep_page
from experiments.sweep.results import Objectives, Sweep, reasons, title, unit

MOST_ROWS = 30
"""Rows of a table at most."""


Front = tuple[Sweep, Objectives]
"""A sweep's results, and the two columns of the front."""


def _lines(found: Front) -> Iterator[str]:
    sweep, _ = found
    ended = ", ".join(f"{count} {status}" for status, count in sweep.statuses.items())
    yield f"{sweep.name}: {sweep.points:,} points: {ended}"


def sweep_tables(found: Front) -> Iterator[Printed]:
    """How the points ended, and every network's front."""
    sweep, objectives = found
    yield from map(line, _lines(found))
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


FRONT = Presentation(
    lines=_lines,
    tables=sweep_tables,
    records=lambda found: found[0].rows(),
    charts=lambda found: sweep_charts(*found),
    page=lambda found: sweep_page(*found),
)
"""How a sweep's results are presented."""
