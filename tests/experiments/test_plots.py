"""Images of charts: bounded size, equal bytes for equal charts, any name, and no warning."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dla_sim.engine.accounts import CAUSES as CAUSE_NAMES
from dla_sim.engine.breakdown import PARTS as PART_NAMES
from experiments.compare.presentation import comparison_charts
from experiments.report.charts.model import CAUSES, KINDS, PARTS, BarChart
from experiments.report.plots import HATCHES, MARKERS, MOST_ROWS, bars_height, save_charts
from experiments.report.run_charts import layer_cycles, run_charts
from experiments.sweep.presentation import sweep_charts
from isa.errors import InputError
from isa.instruction import KINDS as KIND_NAMES
from tests.experiments.reporting import compared, grid, tiny_run, with_layers


def size(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG file in pixels."""
    content = picture.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    found: tuple[int, int] = struct.unpack(">II", content[16:24])
    return found


def test_a_run_has_a_picture_a_chart(tmp_path: Path) -> None:
    charts = run_charts(tiny_run())
    made = save_charts(charts, tmp_path / "new" / "folder")
    assert [picture.stem for picture in made] == [chart.identity for chart in charts]
    assert all(size(picture)[0] == 1200 for picture in made)


def test_equal_charts_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        save_charts(run_charts(tiny_run("seed")), tmp_path / name)
    for picture in (tmp_path / "one").iterdir():
        assert picture.read_bytes() == (tmp_path / "other" / picture.name).read_bytes()


def test_names_of_any_kind_and_many_layers(tmp_path: Path) -> None:
    names = [
        "$x_1^2",
        r"\alpha{",
        "层",
        "",
        "a" * 300,
        *(f"layer {number}" for number in range(300)),
    ]
    report = with_layers(names)
    assert bars_height(layer_cycles(report)) == pytest.approx(1.4 + 0.2 * MOST_ROWS)
    made = save_charts(run_charts(report), tmp_path)
    assert all(height <= 2200 for _, height in map(size, made))


def test_a_chart_without_entries_has_no_legend(tmp_path: Path) -> None:
    """A chart of a run whose layers multiply nothing has no legend."""
    chart = BarChart("empty", "no MACs", "MACs", "", ("layer",), ())
    assert [size(picture)[0] for picture in save_charts([chart], tmp_path)] == [1200]


def test_comparisons_have_pictures(tmp_path: Path) -> None:
    charts = comparison_charts(compared(tiny_run("seed"), tiny_run()))
    assert len(save_charts(charts, tmp_path)) == len(charts) == 4


def test_sweeps_have_pictures(tmp_path: Path) -> None:
    charts = list(sweep_charts(grid(), ("pe_sram", "cycles")))
    made = save_charts(charts, tmp_path)
    assert [picture.name for picture in made] == ["pareto-tiny.onnx.png"]
    first = [picture.read_bytes() for picture in made]
    assert [picture.read_bytes() for picture in save_charts(charts, tmp_path)] == first


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        InputError, match=r"file.end-to-end\.png: cannot be written .*; choose another place"
    ):
        save_charts(run_charts(tiny_run()), tmp_path / "file")


def test_styles_cover_the_schema_and_tell_everything_apart_without_colour() -> None:
    assert (set(PARTS), set(KINDS), set(CAUSES)) == (
        set(PART_NAMES),
        set(KIND_NAMES),
        set(CAUSE_NAMES),
    )
    assert len({style.marker for style in KINDS.values()}) == len(KINDS)
    for styles in (PARTS, KINDS, CAUSES):
        assert len({style.color for style in styles.values()}) == len(styles)
        # no unit has both it and sram
        patterns = [style.pattern for name, style in styles.items() if name != "flash"]
        assert len({*patterns}) >= len(patterns) - 1  # at most two plain ones: one dark, one light
        assert {style.marker for style in styles.values()} <= MARKERS.keys()
        assert {*patterns} <= HATCHES.keys()


def test_bars_are_drawn_for_layers_that_lose_and_gain(tmp_path: Path) -> None:
    chart = next(
        chart
        for chart in comparison_charts(compared(tiny_run("seed"), tiny_run()))
        if isinstance(chart, BarChart)
    )
    assert sum(sum(series.values) for series in chart.series) == (
        tiny_run().totals.cycles - tiny_run("seed").totals.cycles
    )
    assert size(save_charts([chart], tmp_path)[0])[0] == 1200
