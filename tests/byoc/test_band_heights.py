"""Heights of the bands of a group."""

import numpy as np

from byoc.emission.region import compile_region
from byoc.operators.operator import Operator
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from tests.byoc import region_cases as cases


def test_bands_of_short_rows_are_whole_bursts() -> None:
    """Rows of one byte make bands of whole bursts, so that transfers share no burst."""
    random = np.random.default_rng(0)
    operations: list[Operator] = []
    for number in range(3):
        source = operations[-1].output if operations else cases.operand("x", 64, 2048, 1)
        operations.append(
            cases.convolution(random, source, f"p{number}", 64, kernel=(1, 1), pads=(0, 0, 0, 0))
        )
    region = cases.region(tuple(operations), ("x",), ("p2",))
    arch = Arch(isa="v4", pe=PeArray(ic=32, oc=32), sram_bytes=1 << 15)
    _, report = compile_region(*region, arch)
    assert report.choices.groups
    assert {group.rows % Timing().burst_bytes for group in report.choices.groups} == {0}
