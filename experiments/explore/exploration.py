"""An exploration, and how it is shown: a picture of the front and how the hypervolume grew, a table, and words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from experiments.explore.objectives import Objective, Objectives, Pair, hypervolume
from experiments.explore.search import Found
from experiments.extras import require_pandas
from experiments.report.charts.style import BLUE, GREY, LIGHT, ORANGE
from experiments.report.shown import Presentation, Shown
from experiments.report.terminal import Printed, ReportTable, line, plain_table

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

GOAL = 0.99
"""Share of the grid's hypervolume that is to be reached."""
SCHEMA = "dla-explore/1"


@dataclass(frozen=True)
class GridComparison:
    """Against the whole grid: hypervolumes, and points needed for ``GOAL`` of the grid's, None where not reached.

    ``by_chance`` is the median over random orders of the grid.
    """

    points: int
    ok: int
    grid_hypervolume: float
    share: float
    needed: int | None
    by_chance: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Exploration(Shown):
    """The points that were evaluated, in order, those on the front among them, and how they compare with the grid.

    ``settings`` are the columns that vary; ``reference`` is the point that hypervolumes are measured from.
    """

    conditions: Mapping[str, Any]
    objectives: Objectives
    settings: tuple[str, ...]
    found: tuple[Found, ...]
    front: tuple[Found, ...]
    grid_points: int
    reference: Pair | None
    comparison: GridComparison | None
    grid: tuple[Pair | None, ...]

    @property
    def table(self) -> pandas.DataFrame:
        """A row a point in the order of evaluation: its settings, the objectives, and whether it is on the ``front``.

        Raises InputError where pandas is not installed.
        """
        best = {found.row["key"] for found in self.front}
        rows = [self._point(found) | {"front": found.row["key"] in best} for found in self.found]
        table: pandas.DataFrame = require_pandas().DataFrame(rows)
        return table

    @property
    def presented(self) -> tuple[Any, Presentation]:
        """Itself."""
        return self, EXPLORATION

    def content(self) -> dict[str, Any]:
        """The exploration as JSON has it: objectives by name in their units, and the settings of every point."""
        compared = self.comparison
        return {
            "schema": SCHEMA,
            **self.conditions,
            "objectives": [{"name": o.name, "unit": o.unit, "more_is_better": o.more} for o in self.objectives],
            "points": len(self.found),
            "grid_points": self.grid_points,
            "front": [self._point(found) for found in self.front],
            "found": [self._point(found) for found in self.found],
            "grid": None if compared is None else {
                "points": compared.points,
                "ok": compared.ok,
                "hypervolume_share": compared.share,
                "goal": GOAL,
                "points_needed": compared.needed,
                "points_needed_by_chance": compared.by_chance,
            },
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """A row a point in the order of evaluation, ``front`` says of which no other is better in both objectives."""
        best = {found.row["key"] for found in self.front}
        return [{"front": found.row["key"] in best, **self._point(found)} for found in self.found]

    def _point(self, found: Found) -> dict[str, Any]:
        chosen = {name: found.row.get(name) for name in self.settings}
        ok = found.costs is not None
        values = {o.name: o.value(found.row) if ok else None for o in self.objectives}
        return {"key": found.row["key"], "status": found.row["status"], **chosen, **values}


_DPI = 130


def draw(found: Exploration) -> bytes:
    """The picture as PNG; equal explorations give equal bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _points(left, found)
    _progress(right, found)
    figure.suptitle(f"{found.conditions['network']}: {found.objectives[0].name} against {found.objectives[1].name}")
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
    return stream.getvalue()


def _values(found: Exploration, pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    """Objectives of pairs as they are shown: where more is better, with the sign they have."""
    signs = [-1 if objective.more else 1 for objective in found.objectives]
    return [signs[0] * pair[0] for pair in pairs], [signs[1] * pair[1] for pair in pairs]


def _points(axes: Axes, found: Exploration) -> None:
    grid = [pair for pair in found.grid if pair is not None]
    if grid:
        axes.scatter(*_values(found, grid), s=16, marker="o", color=LIGHT, edgecolor=GREY, linewidth=0.5, label="grid")
    seen = [point.costs for point in found.found if point.costs is not None]
    axes.scatter(*_values(found, seen), s=26, marker="x", color=ORANGE, linewidth=1.3, label="evaluated")
    best = [point.costs for point in found.front if point.costs is not None]
    across, up = _values(found, best)
    axes.plot(across, up, drawstyle="steps-post", color=BLUE, linewidth=1.2, marker="s", markersize=5, label="front")
    axes.set_xlabel(found.objectives[0].title)
    axes.set_ylabel(found.objectives[1].title)
    if across and min(across) > 0:
        axes.set_xscale("log")
        _readable(axes.xaxis)
    if up and min(up) > 0:
        axes.set_yscale("log")
        _readable(axes.yaxis)
    _finish(axes)


def _readable(axis: Axis) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5, as numbers: 2 M, 0.5."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

    large = EngFormatter(sep=" ")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: large(value) if value >= 1000 else f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _progress(axes: Axes, found: Exploration) -> None:
    if found.reference is None:
        axes.set_axis_off()
        return
    total = found.comparison.grid_hypervolume if found.comparison else None
    pairs = [point.costs for point in found.found]
    grown = [hypervolume([p for p in pairs[: n + 1] if p is not None], found.reference) for n in range(len(pairs))]
    whole = total or grown[-1] or 1.0
    counts = list(range(1, len(grown) + 1))
    axes.plot(counts, [value / whole for value in grown], color=BLUE, drawstyle="steps-post", label="search")
    compared = found.comparison
    if compared is not None:
        axes.axhline(GOAL, color=GREY, linestyle="--", linewidth=1, label=f"{GOAL:.0%} of the grid's hypervolume")
        if compared.needed is not None:
            axes.axvline(compared.needed, color=BLUE, linestyle=":", label=f"reached with {compared.needed} points")
        if compared.by_chance is not None:
            axes.axvline(
                compared.by_chance, color=ORANGE, linestyle="-.", label=f"random order: {compared.by_chance:g} (median)"
            )
    axes.set_xlabel(f"points evaluated (of {found.grid_points} in the grid)")
    axes.set_ylabel("hypervolume (share of the grid's)" if total else "hypervolume (share of the last)")
    axes.set_ylim(top=1.02)
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.grid(color="#E5E5E5")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def front_table(found: Exploration) -> ReportTable:
    """The points of the front by the first objective, with the settings that make them."""
    headings = [(objective.title, "right") for objective in found.objectives]
    table = plain_table(*headings, *((name, "right", place) for place, name in enumerate(found.settings, 1)))
    for point in found.front:
        table.add_row(*_cells(found, point), *(_shown(point.row.get(name)) for name in found.settings))
    return table


def _cells(found: Exploration, point: Found) -> Iterator[str]:
    return (shown_value(objective, objective.value(point.row)) for objective in found.objectives)


def shown_value(objective: Objective, value: float) -> str:
    """Whole numbers whole, others with four digits."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def _shown(value: Any) -> str:
    return f"{value:,}" if type(value) is int else "" if value is None else str(value)


def lines(found: Exploration) -> Iterator[str]:
    """What there is to say below the table."""
    total, ended = len(found.found), sum(point.costs is not None for point in found.found)
    share = total / found.grid_points
    yield f"{total} of {found.grid_points} points evaluated ({share:.1%}), {ended} ok; {len(found.front)} on the front"
    yield from _comparison(found)
    if any(objective.column.startswith("estimated_") for objective in found.objectives):
        yield f"energy and area are estimates by the cost table {found.conditions['cost_table']} (docs/energy.md)"
    hosts = {point.row["host_nodes"] for point in found.front}
    if len(hosts) > 1:
        counts = " or ".join(str(count) for count in sorted(hosts))
        yield f"note: points of the front leave {counts} nodes to the CPU, whose time is in none of the cycles"


def _comparison(found: Exploration) -> Iterator[str]:
    compared = found.comparison
    if compared is None:
        if found.front:
            yield f"not held against the grid of {found.grid_points} points; --grid runs all of it"
        return
    yield f"the front reaches {compared.share:.2%} of the hypervolume of the whole grid ({compared.ok} points ok)"
    chance = "" if compared.by_chance is None else f"; in random order it takes {compared.by_chance:g} (median)"
    if compared.needed is None:
        yield f"{GOAL:.0%} of it was not reached with {len(found.found)} points{chance}"
    else:
        share = compared.needed / compared.points
        yield f"{GOAL:.0%} of it took {compared.needed} points, {share:.1%} of the grid{chance}"


def _lines(found: Exploration) -> Iterator[str]:
    traded = " and ".join(objective.name for objective in found.objectives)
    yield (
        f"{found.conditions['network']}, {traded}: {len(found.found)} of {found.grid_points} points evaluated, "
        f"{len(found.front)} on the front"
    )


def exploration_tables(found: Exploration) -> Iterator[Printed]:
    """The front, and how it compares with the grid."""
    yield front_table(found)
    yield from map(line, lines(found))


EXPLORATION = Presentation(lines=_lines, tables=exploration_tables, records=lambda found: found.rows())
"""How an exploration is presented."""
