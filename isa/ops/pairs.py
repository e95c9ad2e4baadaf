"""Element-wise instructions on two int8 tensors with broadcasting.

Either operand may have one value per channel, one row, or a single value. ``OP_E_ADD``,
``OP_C_MIN`` and ``OP_C_MAX`` read dense tensors only; they keep their mnemonics, because a mnemonic
has one declaration in all variants.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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
from isa.ops.elementwise import add_result, read_fixed_constants
from isa.ops.lookup import add_tables
from isa.registers import Field, float_value

_REPEATS = (
    "0 dense; 1 one value for each channel; 2 one row of values for all channels; 3 one value"
)
REPEAT_A = Field("repeat_a", 50, 2, description=f"how operand A repeats: {_REPEATS}")
REPEAT_B = Field("repeat_b", 48, 2, description=f"how operand B repeats: {_REPEATS}")
SQUARED = Field("squared", 47, 1, description="1 squares the difference before it is rescaled")
MAXIMUM = Field("maximum", 47, 1, description="0 the smaller of the two, 1 the larger")
ALONG_LENGTH = 1
ALONG_CHANNELS = 2
"""Bits of the repeat fields."""
_OPERANDS = (("EX_INPUT_ADDRESS", REPEAT_A), ("EX_OPERAND_ADDRESS", REPEAT_B))
Function = Callable[[NDArray[np.int8], NDArray[np.int8], Command, Arch], NDArray[np.int8]]


def operand_shape(command: Command, repeat: int) -> tuple[int, int]:
    """Return the shape (channels, elements) of a broadcast operand.

    ``repeat`` is the value of its repeat field.

    A value of 0 gives the result's shape.
    """
    channels = command["EX_OUTPUT_CHANNELS"]
    length = command["EX_LENGTH"]
    if not channels or not length:
        return 0, 0
    return 1 if repeat & ALONG_CHANNELS else channels, 1 if repeat & ALONG_LENGTH else length


def _access(command: Command, register: str, repeat: int = 0) -> Operands:
    channels, length = operand_shape(command, repeat)
    return Operands((strided("sram", command[register], channels * length),))


def _operands(command: Command, arch: Arch) -> Operands:
    reads = (
        _access(command, register, command.fields[field.name]) for register, field in _OPERANDS
    )
    return Operands(
        tuple(read for one in reads for read in one.reads),
        _access(command, "EX_OUTPUT_ADDRESS").reads,
    )


def _read_integers(command: Command) -> tuple[tuple[int, int, int], int, int]:
    """Return the zero points of both operands and the result, and the clamp limits."""
    zeros = (
        command["EX_INPUT_ZERO_POINT"],
        command["EX_OPERAND_ZERO_POINT"],
        command["EX_OUTPUT_ZERO_POINT"],
    )
    return zeros, command["EX_CLAMP_LOW"], command["EX_CLAMP_HIGH"]


def multiply_result(
    a: NDArray[np.int8], b: NDArray[np.int8], command: Command, arch: Arch
) -> NDArray[np.int8]:
    """Multiply two tensors of stored int8 values with the command's constants."""
    zeros, low, high = _read_integers(command)
    if arch.numerics == "fixed":
        return numerics.multiply_fixed(
            a, b, command["EX_SCALE_A"], command["EX_SHIFT_A"], zeros, low, high
        )
    return numerics.multiply(
        a, b, float_value(command["EX_SCALE_A"]), zeros, command["EX_OFFSET"], low, high
    )


def subtract_result(
    a: NDArray[np.int8], b: NDArray[np.int8], command: Command, arch: Arch
) -> NDArray[np.int8]:
    """Subtract two tensors of stored int8 values with the command's constants."""
    zeros, low, high = _read_integers(command)
    squared = bool(command.fields[SQUARED.name])
    if arch.numerics == "fixed" and squared:
        return numerics.subtract_squared_fixed(
            a, b, read_fixed_constants(command), zeros, low, high
        )
    if arch.numerics == "fixed":
        return numerics.add_fixed(
            a, b, read_fixed_constants(command), zeros, low, high, subtract=True
        )
    a_scale, b_scale, y_scale = (float_value(command[f"EX_SCALE_{name}"]) for name in "ABY")
    return numerics.subtract(a, b, (a_scale, b_scale, y_scale), zeros, low, high, squared=squared)


def divide_result(
    a: NDArray[np.int8], b: NDArray[np.int8], command: Command, arch: Arch
) -> NDArray[np.int8]:
    """Divide two tensors of stored int8 values with the command's constants."""
    zeros, low, high = _read_integers(command)
    if arch.numerics == "fixed":
        return numerics.divide_fixed(
            a, b, command["EX_SCALE_A"], command["EX_SHIFT_A"], zeros, low, high
        )
    a_scale, b_scale, y_scale = (float_value(command[f"EX_SCALE_{name}"]) for name in "ABY")
    return numerics.divide(a, b, (a_scale, b_scale, y_scale), zeros, low, high)


def _compare(
    a: NDArray[np.int8], b: NDArray[np.int8], command: Command, arch: Arch
) -> NDArray[np.int8]:
    return np.maximum(a, b) if command.fields["maximum"] else np.minimum(a, b)


def _check_both(function: Function, text: str) -> Callable[[Command, Machine], None]:
    @formula(text)
    def semantics(command: Command, machine: Machine) -> None:
        a, b = (
            view(
                machine.sram,
                command[register],
                operand_shape(command, command.fields[field.name]),
                np.int8,
            )
            for register, field in _OPERANDS
        )
        result = function(a, b, command, machine.arch)
        shape = operand_shape(command, 0)
        view(machine.sram, command["EX_OUTPUT_ADDRESS"], shape, np.int8)[...] = np.broadcast_to(
            result, shape
        )

    return semantics


