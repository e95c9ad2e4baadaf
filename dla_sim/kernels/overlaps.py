"""Whether a command's result may be written while its operands are still being read."""

from __future__ import annotations

from collections.abc import Sequence

from dla_sim.kernels.windows import Window
from isa.instruction import Command, Machine

Range = tuple[int, int]
"""First byte and number of bytes."""


def all_apart(output: Range, reads: Sequence[Range], end: int) -> bool:
    """Whether ``output`` and ``reads`` lie below ``end`` and no byte of ``output`` is in ``reads``."""
    first, last = output[0], output[0] + output[1]
    if last > end:
        return False
    return all(address + size <= end and (address + size <= first or last <= address) for address, size in reads)


def operands_apart(shape: Window, element: int, weight_bytes: int, command: Command, machine: Machine) -> bool:
    """`all_apart` (of hulls) for a convolution with ``weight_bytes`` of weights and outputs of ``element`` bytes."""
    reads = (
        (command["EX_INPUT_ADDRESS"], shape.input_bytes),
        (command["EX_OPERAND_ADDRESS"], weight_bytes),
        (command["EX_CHANNEL_ADDRESS"], shape.oc * machine.arch.channel_record_bytes),
    )
    return all_apart((command["EX_OUTPUT_ADDRESS"], shape.output_bytes(element)), reads, machine.sram.size)
