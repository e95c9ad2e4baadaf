"""Commands on a machine that a stranger's file describes: run, partition, presets and report."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dla as package
from experiments.machines import discovery
from experiments.models import MODELS
from experiments.report.schema import report_json
from experiments.report.store import load_report
from tests.experiments.command_line import dla

EXAMPLE = Path(__file__).parents[2] / "examples" / "systolic_array.py"
ABSENT = {"arch", "timing", "bus", "memory_mode", "schedule", "kinds", "ex_cycles", "compile"}


def _run(tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    place = tmp_path / f"run{len(list(tmp_path.glob('*.json')))}.json"
    found = dla(capsys, "run", "digits-cnn", "--machine", EXAMPLE, "--json", place, *more)
    assert (found.status, found.err) == (0, "")
    content: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return content


def test_a_run_reports_what_the_machine_has_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _run(tmp_path, capsys)
    assert not ABSENT & found.keys()
    assert found["machine"]["name"] == "systolic-array"
    assert found["totals"].keys() == {"cycles", "macs", "utilization"}
    assert sum(layer["cycles"] for layer in found["layers"]) == found["totals"]["cycles"]
    for layer in found["layers"]:
        assert sum(layer["breakdown"].values()) == layer["cycles"]
        assert not {"tiles", "stalls", "dram_read_bytes"} & layer.keys()
    segments = [(one["on"], one["cycles"]) for one in found["end_to_end"]["segments"]]
    # 8 bytes a cycle: the image, 16 x 8 x 8 elements to the CPU and back, and 10 results
    moved = [64 // 8, 1024 // 8, 1024 // 8, 2]
    assert [cycles for on, cycles in segments if on == "transfer"] == moved
    assert found["end_to_end"]["transfer_cycles"] == sum(moved)
    assert found["end_to_end"]["cycles"] == sum(cycles for _, cycles in segments)
    assert found["check"]["elements"] == 0
    assert found["check"]["oracle"].startswith("values: integer model, not simulated")


def test_a_saved_report_reads_back_as_it_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(tmp_path, capsys)
    text = (tmp_path / "run0.json").read_text(encoding="utf-8")
    assert report_json(load_report(tmp_path / "run0.json")) == text


def test_screen_and_tables_name_machine_and_check(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("--all", "--summary"):
        found = dla(capsys, "run", "digits-cnn", "--machine", EXAMPLE, form, "--json", "-")
        assert found.status == 0
    shown = dla(capsys, "run", "digits-cnn", "--machine", EXAMPLE, "--json", "-", "--quiet")
    assert json.loads(shown.out)["machine"]["kind"] == "closed form"


def test_accuracy_of_a_machine_with_its_own_arithmetic() -> None:
    """The accuracy of own arithmetic equals that of the outputs of all samples in one run."""
    images, labels = MODELS["digits-cnn"].dataset()  # type: ignore[misc]
    wanted = {"machine": "max78000", "quantise": "power-of-two"}
    run = package.run("digits-cnn", inputs=images[:, None], **wanted)
    found = run.report.accuracy
    assert found is not None
    right = run.outputs["logits"].reshape(len(labels), -1).argmax(axis=1) == labels
    assert (found.images, found.dla) == (len(labels), right.mean())
    integer = package.run("digits-cnn", inputs=images[:, None], quantise="power-of-two")
    rows = (integer.outputs["logits"] != run.outputs["logits"]).reshape(len(labels), -1).any(axis=1)
    assert found.differences == rows.sum() > 0
    without = package.run("digits-cnn", machine="vta").report.accuracy
    assert without is not None
    assert (without.dla, without.differences) == (None, 0)


def test_a_network_without_a_layer_on_the_machine_has_no_values_of_its_own() -> None:
    wanted = {"machine": "max78000", "quantise": "power-of-two"}
    report = package.run("micro-speech", **wanted).report
    assert report.totals.cycles == 0
    assert report.check.oracle == "values: integer model, not simulated; 0 elements compared"


def test_parts_of_cycles_keep_the_names_of_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """VTA has a unit 'store'; our machine has a wait with this name."""
    place = tmp_path / "vta.json"
    found = dla(capsys, "run", "digits-cnn", "--machine", "vta", "--json", place, "--html")
    tables = dla(capsys, "report", place, "--tables")
    page = (tmp_path / "vta-report" / "vta.html").read_text(encoding="utf-8")
    assert "wait store" not in found.out + tables.out
    assert "wait: store" not in page
    assert "of its cycles are 'compute'" in " ".join(found.out.split())


def test_settings_change_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = _run(tmp_path, capsys)["totals"]["cycles"]
    narrow = _run(tmp_path, capsys, "--set", "rows=4", "--set", "clock_hz=50MHz")
    assert narrow["machine"]["parameters"]["rows"] == 4
    assert narrow["machine"]["clock_hz"] == 50_000_000
    assert narrow["totals"]["cycles"] > wide


ERRORS = {
    "unknown key": (("--set", "row=4"), "unknown setting 'row' of machine systolic-array; did you"),
    "too small": (("--set", "rows=0"), "setting rows=0 of machine systolic-array: should be great"),
    "no number": (("--set", "rows=many"), "setting rows=many of machine systolic-array: should be"),
    "no value": (("--set", "rows"), "setting 'rows' is not of the form key=value"),
    "isa": (
        ("--isa", "v2"),
        "--isa needs an instruction set, which machine systolic-array does not",
    ),
    "steps": (
        ("--steps", "2"),
        "--steps needs a place for state between inferences, which machine ",
    ),
    "cost": (("--cost", "default"), "--cost needs areas and energies, which machine systolic-arr"),
    "schedule": (("--schedule", "seed"), "--schedule seed is for our compiler"),
    "preset": (("--preset", "seed-i64"), "--preset seed-i64 and --machine "),
}


@pytest.mark.parametrize("machine", ["vta", EXAMPLE])
@pytest.mark.parametrize("command", ["run", "partition", "advise"])
def test_a_described_machine_is_no_preset(
    command: str, machine: str | Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dla(capsys, command, "digits-cnn", "--preset", machine)
    assert found.status == 2
    message = "not a preset but a described machine; use --machine"
    assert found.err == f"error: --preset {machine}: {message} {machine}\n"


@pytest.mark.parametrize("error", ERRORS)
def test_bad_options_give_one_line(error: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, message = ERRORS[error]
    found = dla(capsys, "run", "digits-cnn", "--machine", EXAMPLE, *options)
    assert found.status == 2
    assert message in found.err
    assert found.err.count("\n") == 1


def test_a_bad_description_ends_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    path = tmp_path / "mine.py"
    path.write_text(text.replace("* folds", "* -folds"), encoding="utf-8")
    for command in ("run", "partition"):
        found = dla(capsys, command, "digits-cnn", "--machine", path)
        assert found.status == 2
        assert found.err == (
            "error: machine systolic-array: operation product, layer conv: part 'compute' is -110; "
            "it must be 0 or more\n"
        )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"clock of all units", 1, ',
            '"clock of all units", 0, ',
            "clock_hz is 0; give an int of 1 Hz or more",
        ),
        ('"rate of the memory", 1, ', '"rate of the memory", 0, ', "memory_bytes is 0; transfers"),
    ],
)
def test_a_parameter_without_a_limit_gives_one_line(
    old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    text = EXAMPLE.read_text(encoding="utf-8")
    path.write_text(
        text.replace(old, new).replace("// machine.memory_bytes", "// 8"), encoding="utf-8"
    )
    setting = message.partition(" ")[0]
    found = dla(capsys, "run", "digits-cnn", "--machine", path, "--set", f"{setting}=0")
    assert found.status == 2
    assert found.err.startswith(f"error: machine systolic-array: {message}")
    assert found.err.count("\n") == 1


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("None", "TypeError: 'NoneType' object is not iterable"),
        ("{}", "KeyError: "),
        ("dict.fromkeys(nodes[-1].outputs, np.zeros(3))", "ValueError: "),
        ("1 // 0", "ZeroDivisionError: "),
    ],
)
def test_arithmetic_that_fails_gives_one_line(
    result: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    text = EXAMPLE.read_text(encoding="utf-8").replace(
        "    peak_macs=", f"    arithmetic=lambda graph, nodes, values: {result},\n    peak_macs="
    )
    path.write_text(f"{text}\nimport numpy as np\n", encoding="utf-8")
    found = dla(capsys, "run", "digits-cnn", "--machine", path)
    assert found.status == 2
    assert found.err.startswith(f"error: machine systolic-array: arithmetic: {message}")
    assert found.err.count("\n") == 1


@pytest.mark.parametrize("name", ["kind", "cycles"])
def test_a_part_with_the_name_of_a_column_gives_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    text = EXAMPLE.read_text(encoding="utf-8")
    path.write_text(text.replace('Part("compute"', f'Part("{name}"'), encoding="utf-8")
    for command in ("run", "partition", "advise"):
        found = dla(capsys, command, "digits-cnn", "--machine", path)
        assert found.status == 2
        assert found.err == (
            f"error: machine systolic-array: part '{name}' of a layer's cycles has the name of a "
            "column of reports; rename it\n"
        )


def test_a_preset_is_a_machine_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--set", "sram_bytes=64KiB", "--json")
    one = dla(capsys, "run", "digits-cnn", "--machine", "seed-i64", *options, tmp_path / "a.json")
    two = dla(capsys, "run", "digits-cnn", "--preset", "seed-i64", *options, tmp_path / "b.json")
    assert one.status == two.status == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    wrong = dla(capsys, "run", "digits-cnn", "--machine", "seed-i65")
    assert wrong.err.startswith("error: unknown machine 'seed-i65'; did you mean seed-i64? choose")


def test_outputs_are_those_of_the_integer_model(machine_of_seed: package.Result) -> None:
    described = package.run("digits-cnn", machine=str(EXAMPLE))
    for name, array in machine_of_seed.outputs.items():
        np.testing.assert_array_equal(described.outputs[name], array)
    assert described.layers["cycles"].sum() == (
        described.report.totals.cycles + described.report.host.estimated_cycles
    )


@pytest.fixture
def machine_of_seed() -> package.Result:
    return package.run("digits-cnn", preset="seed-i64")


def test_partition_says_why_nodes_run_on_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--machine", EXAMPLE, "--json", tmp_path / "p.json", "--csv", tmp_path / "p.csv")
    found = dla(capsys, "partition", "digits-cnn", *options)
    assert found.status == 0
    assert "16 groups; the array sums over all channels" in found.out
    assert "transfers 3.8% (266)" in " ".join(found.out.split())
    other = dla(capsys, "partition", "digits-cnn", "--machine", "vta")
    assert "CPU 87.7% (13,242); transfers not counted\n" in other.out
    written = (tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()
    rows = {row["node"]: row for row in csv.DictReader(written)}
    assert rows["depthwise"]["on"] == "cpu"
    strict = dla(capsys, "partition", "digits-cnn", "--machine", EXAMPLE, "--strict")
    assert strict.status == 2
    assert "the first is Conv 'depthwise': 16 groups" in strict.err


def test_presets_list_and_show_descriptions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = dla(capsys, "presets", EXAMPLE)
    assert shown.status == 0
    told = " ".join(shown.out.split())
    command = f"dla run MODEL --machine {EXAMPLE}"
    for text in ("closed form, not validated", command, "buffer_bytes", "MaxPool; AveragePool"):
        assert text in told
    monkeypatch.setattr(
        discovery, "list_machines", lambda: {"mine": discovery.find_machine(str(EXAMPLE))}
    )
    listed = dla(capsys, "presets")
    assert "systolic-array" in listed.out


def test_report_shows_tables_page_and_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(tmp_path, capsys)
    _run(tmp_path, capsys, "--set", "rows=4")
    one = dla(capsys, "report", tmp_path / "run0.json")
    assert (one.status, one.err) == (0, "")
    page = (tmp_path / "run0-report" / "run0.html").read_text(encoding="utf-8")
    assert "Parameters of the machine" in page
    assert "cycles come from formulas" in page
    assert "DRAM traffic" not in page
    both = dla(capsys, "report", tmp_path / "run0.json", tmp_path / "run1.json")
    assert (both.status, both.err) == (0, "")
    assert "machine.rows  16  4" in both.out


def test_our_machine_and_a_described_one_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(tmp_path, capsys)
    ours = tmp_path / "ours.json"
    dla(capsys, "run", "digits-cnn", "--no-advice", "--json", ours)
    found = dla(capsys, "report", ours, tmp_path / "run0.json")
    assert (found.status, found.err) == (0, "")
    assert "systolic-array" in found.out
    assert "bytes read" not in found.out
    assert "layer-traffic.png" not in {one.name for one in tmp_path.rglob("*.png")}
    several = dla(capsys, "report", ours, tmp_path / "run0.json", ours)
    assert (several.status, several.err) == (0, "")
