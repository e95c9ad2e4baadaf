"""Readability and keyboard access of HTML reports in narrow and wide windows, light and dark.

The pages are of real size: MobileNetV1 with its CPU parts, two runs of it with names of different
lengths, a sweep of some dozens of machines whose figures differ by decades, and a system of three
accelerators and eleven tasks.
"""

from __future__ import annotations

import csv
import io
import json
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

import dla
from experiments.compare.comparison import ManyRuns, compare
from experiments.compare.presentation import MANY_RUNS, comparison_page
from experiments.compare.sources import report_snapshot
from experiments.figure import brief, format_figure
from experiments.report.activity import TIMELINE_SPANS, Spans, Timeline
from experiments.report.run_page import run_page
from experiments.report.schema import UNITS, RunReport
from experiments.report.shown import Document
from experiments.running.inference import run
from experiments.sweep.presentation import sweep_page
from experiments.sweep.results import load_sweep
from experiments.sweep.spec import parse_spec
from experiments.systems.requested import system
from experiments.systems.result import system_page
from tests.experiments.browser import Browser
from tests.experiments.page_layout import (
    CONTROLS,
    cut_off,
    opened,
    overlaps,
    poor_contrasts,
    resized,
)
from tests.experiments.sweeping import run_sweep
from tests.experiments.test_report_units import BRIEF, SHOWN
from tests.experiments.test_sweep_joint import QUESTION
from tests.rotation import choose_cases

pytestmark = pytest.mark.slow

