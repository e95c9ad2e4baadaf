"""Random quantised graphs of the operators of today: every tensor that leaves a region equals ONNX Runtime's."""

from __future__ import annotations

from collections import Counter

import pytest

from byoc.operators.onnx_view import BOUNDARIES
from tests.e2e.random_graphs import run


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_random_graphs_are_exact(block: int) -> None:
    """A hundred of them; ``python -m tests.e2e.random_graphs`` draws as many as one likes."""
    ran = Counter[str]()
    for seed in range(25 * block, 25 * block + 25):
        done = run(seed)
        assert done.mismatches == 0, seed
        ran.update(placed.on for placed in done.partition.placement if placed.op_type not in BOUNDARIES)
    assert ran["dla"] > 20 * ran["cpu"]
