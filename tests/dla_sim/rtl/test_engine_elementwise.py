"""The engine of element-wise instructions against their semantics, cycles and operands."""

from __future__ import annotations

import numpy as np
import pytest

from dla_sim.rtl.ex.elementwise import Elementwise
from tests.dla_sim.rtl.engine_bench import Case, EngineBench, check
from tests.dla_sim.rtl.random_commands import (
    BUILDS,
    Numerics,
    command_of,
    instruction_of,
    limits,
    machine,
    memory,
    placed,
    settings,
)
from tests.rotation import choose_cases

pytestmark = pytest.mark.slow
COMMANDS = 40
"""Of each instruction."""


def random_case(rng: np.random.Generator, mnemonic: str, fixed: bool) -> Case:
    """Any shape, operands apart from one another; now and then in place."""
    instruction = instruction_of(mnemonic)
    arch = machine(rng, "fixed" if fixed else "onnxruntime")
    content = memory(rng)
    fields = {item.name: int(rng.integers(0, item.highest + 1)) for item in instruction.fields}
    shape = {
        "EX_ROWS": int(rng.choice([1, 1, 2, 5])),
        "EX_OUTPUT_CHANNELS": int(rng.choice([0, 1, 2, 3, 7], p=[0.03, 0.27, 0.3, 0.2, 0.2])),
        "EX_LENGTH": int(rng.choice([0, 1, 2, 5, 12, 30], p=[0.03, 0.3, 0.2, 0.2, 0.17, 0.1])),
    }
    if "EX_OUTPUT_CHANNELS" not in instruction.registers:
        shape["EX_LENGTH"] *= 9
    words = settings(rng, fixed) | shape
    if mnemonic == "OP_E32_SHIFT":
        words["EX_SHIFT_A"] = int(rng.integers(0, 32 if fields["direction"] else 4))
        content = (memory(rng).view("<i4") >> int(rng.integers(0, 9))).view(np.uint8)
    if mnemonic == "OP_E32_ADD":
        content = (memory(rng).view("<i4") >> (rng.random() < 0.8)).view(np.uint8)
    registers = {name: words[name] for name in instruction.registers if name in words}
    case = Case(arch, command_of(mnemonic, fields, registers), content, int(rng.integers(1, 4)))
    return placed(rng, case, in_place=rng.random() < 0.25 and not fields.get("repeat_a"))


@pytest.mark.parametrize(("numerics", "pipelined"), choose_cases(BUILDS, 3))
def test_random_commands(numerics: Numerics, pipelined: bool) -> None:
    rng = np.random.default_rng(51)
    bench = EngineBench(Elementwise, limits(numerics, pipelined=pipelined))
    cases = [
        random_case(rng, name, numerics == "fixed")
        for name in Elementwise.mnemonics
        for _ in range(COMMANDS)
    ]
    for case, outcome in zip(cases, bench.run(cases), strict=True):
        check(case, outcome)
