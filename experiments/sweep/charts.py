"""Charts of a sweep: for every network a Pareto front, a heat map and parallel coordinates.

Static images use the axes and columns chosen here. The interactive page starts with the same
choice, and its reader can change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from experiments.figure import brief, format_figure
from experiments.report.charts.model import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    Heat,
    Measure,
    Parallel,
    Picture,
    Scatter,
    Style,
)
from experiments.sweep.results import (
    LIMITS,
    MISSED,
    SIZE,
    Objectives,
    Sweep,
    sign,
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


def sweep_charts(sweep: Sweep, objectives: Objectives) -> Iterator[Picture]:
    """Yield the charts of every network of a sweep.

    They are the Pareto front, parallel coordinates, and a heat map if two axes vary.
    """
    drawn = usual(sweep)
    for network in sweep.networks:
        points = sweep.select_network(network)
        if points:
            front = sweep.front(objectives, points)
            yield front_chart(sweep, objectives, points, front, drawn.color)
            yield parallel_chart(sweep, objectives, points, front, drawn.parallel)
            if drawn.heat is not None:
                yield heat_chart(sweep, drawn.heat, points)


def _identity(kind: str, network: str) -> str:
    return f"{kind}-{re.sub(r'[^A-Za-z0-9._-]+', '_', network)}"


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
        _identity("pareto", network),
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


def heat_chart(sweep: Sweep, names: tuple[str, str], points: Sequence[int]) -> Heat:
    """Return the heat map of the lowest result (cycles, misses or time) over two axes."""
    network = sweep.columns["network"][points[0]]
    everything = [number for number, name in enumerate(sweep.columns["network"]) if name == network]
    columns, rows = (
        sorted({sweep.columns[name][point] for point in everything}, key=order) for name in names
    )
    best: dict[tuple[Any, Any], int] = {}
    for point in points:
        where = sweep.columns[names[0]][point], sweep.columns[names[1]][point]
        found = sweep.columns[sweep.measure][point]
        best[where] = min(best.get(where, found), found)
    return Heat(
        _identity("heatmap", network),
        f"{network}: lowest {words(sweep.measure)}; none: no point ended ok",
        title(names[0]),
        title(names[1]),
        tuple(format_figure(value, unit(names[0])) for value in columns),
        tuple(format_figure(value, unit(names[1])) for value in rows),
        tuple(tuple(best.get((column, row)) for column in columns) for row in rows),
    )


def order(value: Any) -> tuple[bool, bool, Any]:
    """Return a sort key for the values of a column: numbers first, then texts, then None."""
    return value is None, isinstance(value, str), 0 if value is None else value


def parallel_chart(
    sweep: Sweep,
    objectives: Objectives,
    points: Sequence[int],
    front: Sequence[int],
    names: Sequence[str],
) -> Parallel:
    """Return the parallel-coordinates chart with an axis per column and a line per point.

    The lines of the best points come last, so they are on top.
    """
    scales = [Scale(name, [sweep.columns[name][point] for point in points]) for name in names]
    step = -(-len(points) // MOST_LINES)
    drawn = sorted(
        points[::step], key=lambda point: -sign(objectives[1]) * sweep.columns[objectives[1]][point]
    )
    network = sweep.columns["network"][points[0]]
    told = f" ({len(drawn)} of {len(points)} points drawn)" if step > 1 else ""

    def line(point: int) -> tuple[float, ...]:
        return tuple(scale.place(sweep.columns[scale.name][point]) for scale in scales)

    return Parallel(
        _identity("parallel", network),
        f"{network}: {len(points):,} points{told}",
        tuple((title(scale.name), tuple(scale.ticks())) for scale in scales),
        tuple(map(line, drawn)),
        tuple(map(line, front)),
    )


class Scale:
    """Axis of a parallel-coordinates chart: maps the values of a column to positions from 0 to 1.

    Up to ``FEW`` distinct values are spaced evenly. More values are placed on a linear scale, or on
    a logarithmic one if they span more than a factor of 30.
    """

    FEW = 12

    def __init__(self, name: str, values: Sequence[Any]) -> None:
        self.name = name
        self._distinct = sorted(set(values), key=order)
        self._even = len(self._distinct) <= self.FEW
        self._log = not self._even and spread(values)

    def place(self, value: Any) -> float:
        """Return the position of ``value`` on the axis, from 0 to 1."""
        if self._even:
            last = len(self._distinct) - 1
            return self._distinct.index(value) / last if last else 0.5
        low, high, found = (log10(one) if self._log else one for one in (*self._ends(), value))
        return float((found - low) / (high - low))

    def ticks(self) -> list[tuple[float, str]]:
        if self._even:
            return [
                (self.place(value), format_figure(value, unit(self.name)))
                for value in self._distinct
            ]
        low, high = self._ends()
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        at = [
            low * (high / low) ** share if self._log else low + (high - low) * share
            for share in shares
        ]
        return [
            (share, brief(value, unit(self.name))) for share, value in zip(shares, at, strict=True)
        ]

    def _ends(self) -> tuple[Any, Any]:
        return self._distinct[0], self._distinct[-1]
