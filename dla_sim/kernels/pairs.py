"""Products and sums of two int8 tensors with broadcasting, computed in blocks by NumPy.

Float64 sums replace the fused multiply-adds of the semantics if that is provably exact.
"""

from collections.abc import Callable
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Prepare, Workspace, disjoint, highest
from isa import numerics
from isa.access import Range
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.pairs import operand_shape
from isa.registers import float_value

_BLOCK_ELEMENTS = 16 * 1024
_OPERAND = 128 + 255
"""Largest magnitude of an operand plus the offset."""
_ONE = np.ones((), np.float32)
Block = NDArray[np.int8]
Work = Callable[[Block, Block, Block, Workspace], None]
"""Computes matching parts of a, b and the result; a and b broadcast."""


def prepare_pairs(make_work: Callable[[Command], Work | None]) -> Prepare:
    """Return the preparation of kernels that run a command's work on blocks of two operands.

    ``make_work`` returns None for a command that the kernel cannot execute.
    """

    def prepare(command: Command, arch: Arch) -> Attempt | None:
        work = make_work(command)
        fields = command.fields
        repeats = fields.get("repeat_a", 0), fields.get("repeat_b", 0), 0
        shapes = [_shape(command, repeat) for repeat in repeats]
        starts = [command[f"EX_{name}_ADDRESS"] for name in ("INPUT", "OPERAND", "OUTPUT")]
        ranges: list[Range] = [(at, at + n * m) for at, (n, m) in zip(starts, shapes, strict=True)]
        channels, length = shapes[2]
        limits_fit = command["EX_CLAMP_LOW"] <= command["EX_CLAMP_HIGH"]
        if work is None or arch.numerics != "onnxruntime" or not channels or not limits_fit:
            return None
        for shape, read in zip(shapes[:2], ranges[:2], strict=True):
            # a dense operand at or above the result is read before it is overwritten
            if not disjoint(ranges[2], (read,)) and (shape != shapes[2] or read < ranges[2]):
                return None
        end = highest(*ranges)
        step = max(1, _BLOCK_ELEMENTS // length)
        width = min(length, _BLOCK_ELEMENTS)

        def attempt(machine: Machine, scratch: Workspace) -> bool:
            if end > machine.sram.size:
                return False
            a, b, y = (
                machine.sram[first:last].view(np.int8).reshape(shape)
                for (first, last), shape in zip(ranges, shapes, strict=True)
            )
            for row in range(0, channels, step):
                for column in range(0, length, width):
                    part = slice(row, row + step), slice(column, column + width)
                    work(_cut(a, part), _cut(b, part), y[part], scratch)
            return True

        return attempt

    return prepare


def _shape(command: Command, repeat: int) -> tuple[int, int]:
    """Return the shape (channels, elements) of an operand; ``OP_E_ADD`` has only elements."""
    if "EX_OUTPUT_CHANNELS" in command.instruction.registers:
        return operand_shape(command, repeat)
    length = command["EX_LENGTH"]
    return (1, length) if length else (0, 0)


def _cut(operand: Block, part: tuple[slice, slice]) -> Block:
    """Return the elements of a broadcast operand that match a block of the result.

    This is all of the operand along broadcast axes.
    """
    rows, columns = (
        slice(None) if size == 1 else span for size, span in zip(operand.shape, part, strict=True)
    )
    return operand[rows, columns]


def product(command: Command) -> Work | None:
    """Return the work of ``OP_E_MUL``, or None if float32 does not compute it exactly.

    The zero point is added before rounding; the offset is subtracted after it.
    """
    zero_a, zero_b, zero_y = (
        command[f"EX_{name}_ZERO_POINT"] for name in ("INPUT", "OPERAND", "OUTPUT")
    )
    limits = command["EX_CLAMP_LOW"], command["EX_CLAMP_HIGH"]
    offset = command["EX_OFFSET"]
    scale = float_value(command["EX_SCALE_A"])
    largest = max(abs(zero_a), abs(zero_b), abs(zero_y))
    if largest >= 1 << 9 or not isfinite(scale) or not 0 < scale < 2.0**64:
        return None
    ratio = np.float32(scale)

    def work(a: Block, b: Block, y: Block, scratch: Workspace) -> None:
        total: NDArray[np.float32] = scratch.array("sums", y.shape, np.float32)
        left = np.subtract(a, zero_a, dtype=np.float32)
        right = np.subtract(b, zero_b, dtype=np.float32)
        np.multiply(left, right, out=total)
        np.multiply(total, ratio, out=total)
        np.add(total, np.float32(zero_y), out=total)
        numerics.requantise_float32(total, _ONE, -offset, *limits, out=y)

    return work


def addition(command: Command) -> Work | None:
    """Return the work of ``OP_E_ADD`` and ``OP_B_ADD``, or None if float64 is not exact.

    It computes a' * ratio_a + float32(b' * ratio_b + constant), each rounded once to float32. a'
    and b' are the operands plus the offset.
    """
    ratio_a, ratio_b, constant = (float_value(command[f"EX_SCALE_{name}"]) for name in "ABY")
    limits = command["EX_CLAMP_LOW"], command["EX_CLAMP_HIGH"]
    offset = command["EX_OFFSET"]
    if not exact_in_float64(ratio_a, ratio_b, constant):
        return None

    def work(a: Block, b: Block, y: Block, scratch: Workspace) -> None:
        wide = scratch.array("float64", y.shape, np.float64)
        inner = scratch.array("inner float64", b.shape, np.float64)
        rounded: NDArray[np.float32] = scratch.array("rounded", b.shape, np.float32)
        total: NDArray[np.float32] = scratch.array("sums", y.shape, np.float32)
        np.copyto(inner, b)
        if offset:
            np.add(inner, offset, out=inner)
        np.multiply(inner, ratio_b, out=inner)
        np.add(inner, constant, out=inner)
        np.copyto(rounded, inner, casting="same_kind")
        np.copyto(inner, rounded)
        np.copyto(wide, a)
        if offset:
            np.add(wide, offset, out=wide)
        np.multiply(wide, ratio_a, out=wide)
        np.add(wide, inner, out=wide)
        np.copyto(total, wide, casting="same_kind")
        numerics.requantise_float32(total, _ONE, -offset, *limits, out=y)

    return work


def exact_in_float64(ratio_a: float, ratio_b: float, constant: float) -> bool:
    """Return True if float64 computes a sum of two scaled operands exactly.

    Both sums of ``a*ratio_a + float32(b*ratio_b + constant)`` must be exact.

    All terms are multiples of the finest unit of the three constants, also after rounding to
    float32. The sums are therefore exact if the largest one is below 2**53 units. Each conversion
    to float32 is then the only rounding, as in a fused operation.
    """
    if not (isfinite(ratio_a) and isfinite(ratio_b) and isfinite(constant)):
        return False
    largest = 2 * (_OPERAND * (abs(ratio_a) + abs(ratio_b)) + abs(constant))
    units = max(value.as_integer_ratio()[1] for value in (ratio_a, ratio_b, constant))
    return largest < 1e30 and largest < 2**53 / units
