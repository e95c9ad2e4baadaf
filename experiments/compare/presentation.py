"""Display of a comparison: tables for a terminal, charts, and an HTML page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from experiments.compare.comparison import (
    COUNTED,
    FIGURES,
    MILLISECONDS,
    MOVERS,
    OF_RUNS,
    LayerPair,
    ManyRuns,
    Pair,
    RunComparison,
    comparison_rows,
)
from experiments.figure import SHARE, measure
from experiments.report.charts.interactive import MARGIN_PIXELS, figure
from experiments.report.charts.model import (
    FASTER,
    FIRST,
    KINDS,
    SECOND,
    SLOWER,
    BarChart,
    Chart,
    Series,
)
from experiments.report.html import (
    CHOOSER,
    Section,
    chart_place,
    join_parts,
    page,
    pairs,
    paragraph,
    table,
    table_place,
)
from experiments.report.shown import Presentation
from experiments.report.terminal import Printed, ReportTable, line, plain_table

_COLUMNS = {"dram_read_bytes": "bytes read", "dram_write_bytes": "bytes written"}
_COLUMNS = {
    name: _COLUMNS.get(name, COUNTED[name].words)
    for name in FIGURES
    if name not in ("cycles", "macs")
}
"""Headings of a layer's figures other than cycles and MACs, by figure."""
_RANKS = {"kind": 2, "cycles B": 1, "instructions": 5, "bytes read": 4, "bytes written": 3}
"""Ranks of columns in the table of layers.

A narrow terminal omits the column of the highest rank first.
"""
_SOLE = {"only in A": "only A", "only in B": "only B"}
NO_CONDITION = ("only the results", "", "")
"""Row shown if no condition differs."""
NO_MOVERS = "no layer's cycles changed"


def comparison_tables(found: RunComparison) -> Iterator[Printed]:
    for words in side_lines(found):
        yield line(": ".join(words))
    yield plain_table(
        ("what differs", "left"), ("A", "fold"), ("B", "fold"), rows=condition_rows(found)
    )
    figures = [(name, "right") for name in ("A", "B", "B - A", "change")]
    yield plain_table(("total", "left"), *figures, rows=totals_rows(found))
    movers = found.movers
    yield (
        _layers_table(found, f"largest changes of {len(movers)}", movers[:MOVERS])
        if movers
        else line(NO_MOVERS)
    )
    yield _layers_table(found, "layer", found.layers)
    for layer in found.differing:
        yield line(f"{layer.name}: {layer.remark}", style="red")


def side_lines(found: RunComparison) -> Iterable[Sequence[str]]:
    """Yield letter (A or B), title and, if known, command of both compared runs."""
    for letter, side in (("A", found.a), ("B", found.b)):
        yield (letter, side.title, side.command) if side.command else (letter, side.title)


def condition_rows(found: RunComparison) -> Iterable[Sequence[str]]:
    """Return a table row per run condition that differs; if none does, one row that says so."""
    return [(name, *pair) for name, pair in found.conditions.items()] or [NO_CONDITION]


def totals_rows(found: RunComparison) -> Iterable[Sequence[str]]:
    """Yield the rows of the totals table of two runs.

    A row has name, A, B, difference and change in percent: values first, cycles by kind last.
    """
    if found.has_values:
        yield "values", "", found.verdict, "", ""
    rows: list[tuple[str, str, Pair]] = [
        (*_name_total(name), pair) for name, pair in found.totals.items()
    ]
    rows += [(f"cycles of {kind}", "cycles", pair) for kind, pair in found.kinds.items()]
    for name, unit, (before, after) in rows:
        if before is not None or after is not None:
            gap = ""
            share = ""
            if before is not None and after is not None:
                gap = format_signed(after - before)
                share = change(before, after) if unit != "%" else ""
            yield name, _number(before, unit), _number(after, unit), gap, share


def _name_total(name: str) -> tuple[str, str]:
    """Return the displayed name and the unit of a figure of the whole run."""
    if name == MILLISECONDS:
        return "time", "ms"
    figure = OF_RUNS[name]
    return figure.head, "%" if figure.unit == SHARE else figure.unit


