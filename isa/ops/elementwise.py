"""Element-wise instructions of int8 and int32.

Those of int8 compute ReLU, leaky ReLU, absolute value, minimum, maximum and rescaling addition.
``OP_E32_ADD`` and ``OP_E32_SHIFT`` work on int32.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.access import strided
from isa.arch import Arch
from isa.instruction import (
    INT8,
    INT32,
    Command,
    Instruction,
    Machine,
    Operands,
    Unit,
    ceil_div,
    formula,
    view,
)
from isa.numerics.unary import Function
from isa.ops.lookup import add_tables
from isa.registers import Field, float_value, to_signed

_ADDRESSES = ("EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS", "EX_LENGTH")
_CLAMP = ("EX_CLAMP_LOW", "EX_CLAMP_HIGH")
_SCALING = ("EX_SCALE_A", "EX_SCALE_B", "EX_SCALE_Y", "EX_SHIFT_A", "EX_SHIFT_B")


def _operand(command: Command, machine: Machine, register: str) -> NDArray[np.int8]:
    return view(machine.sram, command[register], (command["EX_LENGTH"],), np.int8)


def _one(command: Command, arch: Arch) -> Operands:
    length = command["EX_LENGTH"]
    return Operands(
        (strided("sram", command["EX_INPUT_ADDRESS"], length),),
        (strided("sram", command["EX_OUTPUT_ADDRESS"], length),),
    )


def _two(command: Command, arch: Arch) -> Operands:
    one = _one(command, arch)
    return Operands(
        (*one.reads, strided("sram", command["EX_OPERAND_ADDRESS"], command["EX_LENGTH"])),
        one.writes,
    )


@formula("⌈length / post_lanes⌉.")
def _cycles(command: Command, arch: Arch) -> int:
    return ceil_div(command["EX_LENGTH"], arch.lanes)


def unary_result(
    x: NDArray[np.int8], function: Function, command: Command, arch: Arch
) -> NDArray[np.int8]:
    """Apply a unary function to stored int8 values, with the command's parameters.

    The scales, zero points and limits are those of the command.
    """
    input_zero = command["EX_INPUT_ZERO_POINT"]
    output_zero = command["EX_OUTPUT_ZERO_POINT"]
    low = command["EX_CLAMP_LOW"]
    high = command["EX_CLAMP_HIGH"]
    if arch.numerics == "fixed":
        positive = command["EX_SCALE_A"], command["EX_SHIFT_A"]
        negative = to_signed(command["EX_SCALE_B"]), command["EX_SHIFT_B"]
        return numerics.unary_fixed(
            x, function, positive, negative, input_zero, output_zero, low, high
        )
    scale_x, alpha, scale_y = (float_value(command[f"EX_SCALE_{name}"]) for name in "ABY")
    return numerics.unary(
        x, function, (scale_x, scale_y), (input_zero, output_zero), alpha, low, high
    )


def _unary(function: Function) -> Callable[[Command, Machine], None]:
    @formula(
        """
        y = clip(rint(float32(v / SCALE_Y)) + OUTPUT_ZERO_POINT) with v = g(float32((x -
        INPUT_ZERO_POINT) · SCALE_A)), where g is the function of the instruction.

        With numerics fixed, multiplier and shift A scale the result. Leaky ReLU uses multiplier B
        (two's complement) and shift B for values below the zero point.
        """
    )
    def semantics(command: Command, machine: Machine) -> None:
        x = _operand(command, machine, "EX_INPUT_ADDRESS")
        _operand(command, machine, "EX_OUTPUT_ADDRESS")[...] = unary_result(
            x, function, command, machine.arch
        )

    return semantics


def read_fixed_constants(command: Command) -> numerics.AddFixedConstants:
    """Return the multipliers and shifts of an addition or subtraction with numerics ``fixed``."""
    a, b, y = ((command[f"EX_SCALE_{name}"], command[f"EX_SHIFT_{name}"]) for name in "ABY")
    return numerics.AddFixedConstants(*a, *b, *y)


def add_result(
    a: NDArray[np.int8], b: NDArray[np.int8], command: Command, arch: Arch
) -> NDArray[np.int8]:
    """Add two tensors of stored int8 values with the command's constants."""
    low = command["EX_CLAMP_LOW"]
    high = command["EX_CLAMP_HIGH"]
    if arch.numerics == "fixed":
        zeros = (
            command["EX_INPUT_ZERO_POINT"],
            command["EX_OPERAND_ZERO_POINT"],
            command["EX_OUTPUT_ZERO_POINT"],
        )
        return numerics.add_fixed(a, b, read_fixed_constants(command), zeros, low, high)
    ratio_a, ratio_b, constant = (
        np.float32(float_value(command[f"EX_SCALE_{name}"])) for name in "ABY"
    )
    return numerics.add(a, b, ratio_a, ratio_b, constant, command["EX_OFFSET"], low, high)


@formula(
    """
    y = clip(rint(fma(a', SCALE_A, fma(b', SCALE_B, SCALE_Y))) - OFFSET) in float32, with a' = a +
    OFFSET and b' = b + OFFSET.

    With numerics fixed, y is LiteRT's integer addition with multipliers, shifts and zero points.
    """
)
def _add(command: Command, machine: Machine) -> None:
    a = _operand(command, machine, "EX_INPUT_ADDRESS")
    b = _operand(command, machine, "EX_OPERAND_ADDRESS")
    _operand(command, machine, "EX_OUTPUT_ADDRESS")[...] = add_result(a, b, command, machine.arch)


def _compare(function: Callable[..., NDArray[np.int8]]) -> Callable[[Command, Machine], None]:
    @formula("y is one of the two stored values. There is no scale, zero point or limit.")
    def semantics(command: Command, machine: Machine) -> None:
        a = _operand(command, machine, "EX_INPUT_ADDRESS")
        b = _operand(command, machine, "EX_OPERAND_ADDRESS")
        _operand(command, machine, "EX_OUTPUT_ADDRESS")[...] = function(a, b)

    return semantics


_UNARY_REGISTERS = (*_ADDRESSES, "EX_INPUT_ZERO_POINT", "EX_OUTPUT_ZERO_POINT", *_CLAMP, *_SCALING)


def _declare_unary(
    mnemonic: str, opcode: int, kind: str, function: Function, text: str
) -> Instruction:
    return Instruction(
        mnemonic=mnemonic, opcode=opcode, unit=Unit.EX, kind=kind, description=text,
        registers=_UNARY_REGISTERS, operands=_one, semantics=_unary(function), cycles=_cycles,
        inputs=(INT8,), outputs=(INT8,), streamed=(0,),
    )  # fmt: skip


def _declare_compare(
    mnemonic: str, opcode: int, function: Callable[..., NDArray[np.int8]], text: str
) -> Instruction:
    return Instruction(
        mnemonic=mnemonic, opcode=opcode, unit=Unit.EX, kind="ELTWISE", description=text,
        registers=(*_ADDRESSES, "EX_OPERAND_ADDRESS"), operands=_two, semantics=_compare(function),
        cycles=_cycles,
        inputs=(INT8, INT8), outputs=(INT8,), streamed=(0, 1),
    )  # fmt: skip


OP_ACT_RELU = _declare_unary(
    "OP_ACT_RELU",
    0x38,
    "ACT",
    "relu",
    "max(x, 0), with one quantisation for the input and one for the result.",
)
OP_ACT_LRELU = _declare_unary(
    "OP_ACT_LRELU",
    0x39,
    "ACT",
    "leaky_relu",
    "x, or EX_SCALE_B times x if x is negative; input and result have their own quantisations.",
)
OP_E_ABS = _declare_unary(
    "OP_E_ABS",
    0x40,
    "ELTWISE",
    "absolute",
    "|x|, with one quantisation for the input and one for the result.",
)
OP_C_MIN = _declare_compare(
    "OP_C_MIN", 0x41, np.minimum, "Element-wise minimum of two tensors with the same quantisation."
)
OP_C_MAX = _declare_compare(
    "OP_C_MAX", 0x42, np.maximum, "Element-wise maximum of two tensors with the same quantisation."
)
OP_E_ADD = Instruction(
    mnemonic="OP_E_ADD", opcode=0x43, unit=Unit.EX, kind="ELTWISE",
    description="Adds two rescaled tensors: SCALE_A and SCALE_B are ratios to the output scale, "
                "and SCALE_Y is the constant term.",
    registers=(
        *_ADDRESSES, "EX_OPERAND_ADDRESS", *_CLAMP, *_SCALING, "EX_SHIFT_Y", "EX_OFFSET",
        "EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT",
    ),
    operands=_two, semantics=_add, cycles=_cycles, inputs=(INT8, INT8), outputs=(INT8,),
    streamed=(0, 1),
)  # fmt: skip

# int32 instructions: overflow is an error, never a wrap-around

_DIRECTIONS: tuple[Literal["left", "right"], ...] = ("left", "right")
_ROUNDINGS: tuple[Literal["floor", "nearest_even", "half_away"], ...] = (
    "floor",
    "nearest_even",
    "half_away",
)


def _words(command: Command, machine: Machine, register: str) -> NDArray[np.int32]:
    return view(machine.sram, command[register], (command["EX_LENGTH"],), np.int32)


def _access(command: Command, *registers: str) -> Operands:
    length = 4 * command["EX_LENGTH"]
    reads = tuple(strided("sram", command[register], length) for register in registers)
    return Operands(reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], length),))


