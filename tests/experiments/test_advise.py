"""``dla advise``: changes have the announced effect, and a target gets the smallest machine.

Reasons have figures.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Collection
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any

import pytest

import dla
from byoc.options import DEFAULTS
from dla_sim.presets import load_hardware
from experiments.advise import advice
from experiments.advise.advice import MOST_OF_GAIN, SAME, WORTH, Advice, commands
from experiments.advise.changes import (
    Change,
    apply_change,
    combine_changes,
    list_changes,
    list_option_changes,
)
from experiments.cli.main import main
from experiments.cost.estimate import MICROJOULE, SQUARE_MILLIMETRE, area
from experiments.cost.table import DEFAULT_TABLE, load_table
from experiments.report.schema import RunReport
from experiments.report.store import load_report
from isa.errors import InputError
from tests.experiments import advice_against_sweeps, command_line
from tests.experiments.test_bad_input import Capture, refused
from tests.rotation import choose_cases


@pytest.fixture(scope="module")
def digits() -> Advice:
    """Advice on ``digits-cnn`` with the default machine."""
    return dla.advise("digits-cnn")


@pytest.fixture
def only_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advise without single changes and tunings, so that machines are tried for a target alone."""
    for name in ("list_changes", "list_option_changes", "_measure_tuned"):
        monkeypatch.setattr(advice, name, lambda *_: ())


def run_command(command: str, folder: Path) -> RunReport:
    """Run an advised command line in a folder, with the cost table, and return its report."""
    words = [shlex.split(one) for one in command.split(" && ")]
    assert all(one[0] == "dla" for one in words)
    place = folder / "report.json"
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for tuning in words[:-1]:
            assert main(tuning[1:]) == 0, command
        run = [*words[-1][1:], "--json", str(place), "--cost", DEFAULT_TABLE]
        assert main(run) == 0, command
    return load_report(place)


def check(found: Advice, folder: Path, kinds: Collection[str] = ()) -> None:
    """Check that changes of some kinds, or of all, bring the announced figures.

    Each change is run by its own command.
    """
    told = list(commands(found))
    advised = [one for pair in found.faster for one in (pair, pair.smaller) if one is not None]
    assert told == [one.command for one in (*advised, *found.cheaper)]
    chosen = [one for one in (*advised, *found.cheaper) if not kinds or one.change.what in kinds]
    for one in chosen:
        report = run_command(one.command, folder)
        assert report.end_to_end is not None
        assert report.cost is not None
        point = one.point
        assert report.totals.cycles == point.cycles, one.command
        assert report.end_to_end.cpu_cycles == point.host_cycles, one.command
        area = report.cost.area_um2.total / SQUARE_MILLIMETRE
        energy = report.cost.energy_pj.total / MICROJOULE
        assert area == pytest.approx(point.square_millimetres, rel=1e-12), one.command
        assert energy == pytest.approx(point.microjoules, rel=1e-12), one.command
    check_ranks(found)


def check_ranks(found: Advice) -> None:
    """Check that changes are ranked, and that the smaller ones bring most of the gain."""
    both = found.now.both
    assert all(first.point.both <= second.point.both for first, second in pairwise(found.faster))
    assert len({one.change.what for one in found.faster}) == len(found.faster)
    for one in found.faster:
        assert one.point.both < both * (1 - WORTH)
        if one.smaller is not None:
            assert both - one.smaller.point.both >= MOST_OF_GAIN * (both - one.point.both)
            assert one.smaller.point.square_millimetres <= one.point.square_millimetres
            assert one.smaller.change.what == one.change.what
    for one in found.cheaper:
        assert one.point.both <= both * (1 + SAME)
        assert one.point.square_millimetres < found.now.square_millimetres
    assert found.layers[0].cycles == max(limit.cycles for limit in found.layers)
    assert found.everything.cycles == found.now.cycles


@pytest.mark.parametrize(
    ("network", "machine"),
    [
        ("digits-cnn", {"preset": "seed-i64"}),
        pytest.param("keyword-spotting", {"isa": "v5"}, marks=pytest.mark.slow),
    ],
)
def test_changes_bring_what_is_said(network: str, machine: dict[str, Any], tmp_path: Path) -> None:
    found = dla.advise(network, **machine)
    assert len(found.faster) >= 2
    check(found, tmp_path)


