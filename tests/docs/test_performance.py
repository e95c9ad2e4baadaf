"""The table in docs/performance.md is the one of the record, else run ``python -m benchmarks``."""

from __future__ import annotations

from pathlib import Path

from benchmarks import __main__ as benchmarks
from benchmarks import measuring


def test_the_page_has_the_recorded_ratios() -> None:
    rows = benchmarks.read_record()
    assert {row["script"] for row in rows} == set(benchmarks.SCRIPTS)
    page = benchmarks.PAGE.read_text(encoding="utf-8")
    assert benchmarks.write_page(page, rows) == page


def test_new_rows_replace_those_of_the_same_script_and_processor(tmp_path: Path) -> None:
    path = tmp_path / "ratios.csv"
    here = benchmarks.to_row("start", measuring.RatioRow("a", "b", 1.504))
    other = {**here, "processor": "another"}
    benchmarks.write_record([here, other], path)
    new = {**here, "ratio": "4.00"}
    benchmarks.write_record([new], path)
    assert benchmarks.read_record(path) == [other, new]
    assert benchmarks.make_table([other, new]).splitlines()[2:] == [
        "| a | b | `benchmarks.start` | 1.50 | 4.00 |"
    ]
