"""The engines equal the tick model to the cycle, per unit and cause, on random programs.

Programs are legal and machines are random.
"""

from __future__ import annotations

import pytest

from isa.arch import Arch, PeArray
from tests.dla_sim.cases import Case, Step
from tests.dla_sim.comparison import case_differences, compare_seeds
from tests.dla_sim.coverage import coverage, format_coverage, missing_rows
from tests.dla_sim.program_generator import COMPUTE
from tests.dla_sim.shrink import PLAIN_TIMING

SEEDS = range(600)


@pytest.mark.parametrize("isa", COMPUTE)
def test_engines_equal_the_tick_model(isa: str) -> None:
    """``tests/dla_sim/fuzz_ticks.py`` does the same for ten thousand."""
    table = coverage(compare_seeds(SEEDS, isa), isa)
    print(format_coverage(table))
    assert missing_rows(table) == []


@pytest.mark.parametrize(("output", "waiting"), [(511, 1), (512, 0)])
def test_a_stream_that_ends_where_its_bank_does(output: int, waiting: int) -> None:
    """Banks of 512 bytes, input [0, 512): the output meets it in bank 0 or not; c is 1.

    Seeds hardly try it.
    """
    arch = Arch(pe=PeArray(ic=512, oc=1), sram_bytes=2048, sram_banks=4, alignment=1)
    step = Step("OP_ACT_RELU", "EX", {"EX_LENGTH": 512, "EX_OUTPUT_ADDRESS": output})
    result, found = case_differences(Case(arch, {**PLAIN_TIMING, "bank_ports": 1}, (step,)))
    assert result.causes["EX"].get("sram", 0) == waiting
    assert found == []
