"""A sweep's results as PNG pictures: for every network the Pareto front, a heat map and parallel coordinates."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, log2, log10
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from experiments.report.charts.style import BLACK, VERMILION
from experiments.report.plots import MARKERS, legend_above, plain, save_figure
from experiments.report.units import BYTES, brief, shown
from experiments.sweep.page import GROUPS
from experiments.sweep.results import SIZE, Objectives, Sweep, sign, title, unit, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


MOST_LINES = 1500
"""Lines of parallel coordinates at most; of more points every second, third, ... is drawn, and the front."""
_RESULTS = ("utilization", "dram_read_bytes", SIZE, "cycles")


def save_sweep(sweep: Sweep, objectives: Objectives, folder: Path) -> tuple[Path, ...]:
    """Draw every network's pictures into ``folder``; raises InputError when that cannot be written."""
    made: list[Path] = []
    for network in sweep.networks:
        points = sweep.of_network(network)
        if points:
            name = re.sub(r"[^A-Za-z0-9._-]+", "_", network)
            for kind, height, draw in _pictures(sweep, objectives, points, network):
                made.append(save_figure(folder / f"{kind}-{name}.png", height, draw))
    return tuple(made)


def _pictures(
    sweep: Sweep, objectives: Objectives, points: Sequence[int], network: str
) -> list[tuple[str, float, Callable[[Axes], None]]]:
    front = sweep.front(objectives, points)
    found: list[tuple[str, float, Callable[[Axes], None]]] = [
        ("pareto", 5.0, partial(draw_front, sweep, objectives, points, front, network)),
        ("parallel", 5.0, partial(draw_parallel, sweep, objectives, points, front, network)),
    ]
    axes = heat_axes(sweep)
    if axes is not None:
        rows = len(set(sweep.columns[axes[1]]))
        height = min(12.0, 1.6 + 0.45 * rows)
        found.append(("heatmap", height, partial(draw_heatmap, sweep, axes, points, network)))
    return found


def draw_front(
    sweep: Sweep, objectives: Objectives, points: Sequence[int], front: Sequence[int], network: str, axes: Axes
) -> None:
    """All points by the first axis that varies, and the line of those that none beats."""
    across, up = (sweep.columns[name] for name in objectives)
    by = next((name for name in sweep.axes if name != "network"), None)
    groups = sorted({sweep.columns[by][point] for point in points}, key=_order) if by else []
    if by is None or len(groups) > len(GROUPS):
        by, groups = None, [None]
    for group, (color, marker) in zip(groups, GROUPS, strict=False):
        members = [point for point in points if by is None or sweep.columns[by][point] == group]
        label = "points" if by is None else plain(f"{words(by)}: {shown(group, unit(by))}")
        places = [across[point] for point in members], [up[point] for point in members]
        axes.scatter(
            *places, s=28, color=color, marker=MARKERS[marker], edgecolors="white", linewidths=0.4, label=label
        )
    line = [across[point] for point in front], [up[point] for point in front]
    axes.step(*line, where="post", color=VERMILION, linewidth=1.6, label="Pareto front")
    axes.scatter(*line, s=90, facecolors="none", edgecolors=VERMILION, linewidths=1.5)
    for name, axis, set_scale, set_limits in (
        (objectives[0], axes.xaxis, axes.set_xscale, axes.set_xlim),
        (objectives[1], axes.yaxis, axes.set_yscale, axes.set_ylim),
    ):
        values = [sweep.columns[name][point] for point in points]
        if spread(values):
            set_scale("log")
        else:
            set_limits(min(0, *values, 0), max(*values, 0) * 1.06 or 1)
        _ticks(name, axis, values)
    axes.grid(color="#e5e5e5")
    axes.set_axisbelow(True)
    axes.set_title(plain(f"{network}: {words(objectives[1])} over {words(objectives[0])}"))
    legend_above(axes, len(groups) + 1)


