"""The page of two runs side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from experiments.report.charts.comparison import comparison_charts
from experiments.report.charts.interactive import MARGIN_PIXELS, figure
from experiments.report.comparison_tables import LAYER_HEADINGS, layer_row, totals_rows
from experiments.report.html import CHOOSER, Section, chart_place, page, pairs, table

if TYPE_CHECKING:
    from experiments.report.charts.model import Chart
    from experiments.report.comparison import Comparison, LayerPair

_LAYERS = ("layer-changes", "layer-cycles", "layer-traffic")


def comparison_page(found: Comparison, names: tuple[str, str]) -> str:
    """The page as HTML text; equal comparisons give equal text. ``names`` are what the runs are called."""
    charts = comparison_charts(found)
    drawn = {chart.identity: chart for chart in charts}
    runs = [(f"{letter}: {name}", run.command) for letter, name, run in _named(found, names)]
    settings = table(("what differs", "A", "B"), found.settings or [("nothing but the results", "", "")])
    totals = table(("total", "A", "B", "B − A", "change"), totals_rows(found), range(1, 5))
    sections = [Section("summary", "Summary", pairs(runs) + settings + totals)]
    if drawn:
        places = "".join(chart_place(name, drawn[name].note) for name in _LAYERS)
        others = "".join(chart_place(name, chart.note) for name, chart in drawn.items() if name not in _LAYERS)
        sections.append(Section("layers", "Layers", CHOOSER + places))
        sections.append(Section("kinds", "Kinds", others))
    rows = [layer_row(pair) for pair in (*found.movers, *(pair for pair in found.layers if not pair.change))]
    listed = table(("layer", *LAYER_HEADINGS), rows, range(2, 8))
    sections.append(Section("table", "All layers, largest movers first", listed))
    return page(f"{names[0]} against {names[1]}", sections, _data(found, charts), ["layers.js"])


def _named(found: Comparison, names: tuple[str, str]) -> Iterator[tuple[str, str, Any]]:
    return zip("AB", names, (found.before, found.after), strict=True)


def _data(found: Comparison, charts: tuple[Chart, ...]) -> dict[str, Any]:
    return {
        "figures": [figure(chart) for chart in charts],
        "layers": [{"name": pair.name, "kind": pair.kind, "facts": _facts(pair)} for pair in found.layers],
        "weights": [abs(pair.change) for pair in found.layers],
        "weight": "change",
        "order": "change",
        "margin": MARGIN_PIXELS,
    }


def _facts(pair: LayerPair) -> dict[str, str]:
    """What the page says of a layer when it is clicked."""
    return dict(zip(LAYER_HEADINGS, layer_row(pair)[1:], strict=True))
