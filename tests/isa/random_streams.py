"""Random command streams on small memories: some right, most wrong in several ways.

:func:`random_stream` is seeded.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np

from isa.arch import Arch
from isa.encoding import encode_operation, encode_set
from isa.instruction import NEXT, PREVIOUS, Unit
from isa.ops import ALL
from isa.program import Program, Segment, Tensor
from isa.registers import RESET

SRAM = 192
DRAM = 2048
COMMANDS = 512
FLAGS = ("pop_previous", "pop_next", "push_previous", "push_next")


def random_stream(seed: int) -> Program:
    """Return the program of a seed: up to 14 operations with their SETs.

    The input is at 0, constants are at 128 and the output is at 256.
    """
    rng = random.Random(seed)
    registers = dict(RESET)
    words: list[int] = []
    wild = rng.choice((0.0, 0.0, 0.1, 0.3))
    tokens: Counter[tuple[Unit, Unit]] = Counter()
    for _ in range(rng.randint(0, 14)):
        mnemonic = rng.choice(
            (
                "OP_DMA_READ",
                "OP_DMA_READ",
                "OP_DMA_WRITE",
                "OP_POOL",
                "OP_ACT_RELU",
                "OP_CONV",
                "OP_SYNC",
            )
        )
        values: dict[str, int] = {}
        unit = ALL[mnemonic].unit
        if unit is None:
            unit = rng.choice(list(Unit))
            values["unit"] = unit.value
        for name, value in _settings(rng, mnemonic).items():
            if registers[name] != value or rng.random() < 0.2:
                words.append(encode_set(name, value))
            registers[name] = value
        if mnemonic == "OP_CONV":
            values["requantise"] = rng.randint(0, 1)
        words.append(encode_operation(ALL[mnemonic], values | _flags(rng, unit, tokens, wild)))
    words.append(encode_operation(ALL["OP_END"], {}))
    return Program(
        name="random",
        arch=Arch(isa="v2", sram_bytes=SRAM, sram_banks=1, alignment=rng.choice((1, 2, 8))),
        words=np.array(words, dtype=np.uint64),
        tensors=(
            Tensor("x", "input", "int8", (96,), 0),
            Tensor("y", "output", "int8", (rng.choice((0, 8, 64)),), 256),
        ),
        segments=(Segment(128, np.zeros(64, np.uint8)),),
        provenance=(),
        dram_bytes=DRAM,
        command_address=COMMANDS,
    )


def _flags(
    rng: random.Random, unit: Unit, tokens: Counter[tuple[Unit, Unit]], wild: float
) -> dict[str, int]:
    """Token flags that fit, but for a share ``wild`` of them."""
    flags: dict[str, int] = {}
    for flag in FLAGS:
        other = (PREVIOUS if flag.endswith("previous") else NEXT).get(unit)
        if other is None:
            continue
        queue = (other, unit) if flag.startswith("pop") else (unit, other)
        if flag.startswith("pop"):
            wanted = tokens[queue] > 0 if rng.random() >= wild else rng.random() < 0.5
            tokens[queue] -= wanted
        else:
            wanted = rng.random() < 0.5
            tokens[queue] += wanted
        flags[flag] = int(wanted)
    return flags


def _settings(rng: random.Random, mnemonic: str) -> dict[str, int]:
    if mnemonic in ("OP_DMA_READ", "OP_DMA_WRITE"):
        return _dma_settings(rng, "LD" if mnemonic == "OP_DMA_READ" else "ST")
    if mnemonic == "OP_ACT_RELU":
        return {"EX_LENGTH": rng.choice((0, 1, 16, 48)), **_addresses(rng, "INPUT", "OUTPUT")}
    if mnemonic not in ("OP_POOL", "OP_CONV"):
        return {}
    names = (
        "INPUT_CHANNELS",
        "INPUT_HEIGHT",
        "INPUT_WIDTH",
        "OUTPUT_CHANNELS",
        "OUTPUT_HEIGHT",
        "OUTPUT_WIDTH",
    )
    sizes = {f"EX_{name}": rng.choice((1, 2, 3, 4)) for name in names}
    if mnemonic == "OP_POOL":
        sizes["EX_OUTPUT_CHANNELS"] = sizes["EX_INPUT_CHANNELS"]
    planes = {f"EX_{name}_PLANE": rng.choice((0, 0, 16, 24, 30)) for name in ("INPUT", "OUTPUT")}
    return {**sizes, **planes, **_addresses(rng, "INPUT", "OUTPUT", "OPERAND", "CHANNEL")}


def _addresses(rng: random.Random, *names: str) -> dict[str, int]:
    return {
        f"EX_{name}_ADDRESS": rng.choice((0, 8, 32, 64, 66, 96, rng.randrange(SRAM)))
        for name in names
    }


def _dma_settings(rng: random.Random, unit: str) -> dict[str, int]:
    counts = [rng.choice((1, 1, 2, 3)) for _ in range(3)]
    if rng.random() < 0.05:
        counts[rng.randrange(3)] = 0
    place = rng.choice((0, 32, 64)) if unit == "LD" else rng.choice((256, 256, 288, 900))
    if rng.random() < 0.1:
        place = rng.choice((120, 500, 2000))
    values = {"BYTES": rng.choice((0, 1, 4, 16, 24)), "DRAM_ADDRESS": place}
    values["SRAM_ADDRESS"] = rng.choice((0, 8, 32, 64, 96, rng.randrange(SRAM)))
    for dimension, count in enumerate(counts, start=1):
        values[f"COUNT_{dimension}"] = count
        values[f"DRAM_STRIDE_{dimension}"] = rng.choice((0, 4, 16, 24, 40))
        values[f"SRAM_STRIDE_{dimension}"] = rng.choice((0, 3, 4, 16, 24, 40))
    return {f"{unit}_{name}": value for name, value in values.items()}
