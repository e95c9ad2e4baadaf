"""Seeded faults in the compiler's choices: each fits the sources, the page is theirs, a sample is caught here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cycles.cases import all_cases
from tests.faults.fault import seeded_faults
from tests.faults.quality import chosen, main, quality_faults, seed
from tests.faults.run import copied_packages

ROOT = Path(__file__).parents[2]
SAMPLE = ("least-is-a-sum", "ahead-forgets-what-was", "constants-kept-one-late")


def test_every_fault_fits_the_sources() -> None:
    """Whoever changes a source adapts its faults."""
    with copied_packages() as folder:
        for fault in quality_faults():
            file = folder / fault.file
            whole = file.read_text(encoding="utf-8")
            fault.apply(folder)
            assert file.read_text(encoding="utf-8") != whole
            file.write_text(whole, encoding="utf-8")


def test_there_are_faults_of_every_kind() -> None:
    faults = quality_faults()
    areas = [fault.area for fault in faults if not fault.equivalent]
    assert areas.count("estimate") + areas.count("tiling") + areas.count("scheduling") >= 50
    assert areas.count("quantisation") >= 15
    assert len({fault.name for fault in (*faults, *seeded_faults())}) == len(faults) + len(seeded_faults())
    assert {fault.case for fault in faults} - {""} <= set(all_cases())
    assert [name for fault in faults for name in fault.tests if not (ROOT / name).exists()] == []
    assert all(bool(fault.case) != bool(fault.tests) for fault in faults if not fault.equivalent)


def test_the_page_is_of_these_faults() -> None:
    text = (ROOT / "docs" / "compiler-faults.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| `([^`]+)` \| ([^|]*) \|", text, re.MULTILINE)
    assert [(name, file) for name, file, _ in rows] == [(fault.name, fault.file) for fault in quality_faults()]
    for fault, (_, _, seen) in zip(quality_faults(), rows, strict=True):
        assert seen == "nothing: equivalent" if fault.equivalent else seen.startswith((f"{fault.case} on ", "tests/"))
    assert "0 missed." in text


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_the_faults_is_caught(name: str) -> None:
    (fault,) = chosen([name])
    found = seed(fault)
    assert found.right, found
    assert found.case.startswith(f"{fault.case} on ")


def test_a_fault_that_nobody_knows_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fault", "nobody"]) == 2
    assert capsys.readouterr().err.startswith("error: no fault is called 'nobody'; choose from least-is-a-sum, ")
