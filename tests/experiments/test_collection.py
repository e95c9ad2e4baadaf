"""``dla runs``: which results are below a folder, in which order, and what is none of them.

``dla report`` without a file takes the first, and compares several.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.collection.listing import RUNNING_SECONDS, Collector, ResultList, find_latest
from experiments.compare.comparison import ManyRuns
from experiments.compare.presentation import MANY_RUNS
from experiments.compare.sources import report_snapshot
from experiments.report.schema import RunReport, report_json
from experiments.report.shown import Document
from experiments.running.inference import run
from experiments.sweep.store import Store
from isa.errors import InputError
from tests.experiments.command_line import dla
from tests.experiments.reporting import grid_file, tiny_run

Capture = pytest.CaptureFixture[str]
SECOND = 10**9


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()


def save(name: str, seconds: int, report: RunReport | None = None, **changes: Any) -> Path:
    """Save a run below ``runs`` as it was written so many seconds after the start of 1970."""
    path = Path("runs") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.loads(report_json(report or tiny_run())) | changes
    path.write_text(json.dumps(content), encoding="utf-8")
    os.utime(path, ns=(seconds * SECOND, seconds * SECOND))
    return path


def collect() -> ResultList:
    return Collector(Path("runs")).collect()


def test_newest_first_and_equal_times_by_name() -> None:
    for name, seconds in (("b.json", 5), ("a.json", 5), ("deep/er/c.json", 9), ("z.json", 1)):
        save(name, seconds)
    names = [one.file for one in collect().runs]
    assert names == ["deep/er/c.json", "a.json", "b.json", "z.json"]
    assert find_latest(Path("runs")) == Path("runs/deep/er/c.json")


def test_a_run_has_its_time_and_its_check() -> None:
    report = tiny_run()
    save("right.json", 4)
    wrong = json.loads(report_json(report))["check"] | {
        "mismatches": 1,
        "max_abs_diff": 2,
        "first": {"tensor": "t", "coordinates": [0], "dla": 1, "oracle": 3},
    }
    save("wrong.json", 3, check=wrong)
    save("without-first.json", 2, check=wrong | {"first": None})
    unchecked = wrong | {"mismatches": 0, "first": None, "tensors": 0, "elements": 0}
    save("unchecked.json", 1, check=unchecked | {"regions": 1})
    found = {one.file: one for one in collect().runs}
    assert [(one.file, one.check) for one in found.values()] == [
        ("right.json", "right"),
        ("wrong.json", "wrong"),
        ("without-first.json", "wrong"),
        ("unchecked.json", "not checked"),
    ]
    clock = report.timing["clock_hz"]
    one = found["right.json"]
    assert one.milliseconds == 1e3 * report.end_to_end.cycles / clock
    assert one.network == report.model
    assert one.machine.startswith("4x16 PEs (ic x oc), 512 KiB SRAM, ")


def test_files_that_are_no_results_are_named(capsys: Capture) -> None:
    save("good.json", 1)
    text = Path("runs/good.json").read_text(encoding="utf-8")
    Path("runs/cut.json").write_text(text[: len(text) // 2])
    Path("runs/list.json").write_text("[1]")
    Path("runs/table.sqlite").write_text("no database")
    Path("runs/notes.txt").write_text("other files are none of its business")
    save("arch.json", 1, arch={"isa": "v4"})
    save("clock.json", 1, timing={"bus_bytes": 8, "clock_hz": 0})
    Path("runs/gone.json").symlink_to("nowhere")
    outside = Path("outside.json")
    outside.write_text(text)
    Path("runs/out.json").symlink_to(outside.resolve())
    Path("runs/in.json").symlink_to("good.json")
    os.mkfifo("runs/pipe.json")
    Path("runs/folder.json").mkdir()
    found = collect()
    assert sorted(one.file for one in found.runs) == ["good.json", "in.json"]
    assert sorted(one.file for one in found.faults) == [
        "arch.json", "clock.json", "cut.json", "gone.json", "list.json", "out.json", "pipe.json",
        "table.sqlite",
    ]  # fmt: skip
    assert all(f"runs/{one.file}" in one.fault for one in found.faults)
    listed = dla(capsys, "runs")
    assert (listed.status, listed.err) == (0, "")
    assert sum(line.startswith("not listed: ") for line in listed.out.splitlines()) == 8
    assert "runs/out.json: a link to a file outside of" in listed.out
    for number in range(20):
        Path(f"runs/{number}.json").write_text("{}")
    assert "not listed: 18 more files" in dla(capsys, "runs").out


def test_a_folder_that_leads_elsewhere_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    save("../elsewhere/a.json", 1)
    Path("runs/there").symlink_to(tmp_path / "elsewhere")
    assert collect().runs == collect().faults == ()


def test_a_system_is_a_run(capsys: Capture) -> None:
    Path("two.toml").write_text(
        '[[task]]\nname = "digits"\nmodel = "digits-cnn"\nperiod = "100us"\n'
        '[[accelerator]]\nname = "a"\n[run]\nuntil = "200us"\n'
    )
    made = dla(capsys, "system", "two.toml", "--json", "runs/two.json")
    assert made.status == 0, made.err
    (one,) = collect().runs
    assert one.machine.startswith("system of ")
    assert (one.milliseconds, one.check) == (None, "not checked")


def test_a_sweep_tells_how_far_it_is() -> None:
    shutil.copy(grid_file(), "runs/grid.sqlite")
    (one,) = collect().sweeps
    now = one.modified / SECOND
    assert (one.points, sum(one.statuses.values()), one.state(now)) == (48, 48, "complete")
    database = sqlite3.connect("runs/grid.sqlite")
    database.execute("DELETE FROM points WHERE key IN (SELECT key FROM points LIMIT 10)")
    database.commit()
    database.close()
    (one,) = collect().sweeps
    now = one.modified / SECOND
    assert (one.cells(Path("runs"), now)[:3]) == ("tiny.onnx", "38 of 48", "not running")
    with Store(Path("runs/grid.sqlite"), create=True) as store:
        store.forget("infeasible")
        (one,) = collect().sweeps
        assert one.state(one.modified / SECOND + RUNNING_SECONDS - 1) == "running"
        assert one.state(one.modified / SECOND + RUNNING_SECONDS + 1) == "not running"
        assert "infeasible" not in one.statuses
    (one,) = collect().sweeps
    assert one.state(time.time()) == "not running"


def test_a_file_is_read_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.collection import listing

    read = []
    monkeypatch.setattr(listing, "load_saved", lambda path: read.append(path.name) or tiny_run())
    save("a.json", 1)
    save("b.json", 2)
    collector = Collector(Path("runs"))
    assert [one.file for one in collector.collect().runs] == ["b.json", "a.json"]
    save("a.json", 3)
    assert [one.file for one in collector.collect().runs] == ["a.json", "b.json"]
    Path("runs/b.json").unlink()
    assert [one.file for one in collector.collect().runs] == ["a.json"]
    assert read.count("a.json") == 2
    assert read.count("b.json") == 1


def test_the_list_as_text_and_as_csv(capsys: Capture) -> None:
    assert dla(capsys, "runs").out == (
        "no runs below runs; 'dla run MODEL' writes a report to runs\n"
    )
    save("a.json", 1)
    shown = dla(capsys, "runs").out
    assert "runs/a.json" in shown
    assert "right" in shown
    rows = list(csv.DictReader(io.StringIO(dla(capsys, "runs", "--csv", "-").out)))
    assert [(row["network"], row["file"], row["modified"]) for row in rows] == [
        (tiny_run().model, "runs/a.json", str(SECOND))
    ]
    refused = dla(capsys, "runs", "none")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "none: no such folder; " in refused.err


def test_a_report_without_a_file_is_of_the_latest_run(capsys: Capture) -> None:
    refused = dla(capsys, "report")
    assert refused.err == "error: runs: has no report of a run; 'dla run MODEL' writes one\n"
    save("old.json", 1, tiny_run("seed"))
    save("new.json", 2)
    found = dla(capsys, "report", "--tables")
    assert found.out.startswith("latest run: runs/new.json\n")
    assert found.out.endswith(dla(capsys, "report", "runs/new.json", "--tables").out)


def test_three_runs_side_by_side(capsys: Capture) -> None:
    names = ("digits-cnn", "keyword-spotting")
    reports = [run(name).report for name in names]
    reports.append(run("digits-cnn", settings={"pe.oc": 8}).report)
    for number, report in enumerate(reports):
        save(f"{number}.json", number, report)
    files = [f"runs/{number}.json" for number in range(3)]
    found = dla(capsys, "report", *files, "--csv", "layers.csv")
    assert (found.status, found.err) == (0, "")
    assert "page written to runs/0-and-2-more-report/0-and-2-more.html" in found.out
    with open("layers.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for letter, report in zip("abc", reports, strict=True):
        cycles = [int(row[f"cycles_{letter}"]) for row in rows if row[f"cycles_{letter}"]]
        assert sum(cycles) == report.totals.cycles
    total = next(line for line in found.out.splitlines() if line.startswith(" cycles "))
    assert re_numbers(total) == [report.totals.cycles for report in reports]
    differing = next(line for line in found.out.splitlines() if line.startswith(" arch.pe.oc"))
    assert differing.split() == ["arch.pe.oc", "16", "16", "8"]
    page = Path("runs/0-and-2-more-report/0-and-2-more.html").read_text(encoding="utf-8")
    assert f"{reports[1].totals.cycles:,} cycles" in page


def re_numbers(text: str) -> list[int]:
    return [int(word.replace(",", "")) for word in text.split() if word.replace(",", "").isdigit()]


def test_equal_runs_differ_in_nothing_but_their_results() -> None:
    sides = tuple(report_snapshot(tiny_run(), name) for name in "xyz")
    assert "only the results" in Document(ManyRuns(sides), MANY_RUNS).page()
    with pytest.raises(InputError, match="27 runs; compare at most 26"):
        ManyRuns(sides * 9)
