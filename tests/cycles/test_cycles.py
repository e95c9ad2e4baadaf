"""Cycles are as recorded: what costs or saves cycles says so by name.

``python -m tests.cycles --bless`` records.

The quick set compiles each case for one of the six machines, which rotate, and for those where the
case detects a seeded fault according to ``docs/faults.md``. The slow set compiles it for the
others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cycles import __main__ as command
from tests.cycles.cases import MACHINES, all_cases
from tests.cycles.table import changes, measure, read_table, told, write_table
from tests.rotation import TURN

CASES = all_cases()
RECORDED = read_table()
FAULTS = Path(__file__).parents[2] / "docs" / "faults.md"
DETECTING = set(re.findall(r"\| ([a-z0-9-]+) on (\w+-\w+) \|", FAULTS.read_text(encoding="utf-8")))
"""Pairs of case and machine that detect a seeded fault of the compiler's choices."""
SHARE = 6
"""One of so many machines of a case is quick at each turn."""


def quick_machines(turn: int = TURN) -> dict[str, list[str]]:
    """Return the machines of the quick set by case."""
    return {
        case: [
            machine
            for index, machine in enumerate(MACHINES, number)
            if (index - turn) % SHARE == 0 or (case, machine) in DETECTING
        ]
        for number, case in enumerate(CASES)
    }


def _rotate_machines() -> Iterator[object]:
    for case, quick in quick_machines().items():
        others = [machine for machine in MACHINES if machine not in quick]
        yield pytest.param(case, quick, id=case)
        if others:
            yield pytest.param(case, others, id=f"{case}, others", marks=pytest.mark.slow)


@pytest.mark.parametrize(("case", "machines"), [*_rotate_machines()])
def test_cycles_are_as_recorded(case: str, machines: list[str]) -> None:
    recorded = {machine: RECORDED[case][machine] for machine in machines}
    found = changes(case, dict(measure(CASES[case], machines)), {case: recorded})
    assert not found, told(found)


def test_each_case_is_quick_on_all_machines_within_six_turns() -> None:
    assert len(DETECTING) >= 38
    turns = [quick_machines(turn) for turn in range(9, 9 + SHARE)]
    for case in CASES:
        assert {machine for quick in turns for machine in quick[case]} == {*MACHINES}
        assert all(quick[case] for quick in turns)
    assert {(case, machine) for case, quick in turns[0].items() for machine in quick} >= DETECTING


def test_as_much_is_recorded_as_there_is() -> None:
    assert list(RECORDED) == list(CASES)
    assert len(CASES) >= 40
    assert len(MACHINES) == 6
    assert {(arch.pe.ic, arch.pe.oc) for arch in MACHINES.values()} >= {
        (4, 16),
        (8, 8),
        (16, 16),
        (32, 32),
        (1, 256),
    }


def test_a_change_is_told_by_name_and_blessed_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """More and fewer cycles, a case that is new, and one that is gone."""
    name = "depthwise-emulated"
    found = dict.fromkeys(MACHINES, 100)
    file = tmp_path / "cycles.csv"
    machine, other, *_ = MACHINES
    write_table({name: {**found, machine: 80, other: 125}, "gone": found}, file)
    monkeypatch.setattr(command, "all_cases", lambda: {name: lambda: None, "new": lambda: None})
    monkeypatch.setattr(command, "measure", lambda make: found.items())
    monkeypatch.setattr(command, "FILE", file)
    assert command.main([]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"{name} on {machine}: 80 -> 100 (+25.00%)"
    assert told[1] == f"{name} on {other}: 125 -> 100 (-20.00%)"
    assert told[2] == f"new on {machine}: nothing -> 100"
    assert told[-2] == f"gone on {list(MACHINES)[-1]}: 100 -> nothing"
    assert (
        told[-1] == "14 figures are not as recorded, 7 of them larger; if that is meant: python -m "
        "tests.cycles --bless"
    )
    assert command.main(["--fail-fast"]) == 1
    assert capsys.readouterr().out == f"{told[0]}\n"
    assert command.main(["--bless"]) == 0
    assert read_table(file) == {name: found, "new": found}
    assert command.main([]) == 0