@formula("⌈OC·length / post_lanes⌉.")
def _cycles(command: Command, arch: Arch) -> int:
    return ceil_div(command["EX_OUTPUT_CHANNELS"] * command["EX_LENGTH"], arch.lanes)


_PLACES = (
    "EX_INPUT_ADDRESS",
    "EX_OPERAND_ADDRESS",
    "EX_OUTPUT_ADDRESS",
    "EX_OUTPUT_CHANNELS",
    "EX_LENGTH",
)
_NUMBERS = (
    "EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT", "EX_CLAMP_LOW",
    "EX_CLAMP_HIGH",
)  # fmt: skip
_SCALES = ("EX_SCALE_A", "EX_SCALE_B", "EX_SCALE_Y", "EX_SHIFT_A", "EX_SHIFT_B", "EX_SHIFT_Y")
_SHAPES = (
    "The result is int8 with the shape (OC, length). An operand has the shape (OC, length), "
    "(1, length), (OC, 1) or (1, 1), and repeats along each dimension of size 1."
)


def _declare(
    mnemonic: str,
    opcode: int,
    text: str,
    registers: tuple[str, ...],
    function: Function,
    rule: str,
    fields: tuple[Field, ...] = (),
    aliases: dict[str, dict[str, int]] | None = None,
) -> Instruction:
    return Instruction(
        mnemonic=mnemonic, opcode=opcode, unit=Unit.EX, kind="ELTWISE", description=text,
        registers=(*_PLACES, *registers), fields=(REPEAT_A, REPEAT_B, *fields),
        aliases=aliases or {},
        operands=_operands, semantics=_check_both(function, f"{rule}\n\n{_SHAPES}"), cycles=_cycles,
        inputs=(INT8, INT8), outputs=(INT8,), streamed=(0, 1),
    )  # fmt: skip


OP_E_MUL = _declare(
    "OP_E_MUL", 0x44,
    "Multiplies two tensors and rescales the product; either tensor may repeat.",
    (*_NUMBERS, "EX_SCALE_A", "EX_SHIFT_A", "EX_OFFSET"), multiply_result,
    "y = clip(rint(p · SCALE_A + OUTPUT_ZERO_POINT) - OFFSET) with p = (a - INPUT_ZERO_POINT) ·"
    "\n(b - OPERAND_ZERO_POINT). The product and the sum are each rounded to float32."
    "\n\nWith numerics fixed, multiplier and shift A scale p. The zero point is added, and there is"
    "\nno offset.",
)  # fmt: skip
OP_E_SUB = _declare(
    "OP_E_SUB", 0x45,
    "Subtracts the second tensor from the first, each with its scale; either may repeat.",
    (*_NUMBERS, *_SCALES), subtract_result,
    "y = clip(rint((a' - b') / SCALE_Y) + OUTPUT_ZERO_POINT) in float32, with"
    "\na' = (a - INPUT_ZERO_POINT) · SCALE_A and b' = (b - OPERAND_ZERO_POINT) · SCALE_B."
    "\nWith squared, (a' - b')^2 replaces a' - b'."
    "\n\nWith numerics fixed, y is LiteRT's integer subtraction or squared difference. For a"
    "\nsquared difference, each operand minus its zero point is multiplied by 2^7 and scaled by its"
    "\nmultiplier and shift. The difference is squared, limited to 2^31 - 1, and scaled by"
    "\nmultiplier and shift Y.",
    (SQUARED,),
)  # fmt: skip
OP_B_ADD = _declare(
    "OP_B_ADD", 0x46, "`OP_E_ADD` of two tensors; either one may repeat.",
    (*_NUMBERS, *_SCALES, "EX_OFFSET"), add_result, "As `OP_E_ADD`.",
)  # fmt: skip
OP_B_MIN = _declare(
    "OP_B_MIN", 0x47, "`OP_C_MIN` or `OP_C_MAX` of two tensors; either one may repeat.",
    (), _compare, "y is one of the two stored values. There is no scale, zero point or limit.",
    (MAXIMUM,), {"OP_B_MAX": {"maximum": 1}},
)  # fmt: skip
OP_E_DIV = _declare(
    "OP_E_DIV", 0x4A,
    "Divides the first tensor by the second, each with its scale; either may repeat.",
    (*_NUMBERS, "EX_SCALE_A", "EX_SCALE_B", "EX_SCALE_Y", "EX_SHIFT_A"), divide_result,
    "y = clip(rint(a' / b' / SCALE_Y) + OUTPUT_ZERO_POINT) in float32, with"
    "\na' = (a - INPUT_ZERO_POINT) · SCALE_A and b' = (b - OPERAND_ZERO_POINT) · SCALE_B."
    "\n\nA quotient by 0 is the clamp limit of the sign of a'; 0 / 0 is the lower clamp limit."
    "\n\nWith numerics fixed, multiplier and shift A scale the quotient"
    "\n(a - INPUT_ZERO_POINT) · 2^20 / (b - OPERAND_ZERO_POINT), rounded half away from zero.",
)  # fmt: skip
INSTRUCTIONS = tuple(map(add_tables, (OP_E_MUL, OP_E_SUB, OP_B_ADD, OP_B_MIN, OP_E_DIV)))
