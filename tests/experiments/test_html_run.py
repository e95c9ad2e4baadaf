"""The HTML report of a run: complete, with charts that add up and no outside reference.

Equal runs give equal bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any

import plotly.graph_objects
import pytest

from experiments.report.charts.interactive import figure
from experiments.report.charts.model import BarChart, Gantt, Roofline
from experiments.report.html import embed_json
from experiments.report.run_charts import (
    intensity,
    layer_cycles,
    layer_traffic,
    layer_utilization,
    roofline,
    run_charts,
    unit_causes,
    whole_run,
)
from experiments.report.run_page import run_page
from experiments.report.schema import RunReport
from tests.experiments.reporting import Page, tiny_run, with_layers

CHARTS = [
    "end-to-end",
    "layer-cycles",
    "layer-utilization",
    "roofline",
    "layer-traffic",
    "unit-timeline",
    "sram-occupancy",
    "memory-map",
    "unit-causes",
]
HOSTILE = ["</script><script>alert(1)</script>", "<b>bold</b>", 'quote" & $x_1^2$', "层", "a" * 200]


def data_of(page: str) -> dict[str, Any]:
    """Return the data that a page's scripts read."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    found: dict[str, Any] = json.loads(match[1])
    return found


def test_the_page_has_every_chart_and_needs_nothing_else() -> None:
    text = run_page(tiny_run())
    page = Page(text)
    assert [name for name in page.ids if name in CHARTS] == CHARTS
    assert [found["id"] for found in data_of(text)["figures"]] == CHARTS
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert "default-src 'none'" in text
    assert 1_400_000 < len(text) < 5_000_000  # most of it plotly.js


def test_the_page_says_what_made_it_and_why_nodes_fell_back() -> None:
    report = tiny_run()
    page = Page(run_page(report))
    fallback = next(entry for entry in report.placement if entry.op_type == "Hardmax")
    assert fallback.on == "cpu"
    assert fallback.reason
    for text in (
        report.command,
        fallback.reason,
        fallback.node,
        *report.hashes.values(),
        "arch.pe.ic",
        "schedule",
    ):
        assert text in page.text
    assert f"{report.totals.cycles:,}" in page.text


def test_equal_reports_give_equal_bytes() -> None:
    report = tiny_run()
    assert run_page(report) == run_page(
        RunReport.model_validate(report.model_dump(mode="json", by_alias=True))
    )


@pytest.mark.parametrize("schedule", ["default", "seed"])
def test_the_charts_show_the_report(schedule: Any) -> None:
    report = tiny_run(schedule)
    assert sum(sum(series.values) for series in layer_cycles(report).series) == report.totals.cycles
    moved = report.totals.dram_read_bytes + report.totals.dram_write_bytes
    traffic = layer_traffic(report)
    assert traffic.unit == "bytes" if schedule == "default" else "KiB"
    assert (
        sum(sum(series.values) for series in traffic.series)
        * {"bytes": 1, "KiB": 1024}[traffic.unit]
        == moved
    )
    shown = [
        sum(values)
        for values in zip(
            *(series.values for series in layer_utilization(report).series), strict=True
        )
    ]
    assert shown == [100 * layer.utilization for layer in report.layers]
    causes = unit_causes(report)
    for row, unit in enumerate(causes.labels):
        assert sum(report.units[unit].values()) == report.totals.cycles
        assert sum(series.values[row] for series in causes.series) == pytest.approx(100)


@pytest.mark.parametrize("schedule", ["default", "seed"])
def test_every_layer_is_on_the_roofline_once(schedule: Any) -> None:
    report = tiny_run(schedule)
    found = roofline(report)
    marks = {mark.layer: mark for _, _, marks in found.marks for mark in marks}
    assert sorted(marks) == list(range(len(report.layers)))
    for number, layer in enumerate(report.layers):
        mark = marks[number]
        if layer.macs:
            assert mark.rate == layer.macs / layer.cycles <= found.macs_per_cycle
            assert mark.intensity == (intensity(layer) or found.end)
        else:
            assert (mark.intensity, mark.rate) == found.corner
        assert found.corner[0] <= mark.intensity <= found.end