def _number(value: float | None, unit: str) -> str:
    """Format a figure with its unit for a table cell, or ``-`` if it is unknown."""
    if value is None:
        return "-"
    return f"{value:,} {unit}".strip() if isinstance(value, int) else f"{value:,.3f} {unit}".strip()


def format_signed(value: float) -> str:
    """Return a difference with its sign; empty if it is 0."""
    if not value:
        return ""
    return f"{value:+,}" if isinstance(value, int) else f"{value:+,.3f}"


def change(before: float, after: float) -> str:
    """Return the relative change from ``before`` to ``after`` as text in percent.

    Empty if nothing changes, "new" if it was 0.
    """
    if not before:
        return "" if not after else "new"
    share = (after - before) / before
    return "" if not share else f"{share:+.1%}".replace("%", " %")


def layer_headings(found: RunComparison) -> tuple[str, ...]:
    """Return the column headings of the layer comparison after the layer's name.

    Text columns come first, then figures that a side knows.
    """
    known = [heading for name, heading in _COLUMNS.items() if _is_known(found, name)]
    return (*_words(found), "cycles A", "cycles B", "B - A", "change", *known)


def _words(found: RunComparison) -> tuple[str, ...]:
    kinds = ("kind",) if any(layer.kinds for layer in found.layers) else ()
    return (*kinds, "values") if found.has_values else kinds


def layer_row(found: RunComparison, layer: LayerPair) -> Sequence[str]:
    """Return the table cells of one compared layer, in the order of :func:`layer_headings`."""
    cells = {"kind": " + ".join(layer.kinds), "values": layer.values}
    before, after = layer.figures["cycles"]
    cells |= {
        "cycles A": _number(before, ""),
        "cycles B": _number(after, ""),
        "B - A": format_signed(layer.change),
    }
    cells["change"] = _SOLE.get(layer.values) or change(before or 0, after or 0)
    cells |= {heading: _arrow(layer.figures[name]) for name, heading in _COLUMNS.items()}
    return [cells[heading] for heading in layer_headings(found)]


def _arrow(pair: Pair) -> str:
    """Format the figures of two runs as ``1,000 → 900``.

    The result is one number if both are equal, and empty text if both are unknown.
    """
    if pair == (None, None):
        return ""
    return " → ".join(_number(value, "") for value in dict.fromkeys(pair))


def _layers_table(found: RunComparison, heading: str, layers: Iterable[LayerPair]) -> ReportTable:
    headings = layer_headings(found)
    words = len(_words(found))
    columns = [
        (name, "left" if number < words else "right", _RANKS.get(name, 0))
        for number, name in enumerate(headings)
    ]
    return plain_table(
        (heading, "fold"),
        *columns,
        rows=[(layer.name, *layer_row(found, layer)) for layer in layers],
    )


_LAYERS = ("layer-changes", "layer-cycles", "layer-traffic")


def comparison_charts(found: RunComparison) -> tuple[Chart, ...]:
    """Return all charts that compare two runs.

    None if neither side has a layer, and no chart of kinds unless both sides know them.
    """
    if not found.layers:
        return ()
    return (
        change_chart(found),
        cycles_chart(found),
        *([traffic_chart(found)] if _is_known(found, "dram_read_bytes") else []),
        *([kinds_chart(found)] if found.kinds else []),
    )


def _is_known(found: RunComparison, name: str) -> bool:
    """Return whether both runs have a figure for any layer; described machines may lack it."""
    sides = [*zip(*(layer.figures[name] for layer in found.layers), strict=True)]
    return bool(sides) and all(set(side) != {None} for side in sides)


def _names(found: RunComparison) -> tuple[str, ...]:
    return tuple(layer.name for layer in found.layers)


def change_chart(found: RunComparison) -> BarChart:
    """Return a chart of the change in cycles of each layer between two runs."""
    changes = [layer.change for layer in found.layers]
    series = (
        Series("B is faster", tuple(min(change, 0) for change in changes), FASTER),
        Series("B is slower", tuple(max(change, 0) for change in changes), SLOWER),
    )
    return BarChart(
        "layer-changes",
        "Change of cycles per layer",
        "change of cycles, B − A",
        "cycles",
        _names(found),
        series,
        note="Bars to the left: B takes fewer cycles. A layer and its requantisation count as one "
        "layer. The changes add up to the change of the total.",
        signed=True,
    )


