"""Report of a sweep: how points ended, the front of every network, charts, and an interactive page.

The page contains the columns, and its scripts draw the charts: Pareto front, heat map and parallel
coordinates over columns that the reader chooses, with filters.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from byoc.options import PROGRAM_OPTIONS
from dla_sim.presets import load_preset
from experiments.figure import format_figure
from experiments.report.charts.interactive import layout, round_value
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
from experiments.report.html import (
    CHOOSER,
    Html,
    Section,
    chart_place,
    fold_block,
    join_parts,
    listing,
    page,
    pairs,
    paragraph,
    table,
)
from experiments.report.shown import Presentation
from experiments.report.terminal import Printed, ReportTable, line, plain_table
from experiments.sweep.results import (
    HOST_CYCLES,
    LIMITS,
    MISSED,
    SIZE,
    UNMET,
    Objectives,
    Sweep,
    reasons,
    sign,
    title,
    unit,
    words,
)
from isa.arch import flat
from isa.errors import InputError
from isa.reading import toml_of

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


MOST_ROWS = 30
"""Most rows of a table."""


Front = tuple[Sweep, Objectives]
"""A sweep's results, and the two columns of the front."""


def _lines(found: Front) -> Iterator[str]:
    sweep, _ = found
    ended = ", ".join(f"{count} {status}" for status, count in sweep.statuses.items())
    yield f"{sweep.name}: {sweep.points:,} points: {ended}"


def sweep_tables(found: Front) -> Iterator[Printed]:
    """Yield tables of the points' statuses and of every network's Pareto front."""
    sweep, objectives = found
    yield from map(line, _lines(found))
    if len(sweep.statuses.keys() - {"ok"}):
        yield reasons_table(sweep)
    for network in sweep.networks:
        if sweep.select_network(network):
            yield front_table(sweep, objectives, network)
    yield from map(line, _host_notes(sweep, objectives))


def _host_notes(sweep: Sweep, objectives: Objectives) -> Iterator[str]:
    """Yield a note for each network whose points differ in CPU cycles that the front ignores."""
    if "cycles" not in objectives or HOST_CYCLES in objectives or HOST_CYCLES not in sweep.columns:
        return
    for network in sweep.networks:
        values = (sweep.columns[HOST_CYCLES][point] for point in sweep.select_network(network))
        found = [value for value in values if value is not None]
        if len({*found}) > 1:
            yield (
                f"{network}: the front ignores the estimated cycles on the CPU, which differ: "
                f"{min(found):,} to {max(found):,} (--y {HOST_CYCLES})"
            )


def reasons_table(sweep: Sweep) -> ReportTable:
    """Return the table of reasons why points did not end ok, the most frequent first."""
    found = reasons(sweep)
    table = plain_table(("status", "left"), ("reason", "fold"), ("points", "right"))
    for status, message, count in found[:MOST_ROWS]:
        table.add_row(status, message, f"{count:,}")
    if len(found) > MOST_ROWS:
        table.add_row("", f"{len(found) - MOST_ROWS} more reasons", "")
    return table


def front_columns(sweep: Sweep, objectives: Objectives) -> tuple[str, ...]:
    """Return the columns of the front table: the two objectives, then the other axes that vary."""
    return (
        *objectives,
        *(name for name in sweep.axes if name != "network" and name not in objectives),
    )


def front_table(sweep: Sweep, objectives: Objectives, network: str) -> ReportTable:
    """Return the table of a network's Pareto front."""
    points = sweep.select_network(network)
    front = sweep.front(objectives, points)
    names = front_columns(sweep, objectives)
    columns = (
        (title(name), "right") if name in objectives else (name, "right", place)
        for place, name in enumerate(names)
    )
    table = plain_table(
        *columns, title=f"{network}: {len(front)} of {len(points):,} points are on the front"
    )
    for point in front[:MOST_ROWS]:
        table.add_row(*(format_figure(sweep.columns[name][point], unit(name)) for name in names))
    if len(front) > MOST_ROWS:
        table.add_row(f"{len(front) - MOST_ROWS} more", *("" for _ in names[1:]))
    return table


SCRIPTS = ("sweep_data.js", "pareto.js", "heatmap.js", "parallel.js", "sweep.js")
_NOTES = {
    "pareto": "For a point on the line, no other shown point is better in one column and as good "
    "in the other. "
    "Click a point to show all its figures and the command that runs it.",
    "heatmap": "Darker is better. Each cell is the best value among the points shown that have its "
    "two coordinates. "
    "Click a cell to keep only its points; click it again to keep all.",
    "parallel": "Each line is a point; a line of more contrast is better in the front's "
    "second column. The front is orange. "
    "Click an axis where lines meet it, to keep the points with that value or with better values.",
}


def sweep_page(
    sweep: Sweep,
    objectives: Objectives,
    answer: Section | None = None,
    commands: Sequence[str] = (),
) -> str:
    """Return the HTML page of a sweep; equal results give equal text.

    The points of a joint sweep are machines. It has an ``answer`` and the command of each machine.
    """
    ended = [
        ("points", f"{sweep.points:,}"),
        *((status, f"{count:,}") for status, count in sweep.statuses.items()),
    ]
    made = [("command", manifest.get("command", "")) for manifest in sweep.manifests]
    notes = map(paragraph, _host_notes(sweep, objectives))
    sections = [Section("summary", "Summary", join_parts(pairs([*ended, *made]), *notes))]
    if answer is not None:
        sections.insert(0, answer)
    if sweep.finished:
        sections.append(Section("filters", "Filters", CHOOSER))
        for name, heading in (
            ("pareto", "Pareto front"),
            ("heatmap", "Heat map"),
            ("parallel", "Parallel coordinates"),
        ):
            choices = Html(f'<div class="choices" id="{name}-choices"></div>')
            front = Html(
                '<p class="note" id="front-count"></p><div id="front"></div>'
                if name == "pareto"
                else ""
            )
            body = join_parts(choices, chart_place(name, note=_NOTES[name]), front)
            sections.append(Section(f"section-{name}", heading, body))
    found = reasons(sweep)
    if found:
        listed = table(
            ("ended", "why", "points"), ((a, b, f"{count:,}") for a, b, count in found), [2]
        )
        sections.append(Section("failures", "Points without figures", listed))
    sections.append(Section("origin", "What made these results", _origin(sweep)))
    scripts = SCRIPTS if sweep.finished else ()
    data = _data(sweep, objectives) | {"runs": list(commands)}
    return page(f"{sweep.name}: sweep report", sections, data, scripts)


