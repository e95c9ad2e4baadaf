"""Every command reports the same cycles for a network on a machine."""

from __future__ import annotations

import pytest

from tests.e2e.cycles_of_commands import pairs_of
from tests.rotation import rotate


@pytest.mark.parametrize("seed", rotate([1, 2, 3, 7, 81], 5))
def test_every_command_reports_the_same_cycles(seed: int) -> None:
    """``python -m tests.e2e.cycles_of_commands --pairs 500`` compares more."""
    assert [pair for pair in pairs_of(seed) if not pair.equal] == []
