"""Helpers for tests of engines: random machines, random scratchpads, and commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dla_sim.rtl.parameters import Limits
from isa.arch import Arch, PeArray
from isa.instruction import Command, Instruction, Unit
from isa.numerics.requantising import float32_bits
from isa.plugins import variant
from tests.dla_sim.rtl.engine_bench import Case

Numerics = Literal["onnxruntime", "fixed"]
ISA = "v4"
BYTES = 1 << 12
"""Of the scratchpad."""
LARGEST = PeArray(ic=2, oc=2, ow=2)
LANES = 3
BUILDS: tuple[tuple[Numerics, bool], ...] = (
    ("onnxruntime", True),
    ("onnxruntime", False),
    ("fixed", True),
)
"""Numerics, and whether there are pipeline registers: fixed ones without them say nothing that
these do not.
"""


def limits(numerics: Numerics = "onnxruntime", *, pipelined: bool) -> Limits:
    """The sizes of all machines here."""
    array = LARGEST.ic, LARGEST.oc, LARGEST.ow
    return Limits(*array, LANES, BYTES, 8, 4, 64, 2, numerics, pipelined)


def machine(rng: np.random.Generator, numerics: str = "onnxruntime") -> Arch:
    """One that the limits LARGEST, LANES and BYTES cover."""
    array = PeArray(
        **{name: int(rng.integers(1, getattr(LARGEST, name) + 1)) for name in ("ic", "oc", "ow")}
    )
    banks = int(rng.choice([1, 2, 4, 16]))
    lanes = int(rng.integers(1, LANES + 1))
    return Arch(
        isa=ISA, pe=array, sram_bytes=BYTES, sram_banks=banks, alignment=1, numerics=numerics,
        post_lanes=lanes
    )  # fmt: skip


def memory(rng: np.random.Generator) -> NDArray[np.uint8]:
    """Any bytes."""
    return rng.integers(0, 256, BYTES, dtype=np.uint8)


def instruction_of(mnemonic: str) -> Instruction:
    """The declaration."""
    return variant(ISA).by_mnemonic[mnemonic][0]


def command_of(mnemonic: str, fields: Mapping[str, int], registers: Mapping[str, int]) -> Command:
    """The command; registers that are not given have their reset values, fields 0."""
    instruction = instruction_of(mnemonic)
    reset = variant(ISA).register_file.reset
    snapshot = {name: reset[name] for name in instruction.registers} | dict(registers)
    chosen = {item.name: 0 for item in instruction.fields} | dict(fields)
    return Command(0, instruction, Unit.EX, False, False, False, False, chosen, snapshot)


def scale(rng: np.random.Generator) -> int:
    """The bits of a float32 that quantisation may have."""
    return float32_bits(np.float32(2.0 ** rng.uniform(-9, 2)))


def settings(rng: np.random.Generator, fixed: bool) -> dict[str, int]:
    """Zero points, limits, offset, scales and shifts."""
    low, high = (
        sorted(int(rng.integers(-128, 128)) for _ in range(2))
        if rng.random() < 0.3
        else (-128, 127)
    )
    found = {"EX_CLAMP_LOW": low, "EX_CLAMP_HIGH": high, "EX_OFFSET": int(rng.choice([0, 128]))}
    for name in ("INPUT", "OPERAND", "OUTPUT"):
        found[f"EX_{name}_ZERO_POINT"] = int(rng.integers(-128, 256))
    for name in "ABY":
        found[f"EX_SCALE_{name}"] = int(rng.integers(1 << 30, 1 << 31)) if fixed else scale(rng)
        found[f"EX_SHIFT_{name}"] = int(rng.integers(-12, 3)) if fixed else 0
    return found


def records(rng: np.random.Generator, channels: int, fixed: bool) -> NDArray[np.uint8]:
    """Channel records; some of the fixed ones hold a float64 factor."""
    if not fixed:
        scales = [[int(rng.integers(1 << 32)), scale(rng)] for _ in range(channels)]
        return np.array(scales, np.uint32).reshape(-1).view(np.uint8)
    found = []
    for _ in range(channels):
        factor = np.array([2.0 ** rng.uniform(-18, -4)]).view(np.uint32).tolist()
        halves = [int(rng.integers(1 << 30, 1 << 31)), int(rng.integers(-20, 3)) & 0xFFFF_FFFF]
        found.append([int(rng.integers(1 << 32)), *(factor if rng.random() < 0.3 else halves)])
    return np.array(found, np.uint32).reshape(-1).view(np.uint8)


def places(rng: np.random.Generator, sizes: Mapping[str, int]) -> dict[str, int]:
    """An address a name, of so many bytes each, none of which meet. There is room for them."""
    names = list(sizes)
    room = BYTES - sum(sizes.values())
    rng.shuffle(names)
    gaps = np.sort(rng.integers(0, room + 1, len(names)))
    found = {}
    used = 0
    for name, gap in zip(names, gaps, strict=True):
        found[name] = int(gap) + used
        used += sizes[name]
    return found


def placed(rng: np.random.Generator, case: Case, *, in_place: bool = False) -> Case:
    """Return the case with addresses, and with channel records if the command reads any.

    The operands are apart or ``in_place``.
    """
    mnemonic = case.command.instruction.mnemonic
    registers = dict(case.command.registers)
    sizes = {}
    for name in (name for name in registers if name.endswith("ADDRESS")):
        alone = command_of(mnemonic, case.command.fields, registers | {name: 1 << 20})
        found = alone.instruction.operands(alone, case.arch)
        ends = [
            one.end - (1 << 20) for one in (*found.reads, *found.writes) if one.address >= 1 << 20
        ]
        sizes[name] = max(ends, default=0)
    where = places(rng, sizes)
    if "EX_CHANNEL_ADDRESS" in sizes:
        raw = records(rng, registers["EX_OUTPUT_CHANNELS"], case.arch.numerics == "fixed")
        case.memory[where["EX_CHANNEL_ADDRESS"] :][: raw.size] = raw
    if in_place:
        where["EX_OUTPUT_ADDRESS"] = where["EX_INPUT_ADDRESS"]
    return replace(case, command=command_of(mnemonic, case.command.fields, registers | where))
