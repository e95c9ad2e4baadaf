"""The engine of convolutions and matrix products equals semantics, cycles and operands.

Machines are small and random.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from dla_sim.rtl.ex.mac.results import Mac
from dla_sim.rtl.ex.mac.work import CONVOLUTIONS, MNEMONICS
from dla_sim.rtl.parameters import Limits
from isa.arch import Arch, PeArray
from isa.instruction import Command
from isa.numerics import quantise_multiplier
from isa.ops.requant import ChannelScales, pack_records
from isa.ops.windows import output_count
from tests.dla_sim.rtl.engine_bench import Case, EngineBench, check
from tests.dla_sim.rtl.random_commands import BYTES, command_of, places
from tests.rotation import choose_cases

pytestmark = pytest.mark.slow
COMMANDS = 200
BUILDS = (
    (PeArray(ic=4, oc=2, ow=1), "onnxruntime", True),
    (PeArray(ic=2, oc=3, ow=2), "fixed", False),
)
"""Largest machines: blocks of several lanes along ic; several along oc, and columns."""


def random_fields(rng: np.random.Generator, mnemonic: str) -> dict[str, int]:
    """Every field that it has; results that are looked up are int8."""
    fields = {
        name: int(rng.integers(2)) for name in ("requantise", "relu", "accumulate", "transposed")
    }
    fields |= {"mapping": int(rng.integers(4)), "look_up": int(rng.choice([0, 0, 0, 1, 2]))}
    fields["requantise"] |= fields["look_up"] > 0
    known = {item.name for item in command_of(mnemonic, {}, {}).instruction.fields}
    return {name: value for name, value in fields.items() if name in known}


def random_registers(rng: np.random.Generator, mnemonic: str) -> dict[str, int]:
    """Shapes and constants, without addresses."""

    def few(most: int) -> int:
        return int(rng.integers(1, most + 1))

    low, high = sorted(int(one) for one in rng.integers(-128, 128, 2))
    registers = {
        "EX_OUTPUT_ZERO_POINT": int(rng.integers(-128, high + 1)),
        "EX_CLAMP_LOW": low,
        "EX_CLAMP_HIGH": high,
    }
    registers["EX_INPUT_ZERO_POINT"] = int(rng.integers(-128, 128))
    inputs = few(12)
    outputs = few(12)
    if mnemonic not in CONVOLUTIONS:
        shape = {"EX_ROWS": few(9), "EX_INPUT_CHANNELS": inputs, "EX_OUTPUT_CHANNELS": outputs}
        return registers | shape | {"EX_OPERAND_ZERO_POINT": int(rng.integers(-128, 128))}
    groups = few(8)
    if mnemonic == "OP_GROUP_CONV":
        inputs = groups * few(4)
        outputs = groups * few(4)
    elif mnemonic == "OP_DEPTH_CONV":
        outputs = inputs * int(rng.choice([1, 1, 2, 3]))
    height = few(7)
    width = few(7)
    plane = height * width
    registers |= {
        "EX_INPUT_CHANNELS": inputs, "EX_OUTPUT_CHANNELS": outputs, "EX_GROUPS": groups,
        "EX_INPUT_HEIGHT": height, "EX_INPUT_WIDTH": width,
        "EX_INPUT_PLANE": int(rng.choice([0, plane + 5])),
        "EX_OUTPUT_HEIGHT": few(4), "EX_OUTPUT_WIDTH": few(9),
        "EX_KERNEL_HEIGHT": few(3), "EX_KERNEL_WIDTH": few(3), "EX_STRIDE_HEIGHT": few(2),
        "EX_STRIDE_WIDTH": few(2),
        "EX_DILATION_HEIGHT": few(2), "EX_DILATION_WIDTH": few(2),
        "EX_PAD_TOP": int(rng.integers(3)), "EX_PAD_LEFT": int(rng.integers(3)),
    }  # fmt: skip
    results = 4 * registers["EX_OUTPUT_HEIGHT"] * registers["EX_OUTPUT_WIDTH"]
    return registers | {"EX_OUTPUT_PLANE": int(rng.choice([0, results + 4]))}


def random_case(rng: np.random.Generator, largest: PeArray, numerics: str, mnemonic: str) -> Case:
    """Draw a command whose operands are apart, in any order.

    Int32 results may replace the sums they begin with.
    """
    size = {name: int(rng.integers(1, getattr(largest, name) + 1)) for name in ("ic", "oc", "ow")}
    lanes = int(rng.integers(1, largest.count + 1))
    arch = Arch(
        isa="v4",
        pe=PeArray(**size),
        sram_bytes=BYTES,
        sram_banks=4,
        numerics=numerics,
        post_lanes=lanes,
    )
    placed = None
    while placed is None:
        fields = random_fields(rng, mnemonic)
        registers = random_registers(rng, mnemonic)
        known = {
            name: value
            for name, value in registers.items()
            if name in command_of(mnemonic, {}, {}).registers
        }
        scale = float(rng.choice([rng.uniform(1e-4, 0.05), rng.uniform(0.5, 3)]))
        if mnemonic == "OP_DYN_MAT_MUL":
            multiplier, shift = quantise_multiplier(scale)
            bits = int(np.float32(scale).view(np.int32))
            known |= (
                {"EX_SCALE_A": multiplier, "EX_SHIFT_A": shift}
                if numerics == "fixed"
                else {"EX_SCALE_A": bits}
            )
        placed = place(rng, command_of(mnemonic, fields, known), arch)
    return Case(arch, placed, contents(rng, placed, arch), int(rng.choice([1, 1, 2, 3])))


def place(rng: np.random.Generator, command: Command, arch: Arch) -> Command | None:
    """The command with addresses, or None where its operands do not fit into the scratchpad."""
    names = [name for name in command.registers if name.endswith("ADDRESS")]
    apart = {name: number << 24 for number, name in enumerate(names, 1)}
    operands = command.instruction.operands(moved(command, apart), arch)
    ends = {
        names[(one.address >> 24) - 1]: one.end & (1 << 24) - 1
        for one in (*operands.reads, *operands.writes)
    }
    if sum(ends.values()) > BYTES:
        return None
    addresses = places(rng, ends)
    dense = ends.get("EX_PARTIAL_ADDRESS") == ends["EX_OUTPUT_ADDRESS"]
    if dense and not command.fields["requantise"] and rng.random() < 0.5:
        addresses["EX_OUTPUT_ADDRESS"] = addresses["EX_PARTIAL_ADDRESS"]
    return moved(command, addresses)


def moved(command: Command, addresses: Mapping[str, int]) -> Command:
    """The command with other addresses."""
    return command_of(
        command.instruction.mnemonic, command.fields, {**command.registers, **addresses}
    )


def contents(rng: np.random.Generator, command: Command, arch: Arch) -> NDArray[np.uint8]:
    """Any bytes.

    Records that fit the size of sums, and now and then make one leave int32; sums to begin with.
    """
    memory = rng.integers(0, 256, BYTES, dtype=np.uint8)
    if command.fields.get("accumulate"):
        at = command["EX_PARTIAL_ADDRESS"]
        count = 4 * output_elements(command)
        sums = rng.integers(-(1 << 20), 1 << 20, count // 4, dtype=np.int32)
        memory[at : at + count] = sums.view(np.uint8)
    if "EX_CHANNEL_ADDRESS" in command.registers:
        channels = command["EX_OUTPUT_CHANNELS"]
        bias = rng.integers(-(1 << 14), 1 << 14, channels, dtype=np.int32)
        if rng.random() < 0.05:
            bias[rng.integers(channels)] += int(rng.choice([-1, 1])) * ((1 << 31) - (1 << 15))
        scale = rng.choice(
            [rng.uniform(1e-4, 0.05, channels), rng.uniform(0.3, 2, channels)]
        ).astype(np.float32)
        scales = ChannelScales(scale, scale.astype(np.float64), once=bool(rng.random() < 0.3))
        raw = pack_records(bias, scales, arch)
        at = command["EX_CHANNEL_ADDRESS"]
        memory[at : at + len(raw)] = np.frombuffer(raw, np.uint8)
    return memory


def output_elements(command: Command) -> int:
    """Results."""
    if command.instruction.mnemonic in CONVOLUTIONS:
        return output_count(command)
    return command["EX_ROWS"] * command["EX_OUTPUT_CHANNELS"]


@pytest.mark.parametrize(("array", "numerics", "pipelined"), choose_cases(BUILDS, 2))
def test_random_commands(
    array: PeArray, numerics: Literal["onnxruntime", "fixed"], pipelined: bool
) -> None:
    rng = np.random.default_rng(70)
    limits = Limits(
        array.ic, array.oc, array.ow, array.count, BYTES, 8, 4, 64, 2, numerics, pipelined
    )
    bench = EngineBench(Mac, limits)
    cases = [
        random_case(rng, array, numerics, mnemonic)
        for mnemonic in MNEMONICS
        for _ in range(COMMANDS)
    ]
    for case, outcome in zip(cases, bench.run(cases), strict=True):
        check(case, outcome)
