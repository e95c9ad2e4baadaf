"""``OP_LUT``: any function of one int8 value, by tables of 256 bytes in the scratchpad; it may work in place."""

from __future__ import annotations

import numpy as np

from isa.access import strided
from isa.arch import Arch
from isa.instruction import INT8, Command, Instruction, Machine, Operands, Unit, ceil_div, formula, view

TABLE_BYTES = 256
"""Bytes of one table: the result of every int8 value, in the order of their bytes: 0 to 127, then -128 to -1."""


def shape(command: Command) -> tuple[int, int, int]:
    """(outer, tables, elements a table): (1, 1, n) of one table, (1, C, H·W) for planes, (M, N, 1) for a matrix."""
    return command["EX_ROWS"], command["EX_OUTPUT_CHANNELS"], command["EX_LENGTH"]


def elements(command: Command) -> int:
    """Elements of the operand, and of the result."""
    outer, channels, inner = shape(command)
    return outer * channels * inner


def _operands(command: Command, arch: Arch) -> Operands:
    count = elements(command)
    reads = (
        strided("sram", command["EX_INPUT_ADDRESS"], count),
        strided("sram", command["EX_OPERAND_ADDRESS"], TABLE_BYTES * command["EX_OUTPUT_CHANNELS"]),
    )
    return Operands(reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], count),))


@formula(
    """
    y = table[channel][x mod 256]: entry 0 is the result of 0, entry 127 of 127, entry 128 of -128, entry 255 of -1.

    x and y are int8 (rows, OC, length), the tables int8 (OC, 256): with OC = 1 one table serves all elements. No
    scale, no zero point, no limits, and the same with either numerics.
    """
)
def _look_up(command: Command, machine: Machine) -> None:
    dimensions = shape(command)
    tables = view(machine.sram, command["EX_OPERAND_ADDRESS"], (dimensions[1], TABLE_BYTES), np.int8)
    entry = view(machine.sram, command["EX_INPUT_ADDRESS"], dimensions, np.uint8).astype(np.int64)
    channel = np.arange(dimensions[1])[:, np.newaxis]
    view(machine.sram, command["EX_OUTPUT_ADDRESS"], dimensions, np.int8)[...] = tables[channel, entry]


@formula("⌈rows·OC·length / post_lanes⌉.")
def _cycles(command: Command, arch: Arch) -> int:
    return ceil_div(elements(command), arch.lanes)


OP_LUT = Instruction(
    mnemonic="OP_LUT", opcode=0x3A, unit=Unit.EX, kind="ACT",
    description="Any function of an int8 value: looks it up in a table of 256 bytes, one for all or one a channel.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS",
        "EX_ROWS", "EX_OUTPUT_CHANNELS", "EX_LENGTH",
    ),
    operands=_operands, semantics=_look_up, cycles=_cycles, inputs=(INT8, INT8), outputs=(INT8,),
)  # fmt: skip
INSTRUCTIONS = (OP_LUT,)
