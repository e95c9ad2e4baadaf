"""Seeded faults fit the sources and equal the documented tables, and a sample is detected."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from isa.errors import InputError
from tests.cycles.cases import all_cases
from tests.faults import quality
from tests.faults.__main__ import MARKS, main
from tests.faults.fault import AREAS, CHOICES, WORDS, choose_faults, seeded_faults
from tests.faults.quality import main as quality_main
from tests.faults.quality import mutants, seed
from tests.faults.run import copied_packages, seed_all

ROOT = Path(__file__).parents[2]
SAMPLE = (
    "opcode-of-pool", "bias-forgotten", "padding-sides-swapped", "requantise-in-float64",
    "conv-cycles-without-columns", "kernel-chunk-too-long", "token-not-taken",
    "recurrence-queue-one-deeper",
)  # fmt: skip
CHOICES_SAMPLE = ("least-is-a-sum", "ahead-forgets-what-was", "constants-kept-one-late")
WORDS_SAMPLE = ("operand-in-its-first-bank", "words-of-rows-merged", "rows-begin-for-nothing")


def test_every_fault_fits_the_sources() -> None:
    """Every fault fits the sources.

    Seeding stops at the first one that does not, so a change of a source must adapt its faults.
    """
    with copied_packages() as folder:
        for fault in (*seeded_faults(), *seeded_faults(CHOICES), *seeded_faults(WORDS)):
            file = folder / fault.file
            whole = file.read_text(encoding="utf-8")
            fault.apply(folder)
            assert file.read_text(encoding="utf-8") != whole
            file.write_text(whole, encoding="utf-8")


def test_there_are_faults_of_every_kind() -> None:
    faults = seeded_faults()
    choices = seeded_faults(CHOICES)
    assert len([fault for fault in faults if not fault.equivalent]) >= 40
    assert {fault.area for fault in faults} == set(AREAS)
    areas = [fault.area for fault in choices if not fault.equivalent]
    assert areas.count("estimate") + areas.count("tiling") + areas.count("scheduling") >= 50
    assert areas.count("quantisation") >= 15
    every = (*faults, *choices, *seeded_faults(WORDS))
    assert len({fault.name for fault in every}) == len(every)
    assert len({(fault.file, fault.old, fault.new) for fault in every}) == len(every)


def test_what_sees_faults_in_choices_and_mutants_exists() -> None:
    faults = (*seeded_faults(CHOICES), *seeded_faults(WORDS), *mutants())
    assert {fault.case for fault in faults} - {""} <= set(all_cases())
    assert [name for fault in faults for name in fault.tests if not (ROOT / name).exists()] == []
    assert all(bool(fault.case) != bool(fault.tests) for fault in faults if not fault.equivalent)
    assert len(set(mutants())) == 24
    assert not any(fault.equivalent for fault in mutants())


def _section(marks: tuple[str, str]) -> str:
    """Return the text between two marks of docs/faults.md."""
    _, _, rest = (ROOT / "docs/faults.md").read_text(encoding="utf-8").partition(marks[0])
    return rest.partition(marks[1])[0]


def test_the_table_in_the_documentation_is_of_these_faults() -> None:
    text = _section(MARKS)
    rows = re.findall(
        r"^\| `([a-z0-9-]+)` \| ([a-z ]+) \| `([^`]+)` \| ([^|]+) \|", text, re.MULTILINE
    )
    assert [(name, area, file) for name, area, file, _ in rows] == [
        (fault.name, fault.area, fault.file) for fault in seeded_faults()
    ]
    levels = {name: level for name, _, _, level in rows}
    counts = dict(re.findall(r"^\| (L\d+) \| (\d+) \|$", text, re.MULTILINE))
    assert counts == {level: str(list(levels.values()).count(level)) for level in counts}
    assert sum(map(int, counts.values())) == sum(not fault.equivalent for fault in seeded_faults())
    for fault in seeded_faults():
        assert (levels[fault.name] == "none: equivalent") == bool(fault.equivalent)
    assert "Missed faults: 0." in text


def test_the_page_of_the_compilers_choices_is_of_these_faults() -> None:
    text = _section(quality.MARKS)
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| `([^`]+)` \| ([^|]*) \|", text, re.MULTILINE)
    faults = seeded_faults(CHOICES)
    assert [(name, file) for name, file, _ in rows] == [
        (fault.name, fault.file) for fault in faults
    ]
    for fault, (_, _, seen) in zip(faults, rows, strict=True):
        assert (
            seen == "nothing: equivalent"
            if fault.equivalent
            else seen.startswith((f"{fault.case} on ", "tests/"))
        )
    assert "Missed faults: 0." in text


@pytest.mark.slow
def test_a_sample_of_the_faults_is_caught() -> None:
    findings = list(seed_all(ROOT / "tests" / "golden", choose_faults(SAMPLE, seeded_faults()), 2))
    assert [finding.fault.name for finding in findings if not finding.right] == []
    assert {finding.level for finding in findings} == {"L0", "L1", "L2"}


@pytest.mark.parametrize("name", CHOICES_SAMPLE)
def test_a_sample_of_the_faults_in_choices_is_caught(name: str) -> None:
    (fault,) = choose_faults([name], mutants())
    found = seed(fault)
    assert found.right, found
    assert found.case.startswith(f"{fault.case} on ")


@pytest.mark.parametrize("name", WORDS_SAMPLE)
def test_a_sample_of_the_faults_in_words_is_caught(name: str) -> None:
    (fault,) = choose_faults([name], seeded_faults(WORDS))
    found = seed(fault)
    assert found.right, found


def test_a_fault_fits_code_with_other_line_breaks(tmp_path: Path) -> None:
    fault = replace(
        seeded_faults()[0],
        file="x.py",
        old="total = add(first, [second, third]) + 1",
        new="total = 0",
    )
    source = tmp_path / "x.py"
    source.write_text(
        "a = 1\ntotal = add(\n    first,\n    [second, third],\n) + 1\nb = total\n",
        encoding="utf-8",
    )
    fault.apply(tmp_path)
    assert source.read_text(encoding="utf-8") == "a = 1\ntotal = 0\nb = total\n"
    source.write_text(
        "total = add(first, [second, third]) + 12\ntotal = add(first, [second, third]) + 1\n",
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="stands 2 times"):
        fault.apply(tmp_path)


def test_a_fault_that_fits_no_source_is_named(tmp_path: Path) -> None:
    fault = seeded_faults()[0]
    with pytest.raises(
        InputError, match=f"fault {fault.name}: its text stands 0 times in {fault.file}"
    ):
        fault.apply(tmp_path)


def test_a_fault_that_nobody_knows_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(ROOT / "tests" / "golden"), "--fault", "nobody"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: no fault is called 'nobody'; choose from opcode-of-pool, "
    )
    assert quality_main(["--fault", "nobody"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: no fault is called 'nobody'; choose from least-is-a-sum, "
    )
