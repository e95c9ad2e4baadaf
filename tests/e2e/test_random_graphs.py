"""Random quantised graphs of the operators of today: every tensor that leaves a region equals ONNX Runtime's."""

from __future__ import annotations

import pytest

from tests.e2e.random_graphs import Tally


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_random_graphs_are_exact(block: int) -> None:
    """A hundred of them; ``python -m tests.e2e.random_graphs`` draws as many as one likes."""
    tally = Tally()
    for seed in range(25 * block, 25 * block + 25):
        tally.add(seed)
    assert tally.counts["exact"] + tally.counts["refused"] == 25
    assert tally.counts["refused"] <= 1
    assert tally.share_on_cpu < 0.25
