"""The report of a sweep in a browser: charts, filters by clicks, and a front equal to Python's."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.sweep.presentation import sweep_page
from tests.experiments.browser import Browser
from tests.experiments.command_line import dla
from tests.experiments.reporting import SCRIPT, folder, grid, with_scripts

pytestmark = pytest.mark.slow

CHARTS = ("pareto", "heatmap", "parallel")


@pytest.fixture
def page(chromium: Browser, tmp_path: Path) -> Browser:
    place = tmp_path / "page.html"
    place.write_text(sweep_page(grid(), grid().objectives(None, None)), encoding="utf-8")
    chromium.open(place)
    return chromium


def points_with(**wanted: object) -> list[int]:
    """Points of the grid that ended ok and have these values."""
    return [
        point
        for point in grid().finished
        if all(grid().columns[name][point] == wanted[name] for name in wanted)
    ]


def test_the_charts_are_there(page: Browser) -> None:
    assert page.errors() == []
    for chart in CHARTS:
        assert page.find(f"#{chart} svg.main-svg"), chart
    assert {found.text for found in page.find("#pareto .xtitle, #pareto .ytitle")} == {
        "PEs × SRAM (PE·KiB)",
        "cycles",
    }
    assert page.run("document.querySelectorAll('#pareto .points path.point').length") >= len(
        grid().finished
    )
    assert page.find("#heatmap .heatmaplayer image")
    assert page.find("#parallel .lines path")
    assert page.find("#count")[0].text == f"{len(grid().finished)} of {len(grid().finished)} points"


def test_texts_in_every_column_are_only_texts(chromium: Browser, tmp_path: Path) -> None:
    """The values keep their differences, so that everything is drawn that can be."""
    columns = {
        name: tuple(
            SCRIPT + value if isinstance(value, str) and name != "status" else value
            for value in values
        )
        for name, values in grid().columns.items()
    }
    manifest = with_scripts(grid().manifests[0]) | {
        "specification": f"[shapes]\n{json.dumps(SCRIPT)} = [1, 2]\n"
    }
    sweep = replace(grid(), name=SCRIPT, columns=columns, manifests=(manifest,))
    place = tmp_path / "page.html"
    place.write_text(sweep_page(sweep, sweep.objectives(None, None)), encoding="utf-8")
    chromium.open(place)
    chromium.click("[id='filter-schedule'] button", 1)
    chromium.click("#pareto .points path.point")
    chromium.wait("!document.getElementById('chosen').hidden")
    assert chromium.errors() == []
    assert chromium.run("document.documentElement.dataset.ran") is None


def test_a_click_on_a_value_filters_all_charts(page: Browser) -> None:
    kept = points_with(schedule="seed")
    assert 0 < len(kept) < len(grid().finished)
    page.click("[id='filter-schedule'] button", 1)
    page.wait(f"document.getElementById('count').textContent.startsWith('{len(kept)} of')")
    drawn = page.run(
        "document.getElementById('pareto').data.filter((t) => t.mode === 'markers').flatMap((t) => "
        "t.customdata)"
    )
    assert sorted(drawn) == kept
    on_lines = page.run(
        "[...new Set(document.getElementById('parallel').data.flatMap((t) => "
        "t.customdata))].filter((p) => p !== null)"
    )
    assert sorted(on_lines) == kept
    page.click("#active button", 1)
    page.wait(
        f"document.getElementById('count').textContent.startsWith('{len(grid().finished)} of')"
    )
    assert page.errors() == []


def test_a_click_on_a_cell_of_the_heat_map_filters(page: Browser) -> None:
    """The lower left cell is the smallest machine, the upper right one the largest."""
    columns = grid().columns
    across = "pe.count"
    up = "sram_bytes"
    largest = {across: max(columns[across]), up: max(columns[up])}
    kept = points_with(**largest)
    cells = len(set(columns[across])), len(set(columns[up]))
    page.click_at("#heatmap .nsewdrag", 1 - 0.5 / cells[0], 0.5 / cells[1])
    page.wait(f"document.getElementById('count').textContent.startsWith('{len(kept)} of')")
    assert "SRAM: 64 KiB ×" in [found.text for found in page.find("#active button")]
    assert page.errors() == []


def test_cells_show_the_best_of_their_points_and_where_nothing_fits(page: Browser) -> None:
    columns = grid().columns
    page.click("[id='filter-schedule'] button", 1)
    page.wait("document.querySelector('#heatmap .annotation-text') !== null")
    cells = page.run("document.getElementById('heatmap').data[0].z")
    rows = sorted(set(columns["sram_bytes"]))
    across = sorted(set(columns["pe.count"]))
    for row, size in enumerate(rows):
        for column, count in enumerate(across):
            members = points_with(**{"sram_bytes": size, "pe.count": count, "schedule": "seed"})
            found = [columns["cycles"][point] for point in members]
            expected = min(found, default=None)
            assert cells[row][column] == (None if expected is None else pytest.approx(expected))
    assert cells[0] == [None] * len(across)
    assert [found.text for found in page.find("#heatmap .annotation-text")] == ["none"] * len(
        across
    )


def test_a_click_on_an_axis_of_the_parallel_coordinates_filters(page: Browser) -> None:
    place = page.run("parallel.names.indexOf('bus_bytes')")
    axes = page.run("parallel.names.length")
    page.click_at("#parallel .nsewdrag", (place + 0.4) / axes, (1.06 - 1) / 1.12)
    kept = points_with(bus_bytes=8)
    page.wait(f"document.getElementById('count').textContent.startsWith('{len(kept)} of')")
    assert page.errors() == []


@pytest.mark.parametrize(
    "objectives",
    [
        ("pe_sram", "cycles"),
        ("dram_read_bytes", "cycles"),
        ("cycles", "utilization"),
        ("utilization", "pe_sram"),
    ],
)
def test_the_page_and_python_find_the_same_front(
    page: Browser, objectives: tuple[str, str]
) -> None:
    for axis, name in zip("xy", objectives, strict=True):
        page.choose(f"pareto-{axis}", name)
    front = page.run(
        "document.getElementById('pareto').data.find((trace) => trace.name === "
        "'Pareto front').customdata"
    )
    assert tuple(front) == grid().front(objectives, grid().finished)
    assert page.errors() == []


def test_pointing_at_a_point_describes_it(page: Browser) -> None:
    page.point_at("#pareto .points path.point")
    page.wait("document.querySelector('#pareto .hovertext') !== null")
    text = page.find("#pareto .hovertext")[0].text
    assert "cycles: " in text
    assert "schedule: " in text
    assert "SRAM: " in text


def test_a_click_on_a_point_gives_the_command_that_repeats_it(
    page: Browser, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder())
    front = grid().front(grid().objectives(None, None), grid().finished)
    page.click("#front tbody button")
    page.wait("!document.getElementById('chosen').hidden")
    command = page.find("#chosen code")[0].text
    shown = f"{grid().columns['cycles'][front[0]]:,}"
    assert shown in page.find("#chosen")[0].text
    words = shlex.split(command)
    assert words[:3] == ["dla", "run", "tiny.onnx"]
    found = dla(capsys, *words[1:], "--json", folder() / "again.json")
    assert found.status == 0
    assert f"cycles       {shown} " in found.out
    page.click("#chosen button")
    page.wait("document.getElementById('chosen').hidden")
    page.click("#pareto .points path.point")
    page.wait("!document.getElementById('chosen').hidden")
    assert page.find("#chosen code")[0].text.startswith("dla run tiny.onnx ")
    assert page.errors() == []
