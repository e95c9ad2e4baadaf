"""Figures and answers of the README that its console blocks do not show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dla
from tests.dla_sim.program_generator import COMPUTE
from tests.dla_sim.test_tick_equality import SEEDS
from tests.docs.blocks import blocks
from tests.docs.session import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_four_by_sixteen_is_within_a_thousandth_of_the_fastest(tmp_path: Path) -> None:
    (spec,) = [block for block in blocks(README) if block.file == "three.toml"]
    (tmp_path / "three.toml").write_text(spec.text, encoding="utf-8")
    swept = dla.sweep(tmp_path / "three.toml", output=tmp_path / "three.sqlite", workers=1)
    small = swept.table[swept.table["sram_bytes"] == 32 << 10].set_index(["network", "pe.ic"])
    fastest = small["cycles"].groupby("network").min()
    assert len(fastest) == 3
    four = small["cycles"].xs(4, level="pe.ic")
    assert (four <= 1.001 * fastest[four.index]).all()


def test_trust_counts_the_programs_and_faults_of_the_tests() -> None:
    assert f"every cycle of {len(COMPUTE) * len(SEEDS):,} random programs" in README
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    found = re.search(r"(\d+) of \d+ faults seeded into the machine\..* Missed faults: 0\.", page)
    assert found is not None
    assert f"detect all {found[1]} faults" in README
