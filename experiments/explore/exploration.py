"""Result of an exploration and its report.

The report has charts of the front and of the growing hypervolume, a table, and text. Objectives
have a name and a unit; less is better in both costs of a pair.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from experiments.cost.table import area_note
from experiments.explore.search import EvaluatedPoint
from experiments.figure import SHARE, Figure, format_figure
from experiments.report.charts.model import (
    BLUE,
    GREY,
    ORANGE,
    Measure,
    Picture,
    Scatter,
    Series,
    StepChart,
    Style,
)
from experiments.report.plots import picture
from experiments.report.shown import Presentation, Shown
from experiments.report.terminal import Printed, ReportTable, line, plain_table, wrap_text
from experiments.sweep.joint import Joint, joint_tables
from experiments.sweep.joint import content as joint_content
from experiments.sweep.results import AREA, PES, SWEPT, Pair
from experiments.sweep.units import UNITS
from isa.errors import InputError, suggest_name


def hypervolume(pairs: Iterable[Pair], reference: Pair) -> float:
    """Return the area that pairs of costs dominate, bounded by a reference point.

    It is the area of all points between ``reference`` and some pair. Pairs that are not better than
    the reference in both objectives add nothing.
    """
    inside = sorted({pair for pair in pairs if pair[0] < reference[0] and pair[1] < reference[1]})
    heights = accumulate((pair[1] for pair in inside), min, initial=reference[1])
    area = 0.0
    for (across, up), height in zip(inside, heights, strict=False):
        area += (reference[0] - across) * max(height - up, 0.0)
    return area


def count_needed(pairs: Sequence[Pair | None], reference: Pair, goal: float) -> int | None:
    """Return how many ``pairs``, in order, are needed to reach the hypervolume ``goal``.

    The result is None if all pairs do not suffice. None in ``pairs`` is a point that counts but has
    no objectives. The result is at least 1.
    """
    if hypervolume((pair for pair in pairs if pair is not None), reference) < goal:
        return None
    low = 1
    high = len(pairs)
    while low < high:
        middle = (low + high) // 2
        if hypervolume((pair for pair in pairs[:middle] if pair is not None), reference) >= goal:
            high = middle
        else:
            low = middle + 1
    return low


ESTIMATED = "estimate"
"""Word after the unit of an estimated objective."""


@dataclass(frozen=True)
class Objective:
    """Objective of an exploration: a column of a sweep's rows to make small or large.

    ``scale`` converts it to ``unit``; ``more``: more is better.
    """

    name: str
    column: str
    unit: str
    scale: float = 1.0
    more: bool = False

    @property
    def title(self) -> str:
        """Name and unit of the objective, for an axis or a column heading."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def value(self, row: Mapping[str, Any]) -> float:
        """Return the objective's value of a results row that ended ok, in ``unit``."""
        return float(row[self.column]) * self.scale

    def cost(self, row: Mapping[str, Any]) -> float:
        """Return the objective's value, negated if more is better, so that less is better."""
        return -self.value(row) if self.more else self.value(row)


def _objective(figure: Figure) -> Objective:
    """Return the exploration objective for the run result that ``figure`` describes.

    A unit that the figure's words or range already imply is left out.
    """
    unit, scale = figure.shown or (
        "" if figure.unit in (figure.words, figure.name, SHARE) else figure.unit,
        1.0,
    )
    name = figure.goal or figure.name.removesuffix("_bytes").replace("_", "-")
    said = ", ".join((unit, ESTIMATED)) if figure.estimate else unit
    return Objective(name, figure.name, said, scale, figure.better == "more")


_ALL = (
    *(_objective(figure) for figure in (*SWEPT.values(), *UNITS.values()) if figure.better),
    Objective("pes", PES, "PEs"),
    Objective("sram", "sram_bytes", "KiB", 1 / 1024),
    Objective("bandwidth", "bus_bytes", "bytes/cycle"),
)
OBJECTIVES: Mapping[str, Objective] = {objective.name: objective for objective in _ALL}

Objectives = tuple[Objective, Objective]


