"""``dla validate``: rows, summary, status and files, on a machine with known figures."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.cli.main import main
from experiments.machines.description import MachineDescription, PublishedFigure
from experiments.machines.discovery import find_machine, list_machines
from experiments.machines.uncompared import UNCOMPARED
from experiments.machines.validate import compare_machines, summarize

MACHINE = """
from dataclasses import replace
from experiments.machines.description import PublishedFigure
from experiments.machines.discovery import find_machine

def figure(network, value, role, claim, ours, slow=False):
    return PublishedFigure(
        network, "one image", value, "cycles", "a book", role, claim, lambda: ours, "waits", slow)

MACHINE = replace(
    find_machine({example!r}),
    name="known",
    fitted=("start",),
    published=(
        figure("first", 100, "fitted", 0.02, 101),
        figure("second", 200, "held out", {claim}, 180),
        figure("third", 400, "held out", 0.1, 404, slow=True),
        figure("fourth", 50, "not comparable", 0, 1),
    ),
)
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "systolic_array.py"
Write = Callable[[float], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(claim: float) -> str:
        file = tmp_path / "known.py"
        file.write_text(MACHINE.format(example=str(EXAMPLE), claim=claim), encoding="utf-8")
        return str(file)

    return written


def test_errors_within_their_claims(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to_json, to_csv = tmp_path / "found.json", tmp_path / "found.csv"
    assert main(["validate", write(0.1), "--json", str(to_json), "--csv", str(to_csv)]) == 0
    printed = capsys.readouterr().out
    assert "-10.00%" in printed
    found = json.loads(to_json.read_text(encoding="utf-8"))
    rows = {row["network"]: row for row in found["figures"]}
    assert [row["ours"] for row in rows.values()] == [101, 180, 404, None]
    assert rows["second"]["error"] == pytest.approx(-0.1)
    assert rows["fourth"]["error"] is None
    assert {row["note"] for row in rows.values()} == {"waits"}
    fitted, held_out = found["machines"]
    assert (fitted["role"], fitted["fitted"], fitted["compared"]) == ("fitted", ["start"], 1)
    assert (held_out["role"], held_out["fitted"], held_out["compared"]) == ("held out", [], 2)
    assert (held_out["worst"], held_out["network"]) == (pytest.approx(0.1), "second")
    assert held_out["mean"] == pytest.approx((0.1 + 0.01) / 2)
    with to_csv.open(encoding="utf-8", newline="") as file:
        assert [row["network"] for row in csv.DictReader(file)] == [*rows]


def test_an_error_beyond_its_claim(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", write(0.09)]) == 1
    assert capsys.readouterr().err.endswith(
        "known: second, one image: error -10.00%, claimed 9.00%\n"
    )


def test_the_quick_form_leaves_out_slow_predictions(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to_json = tmp_path / "found.json"
    assert main(["validate", write(0.1), "--quick", "--json", str(to_json)]) == 0
    capsys.readouterr()
    found = json.loads(to_json.read_text(encoding="utf-8"))
    assert [row["network"] for row in found["figures"]] == ["first", "second", "fourth"]


def test_a_machine_without_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(EXAMPLE)]) == 2
    assert "has no published figures" in capsys.readouterr().err


@pytest.mark.parametrize("machine", list_machines().values(), ids=lambda machine: machine.name)
def test_the_quick_figures_agree_within_their_claims(machine: MachineDescription) -> None:
    failed = [
        row.to_row() for row in compare_machines([machine], quick=True) if not row.is_within_claim
    ]
    assert not failed


@pytest.mark.parametrize("machine", list_machines().values(), ids=lambda machine: machine.name)
def test_every_figure_has_its_source_and_its_cause(machine: MachineDescription) -> None:
    for figure in machine.published:
        assert figure.source
        assert figure.claim >= 0
        assert figure.value > 0
        if figure.claim > 0.1 or figure.role == "not comparable":
            assert figure.note, f"{figure.network}: no cause of the error"
    assert bool(machine.fitted) == any(figure.role == "fitted" for figure in machine.published)
    for uncompared in UNCOMPARED:
        assert all(vars(uncompared).values())


def test_roles_do_not_mix() -> None:
    """A figure that a parameter was fitted to never counts as held out."""

    def figure(role: Any, ours: float) -> PublishedFigure:
        return PublishedFigure("net", "", 100.0, "ms", "book", role, 1.0, lambda: ours)

    machine = replace(
        find_machine(str(EXAMPLE)),
        published=(figure("fitted", 100), figure("held out", 150)),
    )
    errors = summarize(list(compare_machines([machine])), [machine])
    assert [(one.role, one.worst) for one in errors] == [("fitted", 0), ("held out", 0.5)]
