"""Element-wise int8 instructions: one table of 256 entries for a unary function, NumPy for minimum and maximum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.scratch import Scratch
from isa.instruction import Command, Machine
from isa.ops.elementwise import Function, unary_result

_EVERY = np.arange(256, dtype=np.uint8).view(np.int8)

Kernel = Callable[[Command, Machine, Scratch], bool]


def _operand(command: Command, machine: Machine, name: str) -> NDArray[np.int8] | None:
    """The tensor at an address register; None where it is empty or reaches past the end of the scratchpad."""
    address, length = command[f"EX_{name}_ADDRESS"], command["EX_LENGTH"]
    if not length or address + length > machine.sram.size:
        return None
    return machine.sram[address : address + length].view(np.int8)


def unary(function: Function) -> Kernel:
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


def comparison(function: Callable[..., Any]) -> Kernel:
    """The kernel of ``OP_C_MIN`` or ``OP_C_MAX``: NumPy's ``function``, which minds overlapping operands itself."""

    def kernel(command: Command, machine: Machine, scratch: Scratch) -> bool:
        a, b = _operand(command, machine, "INPUT"), _operand(command, machine, "OPERAND")
        output = _operand(command, machine, "OUTPUT")
        if a is None or b is None or output is None:
            return False
        function(a, b, out=output)
        return True

    return kernel