def parse_objectives(text: str) -> Objectives:
    """Return the two objectives in a text such as ``"cycles,area"``.

    Raise InputError for an invalid text.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in OBJECTIVES:
            close = suggest_name(name, OBJECTIVES)
            raise InputError(
                f"--objectives: unknown '{name}'; {close}choose two of {', '.join(OBJECTIVES)}"
            )
    if len(names) != 2 or names[0] == names[1]:
        raise InputError(f"--objectives is '{text}'; name two different ones, such as cycles,area")
    return OBJECTIVES[names[0]], OBJECTIVES[names[1]]


def costs(objectives: Objectives, row: Mapping[str, Any]) -> Pair | None:
    """Return both objectives of a results row, less being better.

    The result is None if the row did not end ok, or if one of them is unknown.
    """
    if row["status"] != "ok" or None in (row[objective.column] for objective in objectives):
        return None
    return objectives[0].cost(row), objectives[1].cost(row)


GOAL = 0.99
"""Share of the grid's hypervolume that counts as reaching the grid's front."""
SCHEMA = "dla-explore/1"


@dataclass(frozen=True)
class GridComparison:
    """Comparison of a search with the whole grid, by hypervolume and number of points.

    ``needed`` is the number of points that the search needed for the share ``GOAL`` of the grid's
    hypervolume. ``by_chance`` is the median over random orders of the grid. Both are None if the
    goal was not reached.
    """

    points: int
    ok: int
    grid_hypervolume: float
    share: float
    needed: int | None
    by_chance: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Exploration(Shown):
    """Result of an exploration: evaluated points, Pareto front, and comparison with the grid.

    The points are in the order of evaluation. ``settings`` are the columns that vary. ``reference``
    is the reference point of hypervolumes. ``grid`` has the objectives of all points of the grid if
    it was run. ``joint`` is the result over several networks, whose points are machines.
    """

    conditions: Mapping[str, Any]
    objectives: Objectives
    settings: tuple[str, ...]
    found: tuple[EvaluatedPoint, ...]
    front: tuple[EvaluatedPoint, ...]
    grid_points: int
    reference: Pair | None
    comparison: GridComparison | None
    grid: tuple[Pair | None, ...]
    joint: Joint | None = None

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self, EXPLORATION

    def content(self) -> dict[str, Any]:
        """Return the exploration as JSON values.

        They contain the objectives by name and unit, and the settings of every point.
        """
        compared = self.comparison
        return {
            "schema": SCHEMA,
            **self.conditions,
            "objectives": [
                {"name": o.name, "unit": o.unit, "more_is_better": o.more} for o in self.objectives
            ],
            "points": len(self.found),
            "grid_points": self.grid_points,
            "front": [self._point(found) for found in self.front],
            "found": [self._point(found) for found in self.found],
            "grid": None
            if compared is None
            else {
                "points": compared.points,
                "ok": compared.ok,
                "hypervolume_share": compared.share,
                "goal": GOAL,
                "points_needed": compared.needed,
                "points_needed_by_chance": compared.by_chance,
            },
            **({} if self.joint is None else {"joint": joint_content(self.joint)}),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one table row per evaluated point, in the order of evaluation.

        ``front`` is True for points of the Pareto front.
        """
        best = {found.row["key"] for found in self.front}
        return [{"front": found.row["key"] in best, **self._point(found)} for found in self.found]

    def _point(self, found: EvaluatedPoint) -> dict[str, Any]:
        chosen = {name: found.row.get(name) for name in self.settings}
        ok = found.costs is not None
        values = {o.name: o.value(found.row) if ok else None for o in self.objectives}
        return {"key": found.row["key"], "status": found.row["status"], **chosen, **values}


def draw(found: Exploration) -> bytes:
    """Draw an exploration's charts as one PNG image; equal explorations give equal bytes."""
    return picture(exploration_charts(found))


def exploration_charts(found: Exploration) -> list[Picture]:
    """Return the charts of an exploration: its points, and its growing hypervolume."""
    return [
        points_chart(found),
        *([] if found.reference is None else [growth_chart(found, found.reference)]),
    ]


def points_chart(found: Exploration) -> Scatter:
    """Return a scatter chart of the evaluated points, the Pareto front and any whole grid."""
    groups = [
        ("grid", Style(GREY), found.grid),
        ("evaluated", Style(ORANGE, marker="x"), [point.costs for point in found.found]),
    ]
    drawn = tuple(
        (name, style, _places(found, pairs)) for name, style, pairs in groups if any(pairs)
    )
    front = _places(found, [point.costs for point in found.front])
    across, up = (
        Measure(objective.title, "", bool(front) and min(place[number] for place in front) > 0)
        for number, objective in enumerate(found.objectives)
    )
    title = (
        f"{found.conditions['network']}: {found.objectives[0].name} against "
        f"{found.objectives[1].name}"
    )
    return Scatter("points", title, across, up, drawn, front)


def _places(found: Exploration, pairs: Sequence[Pair | None]) -> tuple[Pair, ...]:
    """Return pairs of objective values for display, with their original signs."""
    first, second = (-1 if objective.more else 1 for objective in found.objectives)
    return tuple((first * pair[0], second * pair[1]) for pair in pairs if pair is not None)


