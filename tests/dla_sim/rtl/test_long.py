"""The long comparison goes on where it was: what is among its results is not run again.

Nothing is built here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dla_sim.rtl.simulator.case import Case, Outcome
from dla_sim.rtl.simulator.executable import Executable
from experiments.rtl.hardware import SMALL
from tests.dla_sim.rtl import long
from tests.dla_sim.rtl.random_programs import random_cases

CASES = list(random_cases(range(4), SMALL[0]))
PART = long.Part("random programs", "small", SMALL[0], None, lambda: CASES)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that were run, on hardware whose Verilog is that of its limits."""
    names: list[str] = []

    def run_cases(_: Executable, cases: Sequence[tuple[Case, Any]]) -> list[Outcome]:
        names.extend(case.name for case, _ in cases)
        return [Outcome(case, "interrupt", 100, 0.1, 5, {}, {}, 0, ()) for case, _ in cases]

    monkeypatch.setattr(long, "machine_text", lambda limits, _: repr(limits))
    monkeypatch.setattr(
        long, "build_executable", lambda *_, **__: Executable(Path("none"), (), False)
    )
    monkeypatch.setattr(long, "run_cases", run_cases)
    return names


def test_what_was_compared_is_not_compared_again(run: list[str], tmp_path: Path) -> None:
    results = tmp_path / "a" / "results.jsonl"
    names = [case.name for case in CASES]
    first = list(long.compared(PART, results))
    assert [line and line["name"] for line in first] == run == names
    assert list(long.compared(PART, results)) == first
    assert run == names
    list(long.compared(replace(PART, limits=SMALL[1]), results))
    assert run == names * 2


def test_a_line_that_was_not_finished_is_compared_again(run: list[str], tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    first = list(long.compared(PART, results))
    results.write_text(results.read_text()[:-20])
    assert list(long.compared(PART, results)) == first
    assert run[len(CASES) :] == [CASES[-1].name]


def test_telling_runs_nothing(run: list[str], tmp_path: Path) -> None:
    assert list(long.compared(PART, tmp_path / "none", tell=True)) == [None] * len(CASES)
    assert run == []
    (row,) = [row for row in long.table([(PART, [None] * 4)]) if row.startswith("| random")]
    assert row == "| random programs | small | 0 of 4 | | | not compared |"
