"""``dla golden check`` and ``bless`` on a changed machine: reported and accepted differences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dla_sim.engine.workload import Demands
from experiments.golden.check import check_case
from experiments.golden.deviation import (
    CheckedCase,
    Deviation,
    format_checked_lines,
    group_by_instruction,
)
from experiments.golden.observe import refusal
from experiments.golden.store import open_corpus
from isa import numerics
from isa.errors import InputError
from isa.instruction import Command, Machine
from isa.ops.convolution import OP_CONV
from tests.experiments.command_line import dla
from tests.experiments.golden_corpora import changed, contents, small_corpus


def _off_by_one(command: Command, machine: Machine) -> None:
    """The convolution, with the last bit of its third output wrong."""
    _REAL(command, machine)
    machine.sram[command["EX_OUTPUT_ADDRESS"] + 2] ^= np.uint8(1)


_REAL = OP_CONV.semantics


def _outcome(folder: Path, name: str) -> CheckedCase:
    return check_case(open_corpus(folder).case(name))


def test_a_changed_value_names_command_layer_element_values_and_registers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_corpus(tmp_path)
    with changed("OP_CONV", semantics=_off_by_one):
        outcome = dla(capsys, "golden", "check", tmp_path, "--json", tmp_path / "report.json")
    assert outcome.status == 1
    assert outcome.err == "difference: L1/conv and 0 more cases differ\n"
    assert "3 of 4 cases as recorded" in outcome.out
    assert "first diverging command: word 25, OP_CONV requantise=1 pop.LD push.ST" in outcome.out
    assert "OP_CONV differs in reference: 1 case, L1/conv\n" in outcome.out
    assert "source: layer 'conv', ONNX nodes conv_node" in outcome.out
    assert "EX_INPUT_ZERO_POINT=5" in outcome.out
    (case,) = (
        item
        for item in json.loads((tmp_path / "report.json").read_text())["cases"]
        if not item["passed"]
    )
    difference = case["differences"][0]
    assert difference["aspect"] == "reference"
    assert difference["element"]["index"] == {"channel": 0, "row": 0, "column": 2}
    assert abs(difference["actual"] - difference["expected"]) == 1
    assert (difference["differ"], difference["of"]) == (1, 48)
    assert case["first"]["cycles_before"] == case["first"]["cycles_after"]
    assert [operand["bytes"] for operand in case["first"]["operands"]] == [32, 54, 24]


def test_cases_that_differ_alike_are_one_line_and_one_report(tmp_path: Path) -> None:
    small_corpus(tmp_path)
    with changed("OP_CONV", semantics=_off_by_one):
        outcome = _outcome(tmp_path, "L1/conv")
    alike = [replace(outcome, name=f"L1/conv{number}") for number in range(6)]
    whole = CheckedCase("L1/empty", (Deviation("totals", None, "2 cycles, recorded 1"),))
    assert [(group.line(), group.cases) for group in group_by_instruction([whole, *alike])] == [
        (
            "OP_CONV differs in reference: 6 cases, L1/conv0, L1/conv1, L1/conv2, L1/conv3 and 2 "
            "more",
            tuple(alike),
        ),
        ("the whole case differs in totals: 1 case, L1/empty", (whole,)),
    ]


def test_a_changed_kernel_shows_in_the_kernels_and_the_device_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_corpus(tmp_path)
    real = numerics.requantise_float32

    def shifted(values: Any, scale: Any, zero_point: int, low: int, high: int, *, out: Any) -> None:
        real(values, scale, zero_point + 1, low, high, out=out)

    monkeypatch.setattr(numerics, "requantise_float32", shifted)
    assert [item.aspect for item in _outcome(tmp_path, "L1/conv").deviations] == [
        "kernels",
        "device",
    ]


def test_changed_cycles_are_reported_before_and_after(tmp_path: Path) -> None:
    small_corpus(tmp_path)
    before = OP_CONV.cycles
    with changed("OP_CONV", cycles=lambda command, arch: before(command, arch) + 7):
        outcome = _outcome(tmp_path, "L1/conv")
    assert [item.aspect for item in outcome.deviations] == ["cycles", "recurrence"]
    assert outcome.total_after == outcome.total_before + 7
    assert outcome.moment is not None
    assert outcome.moment.cycles_before is not None
    assert outcome.moment.cycles_after is not None
    assert outcome.moment.cycles_after[1] - outcome.moment.cycles_before[1] == 7
    assert any("cycles: " in line and " before, " in line for line in format_checked_lines(outcome))


def test_a_changed_encoding_is_one_of_words_and_not_of_values(tmp_path: Path) -> None:
    small_corpus(tmp_path)
    moved = tuple(
        replace(item, low=47) if item.name == "requantise" else item for item in OP_CONV.fields
    )
    with changed("OP_CONV", fields=moved):
        outcome = _outcome(tmp_path, "L1/conv")
    assert [item.aspect for item in outcome.deviations] == ["encoding", "decoding"]
    assert [item.word for item in outcome.deviations] == [25, 25]


def test_only_one_engine_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_corpus(tmp_path)
    room = Demands.room
    monkeypatch.setattr(Demands, "room", lambda self, depth: room(self, depth + 1))
    assert {item.aspect for item in _outcome(tmp_path, "L1/conv").deviations} == {"recurrence"}


def test_bless_stores_the_reason_and_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_corpus(tmp_path)
    before = OP_CONV.cycles
    with changed("OP_CONV", cycles=lambda command, arch: before(command, arch) + 7):
        blessed = dla(capsys, "golden", "bless", tmp_path, "--reason", "a longer pipeline")
        again = dla(capsys, "golden", "bless", tmp_path, "--reason", "nothing")
        checked = dla(capsys, "golden", "check", tmp_path)
    assert (blessed.status, again.status, checked.status) == (0, 0, 0)
    assert "blessed L1/conv" in blessed.out
    assert "nothing to bless" in again.out
    event = open_corpus(tmp_path).history[-1]
    assert (event.action, event.reason, event.changed) == (
        "bless",
        "a longer pipeline",
        ("L1/conv",),
    )
    assert "bless by" in dla(capsys, "golden", "list", tmp_path).out


def test_bless_of_some_cases_leaves_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_corpus(tmp_path)
    before = OP_CONV.cycles
    with changed("OP_CONV", cycles=lambda command, arch: before(command, arch) + 7):
        outcome = dla(capsys, "golden", "bless", tmp_path, "--reason", "no", "--level", "L2")
    assert "all 2 cases are as recorded" in outcome.out


def test_nothing_is_blessed_while_kernels_and_semantics_disagree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_corpus(tmp_path)
    whole = contents(tmp_path)
    with changed("OP_CONV", semantics=_off_by_one):
        outcome = dla(capsys, "golden", "bless", tmp_path, "--reason", "looks right")
    assert outcome.status == 1
    assert outcome.err.startswith("difference: nothing blessed: case L1/conv: kernels at word 25")
    assert contents(tmp_path) == whole


def test_a_refusal_is_named_by_the_words_that_the_error_carries_and_not_by_its_message() -> None:
    assert refusal(InputError("word 7: better put", words=(3, 1))) == "InputError at 3, 1"
    assert refusal(InputError("word 7: about nothing in the stream")) == "InputError"
    assert refusal(KeyError("word 7")) == "KeyError"
