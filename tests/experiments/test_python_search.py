"""``dla.sweep``, ``dla.explore`` and ``dla.tune`` equal their commands and return tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dla
from tests.experiments.command_line import dla as command
from tests.experiments.command_line import save_tiny

SPEC: dict[str, Any] = {
    "networks": "tiny.onnx",
    "schedules": ["default", "seed"],
    "arch": {"pe.oc": [4, np.int64(8)], "sram_bytes": ["1 KiB", "64 KiB"]},
    "timing": {"bus_bytes": (4, 8)},
}
TEXT = """
networks = "tiny.onnx"
schedules = ["default", "seed"]
[arch]
pe.oc = [4, 8]
sram_bytes = ["1 KiB", "64 KiB"]
[timing]
bus_bytes = [4, 8]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a network and a specification."""
    save_tiny(tmp_path)
    (tmp_path / "grid.toml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content(path: str | Path) -> list[str]:
    """All that a results file says, manifests too."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_a_sweep_is_that_of_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = dla.sweep("grid.toml", workers=1)
    assert done.path == Path("runs/grid.sqlite")
    Path("runs").rename("mine")
    said = command(capsys, "sweep", "grid.toml", "--workers", "1")
    assert said.status == 0
    assert said.out.splitlines() == str(done).splitlines()
    assert content("mine/grid.sqlite") == content("runs/grid.sqlite")
    assert Path("mine/grid.sqlite").read_bytes() == Path("runs/grid.sqlite").read_bytes()


def test_a_specification_may_be_a_dict(folder: Path) -> None:
    from_file = dla.sweep("grid.toml", output="file.sqlite", workers=1)
    done = dla.sweep(SPEC, workers=1)
    assert done.path == Path("runs/specification.sqlite")
    assert (done.points, done.failure) == (16, None)
    assert done.table.equals(from_file.table)
    assert done.table.equals(dla.load(done.path))


def test_a_sweep_of_which_no_point_is_ok_says_why(folder: Path) -> None:
    done = dla.sweep({"networks": "tiny.onnx", "timing": {"bus_bytes": [3, 5]}}, workers=1)
    assert done.failure is not None
    assert done.failure.startswith("no point is ok; 1 of 2 failed: no such machine: bus_bytes is ")
    assert str(done).splitlines()[-1] == done.failure
    assert list(done.table["status"]) == ["failed", "failed"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "<specification>: networks: missing; name at least one network"),
        (
            {"networks": "tiny.onnx", "arch": {"sram": 3}},
            "<specification>: arch.sram: unknown axis; ",
        ),
        (
            {"networks": object()},
            "<specification>: networks is a object; give a text, a number, a list or a table of ",
        ),
        ("none.toml", "none.toml: no such file; "),
    ],
)
def test_bad_specifications(spec: Any, message: str) -> None:
    with pytest.raises(dla.InputError) as caught:
        dla.sweep(spec)
    assert str(caught.value).startswith(message)


def test_an_exploration_is_that_of_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dla.explore("grid.toml", trials=6, seed=1, workers=1)
    Path("runs").rename("mine")
    words = (
        "explore",
        "grid.toml",
        "--trials",
        "6",
        "--seed",
        "1",
        "--workers",
        "1",
        "--json",
        "found.json",
    )
    assert command(capsys, *words).status == 0
    assert content("mine/grid.sqlite") == content("runs/grid.sqlite")
    table = found.table
    assert len(table) == len(found.found) == 6
    assert table["front"].sum() == len(found.front) > 0
    assert {"pe.oc", "sram_bytes", "bus_bytes", "cycles", "area"} <= set(table.columns)
    assert (
        repr(found)
        == f"tiny.onnx, cycles and area: 6 of 16 points evaluated, {len(found.front)} on the front"
    )


def test_a_tuning_is_that_of_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = {"sram_bytes": "2KiB"}
    tuned = dla.tune(
        "digits-cnn", settings=machine, memory_mode="flash", measurements=3, learn=False
    )
    assert tuned.log.path == Path("runs/digits-cnn-tuning.jsonl")
    given = (
        "--set",
        "sram_bytes=2KiB",
        "--memory-mode",
        "flash",
        "--measurements",
        "3",
        "--no-model",
    )
    said = command(capsys, "tune", "digits-cnn", *given, "--log", "c.jsonl")
    assert said.status == 0
    assert Path("c.jsonl").read_bytes() == tuned.log.path.read_bytes()
    assert repr(tuned) in said.out
    best = dla.run("digits-cnn", settings=machine, memory_mode="flash", options=tuned.best_options)
    assert best.report.totals.cycles == tuned.log.best.measurement.cycles
    assert best.report.command.endswith("--tuned runs/digits-cnn-tuning.jsonl")
