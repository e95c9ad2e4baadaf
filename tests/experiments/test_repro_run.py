"""``dla repro RUN.json``: a saved run is run again by its own command, and every value compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.version import tool_version
from tests.experiments.command_line import dla, save_tiny


@pytest.fixture
def report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The report of a run of the tiny network."""
    path = tmp_path / "run.json"
    found = dla(
        capsys, "run", save_tiny(tmp_path), "--set", "bus_bytes=16", "--seed", "3", "--json", path
    )
    assert found.status == 0
    return path


def test_equal(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = dla(capsys, "repro", report)
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith(f"{report}: repeated, all ")
    assert found.out.endswith(" values equal\n")


def test_differences_are_named(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(report.read_text())
    drained = content["units"]["ST"]["drained"]
    empty = content["units"]["ST"]["queue_empty"]
    content["units"]["ST"] |= {"drained": drained + 1, "queue_empty": empty - 1}
    content["version"] = "0.0.1"
    report.write_text(json.dumps(content))
    found = dla(capsys, "repro", report)
    assert found.status == 1
    assert found.err.splitlines() == [
        f"difference: units.ST.queue_empty is {empty - 1} in the file and {empty} repeated",
        f"difference: units.ST.drained is {drained + 1} in the file and {drained} repeated",
    ]
    assert found.out.splitlines()[0] == f"note: version was 0.0.1 and is {tool_version()}"
    assert found.out.splitlines()[1] == f"{report}: repeated, 2 differ"


def test_what_cannot_be_repeated(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(report.read_text())
    content["command"] = "rm run.json"
    report.write_text(json.dumps(content))
    found = dla(capsys, "repro", report)
    assert (found.status, found.err) == (
        2,
        f"error: {report}: its command 'rm run.json' is not one of dla run; run 'dla run' again\n",
    )
    content["command"] = "dla run 'tiny.onnx"
    report.write_text(json.dumps(content))
    assert dla(capsys, "repro", report).err == (
        f"error: {report}: its command 'dla run 'tiny.onnx' cannot be read (No closing quotation); "
        "run 'dla run' again\n"
    )
    content["command"] = "dla run nowhere.onnx"
    report.write_text(json.dumps(content))
    gone = dla(capsys, "repro", report)
    assert gone.status == 2
    assert gone.err.startswith(
        f"error: {report}: its command 'dla run nowhere.onnx' gives no report any more: nowhere"
    )
    assert gone.err.count("\n") == 1
    report.write_text("{}")
    assert dla(capsys, "repro", report).err.startswith(
        f"error: {report}: not a run report of schema "
    )


@pytest.mark.parametrize(
    "option", ["--trace {}", "--trace={}", "--json {}", "--seed 3 --trace {}", "-o {}", "-- --json"]
)
def test_nothing_is_written_because_a_file_says_so(
    option: str, report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "precious.txt"
    victim.write_text("my only copy")
    content = json.loads(report.read_text())
    content["command"] += " " + option.format(victim)
    report.write_text(json.dumps(content))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    found = dla(capsys, "repro", report)
    assert found.status == 2
    assert "which no run records; run 'dla run' again" in found.err
    assert found.err.count("\n") == 1
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
