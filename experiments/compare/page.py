"""A comparison as a page."""

from __future__ import annotations

from typing import Any

from experiments.compare.charts import comparison_charts
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
from experiments.report.charts.model import Chart
from experiments.report.html import CHOOSER, Section, chart_place, page, pairs, table

_LAYERS = ("layer-changes", "layer-cycles", "layer-traffic")


def comparison_page(found: Comparison) -> str:
    """The page as HTML text; equal comparisons give equal text."""
    charts = comparison_charts(found)
    drawn = {chart.identity: chart for chart in charts}
    sides = [(f"{letter}: {title}", "".join(command)) for letter, title, *command in side_lines(found)]
    conditions = table(("what differs", "A", "B"), condition_rows(found))
    totals = table(("total", "A", "B", "B − A", "change"), totals_rows(found), range(1, 5))
    sections = [Section("summary", "Summary", pairs(sides) + conditions + totals)]
    if found.differing:
        remarks = table(("layer", "values"), [(layer.name, layer.remark) for layer in found.differing])
        sections.append(Section("values", "Values that differ", remarks))
    if drawn:
        places = "".join(chart_place(name, drawn[name].note) for name in _LAYERS)
        sections.append(Section("layers", "Layers", CHOOSER + places))
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
