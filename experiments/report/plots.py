"""Charts as PNG pictures, drawn by matplotlib. Equal charts give equal bytes with the same matplotlib."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.literal import literal
from experiments.report.charts.model import CYCLES, Bars, Chart, Gantt, Roofline, Series, Spans, Steps
from experiments.report.charts.style import BLACK, shortened
from isa.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 80
"""Rows that a picture of bars has at most; the largest are kept, in their order."""
HATCHES = {"": "", "/": "////", "\\": "\\\\\\\\", "x": "xxxx", "-": "----", "|": "||||", "+": "++++", ".": "...."}
MARKERS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "x": "X", "star": "*", "pentagon": "p",
    "cross": "P", "triangle-down": "v",
}  # fmt: skip
_WIDTH = 10.0
_ROW = 0.2
_DPI = 120
_SETTINGS: dict[str, Any] = {
    "font.size": 9,
    "hatch.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "savefig.dpi": _DPI,
}


def save_charts(charts: Iterable[Chart], folder: Path) -> tuple[Path, ...]:
    """Draw every chart into ``folder`` as ``<identity>.png``; raises InputError when that cannot be written."""
    return tuple(_saved(chart, folder) for chart in charts)


def _saved(chart: Chart, folder: Path) -> Path:
    height, draw = _drawing(chart)
    return save_figure(folder / f"{chart.identity}.png", height, draw)


def _drawing(chart: Chart) -> tuple[float, Callable[[Axes], None]]:
    """Inches that a chart is high, and what draws it."""
    if isinstance(chart, Bars):
        return bars_height(chart), lambda axes: draw_bars(axes, chart)
    if isinstance(chart, Roofline):
        return 5.0, lambda axes: draw_roofline(axes, chart)
    if isinstance(chart, Spans):
        return 2.2, lambda axes: draw_spans(axes, chart)
    if isinstance(chart, Gantt):
        return 1.4 + 0.4 * len(chart.rows), lambda axes: draw_gantt(axes, chart)
    return 4.0, lambda axes: draw_steps(axes, chart)


def draw_chart(chart: Chart, axes: Axes | None = None) -> Axes:
    """Draw a chart on ``axes``, or on new ones of pyplot, which notebooks show; the axes that it is on."""
    import matplotlib
    from matplotlib import pyplot

    height, draw = _drawing(chart)
    settings: Any = _SETTINGS
    # Made before our settings begin: the first figure turns a notebook's display on, which their end would undo.
    figure = pyplot.figure(figsize=(_WIDTH, height), layout="constrained") if axes is None else axes.figure
    with matplotlib.rc_context(settings):
        drawn = figure.add_subplot() if axes is None else axes
        draw(drawn)
    return drawn


def save_figure(path: Path, height: float, draw: Callable[[Axes], None]) -> Path:
    """A picture of one pair of axes, ``height`` inches high."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: Any = {**matplotlib.rcParamsDefault, **_SETTINGS}  # whatever the user's matplotlibrc says
    with matplotlib.rc_context(settings):
        made = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasAgg(made)
        draw(made.add_subplot())
        write_atomically(path, _png(made))
    return path


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # names in a script that the font lacks show as boxes
        figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def plain(text: str) -> str:
    """``text`` as matplotlib shows it: a dollar sign would begin a formula, and no font has control characters."""
    return literal(text).replace("$", r"\$")


def bars_height(chart: Bars) -> float:
    """Inches that a chart of bars is high."""
    rows = min(len(chart.labels), MOST_ROWS) * (len(chart.series) if chart.grouped else 1)
    return max(2.2, 1.4 + _ROW * rows)


