"""The engine of ``OP_PERMUTE`` against its semantics, cycles and operands."""

from __future__ import annotations

import numpy as np
import pytest

from dla_sim.rtl.ex.permute import Permute
from isa.ops.movement import DIMENSIONS, find_touched
from tests.dla_sim.rtl.engine_bench import Case, EngineBench, check
from tests.dla_sim.rtl.random_commands import BYTES, command_of, limits, machine, memory
from tests.rotation import choose_cases

pytestmark = pytest.mark.slow
COMMANDS = 150


def random_case(rng: np.random.Generator) -> Case:
    """Sources below the middle of the scratchpad, results above it.

    Small counts and strides, also 0.
    """
    arch = machine(rng)
    command = None
    ends = {"INPUT": BYTES, "OUTPUT": BYTES}
    while command is None or max(ends.values()) > BYTES // 2:
        registers = {"EX_INPUT_ZERO_POINT": int(rng.integers(-128, 128))}
        for number in DIMENSIONS:
            registers[f"EX_COUNT_{number}"] = int(
                rng.choice([0, 1, 1, 2, 3, 5, 9, 40], p=[0.03, *[0.97 / 7] * 7])
            )
            for side in ends:
                registers[f"EX_{side}_STRIDE_{number}"] = int(
                    rng.choice([0, 1, 1, 2, 7, 20, 45, 300])
                )
        command = command_of("OP_PERMUTE", {"fill": int(rng.random() < 0.2)}, registers)
        ends = {side: find_touched(command, side).end for side in ends}
    command.registers["EX_INPUT_ADDRESS"] = int(rng.integers(0, BYTES // 2 - ends["INPUT"] + 1))
    command.registers["EX_OUTPUT_ADDRESS"] = int(
        rng.integers(BYTES // 2, BYTES - ends["OUTPUT"] + 1)
    )
    return Case(arch, command, memory(rng), int(rng.integers(1, 4)))


@pytest.mark.parametrize("pipelined", choose_cases([True, False], 2))
def test_random_copies(pipelined: bool) -> None:
    rng = np.random.default_rng(50)
    bench = EngineBench(Permute, limits(pipelined=pipelined))
    cases = [random_case(rng) for _ in range(COMMANDS)]
    for case, outcome in zip(cases, bench.run(cases), strict=True):
        check(case, outcome)
