"""Element-wise instructions of two tensors with broadcasting, computed in blocks by NumPy.

Float64 sums replace fused multiply-adds if that is provably exact, as in ``OP_E_ADD``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import AtOnce, Workspace, disjoint
from dla_sim.kernels.elementwise import exact_in_float64
from isa import numerics
from isa.access import Range
from isa.instruction import Command, Machine
from isa.ops.pairs import operand_shape
from isa.registers import float_value

_BLOCK_ELEMENTS = 16 * 1024
_ONE = np.ones((), np.float32)
_SMALLEST = np.float32(-(2.0**40))
Block = tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.int8]]
"""Matching parts of a, b and the result; a and b broadcast."""
Work = Callable[[Command, Block, Workspace], None]


def _pairs(work: Work, usable: Callable[[Command], bool]) -> AtOnce:
    """Return a kernel that runs ``work`` on blocks of two operands, for ``usable`` commands."""

    def kernel(command: Command, machine: Machine, scratch: Workspace) -> bool:
        repeats = command.fields["repeat_a"], command.fields["repeat_b"], 0
        shapes = [operand_shape(command, repeat) for repeat in repeats]
        starts = [command[f"EX_{name}_ADDRESS"] for name in ("INPUT", "OPERAND", "OUTPUT")]
        ranges: list[Range] = [(at, at + n * m) for at, (n, m) in zip(starts, shapes, strict=True)]
        channels, length = shapes[2]
        if (
            not channels
            or max(end for _, end in ranges) > machine.sram.size
            or not disjoint(ranges[2], ranges[:2])
        ):
            return False
        if (
            machine.arch.numerics == "fixed" and "EX_SCALE_A" in command.instruction.registers
        ) or not usable(command):
            return False
        a, b, y = (
            machine.sram[first:end].view(np.int8).reshape(shape)
            for (first, end), shape in zip(ranges, shapes, strict=True)
        )
        step = max(1, _BLOCK_ELEMENTS // length)
        width = min(length, _BLOCK_ELEMENTS)
        for row in range(0, channels, step):
            for column in range(0, length, width):
                part = slice(row, row + step), slice(column, column + width)
                work(command, (_cut(a, part), _cut(b, part), y[part]), scratch)
        return True

    return kernel


def _cut(operand: NDArray[np.int8], part: tuple[slice, slice]) -> NDArray[np.int8]:
    """Return the elements of a broadcast operand that match a block of the result.

    This is all of the operand along broadcast axes.
    """
    rows, columns = (
        slice(None) if size == 1 else span for size, span in zip(operand.shape, part, strict=True)
    )
    return operand[rows, columns]


def _limits(command: Command) -> tuple[int, int]:
    return command["EX_CLAMP_LOW"], command["EX_CLAMP_HIGH"]


def _compare(command: Command, block: Block, scratch: Workspace) -> None:
    a, b, y = block
    (np.maximum if command.fields["maximum"] else np.minimum)(a, b, out=y)


def _multiply(command: Command, block: Block, scratch: Workspace) -> None:
    """Multiply a block of two operands, exactly in float32, and requantise the products.

    The zero point is added before rounding; the offset is subtracted after it.
    """
    a, b, y = block
    ratio = np.float32(float_value(command["EX_SCALE_A"]))
    total: NDArray[np.float32] = scratch.array("sums", y.shape, np.float32)
    left = np.subtract(a, command["EX_INPUT_ZERO_POINT"], dtype=np.float32)
    right = np.subtract(b, command["EX_OPERAND_ZERO_POINT"], dtype=np.float32)
    np.multiply(left, right, out=total)
    np.multiply(total, ratio, out=total)
    np.add(total, np.float32(command["EX_OUTPUT_ZERO_POINT"]), out=total)
    numerics.requantise_float32(total, _ONE, -command["EX_OFFSET"], *_limits(command), out=y)


def _can_multiply(command: Command) -> bool:
    """Return True if float32 computes a product of the command exactly.

    In addition no limit may be lost, and the ratio must be a valid scale.
    """
    zeros = (
        command["EX_INPUT_ZERO_POINT"],
        command["EX_OPERAND_ZERO_POINT"],
        command["EX_OUTPUT_ZERO_POINT"],
    )
    ratio = float_value(command["EX_SCALE_A"])
    low, high = _limits(command)
    return max(map(abs, zeros)) < 1 << 9 and isfinite(ratio) and 0 < ratio < 2.0**64 and low <= high


def _scale_operands(function: np.ufunc) -> Work:
    """Return a block function that applies ``function`` to both scaled operands.

    NaN becomes the smallest value.
    """

    def work(command: Command, block: Block, scratch: Workspace) -> None:
        a, b, y = block
        scale_a, scale_b, scale_y = (
            np.float32(float_value(command[f"EX_SCALE_{name}"])) for name in "ABY"
        )
        total: NDArray[np.float32] = scratch.array("sums", y.shape, np.float32)
        left = np.subtract(a, command["EX_INPUT_ZERO_POINT"], dtype=np.float32)
        right = np.subtract(b, command["EX_OPERAND_ZERO_POINT"], dtype=np.float32)
        np.multiply(left, scale_a, out=left)
        np.multiply(right, scale_b, out=right)
        with np.errstate(divide="ignore", invalid="ignore"):
            function(left, right, out=total)
        np.divide(total, scale_y, out=total)
        np.fmax(total, _SMALLEST, out=total)
        numerics.requantise_float32(
            total, _ONE, command["EX_OUTPUT_ZERO_POINT"], *_limits(command), out=y
        )

    return work


def _can_scale(command: Command) -> bool:
    """Return True if zero points are small and scales are far from the limits of float32."""
    scales = [float_value(command[f"EX_SCALE_{name}"]) for name in "ABY"]
    zeros = (
        command["EX_INPUT_ZERO_POINT"],
        command["EX_OPERAND_ZERO_POINT"],
        command["EX_OUTPUT_ZERO_POINT"],
    )
    low, high = _limits(command)
    return (
        max(map(abs, zeros)) < 1 << 9
        and all(2.0**-40 < scale < 2.0**40 for scale in scales)
        and low <= high
    )


def _add(command: Command, block: Block, scratch: Workspace) -> None:
    """Add a block of two operands like ``OP_E_ADD``; scale each operand before broadcasting."""
    a, b, y = block
    ratio_a, ratio_b, constant = _constants(command)
    offset = command["EX_OFFSET"]
    inner = (b.astype(np.float64) + offset) * ratio_b + constant
    wide = (a.astype(np.float64) + offset) * ratio_a + inner.astype(np.float32)
    numerics.requantise_float32(wide.astype(np.float32), _ONE, -offset, *_limits(command), out=y)


def _constants(command: Command) -> tuple[float, float, float]:
    a, b, y = (float_value(command[f"EX_SCALE_{name}"]) for name in "ABY")
    return a, b, y


def _can_add(command: Command) -> bool:
    low, high = _limits(command)
    return low <= high and exact_in_float64(*_constants(command))


multiplication = _pairs(_multiply, _can_multiply)
subtraction = _pairs(
    _scale_operands(np.subtract),
    lambda command: not command.fields["squared"] and _can_scale(command),
)
division = _pairs(_scale_operands(np.divide), _can_scale)
addition = _pairs(_add, _can_add)
comparison = _pairs(_compare, lambda command: True)
