"""The engine of ``OP_RESIZE`` against its semantics, cycles and operands."""

from __future__ import annotations

import numpy as np
import pytest

from dla_sim.rtl.ex.resize import Resize
from isa.ops.pooling import COORDINATE_BYTES
from tests.dla_sim.rtl.engine_bench import Case, EngineBench, check
from tests.dla_sim.rtl.random_commands import (
    BUILDS,
    Numerics,
    command_of,
    limits,
    machine,
    memory,
    placed,
    settings,
)
from tests.rotation import choose_cases

pytestmark = pytest.mark.slow
COMMANDS = 100


def random_case(rng: np.random.Generator, fixed: bool) -> Case:
    """Coordinates within the plane and beyond its ends, whole ones, halves and any others."""
    sizes = {
        f"EX_{side}_{name}": int(rng.integers(1, 8))
        for side in ("INPUT", "OUTPUT")
        for name in ("HEIGHT", "WIDTH")
    }
    channels = int(rng.choice([0, 1, 2, 3, 9], p=[0.04, 0.3, 0.3, 0.26, 0.1]))
    registers = sizes | {"EX_INPUT_CHANNELS": channels, "EX_OUTPUT_CHANNELS": channels}
    registers |= {
        "EX_FIRST_ROW": int(rng.integers(0, 4)),
        "EX_FIRST_INPUT_ROW": int(rng.integers(0, 5)),
    }
    for side in ("INPUT", "OUTPUT"):
        dense = sizes[f"EX_{side}_HEIGHT"] * sizes[f"EX_{side}_WIDTH"]
        registers[f"EX_{side}_PLANE"] = int(rng.choice([0, dense, dense + 5]))
    words = settings(rng, fixed)
    if fixed and rng.random() < 0.3:  # one quantisation
        words |= {
            "EX_SCALE_A": 1 << 30,
            "EX_SHIFT_A": 1,
            "EX_OUTPUT_ZERO_POINT": words["EX_INPUT_ZERO_POINT"],
        }
    probe = command_of("OP_RESIZE", {}, registers)
    registers |= {name: words[name] for name in probe.registers if name in words}
    arch = machine(rng, "fixed" if fixed else "onnxruntime")
    case = placed(
        rng,
        Case(arch, command_of("OP_RESIZE", {}, registers), memory(rng), int(rng.integers(1, 4))),
    )
    count = sizes["EX_OUTPUT_WIDTH"] + registers["EX_FIRST_ROW"] + sizes["EX_OUTPUT_HEIGHT"]
    table = (rng.integers(-8, 40, count) / rng.choice([1, 2, 4, 7])).astype(np.float32)
    start = case.command.registers["EX_OPERAND_ADDRESS"]
    case.memory[start : start + COORDINATE_BYTES * count] = table.view(np.uint8)
    return case


@pytest.mark.parametrize(("numerics", "pipelined"), choose_cases(BUILDS, 3))
def test_random_planes(numerics: Numerics, pipelined: bool) -> None:
    rng = np.random.default_rng(53)
    bench = EngineBench(Resize, limits(numerics, pipelined=pipelined))
    cases = [random_case(rng, numerics == "fixed") for _ in range(COMMANDS)]
    for case, outcome in zip(cases, bench.run(cases), strict=True):
        check(case, outcome)
