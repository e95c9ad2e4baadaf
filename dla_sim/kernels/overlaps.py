"""Whether a command's result may be written while its operands are still being read."""

from __future__ import annotations

from dla_sim.kernels.windows import Window
from isa.instruction import Command, Machine


def apart(first: int, first_bytes: int, second: int, second_bytes: int) -> bool:
    """Whether two byte ranges (address, size) have no byte in common."""
    return first + first_bytes <= second or second + second_bytes <= first


def operands_apart(shape: Window, element: int, weight_bytes: int, command: Command, machine: Machine) -> bool:
    """Whether all operands lie in the scratchpad and the result overlaps none of them (as hulls)."""
    output, size = command["EX_OUTPUT_ADDRESS"], shape.output_bytes(element)
    reads = (
        (command["EX_INPUT_ADDRESS"], shape.input_bytes),
        (command["EX_OPERAND_ADDRESS"], weight_bytes),
        (command["EX_CHANNEL_ADDRESS"], shape.oc * machine.arch.channel_record_bytes),
    )
    end = machine.sram.size
    inside = output + size <= end and all(address + count <= end for address, count in reads)
    return inside and all(apart(output, size, address, count) for address, count in reads)
