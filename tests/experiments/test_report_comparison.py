"""Two runs side by side: sums, differences, layers of one run only, and terminal tables."""

from __future__ import annotations

import plotly.graph_objects
from rich.console import Console

from experiments.compare.comparison import ManyRuns
from experiments.compare.presentation import (
    COMPARISON,
    MANY_RUNS,
    change,
    comparison_charts,
    comparison_page,
    format_signed,
)
from experiments.compare.sources import report_snapshot
from experiments.report.charts.interactive import figure
from experiments.report.schema import RunReport
from experiments.report.shown import Document
from isa.arch import flat
from tests.experiments.reporting import Page, compared, tiny_run, with_layers
from tests.experiments.test_html_run import data_of


def printed(before: RunReport, after: RunReport) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        Document(compared(before, after), COMPARISON).show(console)
    return capture.get()


def test_layers_and_their_requantisation_are_one() -> None:
    found = compared(tiny_run("seed"), tiny_run())
    assert len(found.layers) == 1
    (pair,) = found.layers
    assert pair.kinds == ("CONV", "REQUANT")
    assert pair.figures["cycles"] == (tiny_run("seed").totals.cycles, tiny_run().totals.cycles)
    assert pair.change == tiny_run().totals.cycles - tiny_run("seed").totals.cycles


def test_only_what_differs_is_named() -> None:
    assert compared(tiny_run("seed"), tiny_run()).conditions == {"schedule": ("seed", "default")}
    assert compared(tiny_run(), tiny_run()).conditions == {}
    report = tiny_run()
    wider = report.model_copy(update={"timing": {**report.timing, "bus_bytes": 16}})
    assert compared(report, wider).conditions == {"timing.bus_bytes": ("8", "16")}
    assert flat({"pe": {"ic": 1}, "isa": "v1"}) == {"pe.ic": 1, "isa": "v1"}


def test_layers_of_one_run_only() -> None:
    found = compared(with_layers(["a", "b", "c"]), with_layers(["c", "d", "a"]))
    assert [pair.name for pair in found.layers] == ["a", "b", "c", "d"]
    once = tiny_run().totals.cycles
    assert [pair.change for pair in found.layers] == [0, -once, 0, once]
    assert [pair.name for pair in found.movers] == ["b", "d"]
    text = printed(with_layers(["a", "b"]), with_layers(["b", "d"]))
    assert "only A" in text
    assert "only B" in text


def test_the_tables_name_runs_totals_and_movers() -> None:
    text = printed(tiny_run("seed"), tiny_run())
    assert f"A: one: {tiny_run('seed').command}" in text
    assert "largest changes of 1" in text
    before = tiny_run("seed").totals.cycles
    after = tiny_run().totals.cycles
    row = next(line for line in text.splitlines() if line.strip().startswith("cycles "))
    assert row.split()[1:] == [
        f"{before:,}", "cycles", f"{after:,}", "cycles", f"{after - before:+,}",
        *change(before, after).split()
    ]  # fmt: skip


def test_equal_runs_have_no_movers() -> None:
    text = printed(tiny_run(), tiny_run())
    assert "only the results" in text
    assert "largest changes" not in text
    assert "no layer's cycles changed" in text


def test_changes_in_words() -> None:
    assert [change(100, 150), change(100, 50), change(100, 100), change(0, 5), change(0, 0)] == [
        "+50.0 %", "-50.0 %", "", "new", ""
    ]  # fmt: skip
    assert [format_signed(1234), format_signed(-1), format_signed(0), format_signed(0.5)] == [
        "+1,234",
        "-1",
        "",
        "+0.500",
    ]


def test_the_page_has_charts_and_a_table_and_equal_bytes() -> None:
    found = compared(tiny_run("seed"), tiny_run())
    text = comparison_page(found)
    assert text == comparison_page(compared(tiny_run("seed"), tiny_run()))
    page = Page(text)
    assert {"layer-changes", "layer-cycles", "layer-traffic", "kind-cycles"} <= set(page.ids)
    assert f"{found.layers[0].change:+,}" in page.text
    assert all(link.startswith("#") for link in page.links)
    for chart in comparison_charts(found):
        made = figure(chart)
        plotly.graph_objects.Figure(data=made["data"], layout=made["layout"])


def test_runs_without_layers_can_be_compared() -> None:
    empty = tiny_run().model_copy(update={"layers": ()})
    assert comparison_charts(compared(empty, empty)) == ()
    assert "one against other" in Page(comparison_page(compared(empty, empty))).text


def several(*reports: RunReport) -> ManyRuns:
    return ManyRuns(tuple(report_snapshot(one, f"run {n}") for n, one in enumerate(reports)))


def test_several_runs_on_one_page() -> None:
    """Every figure is that of the run's report; layers of one run only have no other cycles."""
    reports = [tiny_run("seed"), tiny_run(), with_layers(["a", "b"])]
    found = several(*reports)
    page = Document(found, MANY_RUNS).page()
    names = {one.name.removesuffix(":requantise") for report in reports for one in report.layers}
    table = data_of(page)["table"]
    assert {row[0] for row in table["rows"]} == names
    for name, _, difference, *cycles in table["rows"]:
        expected = [
            sum(one.cycles for one in report.layers if one.name.removesuffix(":requantise") == name)
            for report in reports
        ]
        assert [one or 0 for one in cycles] == expected
        assert difference == max(expected) - min(expected)
    differences = [row[2] for row in table["rows"]]
    assert differences == sorted(differences, reverse=True)
    chart = next(one for one in data_of(page)["figures"] if one["id"] == "run-cycles")
    sums = [0, 0, 0]
    for trace in chart["data"]:
        for row, length in zip(trace["y"], trace["x"], strict=True):
            sums[row] += length
    assert sums == [sum(report.kinds.values()) for report in reports]


def test_the_answer_of_several_runs() -> None:
    found = several(tiny_run("seed"), tiny_run(), tiny_run())
    before, after = tiny_run("seed").totals.cycles, tiny_run().totals.cycles
    answer = f"fewest cycles: B: run 1, {after:,}, {change(before, after)} against A"
    assert Document(found, MANY_RUNS).lines()[1] == answer
    assert answer in Page(Document(found, MANY_RUNS).page()).text
    same = several(tiny_run(), tiny_run(), tiny_run())
    assert Document(same, MANY_RUNS).lines()[1] == f"fewest cycles: A: run 0, {after:,}"


def test_ten_runs_have_no_chart_of_layers() -> None:
    """There are colours and patterns for nine."""
    nine = several(*[tiny_run()] * 9)
    ten = several(*[tiny_run()] * 10)
    assert [one.identity for one in MANY_RUNS.charts(nine)] == ["run-cycles", "layer-cycles"]
    assert [one.identity for one in MANY_RUNS.charts(ten)] == ["run-cycles"]
    assert "layer-table" in Page(Document(ten, MANY_RUNS).page()).ids
