"""Results as data: JSON and CSV in files and on standard output, which then holds nothing else.

Only totals.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from experiments.report.tables import LAYER_COLUMNS
from tests.experiments.command_line import dla, save_tiny


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(save_tiny(tmp_path, softmax=True))


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_report_on_standard_output_is_that_of_the_file(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    piped = dla(capsys, "run", tiny, "--json", "-")
    assert (piped.status, piped.err) == (0, "")
    assert not Path("runs").exists()
    assert dla(capsys, "run", tiny, "--json", "run.json", "--no-advice").status == 0
    assert piped.out == Path("run.json").read_text("utf-8")


def test_layers_as_csv(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    piped = dla(capsys, "run", tiny, "--json", "run.json", "--csv", "-")
    report = json.loads(Path("run.json").read_text("utf-8"))
    rows = table(piped.out)
    assert tuple(rows[0]) == LAYER_COLUMNS
    own = [row for row in rows if row["on"] == "dla"]
    assert [row["layer"] for row in own] == [layer["name"] for layer in report["layers"]]
    for row, layer in zip(own, report["layers"], strict=True):
        assert int(row["cycles"]) == layer["cycles"]
        assert {part: int(row[part]) for part in layer["breakdown"]} == layer["breakdown"]
    assert (
        sum(int(row["cycles"]) for row in rows if row["on"] == "cpu")
        == report["host"]["estimated_cycles"]
    )
    again = dla(capsys, "report", "run.json", "--tables", "--csv", "-")
    assert again.out == piped.out
    assert dla(capsys, "report", "run.json", "--tables", "--csv", "layers.csv").status == 0
    assert Path("layers.csv").read_text("utf-8") == piped.out


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        (["partition"], ["node", "op_type", "on", "region", "reason"]),
        (["explain"], ["region", "layer"]),
        (["explain", "conv"], ["chosen", "fits", "layer"]),
    ],
)
def test_other_tables_as_csv(
    words: list[str], columns: list[str], tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dla(capsys, words[0], tiny, *words[1:], "--csv", "-")
    assert (found.status, list(table(found.out)[0])[: len(columns)]) == (0, columns)


def test_a_simulated_package_as_csv(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dla(capsys, "compile", tiny, "-o", "tiny.dla").status == 0
    rows = table(dla(capsys, "simulate", "tiny.dla", "--csv", "-").out)
    figures = json.loads(dla(capsys, "simulate", "tiny.dla", "--json", "-").out)
    assert [int(row["cycles"]) for row in rows] == [layer["cycles"] for layer in figures["layers"]]


def test_two_runs_as_csv(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, width in (("a", 4), ("b", 16)):
        assert (
            dla(capsys, "run", tiny, "--set", f"pe.oc={width}", "--json", f"{name}.json").status
            == 0
        )
    rows = table(dla(capsys, "report", "a.json", "b.json", "--tables", "--csv", "-").out)
    for side in "ab":
        layers = json.loads(Path(f"{side}.json").read_text("utf-8"))["layers"]
        assert [int(row[f"cycles_{side}"]) for row in rows] == [layer["cycles"] for layer in layers]


def test_a_summary_has_no_table(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole = dla(capsys, "run", tiny, "--json", "run.json", "--all").out
    summary = dla(capsys, "run", tiny, "--json", "run.json", "--summary").out
    assert "─" not in summary
    assert summary.splitlines() == [
        line for line in whole.splitlines() if line in summary.splitlines()
    ]
    assert len(summary.splitlines()) < len(whole.splitlines()) / 2
    assert "0 mismatches" in summary
    assert dla(capsys, "report", "run.json", "--tables", "--summary").out in summary
    assert "─" not in dla(capsys, "partition", tiny, "--summary").out


def test_a_report_prints_every_table_once(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dla(capsys, "run", tiny, "--json", "run.json").status == 0
    lines = dla(capsys, "report", "run.json", "-o", "page.html").out.splitlines()
    headings = [
        lines[place - 1].strip() for place, line in enumerate(lines) if set(line.strip()) == {"─"}
    ]
    assert len(headings) > 3
    assert len(set(headings)) == len(headings)
    assert sum("wait issue" in heading for heading in headings) == 1


def test_differences_are_said_beside_results(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = dla(capsys, "run", tiny, "--set", "sram_bytes=0", "--json", "-")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("error: ")


def test_models_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(dla(capsys, "models", "--csv", "-").out)
    assert {row["model"]: row["description"] for row in rows} == json.loads(
        dla(capsys, "models", "--json", "-").out
    )
