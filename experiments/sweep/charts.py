"""Charts of a sweep: the Pareto front of every network, and the first choices of the page.

The page also draws a heat map and parallel coordinates, and its reader chooses their columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.figure import format_figure
from experiments.report.charts.model import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    Measure,
    Scatter,
    Style,
)
from experiments.sweep.results import (
    LIMITS,
    MISSED,
    SIZE,
    Objectives,
    Sweep,
    title,
    unit,
    words,
)

GROUPS = (
    Style(BLUE), Style(ORANGE, marker="square"), Style(GREEN, marker="diamond"),
    Style(VERMILION, marker="triangle-up"),
    Style(SKY, marker="x"), Style(PURPLE, marker="star"), Style(YELLOW, marker="pentagon"),
    Style(GREY, marker="cross"),
)  # fmt: skip
"""Colour and marker for each value of the column that colours the points."""
MOST_LINES = 1500
"""Most lines in a parallel-coordinates chart.

With more points, only every n-th is drawn, plus the whole front.
"""
MOST_AXES = 7
_RESULTS = (SIZE, "utilization", "sram_peak_bytes", "dram_read_bytes", "cycles", MISSED)


@dataclass(frozen=True)
class Usual:
    """Default columns of the charts of a sweep.

    They are the axis that colours points, the two axes of the heat map, and the columns of the
    parallel coordinates.
    """

    color: str | None
    heat: tuple[str, str] | None
    parallel: tuple[str, ...]


def usual(sweep: Sweep) -> Usual:
    """Return the charts' default columns for the axes that vary in a sweep.

    The array size and the SRAM size have priority.
    """
    varied = [name for name in sweep.axes if name not in ("network", LIMITS)]
    across = next(
        (name for name in ("pe.count", "pe.oc", "pe.ic", *varied) if name in varied), None
    )
    up = next(
        (
            name
            for name in ("sram_bytes", "bus_bytes", *varied)
            if name in varied and name != across
        ),
        None,
    )
    shown = sweep.figures if sweep.main else [one for one in _RESULTS if one in sweep.figures]
    columns = (*varied[:MOST_AXES], *shown)
    heat = None if across is None or up is None else (across, up)
    colored = [LIMITS, *varied] if LIMITS in sweep.axes else varied
    return Usual(colored[0] if colored else None, heat, columns or (sweep.measure,))


def sweep_charts(sweep: Sweep, objectives: Objectives) -> Iterator[Scatter]:
    """Yield the Pareto front of every network of a sweep."""
    color = usual(sweep).color
    for network in sweep.networks:
        points = sweep.select_network(network)
        if points:
            yield front_chart(sweep, objectives, points, sweep.front(objectives, points), color)


def front_chart(
    sweep: Sweep,
    objectives: Objectives,
    points: Sequence[int],
    front: Sequence[int],
    by: str | None,
) -> Scatter:
    """Return the scatter chart of a sweep's points, with the Pareto front as a line.

    Column ``by`` gives the colours.
    """
    groups = sorted({sweep.columns[by][point] for point in points}, key=order) if by else []
    if by is None or len(groups) > len(GROUPS):
        by = None
        groups = [None]
    made = []
    for group, style in zip(groups, GROUPS, strict=False):
        members = [point for point in points if by is None or sweep.columns[by][point] == group]
        label = "points" if by is None else f"{words(by)}: {format_figure(group, unit(by))}"
        made.append((label, style, _places(sweep, objectives, members)))
    across, up = (
        Measure(title(n), unit(n), spread([sweep.columns[n][one] for one in points]))
        for n in objectives
    )
    network = sweep.columns["network"][points[0]]
    told = f"{network}: {words(objectives[1])} over {words(objectives[0])}"
    return Scatter(
        f"pareto-{re.sub(r'[^A-Za-z0-9._-]+', '_', network)}",
        told,
        across,
        up,
        tuple(made),
        _places(sweep, objectives, front),
    )


def _places(
    sweep: Sweep, objectives: Objectives, points: Sequence[int]
) -> tuple[tuple[float, float], ...]:
    across, up = (sweep.columns[name] for name in objectives)
    return tuple((across[point], up[point]) for point in points)


def spread(values: Sequence[float]) -> bool:
    """Return True if the values span more than a factor of 30.

    A linear axis would then hide the small values.
    """
    low = min(values)
    high = max(values)
    return low > 0 and high / low > 30


def order(value: Any) -> tuple[bool, bool, Any]:
    """Return a sort key for the values of a column: numbers first, then texts, then None."""
    return value is None, isinstance(value, str), 0 if value is None else value
