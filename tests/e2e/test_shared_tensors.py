"""Files whose tensors are shown and read by several: right to the bit, and as the file is without optimisations."""

from __future__ import annotations

import pytest

from tests.e2e.shared_tensors import outcome


@pytest.mark.parametrize("first", [4100, 4120])
def test_tensors_that_several_read_are_right(first: int) -> None:
    """Seeds 4104 and 4124 had rows that nobody computed; ``python -m tests.e2e.shared_tensors`` draws many more."""
    found = [outcome(seed) for seed in range(first, first + 8)]
    assert [one.wrong for one in found if one.wrong] == []
    assert sum(one.shown for one in found) > 5
    assert sum(one.alone for one in found) > 1000
