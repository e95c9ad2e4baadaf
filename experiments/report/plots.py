"""Charts as PNG images, drawn by matplotlib.

Equal charts give equal bytes with the same matplotlib.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from math import ceil, log2, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.figure import BYTES, brief, measure
from experiments.literal import literal
from experiments.report.charts.model import (
    BLACK,
    BLUE,
    CYCLES,
    ORANGE,
    ROLES,
    TIME,
    VERMILION,
    BarChart,
    Gantt,
    Measure,
    MemoryChart,
    Picture,
    Roofline,
    Scatter,
    Series,
    StepChart,
    shorten_label,
)
from isa.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MOST_ROWS = 80
"""Maximum number of rows in an image of bars; the largest rows are kept, in their order."""
HATCHES = {
    "": "",
    "/": "////",
    "\\": "\\\\\\\\",
    "x": "xxxx",
    "-": "----",
    "|": "||||",
    "+": "++++",
    ".": "....",
}
MARKERS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "x": "X", "star": "*",
    "pentagon": "p",
    "cross": "P", "triangle-down": "v",
}  # fmt: skip
MARKS = (BLUE, ORANGE)
"""Colours of vertical lines."""
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


def save_charts(charts: Iterable[Picture], folder: Path) -> tuple[Path, ...]:
    """Draw every chart into ``folder`` as ``<identity>.png``.

    Raise InputError if a file cannot be written.
    """
    places = {folder / f"{chart.identity}.png": chart for chart in charts}
    for place, chart in places.items():
        write_atomically(place, picture([chart]))
    return tuple(places)


def _choose_drawing(chart: Picture) -> tuple[float, Callable[[Axes], None]]:
    """Return the height of a chart in inches, and the function that draws it."""
    height, draw = _DRAWINGS[type(chart)]
    return height(chart), lambda axes: draw(axes, chart)


def draw_chart(chart: Picture, axes: Axes | None = None) -> Axes:
    """Draw a chart on ``axes`` and return the axes.

    Without ``axes``, the chart gets new axes of pyplot, which notebooks show.
    """
    import matplotlib
    from matplotlib import pyplot

    height, draw = _choose_drawing(chart)
    settings: Any = _SETTINGS
    # The figure is created before rc_context: the first figure turns on a notebook's display, and
    # leaving rc_context would turn it off again.
    figure = (
        pyplot.figure(figsize=(_WIDTH, height), layout="constrained")
        if axes is None
        else axes.figure
    )
    with matplotlib.rc_context(settings):
        drawn = figure.add_subplot() if axes is None else axes
        draw(drawn)
    return drawn


def picture(charts: Sequence[Picture]) -> bytes:
    """Return several charts next to each other as one PNG image.

    Equal charts give equal bytes, whatever the user's matplotlibrc contains.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: Any = {**matplotlib.rcParamsDefault, **_SETTINGS}
    drawings = [_choose_drawing(chart) for chart in charts]
    with matplotlib.rc_context(settings):
        width = _WIDTH if len(charts) == 1 else 0.65 * _WIDTH * len(charts)
        made = Figure(figsize=(width, max(height for height, _ in drawings)), layout="constrained")
        FigureCanvasAgg(made)
        for axes, (_, draw) in zip(
            made.subplots(1, len(charts), squeeze=False)[0], drawings, strict=True
        ):
            draw(axes)
        return _png(made)


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    with warnings.catch_warnings():
        # characters that the font lacks show as boxes
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def plain(text: str) -> str:
    """Escape ``text`` for matplotlib.

    In matplotlib a dollar sign begins a formula, and the fonts lack control characters.
    """
    return literal(text).replace("$", r"\$")


def bars_height(chart: BarChart) -> float:
    """Return the height of a bar chart in inches."""
    rows = min(len(chart.labels), MOST_ROWS) * (len(chart.series) if chart.grouped else 1)
    return max(2.2, 1.4 + _ROW * rows)


