"""Reports of runs in a browser: no console error, no download, charts, and clicks that filter."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.compare.presentation import comparison_page
from experiments.report.run_page import run_page
from tests.experiments.browser import Browser
from tests.experiments.reporting import SCRIPT, compared, tiny_run, with_layers, with_scripts

pytestmark = pytest.mark.slow

CHARTS = (
    "end-to-end",
    "layer-cycles",
    "layer-utilization",
    "roofline",
    "layer-traffic",
    "unit-timeline",
    "sram-occupancy",
    "memory-map",
    "unit-causes",
)
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<b>bold</b>",
    "quote\" & 'x' $y$",
    "层",
    "a" * 200,
]


def opened(chromium: Browser, folder: Path, text: str) -> Browser:
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    chromium.open(page)
    return chromium


def bars(chromium: Browser, chart: str) -> int:
    """Rows with a name on a chart."""
    return len(chromium.find(f"#{chart} .ytick text"))


def test_the_charts_of_a_run_are_there(chromium: Browser, tmp_path: Path) -> None:
    opened(chromium, tmp_path, run_page(tiny_run()))
    assert chromium.errors() == []
    for chart in CHARTS:
        assert chromium.find(f"#{chart} svg.main-svg"), chart
        titles = [found.text for found in chromium.find(f"#{chart} .xtitle, #{chart} .ytitle")]
        assert titles, chart
        assert all(titles), chart
    assert len(chromium.find("#layer-cycles .bars .point path")) >= len(tiny_run().layers)
    assert chromium.find("#roofline .points path.point")
    assert chromium.run("getComputedStyle(document.querySelector('h1')).fontSize") == "24px"


def test_no_button_sends_a_chart_away(chromium: Browser, tmp_path: Path) -> None:
    opened(chromium, tmp_path, run_page(tiny_run()))
    buttons = {found.get_attribute("data-title") for found in chromium.find(".modebar-btn")}
    assert buttons == {"Download plot", "Zoom", "Pan", "Reset axes"}


def test_a_click_on_a_kind_filters_every_chart_of_layers(chromium: Browser, tmp_path: Path) -> None:
    report = tiny_run("seed")
    kinds = [layer.kind for layer in report.layers]
    assert len(set(kinds)) > 1
    opened(chromium, tmp_path, run_page(report))
    assert bars(chromium, "layer-cycles") == len(kinds)
    chromium.click("#tools button", list(dict.fromkeys(kinds)).index("REQUANT"))
    chromium.wait("document.getElementById('count').textContent.startsWith('1 of')")
    assert (
        bars(chromium, "layer-cycles") == bars(chromium, "layer-traffic") == kinds.count("REQUANT")
    )
    assert chromium.run(
        "document.querySelectorAll('#roofline .points path.point').length"
    ) == kinds.count("REQUANT")
    chromium.click("#tools button", list(dict.fromkeys(kinds)).index("REQUANT"))
    chromium.wait(
        f"document.getElementById('count').textContent === '{len(kinds)} of {len(kinds)} layers'"
    )
    assert chromium.errors() == []


def test_a_click_on_a_bar_tells_everything_about_the_layer(
    chromium: Browser, tmp_path: Path
) -> None:
    report = tiny_run()
    opened(chromium, tmp_path, run_page(report))
    chromium.click("#layer-cycles .bars .point path")
    chromium.wait("!document.getElementById('chosen').hidden")
    text = chromium.find("#chosen")[0].text
    layer = report.layers[0]
    for expected in (
        layer.name,
        f"{layer.cycles:,}",
        f"{layer.dram_read_bytes:,} bytes",
        layer.onnx_nodes[0],
    ):
        assert expected in text
    chromium.click("#chosen button")
    chromium.wait("document.getElementById('chosen').hidden")
    assert chromium.errors() == []


def test_pointing_at_a_bar_shows_its_value(chromium: Browser, tmp_path: Path) -> None:
    report = tiny_run()
    opened(chromium, tmp_path, run_page(report))
    chromium.point_at("#layer-cycles .bars .point path")
    chromium.wait("document.querySelector('#layer-cycles .hovertext') !== null")
    assert report.layers[0].name in chromium.find("#layer-cycles .hovertext")[0].text


def test_hostile_names_are_only_names(chromium: Browser, tmp_path: Path) -> None:
    opened(chromium, tmp_path, run_page(with_layers(HOSTILE)))
    assert chromium.errors() == []
    labels = [found.text for found in chromium.find("#layer-cycles .ytick text")]
    assert labels[1:4] == HOSTILE[1:4]


def test_texts_in_every_field_are_only_texts(chromium: Browser, tmp_path: Path) -> None:
    """The page itself, without what refuses such files: a run, and two side by side."""
    run_of_scripts = with_scripts(tiny_run())
    sides = with_scripts(compared(tiny_run("seed"), tiny_run()))
    for number, text in enumerate((run_page(run_of_scripts), comparison_page(sides))):
        (tmp_path / str(number)).mkdir()
        opened(chromium, tmp_path / str(number), text)
        assert chromium.errors() == []
        chromium.click(("#layer-cycles", "#layer-changes")[number] + " .bars .point path")
        chromium.wait("!document.getElementById('chosen').hidden")
        assert chromium.errors() == []
        assert chromium.run("document.documentElement.dataset.ran") is None
        assert chromium.find("h1")[0].text.startswith(SCRIPT[:80])


def test_a_page_runs_nothing_but_its_own_scripts(chromium: Browser, tmp_path: Path) -> None:
    """Whatever got into it: only what has a hash in its Content-Security-Policy runs."""
    text = run_page(tiny_run()).replace("</main>", SCRIPT + "</main>")
    opened(chromium, tmp_path, text)
    assert chromium.run("document.documentElement.dataset.ran") is None
    assert any("Content Security Policy" in message for message in chromium.errors())


def test_many_layers_are_shown_in_part_and_by_size(chromium: Browser, tmp_path: Path) -> None:
    opened(chromium, tmp_path, run_page(with_layers([f"layer {number}" for number in range(160)])))
    assert bars(chromium, "layer-cycles") == 40
    chromium.choose("most", "all")
    chromium.wait("document.querySelectorAll('#layer-cycles .ytick text').length === 160")
    assert chromium.errors() == []


def test_two_runs_side_by_side(chromium: Browser, tmp_path: Path) -> None:
    found = compared(tiny_run("seed"), tiny_run())
    opened(chromium, tmp_path, comparison_page(found))
    assert chromium.errors() == []
    for chart in ("layer-changes", "layer-cycles", "layer-traffic", "kind-cycles"):
        assert chromium.find(f"#{chart} svg.main-svg"), chart
    chromium.click("#layer-changes .bars .point path")
    chromium.wait("!document.getElementById('chosen').hidden")
    assert f"{found.layers[0].change:+,}" in chromium.find("#chosen")[0].text
    assert chromium.errors() == []