WIDTHS = (390, 1000, 1600)
LOOKS = [
    *product(("light", "dark"), WIDTHS),
    *product(["print"], (700, *WIDTHS[1:])),
]
"""Media and widths in pixels. Paper is at least 700 pixels wide."""
LEAST_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3, level AA."""
NAMES = ("run", "comparison", "runs", "sweep", "joint", "system")
DECADES = """
networks = ["digits-cnn"]
schedules = ["default", "seed"]
[arch]
pe.oc = [1, 4, 16, 64]
sram_bytes = ["4 KiB", "64 KiB", "256 KiB", "1280 KiB"]
[timing]
bus_bytes = [1, 8]
"""

SYSTEM = {
    "memory": {"ports": "private", "grants": 1},
    "accelerator": [
        {"name": "large", "settings": {"sram_bytes": "128KiB"}, "count": 2},
        {"name": "a-small-one"},
    ],
    "cpu": {"cores": 2},
    "task": [
        {
            "name": "detect",
            "model": "resnet-8",
            "period": "500us",
            "deadline": "500us",
            "on": "large",
        },
        {
            "name": "digits-of-a-name-that-is-long-enough",
            "model": "digits-cnn",
            "period": "20us",
            "deadline": "9us",
        },
        *(
            {
                "name": f"voice {n}",
                "model": "digits-cnn",
                "period": f"{31 + n}us",
                "deadline": "30us",
            }
            for n in range(8)
        ),
        {"name": "plan", "cpu": "40us", "after": ["detect"]},
    ],
    "run": {"policy": "edf", "preempt": "tile", "until": "5ms"},
}


@cache
def mobilenet() -> RunReport:
    return run("mobilenet-v1").report


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages by name, as files."""
    folder = tmp_path_factory.mktemp("pages")
    run_sweep(
        parse_spec(DECADES, folder),
        folder / "sweep.sqlite",
        workers=1,
        command="dla sweep grid.toml",
    )
    sweep = load_sweep(folder / "sweep.sqlite")
    before = report_snapshot(
        run("mobilenet-v1", schedule="seed").report, "the-published-schedule-as-it-was-before"
    )
    now = report_snapshot(mobilenet(), "now")
    joint = dla.sweep(QUESTION, output=folder / "joint.sqlite", workers=1).joint
    assert joint is not None
    texts = {
        "run": run_page(mobilenet()),
        "comparison": comparison_page(compare(before, now)),
        "runs": Document(ManyRuns((before, now, now)), MANY_RUNS).page(),
        "sweep": sweep_page(sweep, sweep.objectives(None, None)),
        "joint": joint.page(),
        "system": system_page(system(SYSTEM).report),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.mark.parametrize(
    ("name", "looks", "width"),
    choose_cases([(name, *look) for name, look in product(NAMES, LOOKS)], len(WIDTHS)),
)
def test_everything_can_be_read(
    chromium: Browser, pages: dict[str, Path], name: str, width: int, looks: str
) -> None:
    """No text overlaps another or is cut off, all have enough contrast, and there is no error.

    A page for a dark screen is light on paper. A turn has one width of each medium for all pages.
    """
    found = opened(chromium, pages[name], width, looks != "light", looks == "print")
    assert len(found) > 100
    ground = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is (looks != "dark")
    assert set(chromium.run(_PAPERS)) == {ground}
    assert chromium.errors() == []
    assert overlaps(found) == []
    assert cut_off(chromium, found, width) == []
    assert poor_contrasts(chromium, found, LEAST_CONTRAST) == []


_PAPERS = (
    "[...document.querySelectorAll('.main-svg')].map((one) => one.style.background).filter(Boolean)"
)
"""Grounds of the charts."""


@pytest.mark.parametrize("name", NAMES)
def test_a_window_may_change_its_width(
    chromium: Browser, pages: dict[str, Path], name: str
) -> None:
    opened(chromium, pages[name], WIDTHS[-1])
    found = resized(chromium, WIDTHS[0])
    assert overlaps(found) == []
    assert cut_off(chromium, found, WIDTHS[0]) == []


@pytest.mark.parametrize(("name", "width"), choose_cases([*product(NAMES, WIDTHS)], len(WIDTHS)))
def test_the_keyboard_reaches_everything(
    chromium: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    """The Tab key reaches every control; each shows its focus and has a name for screen readers."""
    chromium.resize(width)
    chromium.open(pages[name])
    chromium.run(_WATCH)
    controls = chromium.run(
        f"controls = [...document.querySelectorAll('{CONTROLS}')].filter(usable), controls.length"
    )
    assert controls > 20
    chromium.press(*[Keys.TAB] * (controls + 5))
    missed = "controls.filter((one) => !seen.has(one)).map((one) => one.outerHTML.slice(0, 120))"
    assert chromium.run(missed) == []
    assert (
        chromium.run(
            "[...seen].filter((one) => !outlined.has(one)).map((one) => "
            "one.outerHTML.slice(0, 120))"
        )
        == []
    )
    spoken = {
        "button",
        "link",
        "combobox",
        "textbox",
        "searchbox",
        "spinbutton",
        "DisclosureTriangle",
        "region",
    }
    nodes = [
        node
        for node in chromium.named()
        if node.get("role", {}).get("value") in spoken and not node["ignored"]
    ]
    assert len(nodes) >= controls // 2
    assert [node for node in nodes if not node.get("name", {}).get("value")] == []


_WATCH = """(globalThis.seen = new Set(), globalThis.outlined = new Set(), globalThis.controls = [],
globalThis.usable = (one) => one.checkVisibility() && !one.disabled
  && (one.tabIndex >= 0 || !one.matches("div")),
addEventListener("focusin", ({ target }) => {
  seen.add(target);
  const { outlineStyle, outlineWidth } = getComputedStyle(target);
  if (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2) outlined.add(target);
}), document.activeElement.blur())"""


def test_nothing_that_a_mouse_can_click_is_out_of_the_keyboards_reach(
    chromium: Browser, pages: dict[str, Path]
) -> None:
    """Choices in a chart can be made in the table, and filters of an axis in a field."""
    chromium.resize(1024)
    chromium.open(pages["run"])
    name = mobilenet().layers[3].name
    buttons = "[...document.querySelectorAll('#layer-table tbody button')]"
    chromium.run(f"{buttons}.find((one) => one.textContent === '{name}').focus()")
    chromium.press(Keys.ENTER)
    assert chromium.find("#chosen h3")[0].text == name
    assert chromium.run("document.activeElement.textContent") == name
    chromium.open(pages["sweep"])
    before = chromium.find("#count")[0].text
    chromium.run("document.getElementById('limit-value').focus()")
    chromium.press("5", "0", "0", "0", Keys.TAB, Keys.ENTER)
    assert "cycles ≤ 5,000 ×" in [found.text for found in chromium.find("#active button")]
    assert chromium.find("#count")[0].text != before


def test_the_table_of_layers_sorts_filters_and_copies(
    chromium: Browser, pages: dict[str, Path]
) -> None:
    report = mobilenet()
    chromium.resize(1024)
    chromium.open(pages["run"])
    names = (
        "[...document.querySelectorAll('#layer-table tbody tr')].map((row) => "
        "row.cells[0].textContent)"
    )
    cpu = [layer.node for layer in report.host.layers]
    assert set(chromium.run(names)) == {*cpu, *(layer.name for layer in report.layers)}
    headings = chromium.run(
        "[...document.querySelectorAll('#layer-table thead th')].map((one) => one.textContent)"
    )
    assert {
        "layer",
        "cycles",
        "MACs",
        "DRAM read (bytes)",
        "compute (cycles)",
        "compute, share",
    } <= set(headings)
    chromium.click("#layer-table thead button", headings.index("cycles"))
    figures = {layer.name: layer.cycles for layer in report.layers}
    figures |= {layer.node: layer.estimated_cycles for layer in report.host.layers}
    assert [figures[name] for name in chromium.run(names)] == sorted(figures.values(), reverse=True)
    chromium.click("#layer-table thead button", headings.index("cycles"))
    assert [figures[name] for name in chromium.run(names)] == sorted(figures.values())
    chromium.click("#layers-filter")
    chromium.press(*"depth dw")
    assert chromium.run(names) == [name for name in chromium.run(names) if "_dw" in name]
    chromium.run("navigator.clipboard.writeText = async (text) => { globalThis.written = text; }")
    chromium.click("#layer-table .choices button")
    chromium.wait("globalThis.written !== undefined")
    lines = chromium.run("written").split("\r\n")
    assert lines[0].split(",")[:4] == ["layer", "on", "region", "kind"]
    assert len(lines) == 2 + sum("_dw" in layer.name for layer in report.layers)
    assert chromium.errors() == []


@pytest.mark.parametrize("text", ["=1+1", '"quoted", and more', "+x", "two\nlines", "plain"])
def test_what_is_copied_is_csv_and_no_formula(
    chromium: Browser, pages: dict[str, Path], text: str
) -> None:
    chromium.open(pages["run"])
    (row,) = csv.reader(
        io.StringIO(chromium.run(f"csvLine([{json.dumps(text)}, -1.5, null])"), newline="")
    )
    assert row == [f"'{text}" if text[0] in "=+" else text, "-1.5", ""]


def test_the_timeline_zooms_to_single_commands(chromium: Browser, pages: dict[str, Path]) -> None:
    report = mobilenet()
    assert report.timeline is not None
    assert report.end_to_end is not None
    chromium.resize(1024)
    chromium.open(pages["run"])
    rows = chromium.run("document.getElementById('unit-timeline').layout.yaxis.ticktext")
    assert rows == ["CPU", "transfers", "LD", "EX", "ST"]
    assert chromium.run("gantt.range") == [0, report.end_to_end.cycles]
    for _ in range(12):
        chromium.click("#machine .choices button")
    begin, end = chromium.run("gantt.range")
    assert end - begin == pytest.approx(report.end_to_end.cycles / 4096)
    chromium.choose(
        "gantt-layer", chromium.run("String(timeline.labels.findIndex(({ layer }) => layer === 5))")
    )
    layer = report.layers[5].name
    drawn = chromium.run(
        "document.getElementById('unit-timeline').data.flatMap((one) => one.hovertext)"
    )
    assert any(text.startswith(f"<b>{layer}</b>") for text in drawn)
    assert chromium.errors() == []


def test_a_page_of_a_long_run_stays_small(chromium: Browser, tmp_path: Path) -> None:
    """A page with the largest number of spans is smaller than plotly.js alone.

    It has no more bars than pixels.
    """
    report = mobilenet()
    width = report.totals.cycles // TIMELINE_SPANS
    begins = [width * number for number in range(TIMELINE_SPANS)]
    columns = {
        "begin": begins,
        "end": [begin + width // 2 for begin in begins],
        "active": [width // 2 - number % 7 for number in range(TIMELINE_SPANS)],
        "commands": [1000 + number % 7 for number in range(TIMELINE_SPANS)],
        "layer": [
            number * len(report.layers) // TIMELINE_SPANS for number in range(TIMELINE_SPANS)
        ],
    }
    spans = Spans.model_validate(columns)
    full = report.model_copy(
        update={"timeline": Timeline(window=width, units=dict.fromkeys(UNITS, spans))}
    )
    text = run_page(full)
    assert len(text) < 2_500_000
    page = tmp_path / "page.html"
    page.write_text(text, encoding="utf-8")
    chromium.resize(1024)
    chromium.open(page)
    drawn = "document.getElementById('unit-timeline').data.flatMap((one) => one.x).length"
    assert 3 * 100 < chromium.run(drawn) < 3 * 600
    chromium.run(f"showCycles(timeline, {begins[1000]}, {begins[1010]})")
    labels = chromium.run(
        "document.getElementById('unit-timeline').data.flatMap((one) => one.hovertext)"
    )
    assert len(labels) in range(3 * 9, 3 * 12)
    assert chromium.errors() == []


def test_the_parts_of_a_layer_in_per_cent(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.resize(1024)
    chromium.open(pages["run"])
    places = [found.text for found in chromium.find("#tools button")]
    chromium.click("#tools button", places.index("per cent"))
    sums = chromium.run(
        "DATA.layers.map((_, row) => document.getElementById('layer-cycles').data.flatMap((one) => "
        "one.x.filter((_, index) => one.customdata[index] === row)).reduce((all, one) => all + "
        "one, 0))"
    )
    assert sums == pytest.approx([100] * len(mobilenet().layers))


def test_pages_write_figures_as_pictures_and_tables_do(
    chromium: Browser, pages: dict[str, Path]
) -> None:
    chromium.open(pages["run"])
    for values, function, expected in ((SHOWN, "shown", format_figure), (BRIEF, "brief", brief)):
        pairs = [(value, unit) for value, unit, _ in values if not isinstance(value, bool)]
        found = chromium.run(f"{json.dumps(pairs)}.map(([value, unit]) => {function}(value, unit))")
        assert found == [expected(value, unit) for value, unit in pairs]
