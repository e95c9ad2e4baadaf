"""``dla explore`` on a small network: front, grid, files, resuming, and bad input."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from matplotlib import image

from experiments.cost.estimate import add_costs
from experiments.cost.table import load_table
from experiments.explore.exploration import Exploration, costs, draw, parse_objectives
from experiments.explore.exploring import explore
from experiments.sweep.results import flat_rows, front
from experiments.sweep.spec import Spec, load_spec
from isa.errors import InputError
from isa.installation import remedy
from tests.experiments.command_line import dla
from tests.experiments.sweeping import rows_of, written

GRID = """
    networks = ["tiny.onnx"]
    schedules = ["default", "seed"]
    constraints = ["pe.count <= 32"]
    [arch]
    pe.ic = [1, 4, 8]
    pe.oc = [2, 4, 8]
    sram_banks = 1
    sram_bytes = [64, "512 KiB", "1 KiB"]
"""
POINTS = 2 * (9 - 1) * 3


def explored(
    spec: Spec, place: Path, points: int, grid: bool | None = None, workers: int = 1
) -> Exploration:
    return explore(spec, output=place, trials=points, grid=grid, workers=workers)


def test_the_whole_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = written(tmp_path, GRID)
    results = tmp_path / "r.sqlite"
    options = (
        "--output",
        results,
        "--workers",
        "1",
        "--json",
        tmp_path / "e.json",
        "--png",
        tmp_path / "e.png",
    )
    options += ("--csv", tmp_path / "e.csv")
    outcome = dla(
        capsys, "explore", spec, "--objectives", "cycles,area", "--trials", "24", *options
    )
    assert (outcome.status, outcome.err) == (0, "")
    assert f"24 of {POINTS} points evaluated (50.0%)" in outcome.out
    assert "energy and area are estimates by the cost table horowitz-45nm" in outcome.out
    content = json.loads((tmp_path / "e.json").read_text())
    assert (content["schema"], content["points"], content["grid_points"]) == (
        "dla-explore/1",
        24,
        POINTS,
    )
    assert content["command"].startswith("dla explore ")
    assert len(content["found"]) == 24
    assert content["grid"]["points"] == POINTS
    # The grid has been run too: its front is at least as good as the found one.
    rows = list(add_costs(flat_rows(results), load_table()))
    pairs = [
        pair for row in rows if (pair := costs(parse_objectives("cycles,area"), row)) is not None
    ]
    best = [pairs[place] for place in front(pairs)]
    assert len(rows) == POINTS
    for point in content["front"]:
        assert any(pair[0] <= point["cycles"] and pair[1] <= point["area"] for pair in best)
    assert image.imread(tmp_path / "e.png").shape[1] > 1000
    table = list(csv.DictReader((tmp_path / "e.csv").read_text("utf-8").splitlines()))
    assert [row["key"] for row in table] == [point["key"] for point in content["found"]]
    chosen = {row["key"] for row in table if row["front"] == "True"}
    assert chosen == {point["key"] for point in content["front"]}


def test_an_interrupted_exploration_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, GRID))
    whole = explored(spec, tmp_path / "whole.sqlite", 20, grid=False)
    explored(spec, tmp_path / "parts.sqlite", 7, grid=False)
    before = rows_of(tmp_path / "parts.sqlite")
    continued = explored(spec, tmp_path / "parts.sqlite", 20, grid=False, workers=2)
    assert [item.row["key"] for item in continued.found] == [
        item.row["key"] for item in whole.found
    ]
    assert continued.content() == whole.content()
    after = rows_of(tmp_path / "parts.sqlite")
    assert before.items() <= after.items()
    assert draw(continued) == draw(whole)


def test_what_does_not_fit_is_evaluated_and_is_on_no_front(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, GRID))
    found = explored(spec, tmp_path / "r.sqlite", POINTS)
    assert len(found.found) == POINTS
    statuses = {item.row["status"] for item in found.found}
    assert statuses == {"ok", "infeasible"}
    assert all(item.row["status"] == "ok" for item in found.front)
    assert found.comparison is not None
    assert found.comparison.share == 1.0
    assert found.comparison.needed is not None


def test_the_grid_is_run_when_it_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_spec(written(tmp_path, GRID))
    assert explored(spec, tmp_path / "a.sqlite", 3, grid=False).comparison is None
    assert len(rows_of(tmp_path / "a.sqlite")) < POINTS
    monkeypatch.setattr("experiments.explore.exploring.SMALL_GRID", POINTS - 1)
    assert explored(spec, tmp_path / "a.sqlite", 3).comparison is None
    assert explored(spec, tmp_path / "a.sqlite", 3, grid=True).comparison is not None
    monkeypatch.setattr("experiments.explore.exploring.LARGEST_GRID", 53)
    with pytest.raises(
        InputError, match="grid=True: the axes have 54 combinations; at most 53 can be compared"
    ):
        explored(spec, tmp_path / "a.sqlite", 3, grid=True)


def test_whole_arrays_are_an_axis(tmp_path: Path) -> None:
    text = """
        networks = "tiny.onnx"
        [arch]
        pe = [{ ic = 4, oc = 4 }, { ic = 2, oc = 8 }, { ic = 16, oc = 1 }]
    """
    found = explored(load_spec(written(tmp_path, text)), tmp_path / "r.sqlite", 9)
    assert found.settings == ("pe.ic", "pe.oc", "pe.ow")
    assert len(found.found) == 3
    assert len(found.front) == 1


def test_bad_input_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = written(tmp_path, GRID)

    def refused(*options: str) -> str:
        outcome = dla(capsys, "explore", *options)
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err.count("\n") == 1
        return outcome.err.removeprefix("error: ").strip()

    monkeypatch.chdir(tmp_path)
    assert refused(str(spec), "--trials", "0") == "--trials is 0; it must be 1 or more"
    assert refused(str(spec), "--objectives", "cycles") == (
        "--objectives is 'cycles'; name two different ones, such as cycles,area"
    )
    assert refused(str(spec), "--cost", "free") == (
        "free: no such cost table; give a .toml file or one of horowitz-45nm"
    )
    two = written(tmp_path, 'networks = ["tiny.onnx", "digits-cnn"]', "two.toml")
    assert refused(str(two)) == (
        "networks: tiny.onnx, digits-cnn; give one, or add joint = true to search one machine for "
        "all; 'dla sweep' runs several, and 'dla report' of its results shows a front for each"
    )
    assert refused("absent.toml").startswith("absent.toml: no such file")
    assert not (tmp_path / "runs").exists()
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert refused(str(spec), "--workers", "1") == (
        f"dla explore needs Optuna; install it with: {remedy('explore')}"
    )


def test_a_search_without_any_ok_point_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 'networks = "tiny.onnx"\ntiming.bus_bytes = [3, 5]\n')
    monkeypatch.chdir(tmp_path)
    searched = dla(
        capsys,
        "explore",
        "grid.toml",
        "--objectives",
        "cycles,pes",
        "--trials",
        "2",
        "--workers",
        "1",
    )
    assert searched.status == 1
    assert searched.err.startswith(
        "no point is ok; the first failed: no such machine: bus_bytes is "
    )
    assert searched.err.count("\n") == 1
