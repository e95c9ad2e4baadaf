"""A comparison as charts, and as a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from experiments.compare.comparison import COUNTED, FIGURES, Comparison, LayerPair, comparison_rows
from experiments.compare.tables import comparison_tables, condition_rows, side_lines, totals_rows
from experiments.figure import measure
from experiments.report.charts.interactive import MARGIN_PIXELS, figure
from experiments.report.charts.model import Bars, Chart, Series
from experiments.report.charts.style import FASTER, FIRST, SECOND, SLOWER
from experiments.report.html import CHOOSER, Section, chart_place, joined, page, pairs, table, table_place
from experiments.report.shown import Presentation

_LAYERS = ("layer-changes", "layer-cycles", "layer-traffic")


def comparison_charts(found: Comparison) -> tuple[Chart, ...]:
    """All charts; none where neither side has a layer, and none of kinds where one side does not know them."""
    if not found.layers:
        return ()
    return (
        change_chart(found),
        cycles_chart(found),
        traffic_chart(found),
        *([kinds_chart(found)] if found.kinds else []),
    )


def _names(found: Comparison) -> tuple[str, ...]:
    return tuple(layer.name for layer in found.layers)


def change_chart(found: Comparison) -> Bars:
    """How many cycles each layer gained or lost."""
    changes = [layer.change for layer in found.layers]
    series = (
        Series("B is faster", tuple(min(change, 0) for change in changes), FASTER),
        Series("B is slower", tuple(max(change, 0) for change in changes), SLOWER),
    )
    axis = "change (cycles of B less cycles of A)"
    note = (
        "Bars are as long as the change is large. A layer and its requantisation count as one. The changes add up to "
        "the change of the total."
    )
    title = "Change of cycles per layer"
    return Bars("layer-changes", title, axis, "cycles", _names(found), series, note=note, signed=True)


def cycles_chart(found: Comparison) -> Bars:
    """Cycles of each layer on both sides."""
    series = _both([layer.figures["cycles"] for layer in found.layers])
    return Bars("layer-cycles", "Cycles per layer", "cycles", "cycles", _names(found), series, grouped=True)


def traffic_chart(found: Comparison) -> Bars:
    """Bytes that each layer read from and wrote to system memory, on both sides."""
    moved = []
    for layer in found.layers:
        read, written = layer.figures["dram_read_bytes"], layer.figures["dram_write_bytes"]
        moved.append(tuple((one or 0) + (other or 0) for one, other in zip(read, written, strict=True)))
    size, unit = measure(bytes_ for pair in moved for bytes_ in pair)
    series = _both([tuple(bytes_ / size for bytes_ in pair) for pair in moved])
    title, axis = "DRAM traffic per layer, read and written", f"DRAM traffic ({unit})"
    return Bars("layer-traffic", title, axis, unit, _names(found), series, grouped=True)


def kinds_chart(found: Comparison) -> Bars:
    """Cycles of the run by kind, on both sides."""
    series = _both(found.kinds.values())
    return Bars(
        "kind-cycles", "Cycles by kind", "cycles", "cycles", tuple(found.kinds), series, layers=False, grouped=True
    )


def _both(rows: Iterable[tuple[float | None, ...]]) -> tuple[Series, Series]:
    """A series a side; what is not there counts as 0."""
    first, second = zip(*rows, strict=True)
    return Series("A", tuple(one or 0 for one in first), FIRST), Series("B", tuple(one or 0 for one in second), SECOND)


def comparison_page(found: Comparison) -> str:
    """The page as HTML text; equal comparisons give equal text."""
    charts = comparison_charts(found)
    drawn = {chart.identity: chart for chart in charts}
    sides = [(f"{letter}: {title}", "".join(command)) for letter, title, *command in side_lines(found)]
    conditions = table(("what differs", "A", "B"), condition_rows(found))
    totals = table(("total", "A", "B", "B − A", "change"), totals_rows(found), range(1, 5))
    sections = [Section("summary", "Summary", joined(pairs(sides), conditions, totals))]
    if found.differing:
        remarks = table(("layer", "values"), [(layer.name, layer.remark) for layer in found.differing])
        sections.append(Section("values", "Values that differ", remarks))
    if drawn:
        places = (chart_place(name, drawn[name].title, drawn[name].note) for name in _LAYERS)
        sections.append(Section("layers", "Layers", joined(CHOOSER, *places)))
    if "kind-cycles" in drawn:
        sections.append(Section("kinds", "Kinds", chart_place("kind-cycles", drawn["kind-cycles"].title)))
    if drawn:
        sections.append(Section("table", "All layers, largest movers first", table_place("layer-table")))
    return page(f"{found.a.title} against {found.b.title}", sections, _data(found, charts), ["gantt.js", "layers.js"])


def _data(found: Comparison, charts: tuple[Chart, ...]) -> dict[str, Any]:
    return {
        "figures": [figure(chart) for chart in charts],
        "layers": [{"name": layer.name, "kind": layer.kinds[0] if layer.kinds else ""} for layer in found.layers],
        "table": _layer_table(found),
        "weights": [abs(layer.change) for layer in found.layers],
        "weight": "change",
        "order": "change",
        "margin": MARGIN_PIXELS,
    }


def _layer_table(found: Comparison) -> dict[str, Any]:
    """Every figure of every layer on both sides, the largest movers first; ``layers``: the layer of a row."""
    known = [name for name in FIGURES if any(set(layer.figures[name]) != {None} for layer in found.layers)]
    columns = [("layer", "text"), ("kind", "text"), *([("values", "text")] if found.has_values else [])]
    columns += [("change", "share"), ("B − A", "cycles")]
    columns += [(f"{COUNTED[name].head} {side}", COUNTED[name].unit) for name in known for side in "AB"]
    number = {layer.name: place for place, layer in enumerate(found.layers)}
    members = (*found.movers, *(layer for layer in found.layers if not layer.change))
    return {
        "columns": [{"heading": heading, "unit": unit} for heading, unit in columns],
        "rows": [[*_words(found, one), *(side for name in known for side in one.figures[name])] for one in members],
        "layers": [number[layer.name] for layer in members],
    }


def _words(found: Comparison, layer: LayerPair) -> Iterable[Any]:
    """Name, kind, what became of the values, and the change of the cycles: none where a side has no such layer."""
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
"""How a comparison is presented."""
