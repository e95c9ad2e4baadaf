"""Sweeps over and advice about described machines."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import pytest

import dla as package
from dla_sim.presets import load_preset
from experiments.machines.discovery import find_machine
from experiments.machines.evaluate import Evaluator
from experiments.machines.parameters import apply_parameters
from experiments.running.given import Given
from experiments.running.network import load
from tests.experiments.command_line import dla

EXAMPLE = Path(__file__).parents[2] / "examples" / "systolic_array.py"
SPEC = f"""
machine = "{EXAMPLE}"
networks = ["digits-cnn", "resnet-8"]
[parameters]
rows = {{ from = 4, to = 16, times = 2 }}
buffer_bytes = ["2 KiB", 65536]
"""


def _write(tmp_path: Path, text: str = SPEC) -> Path:
    path = tmp_path / "array.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_point_of_a_sweep_equals_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "array.sqlite"
    table = tmp_path / "array.csv"
    found = dla(capsys, "sweep", _write(tmp_path), "--output", output, "--export", table)
    assert (found.status, found.err) == (0, "")
    assert "12 points: 12 ok, 0 infeasible, 0 failed\n" in found.out
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 12
    row = next(one for one in rows if one["rows"] == "8" and one["buffer_bytes"] == "2048")
    assert row["machine"] == "systolic-array"
    settings = {"rows": 8, "buffer_bytes": 2048}
    run = package.run(row["network"], machine=str(EXAMPLE), settings=settings).report
    assert int(row["cycles"]) == run.totals.cycles
    assert int(row["host_estimated_cycles"]) == run.host.estimated_cycles
    assert float(row["ms"]) == pytest.approx(1e3 * run.totals.cycles / run.clock_hz)
    again = dla(capsys, "sweep", tmp_path / "array.toml", "--output", output)
    assert "0 failed; 12 had a row before" in again.out
    shown = dla(capsys, "report", output)
    assert (shown.status, shown.err) == (0, "")
    page = (tmp_path / "array-report" / "array.html").read_text(encoding="utf-8")
    assert f"dla sweep {tmp_path / 'array.toml'}" in page
    for network in ("digits-cnn", "resnet-8"):
        cpu = {int(one["host_estimated_cycles"]) for one in rows if one["network"] == network}
        told = (
            f"{network}: the front ignores the estimated cycles on the CPU, which differ: "
            f"{min(cpu):,} to {max(cpu):,}"
        )
        assert told in shown.out
        assert told in page
    other = dla(capsys, "report", output, "--tables", "--y", "host_estimated_cycles")
    assert "ignores" not in other.out


def test_a_search_names_the_command_for_described_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dla(capsys, "explore", _write(tmp_path))
    assert found.status == 2
    assert found.err.endswith("run 'dla sweep' with it, which evaluates all points\n")
    assert found.err.count("\n") == 1


def test_machine_is_an_axis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.py"
    text = EXAMPLE.read_text(encoding="utf-8").replace('"systolic-array"', '"other-array"')
    other.write_text(text.replace("memory_bytes: int = declare_key(8", "memory_bytes: int = "
                                  "declare_key(1"), encoding="utf-8")  # fmt: skip
    spec = f'machine = ["{EXAMPLE}", "other.py"]\nnetworks = "digits-cnn"\n'
    output = tmp_path / "array.sqlite"
    found = dla(capsys, "sweep", _write(tmp_path, spec), "--output", output)
    assert found.status == 0
    cycles = dict(zip(*(package.load(output)[name] for name in ("machine", "cycles")), strict=True))
    assert cycles["other-array"] > cycles["systolic-array"]


SPECS = {
    "unknown key": (SPEC + "[arch]\n", "arch: unknown key; choose one of machine, networks, param"),
    "unknown parameter": (
        SPEC + "row = 1\n",
        "unknown setting 'row' of machine systolic-array; ",
    ),
    "bad value": (SPEC + "columns = [0]\n", "setting columns=0 of machine systolic-array: should"),
    "empty axis": (SPEC + "columns = []\n", "columns: the list is empty"),
    "preset": (
        'machine = "seed-i64"\nnetworks = "digits-cnn"\n',
        "machine: seed-i64 is a preset; ",
    ),
    "no machine": ('machine = "none"\nnetworks = "digits-cnn"\n', "unknown machine 'none'; choose"),
    "no network": (f'machine = "{EXAMPLE}"\n', "networks: missing; name at least one network"),
}


@pytest.mark.parametrize("fault", SPECS)
def test_a_bad_specification_gives_one_line(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, message = SPECS[fault]
    output = tmp_path / "array.sqlite"
    found = dla(capsys, "sweep", _write(tmp_path, text), "--output", output)
    assert found.status == 2
    assert found.err.startswith(f"error: {tmp_path / 'array.toml'}: ")
    assert message in found.err
    assert not output.exists()


def test_a_formula_that_fails_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "mine.py"
    text = EXAMPLE.read_text(encoding="utf-8")
    broken.write_text(text.replace("* folds", "* folds // (machine.rows - 8)"), encoding="utf-8")
    spec = SPEC.replace(str(EXAMPLE), "mine.py")
    found = dla(capsys, "sweep", _write(tmp_path, spec), "--output", tmp_path / "array.sqlite")
    assert found.status == 0
    assert "12 points: 4 ok, 0 infeasible, 8 failed" in found.out


def test_the_reasons_are_shown_if_no_point_is_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "mine.py"
    text = EXAMPLE.read_text(encoding="utf-8")
    broken.write_text(text.replace("* folds", "* folds // 0"), encoding="utf-8")
    output = tmp_path / "array.sqlite"
    swept = dla(
        capsys, "sweep", _write(tmp_path, SPEC.replace(str(EXAMPLE), "mine.py")), "-o", output
    )
    assert swept.status == 1
    command = next(one for one in swept.out.splitlines() if one.startswith("why points failed: "))
    shown = dla(capsys, *command.partition(": dla ")[2].split())
    assert (shown.status, shown.err) == (0, "")
    assert "ZeroDivisionError" in shown.out
    page = dla(capsys, "report", output)
    assert (page.status, page.err) == (0, "")


def test_a_point_takes_less_time_than_a_compilation() -> None:
    """Compare one point of closed form with one compilation for our machine, in one process."""
    network = load(Given("resnet-8")).package
    machine = find_machine(str(EXAMPLE))
    evaluator = Evaluator(network.graph, network.annotations, machine)
    begin = time.perf_counter()
    for rows in range(4, 104):
        evaluator.evaluate(apply_parameters(machine, {"rows": rows}))
    point = (time.perf_counter() - begin) / 100
    begin = time.perf_counter()
    package.compile(network, load_preset("seed-i64").arch)
    assert point < (time.perf_counter() - begin) / 10


def test_advice_ranks_changes_of_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "advice.json"
    options = ("--machine", EXAMPLE, "--set", "memory_bytes=1")
    found = dla(capsys, "advise", "digits-cnn", *options, "--json", place)
    assert (found.status, found.err) == (0, "")
    content = json.loads(place.read_text(encoding="utf-8"))
    saves = [one["saves"] for one in content["changes"]]
    assert saves == sorted(saves, reverse=True)
    best = content["changes"][0]
    assert best["setting"] == "memory_bytes=2"
    assert best["command"] in found.out
    settings = {one["setting"] for one in content["changes"]}
    assert {"rows=32", "rows=8", "columns=32", "columns=8"} < settings
    assert not any(one.startswith("clock_hz") for one in settings)
    changed = package.run("digits-cnn", machine=str(EXAMPLE), settings=["memory_bytes=2"]).report
    assert changed.totals.cycles == best["cycles"]
    vendor = dla(capsys, "advise", "digits-cnn", "--machine", "max78000", "--json", place)
    assert vendor.status == 0
    content = json.loads(place.read_text(encoding="utf-8"))
    settings = {one["setting"].partition("=")[0] for one in content["changes"]}
    assert "kernels" in settings
    assert "start_cycles" not in settings  # fitted, and no design choice
    wrong = dla(capsys, "advise", "digits-cnn", *options, "--target-ms", "1")
    assert wrong.status == 2
    assert "--target-ms needs areas, which machine systolic-array does not have" in wrong.err
