"""A comparison as charts, and as a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from experiments.compare.comparison import Comparison, LayerPair
from experiments.compare.tables import (
    condition_rows,
    first_figure,
    layer_headings,
    layer_row,
    side_lines,
    totals_rows,
)
from experiments.report.charts.interactive import MARGIN_PIXELS, figure
from experiments.report.charts.model import Bars, Chart, Series
from experiments.report.charts.style import FASTER, FIRST, SECOND, SLOWER
from experiments.report.html import CHOOSER, Section, chart_place, joined, page, pairs, table

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
    axis = "cycles of B less cycles of A"
    note = "A layer and its requantisation count as one. The changes add up to the change of the total."
    title = "Change of cycles per layer"
    return Bars("layer-changes", title, axis, "cycles", _names(found), series, note=note)


def cycles_chart(found: Comparison) -> Bars:
    """Cycles of each layer on both sides."""
    series = _both([layer.figures["cycles"] for layer in found.layers])
    return Bars("layer-cycles", "Cycles per layer", "cycles", "cycles", _names(found), series, grouped=True)


def traffic_chart(found: Comparison) -> Bars:
    """Bytes that each layer read from and wrote to system memory, on both sides."""
    moved = []
    for layer in found.layers:
        read, written = layer.figures["dram_read_bytes"], layer.figures["dram_write_bytes"]
        moved.append(tuple(((one or 0) + (other or 0)) / 1024 for one, other in zip(read, written, strict=True)))
    title, axis = "DRAM traffic per layer, read and written", "DRAM traffic (KiB)"
    return Bars("layer-traffic", title, axis, "KiB", _names(found), _both(moved), grouped=True)


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
        places = (chart_place(name, drawn[name].note) for name in _LAYERS)
        sections.append(Section("layers", "Layers", joined(CHOOSER, *places)))
    if "kind-cycles" in drawn:
        sections.append(Section("kinds", "Kinds", chart_place("kind-cycles", drawn["kind-cycles"].note)))
    headings, words = layer_headings(found), first_figure(found)
    layers = (*found.movers, *(layer for layer in found.layers if not layer.change))
    rows = [(layer.name, *layer_row(found, layer)) for layer in layers]
    listed = table(("layer", *headings), rows, range(1 + words, 1 + len(headings)))
    sections.append(Section("table", "All layers, largest movers first", listed))
    return page(f"{found.a.title} against {found.b.title}", sections, _data(found, charts), ["layers.js"])


def _data(found: Comparison, charts: tuple[Chart, ...]) -> dict[str, Any]:
    return {
        "figures": [figure(chart) for chart in charts],
        "layers": [_layer(found, layer) for layer in found.layers],
        "weights": [abs(layer.change) for layer in found.layers],
        "weight": "change",
        "order": "change",
        "margin": MARGIN_PIXELS,
    }


def _layer(found: Comparison, layer: LayerPair) -> dict[str, Any]:
    """What the page says of a layer when it is clicked."""
    facts = dict(zip(layer_headings(found), layer_row(found, layer), strict=True))
    return {"name": layer.name, "kind": layer.kinds[0] if layer.kinds else "", "facts": facts}
