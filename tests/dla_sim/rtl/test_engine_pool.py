"""The engine of ``OP_POOL`` against its semantics, cycles and operands."""

from __future__ import annotations

import numpy as np
import pytest

from dla_sim.rtl.ex.pooling import Pool
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE
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
COMMANDS = 200


def random_case(rng: np.random.Generator, fixed: bool) -> Case:
    """Any window on any plane, padding on all sides; of the whole plane where that is averaged."""
    arch = machine(rng, "fixed" if fixed else "onnxruntime")
    size = {name: int(rng.integers(1, 8)) for name in ("HEIGHT", "WIDTH")}
    channels = int(rng.choice([1, 2, 3, 9, 17]))
    fields = {
        name: int(rng.integers(0, most))
        for name, most in (("mode", 3), ("count_include_pad", 2), ("look_up", 3))
    }
    registers = {"EX_INPUT_CHANNELS": channels, "EX_OUTPUT_CHANNELS": channels}
    pads = {"HEIGHT": "TOP", "WIDTH": "LEFT"}
    for name, length in size.items():
        registers[f"EX_INPUT_{name}"] = length
        if fields["mode"] == GLOBAL_AVERAGE:
            registers |= {f"EX_OUTPUT_{name}": 1, f"EX_KERNEL_{name}": length}
            continue
        kernel, stride, dilation = (int(rng.choice([1, 1, 2, 3])) for _ in range(3))
        if fields["mode"] == AVERAGE and not fields["count_include_pad"]:
            dilation = 1  # so that every window has a tap in the plane
        pad = int(rng.integers(0, (kernel - 1) * dilation + 1))
        reach = length + 2 * pad - (kernel - 1) * dilation
        registers |= {
            f"EX_OUTPUT_{name}": max(1, (reach - 1) // stride + 1),
            f"EX_PAD_{pads[name]}": pad,
        }
        registers |= {
            f"EX_KERNEL_{name}": kernel,
            f"EX_STRIDE_{name}": stride,
            f"EX_DILATION_{name}": dilation,
        }
    for side in ("INPUT", "OUTPUT"):
        dense = registers[f"EX_{side}_HEIGHT"] * registers[f"EX_{side}_WIDTH"]
        registers[f"EX_{side}_PLANE"] = int(rng.choice([0, dense, dense + 5]))
    if channels * max(size["HEIGHT"] * size["WIDTH"], 64) > 600:
        fields["look_up"] = min(fields["look_up"], 1)
    if fields["look_up"] == 2 and channels > 3:
        registers |= {"EX_INPUT_CHANNELS": 3, "EX_OUTPUT_CHANNELS": 3}
    words = settings(rng, fixed)
    if fixed and rng.random() < 0.3:  # one quantisation
        words |= {
            "EX_SCALE_A": 1 << 30,
            "EX_SHIFT_A": 1,
            "EX_OUTPUT_ZERO_POINT": words["EX_INPUT_ZERO_POINT"],
        }
    probe = command_of("OP_POOL", fields, registers)
    registers |= {name: words[name] for name in probe.registers if name in words}
    return placed(
        rng,
        Case(arch, command_of("OP_POOL", fields, registers), memory(rng), int(rng.integers(1, 4))),
    )


@pytest.mark.parametrize(("numerics", "pipelined"), choose_cases(BUILDS, 3))
def test_random_windows(numerics: Numerics, pipelined: bool) -> None:
    rng = np.random.default_rng(52)
    bench = EngineBench(Pool, limits(numerics, pipelined=pipelined))
    cases = [random_case(rng, numerics == "fixed") for _ in range(COMMANDS)]
    for case, outcome in zip(cases, bench.run(cases), strict=True):
        check(case, outcome)