def cycles_chart(found: RunComparison) -> BarChart:
    """Return a chart of the cycles of each layer in the two compared runs."""
    series = _both([layer.figures["cycles"] for layer in found.layers])
    return BarChart(
        "layer-cycles", "Cycles per layer", "cycles", "cycles", _names(found), series, grouped=True
    )


def traffic_chart(found: RunComparison) -> BarChart:
    """Return a chart of the system memory traffic of each layer in the two compared runs.

    The traffic is the bytes that the layer read and wrote.
    """
    moved = []
    for layer in found.layers:
        read = layer.figures["dram_read_bytes"]
        written = layer.figures["dram_write_bytes"]
        moved.append(
            tuple((one or 0) + (other or 0) for one, other in zip(read, written, strict=True))
        )
    size, unit = measure(bytes_ for pair in moved for bytes_ in pair)
    series = _both([tuple(bytes_ / size for bytes_ in pair) for pair in moved])
    return BarChart(
        "layer-traffic",
        "DRAM traffic per layer, read and written",
        f"DRAM traffic ({unit})",
        unit,
        _names(found),
        series,
        grouped=True,
    )


def kinds_chart(found: RunComparison) -> BarChart:
    """Return a chart of the cycles of two compared runs by kind."""
    series = _both(found.kinds.values())
    return BarChart(
        "kind-cycles",
        "Cycles by kind",
        "cycles",
        "cycles",
        tuple(found.kinds),
        series,
        layers=False,
        grouped=True,
    )


def _both(rows: Iterable[tuple[float | None, ...]]) -> tuple[Series, Series]:
    """Return the chart series of run A and of run B from pairs; missing values count as 0."""
    first, second = zip(*rows, strict=True)
    return Series("A", tuple(one or 0 for one in first), FIRST), Series(
        "B", tuple(one or 0 for one in second), SECOND
    )


def comparison_page(found: RunComparison) -> str:
    """Return the HTML page that compares two runs; equal comparisons give equal text."""
    charts = comparison_charts(found)
    drawn = {chart.identity: chart for chart in charts}
    sides = [
        (f"{letter}: {title}", "".join(command)) for letter, title, *command in side_lines(found)
    ]
    conditions = table(("what differs", "A", "B"), condition_rows(found))
    totals = table(("total", "A", "B", "B − A", "change"), totals_rows(found), range(1, 5))
    sections = [Section("summary", "Summary", join_parts(pairs(sides), conditions, totals))]
    if found.differing:
        remarks = table(
            ("layer", "values"), [(layer.name, layer.remark) for layer in found.differing]
        )
        sections.append(Section("values", "Values that differ", remarks))
    if drawn:
        layers = [drawn[name] for name in _LAYERS if name in drawn]
        places = (chart_place(one.identity, one.title, one.note) for one in layers)
        sections.append(Section("layers", "Layers", join_parts(CHOOSER, *places)))
    if "kind-cycles" in drawn:
        sections.append(
            Section("kinds", "Kinds", chart_place("kind-cycles", drawn["kind-cycles"].title))
        )
    if drawn:
        sections.append(
            Section("table", "All layers, largest changes first", table_place("layer-table"))
        )
    return page(
        f"{found.a.title} against {found.b.title}",
        sections,
        _data(found, charts),
        ["gantt.js", "layers.js"],
    )


def _data(found: RunComparison, charts: tuple[Chart, ...]) -> dict[str, Any]:
    return {
        "figures": [figure(chart) for chart in charts],
        "layers": [
            {"name": layer.name, "kind": layer.kinds[0] if layer.kinds else ""}
            for layer in found.layers
        ],
        "table": _layer_table(found),
        "weights": [abs(layer.change) for layer in found.layers],
        "weight": "change",
        "order": "change",
        "margin": MARGIN_PIXELS,
    }


