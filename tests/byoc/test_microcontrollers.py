"""The estimate of a network on a microcontroller, against the published figures of its fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.cli.main import main
from tests.docs.microcontrollers import list_figures


def test_the_documentation_states_the_errors() -> None:
    """docs/validation.md has every figure; docs/reports.md has the ends of their errors."""
    errors: dict[tuple[str, str], list[float]] = {}
    for figure in list_figures():
        errors.setdefault((figure.role, figure.cpu), []).append(100 * figure.error)
    page = (Path(__file__).parents[2] / "docs/reports.md").read_text()
    for role, what in (("fitted", "error of the fit"), ("held out", "error of figures that are")):
        [line] = [line for line in page.splitlines() if line.startswith(f"| {what}")]
        ends = [sorted(errors[role, cpu]) for cpu in ("Cortex-M4", "Cortex-M55")]
        cells = [f"{one[0]:+.0f} to {one[-1]:+.0f} %" for one in ends]
        assert [cell.strip() for cell in line.split("|")[2:-1]] == cells


def test_partition_compares_with_microcontrollers(tmp_path: Path) -> None:
    file = tmp_path / "placed.json"
    arguments = ["partition", "digits-cnn", "--microcontrollers", "--json", str(file)]
    assert main([*arguments, "--cpu", "p*"]) == 0
    found = json.loads(file.read_text())
    whole = found["end_to_end"]
    alone, both, *_ = found["microcontrollers"]
    assert (alone["microcontroller"], alone["accelerator"]) == ("Cortex-M4", False)
    assert alone["cycles"] == alone["cpu_cycles"] > both["cpu_cycles"] > 0
    assert both["dla_cycles"] == whole["dla_cycles"]
    assert both["cycles"] == both["cpu_cycles"] + whole["dla_cycles"] + whole["transfer_cycles"]


def test_transfers_that_a_machine_does_not_count_are_no_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "placed.json"
    arguments = ["partition", "digits-cnn", "--machine", "vta", "--microcontrollers"]
    assert main([*arguments, "--json", str(file)]) == 0
    _, both, *_ = json.loads(file.read_text())["microcontrollers"]
    assert both["transfer_cycles"] is None
    assert both["cycles"] == both["cpu_cycles"] + both["dla_cycles"]
    assert "not counted" in capsys.readouterr().out.split("Cortex-M4 and accelerator")[1]