def _ticks(name: str, axis: Axis, values: Sequence[float]) -> None:
    """Title, and a few numbers in as many characters as needed: sizes at powers of two, or multiples of one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullFormatter

    axis.set_label_text(plain(title(name)))
    if spread(values):
        decades = log10(max(values) / min(values))
        subdivisions = (1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(2.0) if unit(name) == BYTES else LogLocator(10.0, subdivisions))
        axis.set_minor_formatter(NullFormatter())
    elif unit(name) == BYTES and max(values) > 0:
        axis.set_major_locator(MultipleLocator(2 ** ceil(log2(max(values) / 6))))
    axis.set_major_formatter(FuncFormatter(lambda value, _: brief(value, unit(name))))


def spread(values: Sequence[float]) -> bool:
    """Whether values are so far apart that a linear axis would hide the small ones."""
    low, high = min(values), max(values)
    return low > 0 and high / low > 30


def heat_axes(sweep: Sweep) -> tuple[str, str] | None:
    """The two axes of the heat map; None where fewer than two vary."""
    varied = [name for name in sweep.axes if name != "network"]
    across = next((name for name in ("pe.count", "pe.oc", "pe.ic", *varied) if name in varied), None)
    up = next((name for name in ("sram_bytes", "bus_bytes", *varied) if name in varied and name != across), None)
    return None if across is None or up is None else (across, up)


def draw_heatmap(sweep: Sweep, names: tuple[str, str], points: Sequence[int], network: str, axes: Axes) -> None:
    """The fewest cycles over two axes."""
    everything = [number for number, name in enumerate(sweep.columns["network"]) if name == network]
    columns, rows = (sorted({sweep.columns[name][point] for point in everything}, key=_order) for name in names)
    best: dict[tuple[Any, Any], int] = {}
    for point in points:
        where = sweep.columns[names[0]][point], sweep.columns[names[1]][point]
        best[where] = min(best.get(where, sweep.columns["cycles"][point]), sweep.columns["cycles"][point])
    scaled = {where: log10(cycles) for where, cycles in best.items()}
    middle = (min(scaled.values()) + max(scaled.values())) / 2
    grid = [[scaled.get((column, row), float("nan")) for column in columns] for row in rows]
    axes.imshow(grid, cmap="cividis", origin="lower", aspect="auto")
    for down, row in enumerate(rows):
        for across, column in enumerate(columns):
            cycles = best.get((column, row))
            text = "none" if cycles is None else brief(cycles)
            color = "white" if cycles is not None and scaled[column, row] <= middle else BLACK
            axes.text(across, down, text, ha="center", va="center", color=color, fontsize=8)
    axes.set_xticks(range(len(columns)), [plain(shown(value, unit(names[0]))) for value in columns])
    axes.set_yticks(range(len(rows)), [plain(shown(value, unit(names[1]))) for value in rows])
    axes.set_xlabel(plain(title(names[0])))
    axes.set_ylabel(plain(title(names[1])))
    axes.set_title(plain(f"{network}: fewest cycles; none: no point ended ok"))


def _order(value: Any) -> tuple[bool, bool, Any]:
    return value is None, isinstance(value, str), 0 if value is None else value


def draw_parallel(
    sweep: Sweep, objectives: Objectives, points: Sequence[int], front: Sequence[int], network: str, axes: Axes
) -> None:
    """An axis a column, a line a point, darker the better; the front on top."""
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection

    names = parallel_names(sweep)
    scales = [Scale(name, [sweep.columns[name][point] for point in points]) for name in names]
    step = -(-len(points) // MOST_LINES)
    drawn = sorted(points[::step], key=lambda point: -sign(objectives[1]) * sweep.columns[objectives[1]][point])
    lines = [_line(sweep, scales, point) for point in drawn]
    shades = [colormaps["cividis"](0.9 * (1 - number / max(1, len(lines) - 1))) for number in range(len(lines))]
    axes.add_collection(LineCollection(lines, colors=shades, linewidths=0.6, alpha=0.6))
    best = LineCollection([_line(sweep, scales, point) for point in front], colors=VERMILION, linewidths=1.8)
    best.set_label("Pareto front")
    axes.add_collection(best)
    for number, scale in enumerate(scales):
        axes.axvline(number, color=BLACK, linewidth=1)
        for place, text in scale.ticks():
            box = {"facecolor": "white", "alpha": 0.8, "pad": 0.6, "linewidth": 0}
            axes.text(number + 0.03, place, plain(text), fontsize=7, va="center", bbox=box)
    axes.set_xlim(-0.2, len(names) - 0.3)
    axes.set_ylim(-0.05, 1.05)
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xticks(range(len(names)), ["\n".join(map(plain, wrap(title(name), 16))) for name in names], fontsize=8)
    axes.tick_params(axis="x", length=0)
    told = f" ({len(drawn)} of {len(points)} points drawn)" if step > 1 else ""
    axes.set_title(plain(f"{network}: {len(points):,} points{told}"))
    legend_above(axes, 1)


def parallel_names(sweep: Sweep) -> list[str]:
    """Up to seven axes that vary, and the usual results."""
    varied = [name for name in sweep.axes if name != "network"]
    return [*varied[:7], *(name for name in _RESULTS if name in sweep.figures)] or ["cycles"]


def _line(sweep: Sweep, scales: Sequence[Scale], point: int) -> list[tuple[float, float]]:
    return [(number, scale.place(sweep.columns[scale.name][point])) for number, scale in enumerate(scales)]


class Scale:
    """Where the values of a column stand on its axis, from 0 to 1: few values evenly, many by size or its logarithm."""

    FEW = 12

    def __init__(self, name: str, values: Sequence[Any]) -> None:
        self.name = name
        self._distinct = sorted(set(values), key=_order)
        self._even = len(self._distinct) <= self.FEW
        self._log = not self._even and spread(values)

    def place(self, value: Any) -> float:
        """From 0 to 1."""
        if self._even:
            last = len(self._distinct) - 1
            return self._distinct.index(value) / last if last else 0.5
        low, high, found = (log10(one) if self._log else one for one in (*self._ends(), value))
        return float((found - low) / (high - low))

    def ticks(self) -> list[tuple[float, str]]:
        """Places with their labels."""
        if self._even:
            return [(self.place(value), shown(value, unit(self.name))) for value in self._distinct]
        low, high = self._ends()
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        at = [low * (high / low) ** share if self._log else low + (high - low) * share for share in shares]
        return [(share, brief(value, unit(self.name))) for share, value in zip(shares, at, strict=True)]

    def _ends(self) -> tuple[Any, Any]:
        return self._distinct[0], self._distinct[-1]
