"""``dla run`` and ``experiments.run``: the report, the check's exit status, reproducibility."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import experiments.running.check
from byoc.host.sessions import Oracle
from experiments import run
from experiments.report.schema import RunReport
from isa.instruction import KINDS
from tests.experiments.command_line import dla, save_tiny

pytestmark = pytest.mark.usefixtures("fresh_folder")

Capture = pytest.CaptureFixture[str]

STABLE_KEYS = {
    *(
        "schema",
        "version",
        "command",
        "model",
        "hashes",
        "arch",
        "timing",
        "schedule",
        "seed",
        "totals",
        "kinds",
    ),
    *("ex_cycles", "layers", "units", "placement", "host", "check", "accuracy"),
}


def test_digits_run_exactly_in_one_region_and_agree_on_every_image(capsys: Capture) -> None:
    found = dla(capsys, "run", "digits-cnn", "--json", "run.json")
    assert (found.status, found.err) == (0, "")
    report = json.loads(Path("run.json").read_text())
    assert report.keys() >= STABLE_KEYS
    assert (report["check"]["mismatches"], report["compile"]["regions"]) == (0, 1)
    accuracy = report["accuracy"]
    assert (accuracy["images"], accuracy["differences"]) == (450, 0)
    assert accuracy["int8"] == accuracy["dla"] > 0.95
    assert accuracy["float"] > 0.95
    assert report["command"] == "dla run digits-cnn"
    assert found.out.endswith("report written to run.json\n")


def test_report_is_shown_again_as_it_was(capsys: Capture) -> None:
    shown = dla(capsys, "run", "digits-cnn", "--json", "run.json", "--all").out
    assert dla(capsys, "report", "--tables", "run.json").out.startswith(
        shown.removesuffix("report written to run.json\n")
    )


def test_equal_runs_give_equal_bytes_and_a_name_of_their_own(capsys: Capture) -> None:
    for _ in range(2):
        assert dla(capsys, "run", save_tiny(Path())).status == 0
    (report,) = Path("runs").iterdir()
    first = report.read_bytes()
    assert dla(capsys, "run", "tiny.onnx", "--json", "other.json").status == 0
    assert Path("other.json").read_bytes() == first
    assert dla(capsys, "run", "tiny.onnx", "--set", "bus_bytes=16").status == 0
    assert len(list(Path("runs").iterdir())) == 2


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"schedule": "seed"},
        {"isa": "v1"},
        {"isa": "v1", "emulate_depthwise": True},
        {"integer_io": True},
    ],
)
def test_every_scenario_is_exact(options: Mapping[str, Any]) -> None:
    report = run("digits-cnn", **options).report
    assert report.check.mismatches == 0
    assert report.accuracy is not None
    assert report.accuracy.differences == 0
    assert ("depthwise" in {layer.node for layer in report.host.layers}) == (
        options == {"isa": "v1"}
    )


def test_command_repeats_the_run(capsys: Capture) -> None:
    report = run(
        "digits-cnn",
        preset="seed-o64",
        settings=["bus_bytes=16"],
        isa="v1",
        emulate_depthwise=True,
        seed=3,
    ).report
    words = (
        "dla run digits-cnn --preset seed-o64 --set bus_bytes=16 --isa v1 --seed 3 "
        "--emulate-depthwise"
    )
    assert report.command == words
    assert dla(capsys, *words.split()[1:], "--no-advice", "--json", "again.json").status == 0
    assert RunReport.model_validate_json(Path("again.json").read_text()) == report


def test_timing_changes_cycles_and_no_bit_of_the_program() -> None:
    """Schedules depend on the rate of the bus, and on no other constant of the timing."""
    slow = run("digits-cnn").report
    fast = run("digits-cnn", settings=["dma_setup=0", "ex_fill=0", "dram_latency=60"]).report
    assert slow.hashes["programs"] == fast.hashes["programs"]
    assert slow.totals.cycles > fast.totals.cycles


def test_float_parts_on_the_host_are_estimated_and_outside_the_total(capsys: Capture) -> None:
    report = run(save_tiny(Path(), softmax=True)).report
    assert report.check.oracle.startswith("ONNX Runtime ")
    softmax = next(layer for layer in report.host.layers if layer.node == "softmax")
    assert softmax.estimated_cycles > 0
    assert sum(report.kinds[kind] for kind in KINDS) == report.totals.cycles


def test_fixed_numerics_have_no_oracle_here() -> None:
    report = run("digits-cnn", settings=["numerics=fixed"]).report
    assert report.check.oracle == "none (numerics = fixed rounds differently from ONNX Runtime)"
    assert (report.check.tensors, report.check.mismatches) == (0, 0)


def test_input_from_a_file_changes_the_input_and_not_the_cycles(capsys: Capture) -> None:
    np.save("zeros.npy", np.zeros((1, 1, 8, 8), np.float32))
    own = run("digits-cnn").report
    given = run("digits-cnn", inputs="zeros.npy").report
    assert own.hashes["input"] != given.hashes["input"]
    assert own.totals == given.totals
    assert given.check.mismatches == 0


def test_a_difference_is_named_and_the_exit_status_is_1(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(Oracle):
        """An oracle with one element of the network's last integers off by one."""

        def values(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            """The right values, but for one."""
            found = super().values(tensors)
            name = [name for name in self.names if found[name].dtype.kind != "f"][-1]
            last = found[name].copy()
            last[0, 2, 3, 1] ^= 1
            return found | {name: last}

    monkeypatch.setattr(experiments.running.check, "Oracle", Wrong)
    found = dla(capsys, "run", save_tiny(Path()), "--json", "run.json")
    first = json.loads(Path("run.json").read_text())["check"]["first"]
    assert found.status == 1
    assert first["coordinates"] == [0, 2, 3, 1]
    assert first["dla"] ^ 1 == first["oracle"]
    assert found.err == (
        f"difference: tensor '{first['tensor']}' at [0, 2, 3, 1]: the DLA has {first['dla']}, "
        f"the oracle has {first['oracle']}\n"
    )
    assert "1 MISMATCHES in " in found.out


def test_integers_in_and_out(capsys: Capture) -> None:
    """A file of integers is used unchanged, one of real numbers is quantised.

    Both are the inference of the float run.
    """
    numbers = np.random.default_rng(7).standard_normal((1, 1, 8, 8)).astype(np.float32)
    np.savez("real.npz", numbers)
    plain = run("digits-cnn", inputs="real.npz").report
    assert [(port.dtype, port.scale, port.integer) for port in plain.interface] == [
        ("float32", None, False)
    ] * 2
    report = run("digits-cnn", inputs="real.npz", integer_io=True).report
    entry, result = report.interface
    assert (entry.name, entry.role, entry.dtype, entry.shape) == (
        "image",
        "input",
        "int8",
        (1, 1, 8, 8),
    )
    assert (result.name, result.role, result.dtype, result.shape) == (
        "logits",
        "output",
        "int8",
        (1, 10),
    )
    assert entry.scale is not None
    assert entry.zero_point is not None
    integers = np.clip(
        np.rint(numbers / np.float32(entry.scale)) + entry.zero_point, -128, 127
    ).astype(np.int8)
    np.save("integers.npy", integers)
    found = dla(
        capsys,
        "run",
        "digits-cnn",
        "--integer-io",
        "--input",
        "integers.npy",
        "--json",
        "run.json",
        "--all",
    )
    assert (found.status, found.err) == (0, "")
    assert (
        f"image: int8 [1, 1, 8, 8], scale {entry.scale:.9g}, zero point {entry.zero_point}"
        in found.out
    )
    given = RunReport.model_validate_json(Path("run.json").read_text())
    assert given.command == "dla run digits-cnn --integer-io --input integers.npy"
    for one in (report, given):
        assert (one.host.nodes, one.check.mismatches, one.check.outputs) == (
            0,
            0,
            plain.check.outputs,
        )
        assert (one.hashes["programs"], one.totals) == (plain.hashes["programs"], plain.totals)
    np.save("bytes.npy", integers.view(np.uint8))
    found = dla(capsys, "run", "digits-cnn", "--integer-io", "--input", "bytes.npy")
    assert found.err == "error: input bytes.npy: expected element type int8 or float32, got uint8\n"
    assert dla(capsys, "repro", "run.json").out.endswith(" values equal\n")


def test_what_stays_float_is_said(capsys: Capture) -> None:
    found = dla(
        capsys, "partition", save_tiny(Path(), softmax=True), "--integer-io", "--json", "p.json"
    )
    assert found.status == 0
    entries = json.loads(Path("p.json").read_text())["interface"]
    assert [(entry["name"], entry["integer"], entry["reason"]) for entry in entries] == [
        ("image", True, ""),
        ("result", False, "Hardmax 'softmax' makes it"),
    ]
    assert f"output result: float32 {entries[1]['shape']}; Hardmax 'softmax' makes it" in found.out
