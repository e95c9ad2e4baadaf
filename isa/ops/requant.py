"""``OP_REQUANT``: int32 accumulators to int8 with one channel record a channel; may work in place."""

from __future__ import annotations

import numpy as np

from isa.access import strided
from isa.arch import Arch
from isa.instruction import Command, Instruction, Machine, Operands, Unit, ceil_div, view
from isa.ops.channels import load_records, requantise_channels


def shape(command: Command) -> tuple[int, int, int]:
    """(outer, channels, elements a channel): (1, C, H·W) for planes, (M, N, 1) for a matrix."""
    return command["EX_ROWS"], command["EX_OUTPUT_CHANNELS"], command["EX_LENGTH"]


def _elements(command: Command) -> int:
    outer, channels, inner = shape(command)
    return outer * channels * inner


def _operands(command: Command, arch: Arch) -> Operands:
    elements = _elements(command)
    reads = (
        strided("sram", command["EX_INPUT_ADDRESS"], 4 * elements),
        strided("sram", command["EX_CHANNEL_ADDRESS"], command["EX_OUTPUT_CHANNELS"] * arch.channel_record_bytes),
    )
    return Operands(reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], elements),))


def _requant(command: Command, machine: Machine) -> None:
    """y = clip(rint(float32(x) · scale[channel]) + EX_OUTPUT_ZERO_POINT), or by multiplier and shift (numerics fixed).

    x is int32 (rows, OC, length), y int8 of the same shape, clamped to EX_CLAMP_LOW and EX_CLAMP_HIGH.
    """
    dimensions = shape(command)
    accumulator = view(machine.sram, command["EX_INPUT_ADDRESS"], dimensions, np.int32)
    records = load_records(machine, command["EX_CHANNEL_ADDRESS"], dimensions[1])
    low = command["EX_CLAMP_LOW"]
    result = requantise_channels(accumulator, records, 1, command, machine, low)
    view(machine.sram, command["EX_OUTPUT_ADDRESS"], dimensions, np.int8)[...] = result


def _cycles(command: Command, arch: Arch) -> int:
    """⌈rows·OC·length / post_lanes⌉."""
    return ceil_div(_elements(command), arch.lanes)


OP_REQUANT = Instruction(
    mnemonic="OP_REQUANT", opcode=0x23, unit=Unit.EX, kind="REQUANT",
    description="Scales, rounds, offsets and clamps int32 to int8; the bias of the channel record is not used.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_CHANNEL_ADDRESS", "EX_OUTPUT_ADDRESS",
        "EX_ROWS", "EX_OUTPUT_CHANNELS", "EX_LENGTH",
        "EX_OUTPUT_ZERO_POINT", "EX_CLAMP_LOW", "EX_CLAMP_HIGH",
    ),
    operands=_operands, semantics=_requant,
    cycles=_cycles,
    inputs="int32", outputs="int8",
)  # fmt: skip
INSTRUCTIONS = (OP_REQUANT,)
