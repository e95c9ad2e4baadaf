"""The lanes' arithmetic is isa.numerics to the bit."""

import pytest

from tests.dla_sim.rtl.lanes.__main__ import CASES
from tests.dla_sim.rtl.lanes.case import Case
from tests.dla_sim.rtl.vectors import simulated


@pytest.mark.parametrize("pipelined", [False, True], ids=["combinational", "pipelined"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lanes_compute_as_the_numerics(case: Case, pipelined: bool) -> None:
    """Lanes give the results of the numerics for drawn operands, ties and extremes."""
    inputs = case.vectors(7, 50 if pipelined else 120, pipelined=pipelined)
    assert case.wrong(inputs, simulated(case.make(pipelined), inputs)) == []