def growth_chart(found: Exploration, reference: Pair) -> StepChart:
    """Return the chart of the hypervolume over the number of evaluated points."""
    compared = found.comparison
    pairs = [point.costs for point in found.found]
    grown = [
        hypervolume([p for p in pairs[: n + 1] if p is not None], reference)
        for n in range(len(pairs))
    ]
    whole = (compared.grid_hypervolume if compared else 0) or grown[-1] or 1.0
    limits: tuple[tuple[str, float], ...] = ()
    marks: list[tuple[str, float]] = []
    if compared is not None:
        limits = ((f"{GOAL:.0%} of the grid's", GOAL),)
        if compared.needed is not None:
            marks.append((f"reached with {compared.needed} points", compared.needed))
        if compared.by_chance is not None:
            marks.append((f"random order: {compared.by_chance:g} (median)", compared.by_chance))
    unit = "share of the grid's" if compared and compared.grid_hypervolume else "share of the last"
    series = (Series("search", tuple(value / whole for value in grown), Style(BLUE)),)
    return StepChart(
        "growth", "Hypervolume", tuple(range(len(grown) + 1)), series, limits, unit, "",
        "hypervolume",
        f"points evaluated (of {found.grid_points} in the grid)", tuple(marks),
    )  # fmt: skip


def front_table(found: Exploration) -> ReportTable:
    """Return the table of the points on the Pareto front, ordered by the first objective.

    Each row has the settings of its point.
    """
    headings = [(objective.title, "right") for objective in found.objectives]
    table = plain_table(
        *headings, *((name, "right", place) for place, name in enumerate(found.settings, 1))
    )
    for point in found.front:
        table.add_row(
            *_cells(found, point), *(format_figure(point.row.get(name)) for name in found.settings)
        )
    return table


def _cells(found: Exploration, point: EvaluatedPoint) -> Iterator[str]:
    return (format_value(objective.value(point.row)) for objective in found.objectives)


def format_value(value: float) -> str:
    """Format a number as text with few digits, such as four below 1,000.

    Integers have no decimals. Other values have four digits below 1,000, and one decimal from
    1,000.
    """
    return (
        f"{value:,.0f}"
        if value == int(value)
        else f"{value:,.4g}"
        if abs(value) < 1000
        else f"{value:,.1f}"
    )


def lines(found: Exploration) -> Iterator[str]:
    """Yield the summary lines of an exploration that follow its table."""
    total = len(found.found)
    ended = sum(point.costs is not None for point in found.found)
    share = total / found.grid_points
    yield (
        f"{total} of {found.grid_points} points evaluated ({share:.1%}), {ended} ok; "
        f"{len(found.front)} on the front"
    )
    yield from _comparison(found)
    if found.joint is not None:
        return
    if {"energy", "area", "uJ", AREA} & {objective.name for objective in found.objectives}:
        yield (
            f"energy and area are estimates by the cost table {found.conditions['cost_table']} "
            "(docs/energy.md)"
        )
        yield from wrap_text(area_note(found.conditions["cost_table"]))
    hosts = {point.row["host_nodes"] for point in found.front}
    if len(hosts) > 1:
        counts = " or ".join(str(count) for count in sorted(hosts))
        yield (
            f"note: points of the front leave {counts} nodes to the CPU, whose time is in none of "
            "the cycles"
        )


def _comparison(found: Exploration) -> Iterator[str]:
    compared = found.comparison
    if compared is None:
        if found.front:
            yield f"not compared with the grid of {found.grid_points} points; --grid runs all of it"
        return
    yield (
        f"the front reaches {compared.share:.2%} of the hypervolume of the whole grid "
        f"({compared.ok} points ok)"
    )
    chance = (
        ""
        if compared.by_chance is None
        else f"; in random order it takes {compared.by_chance:g} (median)"
    )
    if compared.needed is None:
        yield f"{GOAL:.0%} of it was not reached with {len(found.found)} points{chance}"
    else:
        share = compared.needed / compared.points
        yield f"{GOAL:.0%} of it took {compared.needed} points, {share:.1%} of the grid{chance}"


def _lines(found: Exploration) -> Iterator[str]:
    traded = " and ".join(objective.name for objective in found.objectives)
    yield (
        f"{found.conditions['network']}, {traded}: {len(found.found)} of {found.grid_points} "
        f"points evaluated, {len(found.front)} on the front"
    )


def exploration_tables(found: Exploration) -> Iterator[Printed]:
    """Yield the table of the Pareto front, and its comparison with the whole grid.

    Several networks have the table of their machines and the answer instead.
    """
    if found.joint is None:
        yield front_table(found)
    yield from map(line, lines(found))
    if found.joint is not None:
        yield from joint_tables(found.joint)


EXPLORATION = Presentation(
    lines=_lines,
    tables=exploration_tables,
    records=lambda found: found.rows(),
    json=lambda found: json.dumps(found.content(), indent=1) + "\n",
    charts=exploration_charts,
    drawn={"front": "points", "growth": "growth"},
)
