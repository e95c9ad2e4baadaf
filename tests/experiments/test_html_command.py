"""``dla report``: files written for runs, comparisons and sweeps, and one line for bad input."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from experiments.report.schema import report_json
from tests.experiments.command_line import dla
from tests.experiments.reporting import grid_file, tiny_run

Capture = pytest.CaptureFixture[str]
PICTURES = {
    "end-to-end",
    "layer-cycles",
    "layer-utilization",
    "roofline",
    "layer-traffic",
    "unit-timeline",
    "sram-occupancy",
    "memory-map",
    "unit-causes",
}


@pytest.fixture(autouse=True)
def _in_a_folder_with_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.json").write_text(report_json(tiny_run("seed")))
    Path("b.json").write_text(report_json(tiny_run()))


def pictures(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.png")}


def test_page_and_pictures_beside_the_run(capsys: Capture) -> None:
    found = dla(capsys, "report", "a.json")
    assert (found.status, found.err) == (0, "")
    assert found.out.endswith("page written to a-report/a.html\n9 images written to a-report\n")
    assert pictures(Path("a-report")) == PICTURES
    assert Path("a-report/a.html").read_text().startswith("<!DOCTYPE html>")


def test_a_run_writes_the_page_that_its_report_has_later(capsys: Capture) -> None:
    found = dla(capsys, "run", "digits-cnn", "--html", "--json", "run.json")
    said = "page written to run-report/run.html\nreport written to run.json\n"
    assert (found.status, found.out.endswith(said)) == (0, True)
    page = Path("run-report/run.html").read_bytes()
    assert dla(capsys, "report", "run.json", "-o", "later.html").status == 0
    assert Path("later.html").read_bytes() == page
    found = dla(capsys, "run", "digits-cnn", "--html", "--json", "-")
    assert json.loads(found.out)["model"] == "digits-cnn"  # the page's path is not among the data
    (default,) = Path("runs").glob("digits-cnn-*-report/*.html")
    assert default.stem + "-report" == default.parent.name


def test_a_folder_or_a_file_of_ones_choice(capsys: Capture) -> None:
    assert dla(capsys, "report", "a.json", "-o", "there").status == 0
    assert (pictures(Path("there")), Path("there/a.html").is_file()) == (PICTURES, True)
    found = dla(capsys, "report", "a.json", "-o", "new/page.html")
    assert found.out.endswith("page written to new/page.html\n")
    assert [path.name for path in Path("new").iterdir()] == ["page.html"]
    assert dla(capsys, "report", "a.json", "-o", "page.html", "--png", "png").status == 0
    assert pictures(Path("png")) == PICTURES
    assert Path("page.html").read_bytes() == Path("there/a.html").read_bytes()


def test_tables_alone_write_nothing(capsys: Capture) -> None:
    before = sorted(Path().iterdir())
    found = dla(capsys, "report", "a.json", "--tables")
    assert found.status == 0
    assert sum("wait" in line for line in found.out.splitlines()) == 1  # the breakdown, once
    assert sorted(Path().iterdir()) == before


def test_compare(capsys: Capture) -> None:
    found = dla(capsys, "report", "a.json", "b.json")
    assert (found.status, found.err) == (0, "")
    assert "largest changes" in found.out
    folder = Path("a-against-b-report")
    assert Path(folder, "a-against-b.html").is_file()
    assert pictures(folder) == {"layer-changes", "layer-cycles", "layer-traffic", "kind-cycles"}


def test_sweeps(capsys: Capture) -> None:
    shutil.copy(grid_file(), "grid.sqlite")
    found = dla(
        capsys,
        "report",
        "grid.sqlite",
        "-o",
        "sweep",
        "--x",
        "bus_bytes",
        "--cost",
        "horowitz-45nm",
    )
    assert (found.status, found.err) == (0, "")
    assert "bus width (bytes/cycle)" in found.out
    found = dla(capsys, "report", "grid.sqlite", "--tables", "--cost", "horowitz-45nm")
    assert "estimated area (" in found.out
    assert "PEs × SRAM" not in found.out
    assert '"mm2":' in Path("sweep/grid.html").read_text()
    assert pictures(Path("sweep")) == {"pareto-tiny.onnx"}


BAD = [
    (["none.json"], "none.json: no such file; 'dla run MODEL --json none.json' makes a report"),
    (["text"], "text: not a run report (it is not JSON)"),
    (
        ["other.json"],
        "other.json: not a run report of schema dla-run/1 (schema is 'dla-run/2'); "
        "run 'dla run' again",
    ),
    (
        [],
        "runs: no such folder; 'dla run MODEL' and 'dla sweep SPEC.toml' make the folder runs, or "
        "name another folder",
    ),
    (
        ["a.json"] * 27,
        "27 runs; compare at most 26",
    ),
    (
        ["a.json", "--tables", "-o", "x"],
        "--tables writes nothing; leave out --output and --png, or --tables",
    ),
    (
        ["a.json", "--x", "cycles"],
        "--x, --y, --where and --cost are for the results of sweeps; leave them out for runs",
    ),
    (["a.json", "-o", "text"], "text/a.html: cannot be written"),
    (["a.json", "-o", "page.html", "--png", "text"], "text/end-to-end.png: cannot be written"),
    (["foreign.sqlite"], "foreign.sqlite: not a results file of dla sweep; choose another place"),
    (
        ["a.json", "foreign.sqlite"],
        "foreign.sqlite: not a run report (it is not JSON)",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD]
)
def test_bad_input_is_one_clear_line(arguments: list[str], message: str, capsys: Capture) -> None:
    Path("text").write_text("neither")
    Path("other.json").write_text(json.dumps({"schema": "dla-run/2"}))
    connection = sqlite3.connect("foreign.sqlite")
    connection.execute("CREATE TABLE something (else_ TEXT)")
    connection.close()
    found = dla(capsys, "report", *arguments)
    assert found.status == 2
    assert found.err.startswith("error: ")
    assert message in found.err
    assert found.err.count("\n") == 1
