"""``dla rtl`` and ``dla run --engine rtl``: what they say and refuse.

Hardware itself is in tests/dla_sim/rtl.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from dla_sim.engine.workload import UNIT_NAMES
from dla_sim.rtl.simulator.case import COUNTED, Case, HardwareDifference, Outcome
from dla_sim.rtl.simulator.executable import Executable
from experiments.golden.check import runnable, timing_of
from experiments.golden.store import choose, open_corpus
from experiments.rtl import hardware, windows
from isa.installation import remedy
from tests.experiments.command_line import dla, tiny_model

WRONG = HardwareDifference("bytes", 0, {
    "space": "sram", "address": 16, "offset": 0, "differing": 1, "of": 8, "expected": "01",
    "actual": "02",
})  # fmt: skip


def outcome(case: Case, *differences: HardwareDifference) -> Outcome:
    """Return the outcome of hardware that equals the simulator except for ``differences``."""
    expected = case.expected
    assert expected is not None
    units = {
        unit: dict(zip(COUNTED, row, strict=True))
        for unit, row in zip(UNIT_NAMES, expected.causes.tolist(), strict=True)
    }
    numbers = expected.trace.cycles, 0.1, len(expected.trace.commands)
    return Outcome(
        case, "interrupt", *numbers, units, expected.outputs, len(differences), differences
    )


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[HardwareDifference]:
    """Return a list of differences that the hardware of these tests reports.

    The simulator replaces the hardware, and nothing is built.
    """
    differences: list[HardwareDifference] = []

    def run(_: object, cases: Sequence[tuple[Case, Any]]) -> list[Outcome]:
        return [outcome(case, *differences) for case, _ in cases]

    def build(*_: object, **__: object) -> Executable:
        return Executable(Path("none"), (), False)

    for module, name in (
        (hardware, "own_executable"),
        (hardware, "open_executable"),
        (windows, "get_traced_executable"),
    ):
        monkeypatch.setattr(module, name, build)

    def waves(_: object, case: Case, __: object, place: Path, first: int, end: int) -> Outcome:
        place.write_text(f"{first} to {end}")
        return outcome(case, *differences)

    monkeypatch.setattr(windows, "write_waves", waves)
    monkeypatch.setattr(hardware, "run_cases", run)
    return differences


def test_a_network_runs_on_the_hardware(
    found: list[HardwareDifference], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    words = (
        "run",
        str(tmp_path / "tiny.onnx"),
        "--isa",
        "v4",
        "--engine",
        "rtl",
        "--json",
        str(tmp_path / "a.json"),
    )
    said = dla(capsys, *words)
    report = json.loads((tmp_path / "a.json").read_text())
    assert said.status == 0
    assert "0 differences from the simulator: start and end of" in said.out
    assert report["command"].endswith("--engine rtl")
    assert report["hardware"]["cycles"] == report["totals"]["cycles"]
    assert (
        report["hardware"]["commands"]
        == report["totals"]["instructions"] - report["compile"]["regions"]
    )
    found.append(WRONG)
    said = dla(capsys, *words)
    assert said.status == 1
    assert "difference: the hardware is not the simulator: " in said.err
    assert (
        "1 of 8 bytes differ, the first in scratchpad at 0x10 (byte 0 of the result): 02, expected "
        "01" in said.err
    )


def test_a_corpus_runs_on_the_hardware(
    found: list[HardwareDifference], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("rtl", "check", "tests/golden", "--case", "L1/max", "--json", str(tmp_path / "a.json"))
    said = dla(capsys, *words)
    assert said.status == 0
    assert (
        "1 of 1 cases equal on the hardware, 4 commands, 505 cycles; 0 more are refused" in said.out
    )
    assert json.loads((tmp_path / "a.json").read_text())["cases"][0]["cycles"] == 505
    found.append(WRONG)
    said = dla(capsys, *words)
    assert said.status == 1
    assert "  to see it: dla rtl waves L1/max --corpus tests/golden --command" in said.out
    assert "difference: L1/max and 0 more cases differ" in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "waves need one of --command WORD, --layer NAME and --cycles FIRST:END"),
        (("--command", "8", "--layer", "a"), "waves need one of --command WORD"),
        (("--cycles", "12"), "--cycles 12: write it as FIRST:END, for example 1000:1200"),
        (("--cycles", "20:20"), "--cycles 20:20: write it as FIRST:END"),
        (("--cycles", "505:600"), "cycle 505 is not in the run; it has the cycles 0 to 504"),
        (("--command", "99"), "no command is at word 99; the first ones are at"),
        (("--layer", "none"), "no layer is called 'none'; there are"),
    ],
)
def test_windows_that_are_none(
    words: tuple[str, ...],
    message: str,
    found: list[HardwareDifference],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = dla(capsys, "rtl", "waves", "L1/max", *words, "-o", str(tmp_path / "a.vcd"))
    assert said.status == 2
    assert message in said.err
    assert not list(tmp_path.iterdir())


def test_waves_are_vcd_or_fst(
    found: list[HardwareDifference],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FST takes a program of GTKWave; this one turns letters round."""
    words = ("rtl", "waves", "L1/max", "--command", "8", "-o")
    said = dla(capsys, *words, str(tmp_path / "a.vcd"))
    assert (said.status, (tmp_path / "a.vcd").read_text()) == (0, "355 to 389")
    assert said.out.startswith(f"{tmp_path / 'a.vcd'}: cycles 355 to 389 of L1/max\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    said = dla(capsys, *words, str(tmp_path / "a.fst"))
    assert (said.status, sorted(path.name for path in tmp_path.iterdir())) == (2, ["a.vcd"])
    assert (
        "a.fst: FST is made by vcd2fst of GTKWave (Debian: apt install gtkwave); or name a FILE.vcd"
        in said.err
    )
    compressor = tmp_path / "vcd2fst"
    turned = "import sys; open(sys.argv[2], 'w').write(open(sys.argv[1]).read().strip()[::-1])"
    compressor.write_text(f"#!{sys.executable}\n{turned}\n")
    compressor.chmod(0o755)
    assert dla(capsys, *words, str(tmp_path / "a.fst")).status == 0
    assert (tmp_path / "a.fst").read_text().strip() == "983 ot 553"
    compressor.write_text("#!/bin/sh\necho bad >&2; exit 1\n")
    said = dla(capsys, *words, str(tmp_path / "b.fst"))
    assert (said.status, said.err) == (
        2,
        f"error: {tmp_path / 'b.fst'}: vcd2fst failed (bad); name a FILE.vcd\n",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.fst", "a.vcd", "vcd2fst"]


def test_a_build_replaces_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("x")
    said = dla(capsys, "rtl", "build", "--preset", "nvdla-small-like", "-o", str(tmp_path))
    assert said.status == 2
    assert (
        f"{tmp_path}: holds mine.txt, which no build put there; choose another folder" in said.err
    )


def test_a_machine_that_is_too_large_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In seconds, before most of it is written."""
    machine = ("--preset", "balanced-256", "--isa", "v4")
    said = dla(capsys, "rtl", "build", *machine, "--verilog", "-o", str(tmp_path / "x"))
    bits = (
        "the engines of this machine have ports that read 100,608 bits of the scratchpad in a cycle"
    )
    assert (said.status, said.err.splitlines()[-1].startswith(f"error: {bits}")) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [("rtl", "check", "tests/golden"), ("run", "digits-cnn", "--isa", "v4", "--engine", "rtl")],
)
def test_without_the_extra_one_line_names_it(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: None if name == "amaranth" else known(name)
    )
    said = dla(capsys, *words)
    assert said.status == 2
    assert said.err == f"error: hardware needs Amaranth; install it with: {remedy('rtl')}\n"


def test_every_machine_of_the_corpus_has_a_build() -> None:
    """Every machine of the golden cases has a stored hardware build.

    The cases are read and not run.
    """
    corpus = open_corpus(Path("tests/golden"))
    for name in choose(corpus.entries, ("L1", "L10"), ()):
        stored = corpus.case(name)
        program = runnable(stored)
        assert (
            program.arch.words or hardware.build_of(program, timing_of(stored)) in hardware.BUILDS
        )


def test_a_case_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = dla(capsys, "rtl", "case", "L1/max", "-o", str(tmp_path / "a.case"))
    assert (said.status, said.out) == (0, f"{tmp_path / 'a.case'}: L1/max, 4 operations\n")
    assert (tmp_path / "a.case").read_bytes().startswith(b"DLACASE1")
