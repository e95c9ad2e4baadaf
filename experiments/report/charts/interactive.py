"""Charts as figures of plotly.js: plain data that a page's script passes to plotly.js."""

from collections.abc import Callable, Iterable
from math import log10
from typing import Any

from experiments.figure import measure
from experiments.literal import escape_html
from experiments.report.charts.model import (
    BLACK,
    CYCLES,
    ROLES,
    TIME,
    BarChart,
    Chart,
    Gantt,
    MemoryChart,
    Roofline,
    Series,
    StepChart,
    Style,
    shorten_label,
)

Figure = dict[str, Any]
LEAST_PIXELS = 110
"""Minimum height of a plot of bars, in pixels."""
ROW_PIXELS = 19
"""Height of a row with one bar, in pixels."""
TIME_MARGIN = 84
"""Left margin of charts over time, in pixels."""
MARGIN_PIXELS = 118
"""Height of a chart without its plot, in pixels.

Above the plot are buttons and a legend of one line, below it numbers and a title.
"""


def figure(chart: Chart) -> Figure:
    """Convert a chart to the ``id``, ``data`` and ``layout`` that plotly.js draws.

    ``title`` is shown above the chart. ``layers`` says that the ``customdata`` of the points are
    layer numbers. ``row`` is the height of a row of bars, from which the script computes the height
    of a chart with fewer rows.
    """
    return {"id": chart.identity, "title": chart.title} | _MAKERS[type(chart)](chart)


def layout(horizontal: dict[str, Any], vertical: dict[str, Any], height: int) -> dict[str, Any]:
    """Return the layout that all charts share; ``height`` is the height of the plot in pixels."""
    axis = {
        "gridcolor": "#E5E5E5",
        "linecolor": BLACK,
        "zeroline": False,
        "ticks": "outside",
        "automargin": True,
    }
    return {
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": BLACK},
        "paper_bgcolor": "#FFFFFF",
        "plot_bgcolor": "#FFFFFF",
        "height": height + MARGIN_PIXELS,
        "margin": {"l": 10, "r": 20, "t": 62, "b": 56},
        "modebar": {"color": "#595959", "activecolor": BLACK, "bgcolor": "#FFFFFF"},
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "hovermode": "closest",
        "xaxis": axis | horizontal,
        "yaxis": axis | vertical,
    }


def axis_title(text: str) -> dict[str, Any]:
    return {"text": text, "standoff": 8}


def fill(style: Style) -> dict[str, Any]:
    """Return the colour and pattern of a bar."""
    pattern = {
        "shape": style.pattern,
        "fgcolor": "#FFFFFF",
        "bgcolor": style.color,
        "size": 6,
        "solidity": 0.35,
    }
    return {"color": style.color, "pattern": pattern, "line": {"color": "#FFFFFF", "width": 0.5}}


def _bars(chart: BarChart) -> Figure:
    rows = list(range(len(chart.labels)))
    names = [escape_html(label) for label in chart.labels]
    labels = [escape_html(shorten_label(label)) for label in chart.labels]
    data = [_bar_trace(chart, series, names) for series in chart.series]
    ends = [-0.6, len(rows) - 0.4]
    data += [_plain_line(name, [at, at], ends, "solid") for name, at in chart.marks]
    vertical = {"tickmode": "array", "tickvals": rows, "ticktext": labels, "showgrid": False}
    vertical["range"] = [len(rows) - 0.4, -0.6]
    horizontal: dict[str, Any] = {
        "title": axis_title(chart.axis),
        "tickformat": "~s" if chart.unit == CYCLES else ",~r",
    }
    if chart.limit:
        horizontal["range"] = [0, chart.limit]
    else:  # room for the labels at the ends of bars
        values = [0.0, *(value for series in chart.series for value in series.values)]
        ends = [1.6 * min(values), 1.6 * max(values)]
        horizontal |= (
            {"range": ends if any(ends) else [0, 1], "zeroline": True, "zerolinecolor": BLACK}
            if chart.signed
            else {"rangemode": "tozero"}
        )
    row = ROW_PIXELS if not chart.grouped else 12 * len(chart.series)
    how = {"barmode": "group" if chart.grouped else "relative", "bargap": 0.2, "showlegend": True}
    arranged = layout(horizontal, vertical, max(row * len(rows), LEAST_PIXELS)) | how
    return {
        "data": data,
        "layout": arranged,
        "layers": chart.layers,
        "row": row,
        "parts": chart.parts,
    }