def draw_bars(axes: Axes, chart: BarChart) -> None:
    """Draw horizontal bars, the first row at the top."""
    rows = _largest(chart)
    count = len(chart.series)
    thickness = 0.8 / count if chart.grouped else 0.8
    left = [0.0] * len(rows)
    ends = [0.0, *(value for series in chart.series for value in series.values)]
    for number, series in enumerate(chart.series):
        values = [series.values[row] for row in rows]
        shift = (number - (count - 1) / 2) * thickness if chart.grouped else 0.0
        style = series.style
        bars = axes.barh(
            [place + shift for place in range(len(rows))],
            values,
            thickness,
            left=None if chart.grouped else left,
            color=style.color,
            hatch=HATCHES[style.pattern],
            edgecolor="white",
            linewidth=0.3,
            label=plain(series.name),
        )
        if chart.signed:
            axes.bar_label(
                bars, [f"{value:+,}" if value else "" for value in values], padding=3, fontsize=7
            )
        left = [before + length for before, length in zip(left, values, strict=True)]
    for name, at in chart.marks:
        axes.axvline(at, color=BLACK, linewidth=1.5, label=name)
    axes.set_yticks(range(len(rows)), [plain(shorten_label(chart.labels[row])) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    if chart.limit is not None:
        axes.set_xlim(0, chart.limit)
    elif chart.signed:
        axes.set_xlim(1.15 * min(ends), 1.15 * max(ends) or (0.0 if min(ends) else 1.0))
        axes.axvline(0, color=BLACK, linewidth=1)
    title = chart.title
    if len(rows) < len(chart.labels):
        title += f" (the {len(rows)} largest of {len(chart.labels)})"
    _finish(axes, title, chart.axis, "", count + len(chart.marks))
    if chart.unit != CYCLES:
        axes.xaxis.set_major_formatter("{x:,g}")


def _largest(chart: BarChart) -> list[int]:
    sums = [
        sum(abs(series.values[row]) for series in chart.series) for row in range(len(chart.labels))
    ]
    ranked = sorted(range(len(sums)), key=lambda row: (-sums[row], row))
    return sorted(ranked[:MOST_ROWS])


def draw_roofline(axes: Axes, chart: Roofline) -> None:
    ridge = chart.macs_per_cycle / chart.bytes_per_cycle
    left, bottom = chart.corner
    end = chart.end
    roof = [left * chart.bytes_per_cycle, chart.macs_per_cycle, chart.macs_per_cycle]
    name = f"roofs: {chart.bytes_per_cycle:g} bytes/cycle, {chart.macs_per_cycle:g} MACs/cycle"
    axes.plot([left, ridge, end], roof, color=BLACK, linewidth=1.8, label=name, zorder=1)
    for kind, style, marks in chart.marks:
        across = [mark.intensity for mark in marks]
        up = [mark.rate for mark in marks]
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
    if any(
        mark.rate > mark.intensity * chart.bytes_per_cycle
        for _, _, marks in chart.marks
        for mark in marks
    ):
        across_title += "\n(above the slanted roof: fetched while earlier layers computed)"
    _finish(axes, chart.title, across_title, "MACs per cycle", 1 + len(chart.marks))


def draw_steps(axes: Axes, chart: StepChart) -> None:
    """Draw levels over time, the first series as an area."""
    for number, series in enumerate(chart.series):
        _step(axes, series, chart.times, filled=number == 0)
    for number, (name, level) in enumerate(chart.limits):
        line = "--" if number == 0 else ":"
        axes.axhline(level, color=BLACK, linestyle=line, linewidth=1.3, label=name)
    for number, (name, time) in enumerate(chart.marks):
        axes.axvline(time, color=MARKS[number], linestyle="-.", linewidth=1.3, label=name)
    axes.set_xlim(0, max([chart.times[-1], *(time for _, time in chart.marks)]))
    axes.set_ylim(bottom=0)
    entries = len(chart.series) + len(chart.limits) + len(chart.marks)
    _finish(axes, chart.title, chart.across, f"{chart.axis} ({chart.unit})", entries)


def draw_scatter(axes: Axes, chart: Scatter) -> None:
    """Draw the points of all groups, and the line of the Pareto front."""
    for name, style, places in chart.groups:
        axes.scatter(
            [x for x, _ in places], [y for _, y in places], s=28, color=style.color,
            marker=MARKERS[style.marker],
            edgecolors="white", linewidths=0.4, label=plain(name),
        )  # fmt: skip
    line = [x for x, _ in chart.front], [y for _, y in chart.front]
    axes.step(*line, where="post", color=VERMILION, linewidth=1.6, label="Pareto front")
    axes.scatter(*line, s=90, facecolors="none", edgecolors=VERMILION, linewidths=1.5)
    everything = [*chart.front, *(place for *_, group in chart.groups for place in group)] or [
        (1.0, 1.0)
    ]
    across = [x for x, _ in everything]
    up = [y for _, y in everything]
    if chart.across.log:
        axes.set_xscale("log")
    else:
        axes.set_xlim(_from_zero(across))
    if chart.up.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(_from_zero(up))
    _ticks(chart.across, axes.xaxis, across)
    _ticks(chart.up, axes.yaxis, up)
    axes.grid(color="#e5e5e5")
    axes.set_axisbelow(True)
    axes.set_title(plain(chart.title))
    legend_above(axes, len(chart.groups) + 1)


def _from_zero(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a linear axis that includes 0."""
    return min(0, *values, 0), max(*values, 0) * 1.06 or 1


def _ticks(measure: Measure, axis: Axis, values: Sequence[float]) -> None:
    """Set the title of an axis and a few short tick labels.

    Sizes get powers of two, or multiples of one.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullFormatter

    axis.set_label_text(plain(measure.title))
    if measure.log:
        decades = log10(max(values) / min(values))
        subdivisions = (1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)
        axis.set_major_locator(
            LogLocator(2.0) if measure.unit == BYTES else LogLocator(10.0, subdivisions)
        )
        axis.set_minor_formatter(NullFormatter())
    elif measure.unit == BYTES and max(values) > 0:
        axis.set_major_locator(MultipleLocator(2 ** ceil(log2(max(values) / 6))))
    axis.set_major_formatter(FuncFormatter(lambda value, _: brief(value, measure.unit)))


def draw_gantt(axes: Axes, chart: Gantt) -> None:
    """Draw a Gantt chart of activities over time, with one row for each unit."""
    places = [name for name, _ in chart.rows]
    for number, (name, style) in enumerate(chart.groups):
        for row, (_, activities) in enumerate(chart.rows):
            found = [(one.begin, one.end - one.begin) for one in activities if one.group == number]
            axes.broken_barh(found, (row - 0.4, 0.8), color=style.color, linewidth=0.3)
        if name not in places:  # the row label already names the others
            axes.barh(0, 0, color=style.color, label=plain(name))
    axes.set_yticks(range(len(places)), [plain(name) for name in places])
    axes.set_ylim(len(places) - 0.4, -0.6)
    axes.set_xlim(0, chart.total)
    _finish(axes, chart.title, TIME, "", sum(name not in places for name, _ in chart.groups))


def draw_memory(axes: Axes, chart: MemoryChart) -> None:
    """Draw a memory map over time: a rectangle for each block of bytes."""
    size, unit = measure([chart.top])
    for role, style in ROLES.items():
        blocks = [block for _, block in chart.blocks if block.role == role]
        axes.bar(
            [block.begin for block in blocks],
            [block.bytes / size for block in blocks],
            [block.end - block.begin for block in blocks],
            [block.address / size for block in blocks],
            align="edge",
            color=style.color,
            edgecolor="white",
            linewidth=0.4,
            label=role,
        )
    axes.set_xlim(0, chart.total)
    axes.set_ylim(0, chart.top / size)
    _finish(axes, chart.title, TIME, f"address ({unit})", len(ROLES))


def _step(axes: Axes, series: Series, edges: Sequence[float], filled: bool) -> None:
    color = series.style.color
    if filled:
        axes.stairs(series.values, edges, fill=True, color=color, alpha=0.5, label=series.name)
    else:
        axes.stairs(series.values, edges, color=color, linewidth=1.3, label=series.name)


def _finish(axes: Axes, title: str, across: str, up: str, entries: int) -> None:
    """Set a chart's title, axis labels with their units, and legend.

    The legend is between the title and the chart.
    """
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
    """Put a legend in lines of five entries between title and chart.

    Without entries, do nothing.
    """
    if not entries:
        return
    columns = min(entries, 5)
    lines = -(-entries // columns)
    axes.set_title(axes.get_title(loc="left"), pad=8 + 15 * lines)
    axes.legend(
        ncols=columns,
        frameon=False,
        handlelength=2.2,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
    )


_DRAWINGS: dict[type, tuple[Callable[[Any], float], Callable[[Axes, Any], None]]] = {
    BarChart: (bars_height, draw_bars),
    Roofline: (lambda chart: 5.0, draw_roofline),
    Gantt: (lambda chart: 1.4 + 0.4 * len(chart.rows), draw_gantt),
    Scatter: (lambda chart: 5.0, draw_scatter),
    StepChart: (lambda chart: 4.0, draw_steps),
    MemoryChart: (lambda chart: 4.5, draw_memory),
}
"""Height in inches of each kind of chart, and the function that draws it."""
