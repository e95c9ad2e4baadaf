"""A plug-in of one file with ``OP_E_MEAN``, the mean of two tensors.

The project has no such instruction.
"""

from __future__ import annotations

import numpy as np

from isa import numerics
from isa.access import strided
from isa.arch import Arch
from isa.instruction import (
    INT8,
    Command,
    Instruction,
    Machine,
    Operands,
    Unit,
    ceil_div,
    formula,
    view,
)
from isa.plugins import Extension
from isa.registers import float_value
from isa.variants import VARIANTS, extend


def _operands(command: Command, arch: Arch) -> Operands:
    length = command["EX_LENGTH"]
    reads = tuple(
        strided("sram", command[name], length)
        for name in ("EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS")
    )
    return Operands(reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], length),))


@formula(
    """
    y = clip(rint(((a - INPUT_ZERO_POINT) · SCALE_A + (b - OPERAND_ZERO_POINT) · SCALE_B) / 2 /
    SCALE_Y) + zero).

    Every step in float32, zero = OUTPUT_ZERO_POINT: a mean between DequantizeLinear and
    QuantizeLinear.
    """
)
def _average(command: Command, machine: Machine) -> None:
    scale = {name: np.float32(float_value(command[f"EX_SCALE_{name}"])) for name in "ABY"}
    values = []
    for address, zero, name in (("EX_INPUT", "EX_INPUT", "A"), ("EX_OPERAND", "EX_OPERAND", "B")):
        stored = view(
            machine.sram, command[f"{address}_ADDRESS"], (command["EX_LENGTH"],), np.int8
        ).astype(np.int64)
        values.append((stored - command[f"{zero}_ZERO_POINT"]).astype(np.float32) * scale[name])
    mean = (values[0] + values[1]) / np.float32(2)
    rounded = np.rint(mean / scale["Y"]).astype(np.int64) + command["EX_OUTPUT_ZERO_POINT"]
    result = numerics.saturate_int8(rounded, command["EX_CLAMP_LOW"], command["EX_CLAMP_HIGH"])
    view(machine.sram, command["EX_OUTPUT_ADDRESS"], result.shape, np.int8)[...] = result


@formula("⌈length / post_lanes⌉.")
def _cycles(command: Command, arch: Arch) -> int:
    return ceil_div(command["EX_LENGTH"], arch.lanes)


OP_E_MEAN = Instruction(
    mnemonic="OP_E_MEAN", opcode=0x80, unit=Unit.EX, kind="ELTWISE",
    description="Subtracts the second tensor from the first, each with a scale and a zero point of "
                "its own.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS", "EX_LENGTH",
        "EX_SCALE_A", "EX_SCALE_B", "EX_SCALE_Y",
        "EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT", "EX_CLAMP_LOW",
        "EX_CLAMP_HIGH",
    ),
    operands=_operands, semantics=_average, cycles=_cycles, inputs=(INT8, INT8), outputs=(INT8,),
)  # fmt: skip
EXTENSION = Extension(variants=(extend(VARIANTS["v2"], "v2-mean", "v2 and OP_E_MEAN", OP_E_MEAN),))