def _bar_trace(chart: BarChart, series: Series, names: list[str]) -> dict[str, Any]:
    """Return the bars of a chart's series as a trace for plotly.js.

    Rows with value 0 have no bar, which keeps pages with many layers fast.
    """
    rows = [row for row, value in enumerate(series.values) if value]
    values = [round_value(series.values[row]) for row in rows]
    number = (
        "text"
        if chart.signed
        else "x:,"
        if all(isinstance(value, int) for value in values)
        else "x:,.4~r"
    )
    told = (
        {"text": [f"{value:+,}" for value in values], "textposition": "outside"}
        if chart.signed
        else {}
    )
    return told | {
        "type": "bar",
        "orientation": "h",
        "name": escape_html(series.name),
        "x": values,
        "y": rows,
        "customdata": rows,
        "hovertext": [names[row] for row in rows],
        "hovertemplate": f"<b>%{{hovertext}}</b><br>{escape_html(series.name)}: %{{{number}}} "
        f"{chart.unit}<extra></extra>",
        "marker": fill(series.style),
    }


def _roofline(chart: Roofline) -> Figure:
    ridge = chart.macs_per_cycle / chart.bytes_per_cycle
    left, bottom = chart.corner
    end = chart.end
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"roofs: {chart.bytes_per_cycle:g} bytes/cycle, {chart.macs_per_cycle:g} "
            "MACs/cycle",
            "x": [left, ridge, end],
            "y": [left * chart.bytes_per_cycle, chart.macs_per_cycle, chart.macs_per_cycle],
            "line": {"color": BLACK, "width": 2},
            "hoverinfo": "skip",
        }
    ]
    for kind, style, marks in chart.marks:
        shape = {
            "color": style.color,
            "symbol": style.marker,
            "size": 10,
            "line": {"color": BLACK, "width": 1},
        }
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": escape_html(kind),
                "x": [round_value(mark.intensity) for mark in marks],
                "y": [round_value(mark.rate) for mark in marks],
                "customdata": [mark.layer for mark in marks],
                "hovertext": [_roofline_text(mark) for mark in marks],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "marker": shape,
                "cliponaxis": False,
            }
        )
    horizontal = _logarithmic("MACs per byte of DRAM traffic", left, end)
    vertical = _logarithmic("MACs per cycle", bottom, chart.macs_per_cycle * 2)
    return {
        "data": data,
        "layout": layout(horizontal, vertical, 400),
        "layers": True,
        "named": True,
    }


def _logarithmic(title: str, low: float, high: float) -> dict[str, Any]:
    return {
        "title": axis_title(title),
        "type": "log",
        # whole markers at the edges
        "range": [round_value(log10(low)) - 0.03, round_value(log10(high)) + 0.03],
        "dtick": 1,
        "minor": {"ticks": "outside", "showgrid": True, "gridcolor": "#F2F2F2"},
        "tickformat": ",~g",
    }


def _roofline_text(mark: Any) -> str:
    name = f"<b>{escape_html(mark.label)}</b>"
    if mark.note:
        return f"{name}<br>{mark.note}"
    return f"{name}<br>{mark.intensity:,.3g} MACs/byte<br>{mark.rate:,.3g} MACs/cycle"


def _steps(chart: StepChart) -> Figure:
    times = [round_value(time) for time in chart.times]
    total = times[-1]
    data = [
        _step_line(series, chart.unit, times, filled=number == 0)
        for number, series in enumerate(chart.series)
    ]
    top = max((value for series in chart.series for value in series.values), default=0)
    for place, (name, level) in enumerate(chart.limits):
        dash = "dot" if place else "dash"
        data.append(_plain_line(name, [0, total], [level, level], dash))
    data += [_plain_line(name, [time, time], [0, top], "dashdot") for name, time in chart.marks]
    horizontal = {"title": axis_title(chart.across), "range": [0, total], "tickformat": "~s"}
    vertical = {
        "title": axis_title(f"{chart.axis} ({chart.unit})"),
        "rangemode": "tozero",
        "tickformat": ",",
    }
    made = {"data": data, "layout": layout(horizontal, vertical, 290)}
    return _share_time_axis(made, total) if chart.across == TIME else made