NETWORKS = ("digits-cnn", "keyword-spotting", "micro-speech", "resnet-8", "streaming-wake-word")
MACHINES: dict[str, dict[str, Any]] = {
    "balanced": {},
    "nvdla flash": {"preset": "nvdla-small-like", "memory_mode": "flash"},
    "seed": {"preset": "seed-o64", "settings": {"sram_bytes": "64KiB"}},
    "banked": {"isa": "v5", "memory_mode": "sram", "settings": ["numerics=fixed"]},
}


@pytest.mark.slow
@pytest.mark.parametrize(("network", "machine"), choose_cases([*product(NETWORKS, MACHINES)], 5))
def test_changes_of_networks_and_machines_bring_what_is_said(
    network: str, machine: str, tmp_path: Path
) -> None:
    check(dla.advise(network, **MACHINES[machine]), tmp_path)


@pytest.mark.slow
def test_the_best_change_of_a_sweep_is_advised() -> None:
    found = advice_against_sweeps.compare("digits-cnn")
    assert found.points > 200
    assert found.found, str(found)


def test_operators_on_the_cpu_are_moved(tmp_path: Path) -> None:
    """Nodes that --cpu or an instruction set keeps on the CPU move, and the gain is exact."""
    found = dla.advise("digits-cnn", isa="v1", cpu=["pointwise*"])
    moves = {
        one.change.what: one for one in found.faster if one.point.host_nodes < found.now.host_nodes
    }
    assert {"cpu", "instruction set", "integer-io"} <= moves.keys()
    assert "--cpu" not in moves["cpu"].command
    check(found, tmp_path, moves)


@pytest.mark.usefixtures("only_targets")
def test_a_target_gets_the_machine_of_least_area(tmp_path: Path) -> None:
    """The target gets the machine of least area among all combined changes.

    Every machine with less area is run and misses the target.
    """
    found = dla.advise("digits-cnn", target_ms=0.0017)
    assert found.target is not None
    report = run_command(found.target.command, tmp_path)
    assert report.totals.cycles == found.target.point.cycles <= 1700
    hardware = load_hardware()
    table = load_table()
    least = found.target.point.square_millimetres
    for change in combine_changes(hardware):
        machine = apply_change(hardware, change)
        if machine is not None and area(table, machine.arch).total / SQUARE_MILLIMETRE < least:
            assert dla.run("digits-cnn", settings=change.settings).report.totals.cycles > 1700, (
                change
            )


@pytest.mark.slow
def test_a_target_in_inferences_a_second_gets_the_same_machine() -> None:
    targets: tuple[dict[str, float], ...] = ({"target_ms": 0.0017}, {"target_ips": 1000 / 0.0017})
    first, second = (dla.advise("digits-cnn", **target).target for target in targets)
    assert first is not None
    assert first == second


@pytest.mark.usefixtures("only_targets")
def test_a_single_change_that_meets_a_target_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With less latency the network takes 1.5 µs, and 1.7 µs with a combination of less area."""
    faster = Change("latency", ("dram_latency=13",))
    smaller = Change("machine", ("sram_bytes=128KiB", "bus_bytes=32"))
    monkeypatch.setattr(advice, "list_changes", lambda _: [faster])
    monkeypatch.setattr(advice, "combine_changes", lambda _: [smaller])
    for target, answer in ((1.5e-3, faster), (1.7e-3, smaller)):
        found = dla.advise("digits-cnn", target_ms=target).target
        assert found is not None
        assert found.change == answer
        assert found.point.milliseconds <= target


@pytest.mark.usefixtures("only_targets")
def test_no_change_meets_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target in inferences a second is a time: 10⁹ a second are 10⁻⁶ ms.

    The search tries three of the 900 machines and the present one.
    """
    monkeypatch.setattr(advice, "combine_changes", lambda now: islice(combine_changes(now), 3))
    found = dla.advise("digits-cnn", target_ips=1e9)
    assert found.target is None
    assert any("none of 4 changes makes it take at most 1e-06 ms" in said for said in found.lines())


def test_every_kind_of_change_is_tried() -> None:
    assert {change.what for change in list_changes(load_hardware("nvdla-small-like"))} == {
        "scratchpad", "banks", "array", "bus", "bursts in flight", "burst", "queues", "fetch",
        "latency", "lanes", "numerics", "instruction set"
    }  # fmt: skip
    machine = load_hardware(isa="v1", memory_mode="flash")
    assert {"instruction set", "flash", "flash latency"} <= {
        change.what for change in list_changes(machine)
    }
    assert {change.what for change in list_option_changes(DEFAULTS)} == {
        "schedule", "emulate-depthwise", "grouped", "integer-io"
    }  # fmt: skip


