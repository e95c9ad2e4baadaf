"""Element-wise int8 instructions: a table of 256 entries for a unary function, NumPy for minimum and maximum, and
``OP_E_ADD`` in blocks, in float64 where that is provably as exact as the fused multiply-adds of the semantics."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import AtOnce, Scratch
from isa import numerics
from isa.instruction import Command, Machine
from isa.numerics.unary import Function
from isa.ops.elementwise import unary_result
from isa.registers import float_value

_EVERY = np.arange(256, dtype=np.uint8).view(np.int8)


def _operand(command: Command, machine: Machine, name: str) -> NDArray[np.int8] | None:
    """The tensor at an address register; None where it is empty or reaches past the end of the scratchpad."""
    address, length = command[f"EX_{name}_ADDRESS"], command["EX_LENGTH"]
    if not length or address + length > machine.sram.size:
        return None
    return machine.sram[address : address + length].view(np.int8)


def unary(function: Function) -> AtOnce:
    """The kernel of a unary instruction: its semantics on every int8, then one look-up an element."""

    def kernel(command: Command, machine: Machine, scratch: Scratch) -> bool:
        x, output = _operand(command, machine, "INPUT"), _operand(command, machine, "OUTPUT")
        if x is None or output is None or x.size < 2 * _EVERY.size:
            return False
        with np.errstate(all="ignore"):
            table = unary_result(_EVERY, function, command, machine.arch)
        output[...] = np.frombuffer(x.tobytes().translate(table.tobytes()), np.int8)
        return True

    return kernel


def comparison(function: Callable[..., Any]) -> AtOnce:
    """The kernel of ``OP_C_MIN`` or ``OP_C_MAX``: NumPy's ``function``, which minds overlapping operands itself."""

    def kernel(command: Command, machine: Machine, scratch: Scratch) -> bool:
        a, b = _operand(command, machine, "INPUT"), _operand(command, machine, "OPERAND")
        output = _operand(command, machine, "OUTPUT")
        if a is None or b is None or output is None:
            return False
        function(a, b, out=output)
        return True

    return kernel


_BLOCK_ELEMENTS = 16 * 1024
_OPERAND = 128 + 255
"""Largest magnitude of an operand with the offset."""


def addition(command: Command, machine: Machine, scratch: Scratch) -> bool:
    """Executes the command; False, with nothing written, for what is left to the semantics."""
    length, offset = command["EX_LENGTH"], command["EX_OFFSET"]
    low, high = command["EX_CLAMP_LOW"], command["EX_CLAMP_HIGH"]
    constants = tuple(float_value(command[f"EX_SCALE_{name}"]) for name in "ABY")
    starts = tuple(command[f"EX_{name}_ADDRESS"] for name in ("INPUT", "OPERAND", "OUTPUT"))
    if machine.arch.numerics != "onnxruntime" or not length or low > high or not exact_in_float64(*constants):
        return False
    output = starts[2]
    if max(starts) + length > machine.sram.size or not all(output <= s or output >= s + length for s in starts):
        return False
    a, b, y = (machine.sram[start : start + length].view(np.int8) for start in starts)
    for first in range(0, length, _BLOCK_ELEMENTS):
        block = slice(first, min(first + _BLOCK_ELEMENTS, length))
        total = _fused(a[block], b[block], constants, offset, scratch)
        numerics.requantise_float32(total, np.ones((), np.float32), -offset, low, high, out=y[block])
    return True


def exact_in_float64(ratio_a: float, ratio_b: float, constant: float) -> bool:
    """Whether both sums of ``a*ratio_a + float32(b*ratio_b + constant)`` are exact in float64.

    All terms are multiples of the finest unit of the three constants (rounding to float32 keeps that), so they are if
    the largest sum is below 2**53 units. Then each conversion to float32 is the only rounding, as in a fused operation.
    """
    if not (isfinite(ratio_a) and isfinite(ratio_b) and isfinite(constant)):
        return False
    largest = 2 * (_OPERAND * (abs(ratio_a) + abs(ratio_b)) + abs(constant))
    units = max(value.as_integer_ratio()[1] for value in (ratio_a, ratio_b, constant))
    return largest < 1e30 and largest < 2**53 / units


def _fused(
    a: NDArray[np.int8], b: NDArray[np.int8], constants: tuple[float, ...], offset: int, scratch: Scratch
) -> NDArray[np.float32]:
    """float32 a' * ratio_a + float32(b' * ratio_b + constant) of operands with the offset, each rounded once."""
    wide = scratch.array("float64", a.shape, np.float64)
    inner = scratch.array("inner float64", a.shape, np.float64)
    total: NDArray[np.float32] = scratch.array("sums", a.shape, np.float32)
    np.copyto(inner, b)
    if offset:
        np.add(inner, offset, out=inner)
    np.multiply(inner, constants[1], out=inner)
    np.add(inner, constants[2], out=inner)
    np.copyto(total, inner, casting="same_kind")
    np.copyto(inner, total)
    np.copyto(wide, a)
    if offset:
        np.add(wide, offset, out=wide)
    np.multiply(wide, constants[0], out=wide)
    np.add(wide, inner, out=wide)
    np.copyto(total, wide, casting="same_kind")
    return total