def _share_time_axis(made: Figure, total: float) -> Figure:
    """Give a figure the time axis that all charts over time share.

    Equal left margins put equal cycles below each other.
    """
    made["layout"]["margin"]["l"] = TIME_MARGIN
    made["layout"]["xaxis"] |= {"title": axis_title(TIME), "range": [0, total], "tickformat": "~s"}
    made["layout"]["yaxis"] |= {"automargin": False, "fixedrange": True}
    return made | {"time": True, "total": total}


def _plain_line(name: str, across: list[float], up: list[float], dash: str) -> dict[str, Any]:
    """Return a black line, such as a limit, as a trace for plotly.js."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": across,
        "y": up,
        "line": {"color": BLACK, "width": 1.5, "dash": dash},
        "hoverinfo": "skip",
    }


def _gantt(chart: Gantt) -> Figure:
    """Return a Gantt chart's axes, and its activities as columns of numbers.

    The page's script draws the visible part.
    """
    labels: dict[tuple[str, int], int] = {}
    rows = []
    for name, spans in chart.rows:
        places = [labels.setdefault((span.label, span.layer), len(labels)) for span in spans]
        keys = ("begin", "end", "active", "commands", "group")
        rows.append(
            {"name": name, "label": places}
            | {key: [getattr(span, key) for span in spans] for key in keys}
        )
    vertical: dict[str, Any] = {"tickmode": "array", "tickvals": list(range(len(rows)))}
    vertical |= {"ticktext": [row["name"] for row in rows]}
    vertical |= {"showgrid": False, "range": [len(rows) - 0.4, -0.6]}
    made = {
        "data": [],
        "layout": layout({}, vertical, 44 * len(rows)) | {"barmode": "overlay", "showlegend": True},
        "groups": [
            {"name": name, "color": style.color, "text": style.text} for name, style in chart.groups
        ],
        "rows": rows,
        "labels": [{"text": text, "layer": layer} for text, layer in labels],
        "noun": chart.noun,
    }
    return _share_time_axis(made, chart.total)


def _memory(chart: MemoryChart) -> Figure:
    """Return a memory map's axes, and its blocks as columns of numbers.

    The page's script draws the visible part.
    """
    size, unit = measure([chart.top])
    vertical = {"title": axis_title(f"address ({unit})"), "range": [0, chart.top / size]}
    made = {
        "data": [],
        "layout": layout({}, vertical, 320) | {"barmode": "overlay", "showlegend": True},
        "groups": [
            {"name": name, "color": style.color, "text": style.text}
            for name, style in ROLES.items()
        ],
        "blocks": {
            "label": [label for label, _ in chart.blocks],
            "group": [list(ROLES).index(block.role) for _, block in chart.blocks],
        }
        | {
            key: [getattr(block, key) for _, block in chart.blocks]
            for key in ("begin", "end", "address", "bytes", "layer")
        },
        "size": size,
    }
    return _share_time_axis(made, chart.total)


def _step_line(series: Series, unit: str, times: Iterable[float], filled: bool) -> dict[str, Any]:
    values = [round_value(value) for value in (*series.values, series.values[-1])]
    line = {"shape": "hv", "color": series.style.color, "width": 0.5 if filled else 1.4}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": escape_html(series.name),
        "x": list(times),
        "y": values,
        "line": line,
        "fill": "tozeroy" if filled else "none",
        "hovertemplate": f"cycle %{{x:,}}: %{{y:,.4~r}} "
        f"{unit}<extra>{escape_html(series.name)}</extra>",
    }


def round_value(value: float) -> float:
    """Round to six significant digits, more than a chart shows, to keep pages small.

    Integers stay unchanged.
    """
    return value if isinstance(value, int) else float(f"{value:.6g}")


_MAKERS: dict[type, Callable[[Any], Figure]] = {
    BarChart: _bars,
    Gantt: _gantt,
    Roofline: _roofline,
    StepChart: _steps,
    MemoryChart: _memory,
}
