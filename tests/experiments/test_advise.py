"""``dla advise``: changes have the announced effect, and a target gets the smallest machine.

Reasons have figures.
"""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

import dla
from dla_sim.presets import load_hardware
from experiments.advise.advice import SAME, WORTH, Advice
from experiments.advise.changes import apply_change, combine_changes, list_changes
from experiments.cost.estimate import SQUARE_MILLIMETRE, area
from experiments.cost.table import load_table
from isa.errors import InputError
from tests.experiments import command_line
from tests.experiments.test_bad_input import Capture, refused


def ran(command: str) -> int:
    """The cycles of a run, by the settings of its own command."""
    words = shlex.split(command)
    assert words[:2] == ["dla", "run"]
    given = dict(pairwise(words[3:]))
    settings = [value for word, value in pairwise(words[3:]) if word == "--set"]
    return dla.run(
        words[2], preset=given.get("--preset"), isa=given.get("--isa"), settings=settings
    ).report.totals.cycles


def check(found: Advice) -> None:
    """Every change, run by its own command, brings what was said, to the cycle; they are ranked."""
    for one in (*found.faster, *found.cheaper):
        assert ran(one.command) == one.point.cycles, one.command
    assert all(first.point.both <= second.point.both for first, second in pairwise(found.faster))
    assert all(one.point.both < found.now.both * (1 - WORTH) for one in found.faster)
    for one in found.cheaper:
        assert one.point.both <= found.now.both * (1 + SAME)
        assert one.point.square_millimetres < found.now.square_millimetres
    assert found.layers[0].cycles == max(limit.cycles for limit in found.layers)
    assert found.everything.cycles == found.now.cycles


@pytest.mark.parametrize("isa", ["v4", "v5"])
def test_changes_bring_what_is_said(isa: str) -> None:
    found = dla.advise("digits-cnn", isa=isa)
    check(found)
    assert found.now.cycles == dla.run("digits-cnn", isa=isa).report.totals.cycles
    assert len(found.faster) >= 3
    assert found.lines()[1].startswith("the CPU takes about 2,093 cycles beside it")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "preset"),
    [
        ("resnet-8", "nvdla-small-like"),
        ("keyword-spotting", "seed-i64"),
        ("mobilenet-v1", "balanced-256"),
        ("visual-wake-words", "balanced-64"),
    ],
)
def test_changes_of_networks_and_machines_bring_what_is_said(network: str, preset: str) -> None:
    check(dla.advise(network, preset=preset))


def test_a_target_gets_the_machine_of_least_area() -> None:
    """The target gets the machine of least area among all combined changes.

    Every machine with less area is run and misses the target.
    """
    found = dla.advise("digits-cnn", target_ms=0.0016)
    assert found.target is not None
    assert ran(found.target.command) == found.target.point.cycles <= 1600
    hardware = load_hardware()
    table = load_table()
    least = found.target.point.square_millimetres
    for change in combine_changes(hardware):
        machine = apply_change(hardware, change)
        if machine is not None and area(table, machine.arch).total / SQUARE_MILLIMETRE < least:
            assert dla.run("digits-cnn", settings=change.settings).report.totals.cycles > 1600, (
                change
            )


def test_no_machine_meets_a_target() -> None:
    found = dla.advise("digits-cnn", target_ms=1e-6)
    assert found.target is None
    assert any("machines takes at most 1e-06 ms" in said for said in found.lines())


def test_every_kind_of_change_is_tried() -> None:
    assert {change.what for change in list_changes(load_hardware("nvdla-small-like"))} == {
        "scratchpad", "array", "bus", "bursts in flight", "latency", "lanes"
    }  # fmt: skip


def test_the_command_says_the_same(capsys: Capture, tmp_path: Path) -> None:
    place = tmp_path / "advice.json"
    out = command_line.dla(
        capsys, "advise", "digits-cnn", "--json", place, "--csv", tmp_path / "advice.csv"
    ).out
    found = dla.advise("digits-cnn")
    told = json.loads(place.read_text())
    assert told["changes"] == list(found.records())
    assert [limit["name"] for limit in told["limits"]] == [
        "all layers",
        *(limit.name for limit in found.layers),
    ]
    assert found.faster[0].command in out
    assert "waits 155 cycles for its constants; 5.1 KiB cross the bus" in out
    assert len((tmp_path / "advice.csv").read_text().splitlines()) == 1 + len(told["changes"])


@pytest.mark.parametrize("target", ["0", "-1", "nan", "inf"])
def test_a_target_that_is_none(capsys: Capture, target: str) -> None:
    assert refused(capsys, "advise", "digits-cnn", f"--target-ms={target}").startswith(
        f"--target-ms {target}: give a time"
    )


def test_wrong_types_are_refused() -> None:
    with pytest.raises(InputError, match="target_ms"):
        dla.advise("digits-cnn", target_ms="soon")  # type: ignore[arg-type]