def test_layers_without_traffic_stand_at_the_right_edge() -> None:
    report = tiny_run()
    layers = tuple(
        layer.model_copy(update={"dram_read_bytes": 0, "dram_write_bytes": 0})
        for layer in report.layers
    )
    found = roofline(report.model_copy(update={"layers": layers}))
    (mark,) = found.marks[0][2]
    assert (mark.intensity, mark.note) == (found.end, "no DRAM traffic: at the right edge")


@pytest.mark.parametrize("schedule", ["default", "seed"])
def test_plotly_knows_every_property(schedule: Any) -> None:
    """graph_objects, an independent oracle, accepts every figure.

    It rejects names or values that plotly.js does not have.
    """
    for chart in run_charts(tiny_run(schedule)):
        made = figure(chart)
        plotly.graph_objects.Figure(data=made["data"], layout=made["layout"])


def test_every_axis_has_a_title_with_its_unit() -> None:
    units = ("cycles", "%", "MACs per byte", "MACs per cycle", "bytes")
    for chart in run_charts(tiny_run()):
        layout = figure(chart)["layout"]
        axes = (
            ["xaxis"] if isinstance(chart, BarChart | Gantt) else ["xaxis", "yaxis"]
        )  # bars have names on the other one
        assert all(any(unit in layout[axis]["title"]["text"] for unit in units) for axis in axes), (
            chart.identity
        )


def test_the_timeline_shows_every_segment_where_it_takes_place() -> None:
    report = tiny_run()
    whole = report.end_to_end
    chart = whole_run(report)
    assert whole is not None
    assert chart is not None
    spans = sorted((span for _, row in chart.rows for span in row), key=lambda span: span.begin)
    assert [span.group for span in spans] == [
        ("dla", "cpu", "transfer").index(part.on) for part in whole.segments
    ]
    ends = [span.end for span in spans]
    assert [span.begin for span in spans] == [0, *ends[:-1]]
    assert ends[-1] == chart.total == whole.cycles
    drawn = figure(chart)["rows"]
    assert sorted(begin for row in drawn for begin in row["begin"]) == [
        span.begin for span in spans
    ]
    text = Page(run_page(report)).text
    assert (
        f"End to end ~{whole.cycles:,} cycles, estimated: accelerator "
        f"{whole.share(whole.dla_cycles):.1%}" in text
    )
    assert all(f"~{item.estimated_cycles:,}" in text for item in whole.fallbacks)


def test_names_cannot_leave_their_place() -> None:
    report = with_layers(HOSTILE)
    text = run_page(report)
    assert text.count("<script") == text.count("</script") == run_page(tiny_run()).count("<script")
    found = data_of(text)
    assert [layer["name"] for layer in found["layers"]] == HOSTILE
    (cycles,) = (figure for figure in found["figures"] if figure["id"] == "layer-cycles")
    labels = cycles["layout"]["yaxis"]["ticktext"]
    assert labels[1] == "&lt;b&gt;bold&lt;/b&gt;"
    assert len(labels[4]) < 40
    assert "</" not in embed_json(HOSTILE)


def test_a_run_without_layers_has_a_page() -> None:
    report = tiny_run()
    empty = report.model_copy(update={"layers": ()})
    assert run_charts(empty) == (whole_run(report),)
    assert report.command in Page(run_page(empty)).text


def test_unknown_kinds_are_drawn() -> None:
    report = tiny_run()
    layers = tuple(layer.model_copy(update={"kind": "NEW"}) for layer in report.layers)
    newer = report.model_copy(update={"layers": layers})
    assert [kind for kind, _, _ in roofline(newer).marks] == ["NEW"]
    assert isinstance(run_charts(newer)[3], Roofline)
    assert [series.name for series in layer_utilization(newer).series] == ["NEW"]