def _origin(sweep: Sweep) -> Html:
    """Return the HTML section with a sweep's constant columns and manifests."""
    constant = _constant(sweep).items()
    said = [
        fold_block(
            "What all points share",
            pairs((words(name), json.dumps(value)) for name, value in constant),
        )
    ]
    for manifest in sweep.manifests:
        rows: Iterable[tuple[str, object]] = [
            *((name, manifest[name]) for name in ("command", "points") if name in manifest),
            *(
                (f"version of {name}", found)
                for name, found in manifest.get("versions", {}).items()
            ),
            *(
                (f"package of {name}", found)
                for name, found in manifest.get("packages", {}).items()
            ),
        ]
        said += [
            pairs(rows),
            fold_block("Specification", listing(str(manifest.get("specification", "")))),
        ]
    return join_parts(*said)


def _data(sweep: Sweep, objectives: Objectives) -> dict[str, Any]:
    """Return a sweep's data for the page's scripts, without columns that do not vary."""
    varied = [name for name in sweep.chosen if len(set(sweep.columns.get(name, ()))) > 1]
    drawn = usual(sweep)
    wanted = dict.fromkeys((
        *varied, *sweep.axes, *sweep.figures, *objectives, "network", sweep.measure, SIZE, LIMITS,
        UNMET,
    ))  # fmt: skip
    own = [name for name in sweep.figures if name.startswith(f"{objectives[1]}.")]
    others = [name for name in sweep.figures if "." not in name]
    axes = [name for name in sweep.axes if name != "network"]
    columns = {name: _column(sweep, name) for name in wanted if name in sweep.columns}
    return {
        "columns": columns,
        "ok": list(sweep.finished),
        "points": sweep.points,
        "axes": axes,
        "listed": [
            name
            for name in dict.fromkeys((LIMITS, *objectives, *own, *axes, UNMET, *others))
            if name in columns
        ],
        "figures": list(sweep.drawable()),
        "networks": list(sweep.networks),
        "measure": sweep.measure,
        "x": objectives[0],
        "y": objectives[1],
        "color": drawn.color or "",
        "heat": drawn.heat or ("", ""),
        "parallel": drawn.parallel,
        "lines": MOST_LINES,
        "groups": [{"color": style.color, "symbol": style.marker} for style in GROUPS],
        "layout": layout({}, {}, 400),
        "commands": _commands(sweep),
        "keys": list(sweep.columns["key"]),
    }


def _column(sweep: Sweep, name: str) -> dict[str, Any]:
    """Return a column of sweep results as JSON data.

    Chosen columns are stored as indices into a list of distinct values.
    """
    values = [
        value if not isinstance(value, float) else round_value(value)
        for value in sweep.columns[name]
    ]
    found: dict[str, Any] = {"title": title(name), "words": words(name), "unit": unit(name)}
    found["more"] = sign(name) < 0
    distinct = sorted(set(values), key=order)
    if name in sweep.chosen:
        numbers = {value: number for number, value in enumerate(distinct)}
        return found | {"distinct": distinct, "codes": [numbers[value] for value in values]}
    return found | {"values": values}


def _constant(sweep: Sweep) -> dict[str, Any]:
    """Return the chosen columns that have the same value at all points, with that value."""
    columns = ((name, values) for name, values in sweep.columns.items() if name in sweep.chosen)
    return {name: values[0] for name, values in columns if len(set(values)) == 1}


def _commands(sweep: Sweep) -> dict[str, Any]:
    """Return what the page needs to build a point's ``dla run`` command.

    These are the compiler options, the presets, and the keys that do not vary.
    """
    texts = (manifest.get("specification", "") for manifest in sweep.manifests)
    specifications = [toml_of(text, sweep.name, "run the sweep again") for text in texts]
    options = {tuple(_options(specification)) for specification in specifications}
    agreed = len(options) == 1
    return {
        "constant": _constant(sweep),
        "choices": {
            option.name: {"word": option.word, "usual": option.default}
            for option in PROGRAM_OPTIONS
        },
        "presets": dict(_presets(sweep)) if agreed else {},
        "options": list(*options) if agreed else [],
    }


def _options(specification: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of ``dla run`` that are the same for all points of a specification."""
    if specification.get("seed"):
        yield from ("--seed", str(specification["seed"]))
    for name, shape in specification.get("shapes", {}).items():
        yield from ("--shape", f"{name}={','.join(map(str, shape))}")


def _presets(sweep: Sweep) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the settings of the presets that can still be read."""
    for name in sorted(set(sweep.columns.get("preset", ()))):
        try:
            preset = load_preset(name)
        except InputError:
            continue
        yield name, flat(preset.arch.model_dump()) | preset.timing.model_dump()


FRONT = Presentation(
    lines=_lines,
    tables=sweep_tables,
    records=lambda found: found[0].rows(),
    charts=lambda found: sweep_charts(*found),
    page=lambda found: sweep_page(*found),
)
