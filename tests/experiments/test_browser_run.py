"""Reports of runs in a browser: no console error, no download, charts, and clicks that filter."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from experiments.compare.presentation import comparison_page
from experiments.glossary import explain
from experiments.report.graph import GraphEdge
from experiments.report.run_page import run_page
from experiments.report.schema import PlacementEntry, RunReport
from experiments.running.inference import run
from tests.experiments.browser import Browser
from tests.experiments.page_layout import boxes, cut_off, overlaps
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
PAPER_WIDTH = 740
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


def long_run(layers: int) -> RunReport:
    """ResNet-8 with as many layers in one chain, and a tensor past three of every four of them."""
    report = resnet()
    names = [f"{report.layers[number % 14].name} of {number}" for number in range(layers)]
    made = tuple(
        report.layers[number % 14].model_copy(update={"name": name})
        for number, name in enumerate(names)
    )
    nodes = tuple(
        PlacementEntry(node=name, op_type="Conv", on="dla", region=0, reason=None) for name in names
    )
    pairs = [*pairwise(range(layers)), *((one, one + 3) for one in range(0, layers - 3, 4))]
    edges = tuple(
        GraphEdge(producer=one, consumer=other, tensor="t", dtype="int8", shape=(1, 8))
        for one, other in pairs
    )
    return report.model_copy(update={"layers": made, "placement": nodes, "edges": edges})


@cache
def resnet() -> RunReport:
    return run("resnet-8").report


def test_a_page_with_a_thousand_layers_takes_less_than_three_seconds(
    chromium: Browser, tmp_path: Path
) -> None:
    """Processor time, which other processes do not lengthen."""
    opened(chromium, tmp_path, run_page(long_run(1000)))
    assert chromium.seconds() < 3
    assert len(chromium.find("#network-graph .box")) == 1000
    assert chromium.errors() == []


def test_the_graph_is_walked_zoomed_and_searched_with_keys(
    chromium: Browser, tmp_path: Path
) -> None:
    opened(chromium, tmp_path, run_page(resnet()))
    current = "document.querySelector('.graph .current .name').textContent"
    width = "document.querySelector('.graph svg').getBoundingClientRect().width"
    chromium.run("document.querySelector('.graph').focus()")
    chromium.press(Keys.ARROW_RIGHT)
    assert chromium.run(current) == "image"
    chromium.press(*[Keys.ARROW_RIGHT] * 5)
    assert chromium.run(current) == "block1_add"
    chromium.press(Keys.ARROW_RIGHT)
    assert chromium.run(current) == "block2_conv1"
    chromium.press(Keys.ARROW_DOWN)
    layer = "block2_shortcut"
    assert chromium.run(current) == layer
    chromium.press(Keys.ENTER)
    assert chromium.find("#chosen h3")[0].text == layer
    assert chromium.run("document.querySelector('.graph .picked .name').textContent") == layer
    before = chromium.run(width)
    chromium.press("+")
    assert chromium.run(width) == pytest.approx(1.25 * before)
    chromium.press("0")
    assert chromium.run(width) <= chromium.run("document.querySelector('.graph').clientWidth")
    chromium.click("#graph-search")
    chromium.press(*"shortcut")
    assert len(chromium.find(".graph .match")) == 2
    chromium.press(Keys.ENTER)
    assert chromium.run(current) == "block3_shortcut"
    assert chromium.errors() == []


def test_a_box_tells_placement_cycles_and_waits(chromium: Browser, tmp_path: Path) -> None:
    report = resnet()
    opened(chromium, tmp_path, run_page(report))
    texts = chromium.run(
        "[...document.querySelectorAll('.graph .box')].map((one) => one.textContent)"
    )
    (text,) = (one for one in texts if one.startswith("stem\n"))
    stem = report.layers[0]
    assert f"{stem.cycles:,} cycles" in text
    assert "Conv, accelerator" in text
    assert f"wait: weights: {stem.breakdown['weights']:,} cycles" in text
    (text,) = (one for one in texts if one.startswith("image_QuantizeLinear\n"))
    assert "QuantizeLinear, CPU" in text
    assert str(report.placement[0].reason) in text


def test_charts_over_time_show_the_same_cycles(chromium: Browser, tmp_path: Path) -> None:
    opened(chromium, tmp_path, run_page(resnet()))
    charts = ("unit-timeline", "sram-occupancy", "memory-map")
    shown = "{}._fullLayout.xaxis"
    edges = [
        (
            chromium.run(f"{shown.format(f'document.getElementById({chart!r})')}._offset"),
            chromium.run(f"{shown.format(f'document.getElementById({chart!r})')}._length"),
        )
        for chart in charts
    ]
    assert len(set(edges)) == 1
    chromium.click("#machine .choices button")
    ranges = [
        chromium.run(f"document.getElementById('{chart}').layout.xaxis.range") for chart in charts
    ]
    assert ranges[0] == ranges[1] == ranges[2] == chromium.run("gantt.range")
    chromium.run("Plotly.relayout('memory-map', {'xaxis.range[0]': 1000, 'xaxis.range[1]': 9000})")
    assert chromium.run("gantt.range") == [1000, 9000]
    assert chromium.run("document.getElementById('sram-occupancy').layout.xaxis.range") == [
        1000,
        9000,
    ]
    blocks = chromium.run(
        "document.getElementById('memory-map').data.flatMap((one) => one.hovertext)"
    )
    assert any(text.startswith("<b>stem: input") for text in blocks)
    assert chromium.errors() == []


def test_the_roofline_names_layers(chromium: Browser, tmp_path: Path) -> None:
    report = resnet()
    opened(chromium, tmp_path, run_page(report))
    named = "document.getElementById('roofline').layout.annotations.map((one) => one.text)"
    found = chromium.run(named)
    names = [layer.name for layer in report.layers]
    most = max(report.layers, key=lambda layer: layer.cycles).name
    assert most in found
    assert set(found) <= set(names)
    assert len(set(found)) == len(found) > 5


def test_every_heading_and_legend_has_the_tooltip_of_its_terms(
    chromium: Browser, tmp_path: Path
) -> None:
    opened(chromium, tmp_path, run_page(resnet()))
    told = (
        "one.title || one.querySelector('[title]:not([title=\"\"])') "
        "|| one.closest('.traces')?.querySelector('title')"
    )
    missing = chromium.run(
        "[...document.querySelectorAll('main section:not(#words) :is(thead th, .pairs th, "
        f"figcaption, .legendtext)')].filter((one) => !({told})).map((one) => one.textContent)"
    )
    assert [text for text in missing if text] == []
    assert chromium.run("meaningOf('cycles')") == explain("cycles")


def test_paper_shows_the_graph_in_strips_and_light_charts(
    chromium: Browser, tmp_path: Path
) -> None:
    report = resnet()
    page = tmp_path / "page.html"
    page.write_text(run_page(report), encoding="utf-8")
    chromium.resize(1280, dark=True)
    chromium.open(page)
    chromium.run(
        "(globalThis.seen = [], addEventListener('beforeprint', () => seen.push("
        "document.querySelectorAll('.strips .box').length, "
        "document.querySelector('#roofline svg').clientWidth)), "
        "darkScreen.addEventListener('change', ({ matches }) => seen.push(matches, "
        "document.getElementById('roofline').data[0].line.color)), 1)"
    )
    chromium.print()
    boxes = len(report.placement) + 2
    assert chromium.run("seen") == [boxes, 660, False, "#000", True, "#ececec"]
    assert chromium.find(".strips") == []
    assert chromium.run("document.querySelector('#roofline svg').clientWidth") > 1000
    chromium.resize(1280)
    assert chromium.errors() == []


def test_paper_has_no_overlap_and_nothing_is_cut_off(chromium: Browser, tmp_path: Path) -> None:
    chromium.resize(PAPER_WIDTH)
    opened(chromium, tmp_path, run_page(resnet()))
    chromium.resize(PAPER_WIDTH, paper=True)
    chromium.run("dispatchEvent(new Event('beforeprint'))")
    found = boxes(chromium)
    assert overlaps(found) == []
    assert cut_off(chromium, found, PAPER_WIDTH) == []
    assert sum(one.text == "stem" for one in found) >= 3
    assert chromium.errors() == []
    chromium.resize(1280)


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