def _layer_table(found: RunComparison) -> dict[str, Any]:
    """Return the HTML page's table of every figure of every layer in two runs.

    The largest changes come first. ``layers`` holds the layer's number for each row.
    """
    known = [name for name in FIGURES if _is_known(found, name)]
    columns = [
        ("layer", "text"),
        ("kind", "text"),
        *([("values", "text")] if found.has_values else []),
    ]
    columns += [("change", "share"), ("B − A", "cycles")]
    columns += [
        (f"{COUNTED[name].head} {side}", COUNTED[name].unit) for name in known for side in "AB"
    ]
    number = {layer.name: place for place, layer in enumerate(found.layers)}
    members = (*found.movers, *(layer for layer in found.layers if not layer.change))
    return {
        "columns": [{"heading": heading, "unit": unit} for heading, unit in columns],
        "rows": [
            [*_list_cells(found, one), *(side for name in known for side in one.figures[name])]
            for one in members
        ],
        "layers": [number[layer.name] for layer in members],
    }


def _list_cells(found: RunComparison, layer: LayerPair) -> Iterable[Any]:
    """Yield the table cells of a layer: name, kind, verdict on values, and change of cycles.

    The relative change is None if a side does not have the layer.
    """
    before, after = layer.figures["cycles"]
    yield from (layer.name, " + ".join(layer.kinds), *([layer.values] if found.has_values else []))
    yield round(layer.change / before, 6) if before and after is not None else None
    yield layer.change


COMPARISON = Presentation(
    lines=lambda found: [f"{found.a.title} against {found.b.title}: {found.verdict}"],
    tables=comparison_tables,
    records=comparison_rows,
    charts=comparison_charts,
    page=comparison_page,
)


def many_tables(found: ManyRuns) -> Iterator[Printed]:
    for words in _list_sides(found):
        yield line(": ".join(filter(None, words)))
    yield line(_name_fastest(found))
    for heading, how, rows in _list_tables(found):
        yield plain_table((heading, "fold"), *((name, how) for name in found.letters), rows=rows)


def _list_sides(found: ManyRuns) -> Iterator[tuple[str, str]]:
    """Yield letter and title of each of several runs, and its command."""
    for letter, side in zip(found.letters, found.sides, strict=True):
        yield f"{letter}: {side.title}", side.command


def _list_tables(found: ManyRuns) -> Iterator[tuple[str, str, Iterable[Sequence[str]]]]:
    """Yield first heading, alignment and rows of each table of several runs."""
    conditions = found.collect_rows(lambda side: side.conditions)
    differing = [
        (name, *(one or "-" for one in row)) for name, row in conditions if len({*row}) > 1
    ]
    yield "what differs", "fold", differing or [(NO_CONDITION[0], *[""] * len(found.sides))]
    totals = dict(found.collect_rows(lambda side: side.totals))
    ranked = dict.fromkeys((*(name for name in FIGURES if name in totals), *totals))
    kinds = [
        (f"cycles of {kind}", *(_number(value, "cycles") for value in row))
        for kind, row in _collect_kinds(found).items()
    ]
    figures = [
        (words, *(_number(value, unit) for value in totals[name]))
        for name in ranked
        for words, unit in [_name_total(name)]
    ]
    yield "total", "right", [*figures, *kinds]
    rows = [(name, *(_number(value, "") for value in row)) for name, row in found.layers]
    yield "cycles of layer", "right", rows


def _collect_kinds(found: ManyRuns) -> dict[str, tuple[float, ...]]:
    """Return the cycles of each kind of work in each of several runs, without unused kinds."""
    rows = found.collect_rows(lambda side: side.kinds)
    known = {name: tuple(one or 0 for one in row) for name, row in rows}
    return {name: row for name, row in known.items() if any(row)}


def _name_fastest(found: ManyRuns) -> str:
    """Return which of several runs takes the fewest cycles, and its change from the first."""
    cycles = [side.totals["cycles"] for side in found.sides]
    place = cycles.index(min(cycles))
    share = change(cycles[0], cycles[place])
    best = f"{found.letters[place]}: {found.sides[place].title}"
    return f"fewest cycles: {best}, {cycles[place]:,}{f', {share} against A' if share else ''}"