def test_layers_are_described_by_their_bound(digits: Advice) -> None:
    limits = {limit.name: limit for limit in digits.layers}
    assert limits["pointwise"].bound == "compute"
    assert limits["conv"].sentence == (
        "is memory-bound: it loads 352 bytes for 9,216 MACs; 33% of its cycles compute, 29% wait "
        "for commands, 20% wait for weights, 18% wait for input"
    )


def test_the_command_says_the_same(digits: Advice, capsys: Capture, tmp_path: Path) -> None:
    place = tmp_path / "advice.json"
    out = command_line.dla(
        capsys, "advise", "digits-cnn", "--json", place, "--csv", tmp_path / "advice.csv"
    ).out
    told = json.loads(place.read_text())
    assert told["changes"] == list(digits.records())
    assert [limit["name"] for limit in told["limits"]] == [
        "all layers",
        *(limit.name for limit in digits.layers),
    ]
    assert set(commands(digits)) <= set(out.splitlines())
    assert len((tmp_path / "advice.csv").read_text().splitlines()) == 1 + len(told["changes"])


@pytest.mark.parametrize("target", ["0", "-1", "nan", "inf"])
def test_a_target_that_is_none(capsys: Capture, target: str) -> None:
    assert refused(capsys, "advise", "digits-cnn", f"--target-ms={target}").startswith(
        f"--target-ms {target}: give a time"
    )


@pytest.mark.usefixtures("advice")
def test_a_run_ends_with_the_two_best_changes(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their commands bring the announced share of the cycles of accelerator and CPU."""
    monkeypatch.chdir(tmp_path)

    def both(command: str) -> int:
        report = run_command(command, tmp_path)
        assert report.end_to_end is not None
        return report.end_to_end.dla_cycles + report.end_to_end.cpu_cycles

    told = command_line.dla(capsys, "run", "digits-cnn").out.splitlines()
    best = [line.split(" fewer cycles: ") for line in told if " fewer cycles: " in line]
    assert [command for _, command in best] == [
        "dla run digits-cnn --integer-io", "dla run digits-cnn --set dram_latency=50"
    ]  # fmt: skip
    now = both("dla run digits-cnn")
    for gain, command in best:
        assert gain == f"{1 - both(command) / now:.1%}"
    assert " fewer cycles: " not in command_line.dla(capsys, "run", "digits-cnn", "--no-advice").out


@pytest.mark.usefixtures("advice")
def test_a_command_sets_each_key_once(capsys: Capture) -> None:
    """A change replaces a setting of the same key."""
    out = command_line.dla(capsys, "run", "digits-cnn", "--set", "dram_latency=200").out
    told = [line.split(" ") for line in out.splitlines() if " fewer cycles: " in line]
    keys = [[word.split("=")[0] for word in line if "=" in word] for line in told]
    assert ["dram_latency"] in keys
    assert all(len(one) == len(set(one)) for one in keys)


def test_explain_names_the_bound_of_a_layer(capsys: Capture, tmp_path: Path) -> None:
    """The issue's example: the last layer of MobileNetV1 waits for its weights."""
    place = tmp_path / "logits.json"
    out = command_line.dla(capsys, "explain", "mobilenet-v1", "logits", "--json", place).out
    assert "logits is memory-bound: it loads 1,008 KiB and stores 1,000 bytes for 1.02M MACs" in out
    told = json.loads(place.read_text())
    assert told["limit"]["bound"] == "memory"
    assert told["limit"]["cycles"] == told["cycles"]
    parts = dict(told["limit"]["parts"])
    assert f"{parts['weights'] / told['cycles']:.0%} of its cycles wait for weights" in out


def test_two_targets_are_refused(capsys: Capture) -> None:
    assert refused(capsys, "advise", "digits-cnn", "--target-ms=1", "--target-ips=1000").startswith(
        "--target-ms and --target-ips are both given"
    )
    assert refused(capsys, "advise", "digits-cnn", "--target-ips=0").startswith("--target-ips 0:")


def test_wrong_types_are_refused() -> None:
    with pytest.raises(InputError, match="target_ms"):
        dla.advise("digits-cnn", target_ms="soon")  # type: ignore[arg-type]
