"""A sweep's report: varied axes, the front against brute force, page, tables and bad files."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.report.shown import Document
from experiments.sweep.presentation import FRONT, sweep_page
from experiments.sweep.results import AXES, Sweep, load_sweep, reasons, sign, title, words
from experiments.sweep.store import FIGURE_COLUMNS, Store
from isa.errors import InputError
from tests.experiments.reporting import Page, grid, grid_file
from tests.experiments.test_html_run import data_of


def test_what_varies_is_an_axis_once() -> None:
    """``pe.count`` varies with ``pe.oc`` alone here, so that it tells nothing more."""
    assert grid().axes == ("schedule", "pe.oc", "sram_bytes", "bus_bytes")
    assert {"cycles", "utilization", "pe_sram"} <= set(grid().figures)
    assert grid().points == len(grid().finished) + 6
    assert grid().statuses == {"infeasible": 6, "ok": 42}


@pytest.mark.parametrize("seed", range(20))
def test_the_front_is_that_of_brute_force(seed: int) -> None:
    generator = random.Random(seed)
    count = generator.choice((1, 2, 30))
    columns = {
        "cycles": tuple(generator.randrange(8) for _ in range(count)),
        "pe_sram": tuple(generator.randrange(8) for _ in range(count)),
        "utilization": tuple(generator.randrange(8) / 8 for _ in range(count)),
        "status": ("ok",) * count,
    }
    sweep = Sweep("random", columns, ())
    for objectives in (("pe_sram", "cycles"), ("utilization", "cycles"), ("cycles", "utilization")):
        front = sweep.front(objectives, range(count))
        places = [
            tuple(sign(name) * columns[name][point] for name in objectives)
            for point in range(count)
        ]
        beaten = {
            here
            for here in places
            for there in places
            if there != here and there[0] <= here[0] and there[1] <= here[1]
        }
        assert {places[point] for point in front} == set(places) - beaten
        assert [places[point] for point in front] == sorted(places[point] for point in front)
        assert len(front) == len({places[point] for point in front})


def test_the_page_has_charts_data_and_origin() -> None:
    text = sweep_page(grid(), grid().objectives(None, None))
    page = Page(text)
    assert {"pareto", "heatmap", "parallel", "tools", "front"} <= set(page.ids)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    found = data_of(text)
    assert found["ok"] == list(grid().finished)
    assert found["columns"]["cycles"]["values"] == list(grid().columns["cycles"])
    assert found["columns"]["bus_bytes"]["title"] == "bus width (bytes/cycle)"
    for expected in (
        "dla sweep grid.toml",
        "does not fit in 512 bytes of SRAM",
        "version of onnxruntime",
    ):
        assert expected in page.text


def test_equal_results_give_equal_bytes() -> None:
    again = load_sweep(grid_file())
    assert sweep_page(again, again.objectives(None, None)) == sweep_page(
        grid(), grid().objectives(None, None)
    )


def test_a_sweep_in_which_nothing_fits_has_a_page() -> None:
    columns = dict(grid().columns)
    columns["status"] = ("failed",) * grid().points
    columns |= {name: (None,) * grid().points for name in grid().figures if name != "pe_sram"}
    none = replace(grid(), columns=columns)
    assert none.finished == none.figures == ()
    page = Page(sweep_page(none, none.objectives(None, None)))
    assert "pareto" not in page.ids
    assert "failed" in page.text
    assert sum(count for _, _, count in reasons(none)) == none.points


def test_tables_on_a_terminal() -> None:
    console = Console(width=160)
    with console.capture() as capture:
        Document((grid(), grid().objectives(None, None)), FRONT).show(console)
    text = capture.get()
    assert "grid: 48 points: 6 infeasible, 42 ok" in text
    front = grid().front(("pe_sram", "cycles"), grid().finished)
    assert f"tiny.onnx: {len(front)} of 42 points are on the front" in text
    assert all(f"{grid().columns['cycles'][point]:,}" in text for point in front)


def test_titles_in_words() -> None:
    titles = {
        "cycles": "cycles",
        "kinds.CONV": "cycles of CONV",
        "LD.token_EX": "LD: token_EX (cycles)",
        "estimated_energy_pj": "estimated energy (pJ)",
        "schedule": "schedule",
        "pe_sram": "PEs × SRAM (PE·KiB)",
        "pe.oc": "PEs over output channels",
        "bus_bytes": "bus width (bytes/cycle)",
        "sram_bytes": "SRAM",
    }
    assert {name: title(name) for name in titles} == titles


def test_every_column_of_results_has_words() -> None:
    assert not [
        name for name in (*AXES, *FIGURE_COLUMNS) if "_" in words(name) or "." in words(name)
    ]


def test_columns_that_are_none() -> None:
    with pytest.raises(
        InputError,
        match=r"^--x cycle: no such column of numbers; did you mean cycles\? choose one of ",
    ):
        grid().objectives("cycle", None)
    with pytest.raises(InputError, match=r"^--y schedule: no such column of numbers"):
        grid().objectives(None, "schedule")
    assert grid().objectives("bus_bytes", "utilization") == ("bus_bytes", "utilization")


def test_costs_are_columns() -> None:
    found = load_sweep(grid_file(), "horowitz-45nm")
    assert {"ms", "ips", "uJ", "mm2"} <= set(found.figures)
    assert not {"estimated_energy_pj", "estimated_area_um2"} & set(found.drawable())
    assert found.objectives("estimated_area_um2", "estimated_energy_pj") == ("mm2", "uJ")
    assert found.objectives("KiB", "ips") == ("sram_bytes", "ips")
    for name, given in (("mm2", "estimated_area_um2"), ("uJ", "estimated_energy_pj")):
        pairs = zip(found.columns[name], found.columns[given], strict=True)
        assert all(one == (other and other / 1e6) for one, other in pairs)


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (
            "ms < 0.001 and sram_bytes = 64 KiB",
            lambda row: row["ms"] < 1e-3 and row["sram_bytes"] == 65536,
        ),
        ("ips > 1000000 or N <= 4", lambda row: row["ips"] > 1e6 or row["pe.count"] <= 4),
    ],
)
def test_where_keeps_the_points_that_satisfy_it(where: str, kept: Any) -> None:
    rows = [row for row in load_sweep(grid_file()).rows() if row["status"] == "ok"]
    found = load_sweep(grid_file(), where=where).rows()
    assert found == [row for row in rows if kept(row)]
    assert 0 < len(found) < len(rows)


def test_a_comparison_that_no_point_satisfies() -> None:
    with pytest.raises(InputError, match=r"^--where: no point of 48 satisfies 'ms < 0'; relax it$"):
        load_sweep(grid_file(), where="ms < 0")
    with pytest.raises(InputError, match=r"^--where: 'mm2 < 3': mm2 of tiny.onnx is unknown, "):
        load_sweep(grid_file(), where="mm2 < 3")
    with pytest.raises(InputError, match=r"^--where: 'sec < 3': unknown key 'sec'; choose one of "):
        load_sweep(grid_file(), where="sec < 3")


def test_a_results_file_without_a_point(tmp_path: Path) -> None:
    with Store(tmp_path / "empty.sqlite", create=True):
        pass
    with pytest.raises(InputError, match=r"empty\.sqlite: no point has ended yet"):
        load_sweep(tmp_path / "empty.sqlite")