def many_rows(found: ManyRuns) -> Sequence[Mapping[str, Any]]:
    names = [f"cycles_{letter.lower()}" for letter in found.letters]
    return [{"layer": name, **dict(zip(names, row, strict=True))} for name, row in found.layers]


def many_charts(found: ManyRuns) -> tuple[BarChart, ...]:
    """Return charts of the cycles of several runs, by kind of work and by layer."""
    labels = tuple(name for name, _ in _list_sides(found))
    kinds = _collect_kinds(found) or {
        "cycles": tuple(side.totals["cycles"] for side in found.sides)
    }
    parts = tuple(Series(kind, row, KINDS.get(kind, FIRST)) for kind, row in kinds.items())
    runs = BarChart("run-cycles", "Cycles per run", "cycles", "cycles", labels, parts, layers=False)
    layers = dict(found.layers)
    if not layers or len(found.sides) > len(KINDS):  # each run has a colour and a pattern
        return (runs,)
    columns = zip(found.letters, zip(*layers.values(), strict=True), KINDS.values(), strict=False)
    series = [
        Series(letter, tuple(one or 0 for one in row), style) for letter, row, style in columns
    ]
    return runs, BarChart(
        "layer-cycles",
        "Cycles per layer",
        "cycles",
        "cycles",
        tuple(layers),
        tuple(series),
        grouped=True,
    )


def many_page(found: ManyRuns) -> str:
    """Return the HTML page that compares several runs; equal comparisons give equal text."""
    charts = many_charts(found)
    numbers = range(1, len(found.sides) + 1)
    conditions, totals, _ = (
        table((heading, *found.letters), rows, numbers if how == "right" else ())
        for heading, how, rows in _list_tables(found)
    )
    told = paragraph(_name_fastest(found)), pairs(_list_sides(found)), conditions, totals
    sections = [
        Section("summary", "Summary", join_parts(*told)),
        Section("runs", "Runs", chart_place("run-cycles", charts[0].title)),
    ]
    data = _collect_data(found, charts)
    if data["layers"]:
        places = [chart_place(one.identity, one.title) for one in charts[1:]]
        sections += [
            Section("layers", "Layers", join_parts(CHOOSER, *places)),
            Section("table", "All layers, largest differences first", table_place("layer-table")),
        ]
    return page(_many_title(found), sections, data, ["gantt.js", "layers.js"])


def _collect_data(found: ManyRuns, charts: Iterable[Chart]) -> dict[str, Any]:
    """Return the data of the page of several runs: charts, layers, and a table of layers."""
    kinds = {one.name: one.kinds for side in reversed(found.sides) for one in side.layers}
    rows: list[list[Any]] = [
        [name, " + ".join(kinds[name]), max(known) - min(known), *row]
        for name, row in found.layers
        for known in [[one or 0 for one in row]]
    ]
    ranked = sorted(range(len(rows)), key=lambda place: -rows[place][2])
    heads = [("layer", "text"), ("kind", "text"), ("difference", "cycles")]
    heads += [(f"cycles {letter}", "cycles") for letter in found.letters]
    return {
        "figures": [figure(chart) for chart in charts],
        "layers": [{"name": name, "kind": "".join(kinds[name][:1])} for name, *_ in rows],
        "table": {
            "columns": [{"heading": heading, "unit": unit} for heading, unit in heads],
            "rows": [rows[place] for place in ranked],
            "layers": ranked,
        },
        "weights": [difference for _, _, difference, *_ in rows],
        "weight": "difference",
        "order": "difference",
        "margin": MARGIN_PIXELS,
    }


def _many_title(found: ManyRuns) -> str:
    return f"{len(found.sides)} runs: {', '.join(side.title for side in found.sides)}"


MANY_RUNS = Presentation(
    lines=lambda found: [_many_title(found), _name_fastest(found)],
    tables=many_tables,
    records=many_rows,
    charts=many_charts,
    page=many_page,
)
