"""``dla golden check`` and ``bless`` on a changed machine: reported and accepted differences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from dla_sim.engine.workload import Demands
from experiments.golden.check import check_case
from experiments.golden.deviation import (
    CheckedCase,
    Deviation,
    format_checked_lines,
)
from experiments.golden.observe import refusal
from experiments.golden.store import open_corpus
from experiments.golden.summary import summary_table, to_junit
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
        words = (tmp_path, "--json", tmp_path / "report.json", "--all")
        outcome = dla(capsys, "golden", "check", *words)
    assert outcome.status == 1
    assert outcome.err == "difference: L1/conv and 0 more cases differ\n"
    assert "3 of 4 cases as recorded" in outcome.out
    assert "first diverging command: word 25, OP_CONV requantise=1 pop.LD push.ST" in outcome.out
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


def _six_alike(folder: Path) -> list[CheckedCase]:
    """A case that differs as a whole, and six that differ in the same instruction."""
    small_corpus(folder)
    with changed("OP_CONV", semantics=_off_by_one):
        outcome = _outcome(folder, "L1/conv")
    whole = CheckedCase("L1/empty", (Deviation("totals", None, "2 cycles, recorded <1>"),))
    return [whole, *(replace(outcome, name=f"L1/conv{number}") for number in range(6))]


def test_the_summary_counts_cases_by_instruction_and_aspect(tmp_path: Path) -> None:
    outcomes = _six_alike(tmp_path)
    twice = replace(
        outcomes[1], name="L1/twice", deviations=outcomes[1].deviations + outcomes[0].deviations
    )
    table = summary_table([*outcomes, twice])
    assert [column.heading for column in table.columns] == [
        "first difference in",
        "cases",
        "reference",
        "totals",
        "such as",
    ]
    assert table.rows == [
        ("OP_CONV", "7", "7", "1", "L1/conv0"),
        ("the whole case", "1", "", "1", "L1/empty"),
    ]


def test_junit_has_every_case_with_its_report(tmp_path: Path) -> None:
    outcomes = [*_six_alike(tmp_path), CheckedCase("L0/good")]
    suite = ElementTree.fromstring(to_junit(outcomes))
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "8", "7")
    cases = {f"{case.get('classname')}/{case.get('name')}": case for case in suite}
    assert [*cases] == [outcome.name for outcome in outcomes]
    assert cases["L0/good"].find("failure") is None
    for outcome in outcomes[:-1]:
        failure = cases[outcome.name].find("failure")
        assert failure is not None
        first, *further = format_checked_lines(outcome)
        assert (failure.get("message"), failure.text) == (first, "\n".join(further))


def test_junit_replaces_characters_that_xml_cannot_contain() -> None:
    outcome = CheckedCase("L1/odd", (Deviation("totals", None, "a\x00b\x1bc"),))
    failure = ElementTree.fromstring(to_junit([outcome])).find(".//failure")
    assert failure is not None
    assert failure.text == "  totals: a?b?c"


def test_a_check_prints_details_only_with_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_corpus(tmp_path)
    before = OP_CONV.cycles
    with changed("OP_CONV", cycles=lambda command, arch: before(command, arch) + 7):
        brief = dla(capsys, "golden", "check", tmp_path, "--junit", tmp_path / "report.xml")
        full = dla(capsys, "golden", "check", tmp_path, "--all")
    assert (brief.status, full.status) == (1, 1)
    assert "first diverging command" not in brief.out
    assert "details: --all, or --case L1/conv --all\n" in brief.out
    assert full.out.startswith("L1/conv: differs in cycles, recurrence\n  first diverging command")
    assert "details: " not in full.out
    for outcome in (brief, full):
        assert "OP_CONV 1 1 1 L1/conv" in " ".join(outcome.out.split())
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("4", "1")
    good = dla(capsys, "golden", "check", tmp_path)
    assert (good.status, len(good.out.splitlines())) == (0, 2)


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