@formula("y = a + b.")
def _add_words(command: Command, machine: Machine) -> None:
    a = _words(command, machine, "EX_INPUT_ADDRESS")
    b = _words(command, machine, "EX_OPERAND_ADDRESS")
    _words(command, machine, "EX_OUTPUT_ADDRESS")[...] = numerics.add_int32(a, b)


@formula(
    """
    y = a · 2^s for a left shift, and y = round(a / 2^s) for a right shift, with s = EX_SHIFT_A.
    """
)
def _shift(command: Command, machine: Machine) -> None:
    a = _words(command, machine, "EX_INPUT_ADDRESS")
    rounding = _ROUNDINGS[command.fields["rounding"]]
    direction = _DIRECTIONS[command.fields["direction"]]
    result = numerics.shift_int32(a, command["EX_SHIFT_A"], direction, rounding)
    _words(command, machine, "EX_OUTPUT_ADDRESS")[...] = result


OP_E32_ADD = Instruction(
    mnemonic="OP_E32_ADD", opcode=0x48, unit=Unit.EX, kind="ELTWISE",
    description="Adds two int32 tensors; a sum outside int32 stops the machine with an error.",
    registers=("EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS", "EX_LENGTH"),
    operands=lambda command, arch: _access(command, "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS"),
    semantics=_add_words, cycles=_cycles,
    inputs=(INT32, INT32), outputs=(INT32,), streamed=(0, 1),
)  # fmt: skip
OP_E32_SHIFT = Instruction(
    mnemonic="OP_E32_SHIFT", opcode=0x49, unit=Unit.EX, kind="ELTWISE",
    description="Shifts an int32 tensor by EX_SHIFT_A bits; a result outside int32 stops the "
                "machine with an error.",
    registers=("EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS", "EX_LENGTH", "EX_SHIFT_A"),
    fields=(
        Field("direction", 51, 1, description="0 left, 1 right"),
        Field(
            "rounding", 49, 2,
            description="of a right shift: 0 floor, 1 nearest even, 2 half away from zero",
            defined=3
        ),
    ),
    operands=lambda command, arch: _access(command, "EX_INPUT_ADDRESS"),
    semantics=_shift, cycles=_cycles, inputs=(INT32,), outputs=(INT32,),
    streamed=(0,),
)  # fmt: skip
INSTRUCTIONS = (
    OP_ACT_RELU, OP_ACT_LRELU, OP_E_ABS, OP_C_MIN, OP_C_MAX,
    add_tables(OP_E_ADD), OP_E32_ADD, OP_E32_SHIFT,
)  # fmt: skip
