"""int32 support instructions: ``OP_E32_ADD`` and ``OP_E32_SHIFT``. Overflow is an error, never a wrap-around."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.access import strided
from isa.arch import Arch
from isa.instruction import INT32, Command, Instruction, Machine, Operands, Unit, ceil_div, formula, view
from isa.registers import Field

_DIRECTIONS: tuple[Literal["left", "right"], ...] = ("left", "right")
_ROUNDINGS: tuple[Literal["floor", "nearest_even", "half_away"], ...] = ("floor", "nearest_even", "half_away")


def _words(command: Command, machine: Machine, register: str) -> NDArray[np.int32]:
    return view(machine.sram, command[register], (command["EX_LENGTH"],), np.int32)


def _access(command: Command, *registers: str) -> Operands:
    length = 4 * command["EX_LENGTH"]
    reads = tuple(strided("sram", command[register], length) for register in registers)
    return Operands(reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], length),))


def _add_operands(command: Command, arch: Arch) -> Operands:
    return _access(command, "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS")


def _shift_operands(command: Command, arch: Arch) -> Operands:
    return _access(command, "EX_INPUT_ADDRESS")


@formula("y = a + b.")
def _add(command: Command, machine: Machine) -> None:
    a, b = _words(command, machine, "EX_INPUT_ADDRESS"), _words(command, machine, "EX_OPERAND_ADDRESS")
    _words(command, machine, "EX_OUTPUT_ADDRESS")[...] = numerics.add_int32(a, b)


@formula("y = a · 2^s to the left, y = round(a / 2^s) to the right, s = EX_SHIFT_A.")
def _shift(command: Command, machine: Machine) -> None:
    a = _words(command, machine, "EX_INPUT_ADDRESS")
    rounding = _ROUNDINGS[command.fields["rounding"]]
    direction = _DIRECTIONS[command.fields["direction"]]
    result = numerics.shift_int32(a, command["EX_SHIFT_A"], direction, rounding)
    _words(command, machine, "EX_OUTPUT_ADDRESS")[...] = result


@formula("⌈length / post_lanes⌉.")
def _cycles(command: Command, arch: Arch) -> int:
    return ceil_div(command["EX_LENGTH"], arch.lanes)


OP_E32_ADD = Instruction(
    mnemonic="OP_E32_ADD", opcode=0x48, unit=Unit.EX, kind="ELTWISE",
    description="Adds two int32 tensors; a sum outside int32 stops the machine with an error.",
    registers=("EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS", "EX_LENGTH"),
    operands=_add_operands, semantics=_add, cycles=_cycles, inputs=(INT32, INT32), outputs=(INT32,), streamed=(0, 1),
)  # fmt: skip
OP_E32_SHIFT = Instruction(
    mnemonic="OP_E32_SHIFT", opcode=0x49, unit=Unit.EX, kind="ELTWISE",
    description="Shifts an int32 tensor by EX_SHIFT_A bits; a result outside int32 stops the machine with an error.",
    registers=("EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS", "EX_LENGTH", "EX_SHIFT_A"),
    fields=(
        Field("direction", 51, 1, description="0 left, 1 right"),
        Field(
            "rounding", 49, 2, description="of a right shift: 0 floor, 1 nearest even, 2 half away from zero", defined=3
        ),
    ),
    operands=_shift_operands, semantics=_shift, cycles=_cycles, inputs=(INT32,), outputs=(INT32,), streamed=(0,),
)  # fmt: skip
INSTRUCTIONS = (OP_E32_ADD, OP_E32_SHIFT)
