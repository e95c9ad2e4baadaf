"""The engine of rows against ``isa.ops``: bytes, steps and streams of random commands."""

from __future__ import annotations

import random
from functools import cache
from itertools import product
from typing import Literal

import numpy as np
import pytest

from dla_sim.rtl.ex.rows.rows import Rows
from dla_sim.rtl.parameters import Limits
from isa.arch import Arch, PeArray
from isa.instruction import Command, Unit
from isa.numerics import (
    float32_bits,
    softmax_factor,
    softmax_factor_fixed,
    softmax_table,
    softmax_table_fixed,
)
from isa.variants import VARIANTS
from tests.dla_sim.rtl.engine_bench import Case, EngineBench, check
from tests.rotation import choose_cases

Numerics = Literal["onnxruntime", "fixed"]
SRAM = 8192
LANES = 5
TABLE = 2048
OUTPUT = 4096


@cache
def bench(numerics: Numerics, pipelined: bool) -> EngineBench:
    """One for all tests."""
    return EngineBench(Rows, Limits(2, 4, 1, LANES, SRAM, 8, 2, 512, 4, numerics, pipelined))


def command(mnemonic: str, fields: dict[str, int], registers: dict[str, int]) -> Command:
    """A command with the other registers at their reset values."""
    variant = VARIANTS["v4"]
    instruction, _ = variant.by_mnemonic[mnemonic]
    values = {name: variant.register_file.reset[name] for name in instruction.registers}
    values |= {f"EX_{name}": value for name, value in registers.items()}
    return Command(0, instruction, Unit.EX, False, False, False, False, fields, values)


def random_case(
    random_: random.Random, mnemonic: str, numerics: Numerics, memory: np.ndarray
) -> Case:
    """Draw a command on small rows, dense or in planes, with a few lanes."""
    outer, count, inner = (
        random_.choice([1, 2, random_.randrange(1, high)]) for high in (6, 14, 5)
    )
    if mnemonic != "OP_SOFTMAX" and random_.random() < 0.1:
        outer, inner = random_.choice([(0, inner), (outer, 0)])
    registers = {
        "INPUT_ADDRESS": random_.randrange(64), "OUTPUT_ADDRESS": OUTPUT + random_.randrange(64),
        "ROWS": outer, "INPUT_CHANNELS": count, "LENGTH": inner,
        "OUTPUT_ZERO_POINT": random_.randrange(-128, 128), "OPERAND_ADDRESS": TABLE,
    }  # fmt: skip
    arch = Arch(
        isa="v4",
        pe=PeArray(ic=2, oc=4),
        sram_bytes=SRAM,
        numerics=numerics,
        post_lanes=random_.randrange(1, LANES + 1),
    )
    memory = memory.copy()
    fields = {}
    if mnemonic == "OP_REDUCE":
        fields = {"mode": random_.randrange(3)}
        registers |= _reduce(random_, numerics, inner)
    elif mnemonic == "OP_SOFTMAX":
        registers |= _planes(random_, inner)
        scale = random_.choice([0.01, 0.1, 0.7])
        result = random_.choice([1 / 256, 1 / 128, 0.01])
        if numerics == "fixed":
            table = softmax_table_fixed(scale).astype("<u4")
            registers["SCALE_Y"] = softmax_factor_fixed(result)
        else:
            table = softmax_table(scale, max(200, count))
            registers["SCALE_Y"] = float32_bits(softmax_factor(result))
        memory[TABLE : TABLE + 1024] = table.view(np.uint8)
    else:
        fields = {"centred": random_.randrange(2), "by_row": random_.randrange(2)}
        pairs = [[random_.uniform(-40, 40), random_.uniform(-90, 90)] for _ in range(200)]
        if numerics == "fixed":
            table = np.array([[gain * 2**15, bias * 2**16] for gain, bias in pairs]).astype("<i4")
            registers["SCALE_A"] = random_.randrange(1, 1000)
        else:
            table = np.array(pairs, "<f4")
            registers["SCALE_A"] = float32_bits(random_.uniform(1e-3, 1000))
        memory[TABLE : TABLE + table.nbytes] = table.reshape(-1).view(np.uint8)
        registers["INPUT_ZERO_POINT"] = random_.randrange(-128, 128)
    return Case(arch, command(mnemonic, fields, registers), memory, random_.choice([1, 1, 2, 3]))


def _planes(random_: random.Random, inner: int) -> dict[str, int]:
    gaps = (random_.choice([0, inner, inner + 3]) for _ in range(2))
    return dict(zip(("INPUT_PLANE", "OUTPUT_PLANE"), gaps, strict=True))


def _reduce(random_: random.Random, numerics: Numerics, inner: int) -> dict[str, int]:
    low = random_.choice([-128, -128, -20])
    found = {
        "INPUT_ZERO_POINT": random_.randrange(-128, 128), "CLAMP_LOW": low,
        "CLAMP_HIGH": random_.randrange(low, 128),
        "SHIFT_A": random_.randrange(-12, 2),
    }  # fmt: skip
    scales = [random_.uniform(0.001, 2) for _ in range(2)]
    found |= {
        name: float32_bits(scale)
        for name, scale in zip(("SCALE_A", "SCALE_Y"), scales, strict=True)
    }
    if numerics == "fixed":
        found["SCALE_A"] = random_.randrange(1 << 30, 1 << 31)
    return found | _planes(random_, inner)


@pytest.mark.parametrize(
    ("pipelined", "numerics"), choose_cases([*product([True, False], ["onnxruntime", "fixed"])], 4)
)
@pytest.mark.parametrize("mnemonic", Rows.mnemonics)
def test_random_commands(pipelined: bool, numerics: Numerics, mnemonic: str) -> None:
    random_ = random.Random(f"{pipelined} {numerics} {mnemonic}")
    memory = np.frombuffer(np.random.default_rng(16).bytes(SRAM), np.uint8)
    cases = [random_case(random_, mnemonic, numerics, memory) for _ in range(60)]
    for case, outcome in zip(cases, bench(numerics, pipelined).run(cases), strict=True):
        check(case, outcome)