def draw_bars(axes: Axes, chart: Bars) -> None:
    """Horizontal bars, the first row at the top."""
    rows = _largest(chart)
    count = len(chart.series)
    thickness = 0.8 / count if chart.grouped else 0.8
    left = [0.0] * len(rows)
    for number, series in enumerate(chart.series):
        values = [series.values[row] for row in rows]
        lengths = [abs(value) for value in values] if chart.signed else values
        shift = (number - (count - 1) / 2) * thickness if chart.grouped else 0.0
        style = series.style
        bars = axes.barh(
            [place + shift for place in range(len(rows))],
            lengths,
            thickness,
            left=None if chart.grouped else left,
            color=style.color,
            hatch=HATCHES[style.pattern],
            edgecolor="white",
            linewidth=0.3,
            label=plain(series.name),
        )
        if chart.signed:
            axes.bar_label(bars, [f"{value:+,}" if value else "" for value in values], padding=3, fontsize=7)
        left = [before + length for before, length in zip(left, lengths, strict=True)]
    axes.set_yticks(range(len(rows)), [plain(shortened(chart.labels[row])) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    if chart.limit is not None:
        axes.set_xlim(0, chart.limit)
    elif chart.signed:
        axes.set_xlim(0, 1.15 * max(left, default=0.0) or 1.0)
    title = chart.title
    if len(rows) < len(chart.labels):
        title += f" (the {len(rows)} largest of {len(chart.labels)})"
    _finish(axes, title, chart.axis, "", count)
    if chart.unit != CYCLES:
        axes.xaxis.set_major_formatter("{x:,g}")


def _largest(chart: Bars) -> list[int]:
    """The rows to draw, in their order."""
    sums = [sum(abs(series.values[row]) for series in chart.series) for row in range(len(chart.labels))]
    ranked = sorted(range(len(sums)), key=lambda row: (-sums[row], row))
    return sorted(ranked[:MOST_ROWS])


def draw_roofline(axes: Axes, chart: Roofline) -> None:
    """The roofs, and a marker a layer."""
    ridge = chart.macs_per_cycle / chart.bytes_per_cycle
    (left, bottom), end = chart.corner, chart.end
    roof = [left * chart.bytes_per_cycle, chart.macs_per_cycle, chart.macs_per_cycle]
    name = f"roofs: {chart.bytes_per_cycle:g} bytes/cycle, {chart.macs_per_cycle:g} MACs/cycle"
    axes.plot([left, ridge, end], roof, color=BLACK, linewidth=1.8, label=name, zorder=1)
    for kind, style, marks in chart.marks:
        across, up = [mark.intensity for mark in marks], [mark.rate for mark in marks]
        axes.scatter(
            across,
            up,
            s=45,
            color=style.color,
            marker=MARKERS[style.marker],
            edgecolors=BLACK,
            linewidths=0.8,
            label=plain(kind),
            zorder=2,
            clip_on=False,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left / 1.07, end * 1.07)
    axes.set_ylim(bottom / 1.07, chart.macs_per_cycle * 2)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(which="both", color="#eeeeee")
    across_title = "MACs per byte of DRAM traffic"
    if any(mark.rate > mark.intensity * chart.bytes_per_cycle for _, _, marks in chart.marks for mark in marks):
        across_title += "\n(above the slanted roof: fetched while earlier layers computed)"
    _finish(axes, chart.title, across_title, "MACs per cycle", 1 + len(chart.marks))


def draw_steps(axes: Axes, chart: Steps) -> None:
    """Levels over time; the first series as an area."""
    edges = [number * chart.width for number in range(len(chart.series[0].values))] + [chart.total]
    for number, series in enumerate(chart.series):
        _step(axes, series, edges, filled=number == 0)
    for number, (name, level) in enumerate(chart.limits):
        line = "--" if number == 0 else ":"
        axes.axhline(level, color=BLACK, linestyle=line, linewidth=1.3, label=name)
    axes.set_xlim(0, chart.total)
    axes.set_ylim(bottom=0)
    _finish(axes, chart.title, "time (cycles)", f"{chart.axis} ({chart.unit})", len(chart.series) + len(chart.limits))


def draw_spans(axes: Axes, chart: Spans) -> None:
    """A row a place, its stretches of time along it."""
    for row, (name, style) in enumerate(chart.rows):
        found = [(span.begin, span.cycles) for span in chart.spans if span.row == row]
        axes.broken_barh(found, (row - 0.4, 0.8), color=style.color, linewidth=0.6, label=plain(name))
    axes.set_yticks(range(len(chart.rows)), [plain(name) for name, _ in chart.rows])
    axes.set_ylim(len(chart.rows) - 0.4, -0.6)
    axes.set_xlim(0, chart.total)
    _finish(axes, chart.title, "time (cycles)", "", len(chart.rows))


def draw_gantt(axes: Axes, chart: Gantt) -> None:
    """A row a unit, what it does along it."""
    places = [name for name, _ in chart.rows]
    for number, (name, style) in enumerate(chart.groups):
        for row, (_, activities) in enumerate(chart.rows):
            found = [(one.begin, one.end - one.begin) for one in activities if one.group == number]
            axes.broken_barh(found, (row - 0.4, 0.8), color=style.color, linewidth=0.3)
        if name not in places:  # of those the row has the name
            axes.barh(0, 0, color=style.color, label=plain(name))
    axes.set_yticks(range(len(places)), [plain(name) for name in places])
    axes.set_ylim(len(places) - 0.4, -0.6)
    axes.set_xlim(0, chart.total)
    _finish(axes, chart.title, "time (cycles)", "", sum(name not in places for name, _ in chart.groups))


def _step(axes: Axes, series: Series, edges: list[float], filled: bool) -> None:
    color = series.style.color
    if filled:
        axes.stairs(series.values, edges, fill=True, color=color, alpha=0.5, label=series.name)
    else:
        axes.stairs(series.values, edges, color=color, linewidth=1.3, label=series.name)


def _finish(axes: Axes, title: str, across: str, up: str, entries: int) -> None:
    """Title, names of the axes with their units, and the legend between title and chart."""
    from matplotlib.ticker import EngFormatter

    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_axisbelow(True)
    if axes.get_xscale() == "linear":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(axis="x", color="#e5e5e5")
    legend_above(axes, entries)


def legend_above(axes: Axes, entries: int) -> None:
    """The legend in lines of five between title and chart, with room for them; none without entries."""
    if not entries:
        return
    columns = min(entries, 5)
    lines = -(-entries // columns)
    axes.set_title(axes.get_title(loc="left"), pad=8 + 15 * lines)
    axes.legend(
        ncols=columns, frameon=False, handlelength=2.2, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2
    )
