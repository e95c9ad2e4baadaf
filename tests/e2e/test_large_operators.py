"""Drawn operators larger than the scratchpad compile, or run on the CPU; their values are right."""

from __future__ import annotations

import pytest

from tests.e2e.large_operators import draw, outcome


@pytest.mark.parametrize("seed", range(6))
def test_drawn_operators_larger_than_the_scratchpad(seed: int) -> None:
    drawn, machines = draw(seed)
    found = {isa: outcome(drawn.model, isa, settings) for isa, settings in machines}
    assert set(found.values()) <= {"accelerator", "cpu"}, (drawn.text, found)
