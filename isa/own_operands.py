"""Where a command's result may lie on its own operands: where a machine that reads and writes as it goes cannot tell.

The semantics read everything before they write anything. Hardware does not wait for the last element before it writes
the first result, so it gives the same only where no result takes the place of an element that is still to be read.
"""

from __future__ import annotations

from isa.access import Access, Range, overlap
from isa.instruction import Command, Operands


def overwritten(command: Command, operands: Operands) -> Range | None:
    """The first bytes that ``command`` writes over an operand of its own and must not, or None.

    An operand in ``Instruction.streamed`` may begin at the result or behind it, if both are dense and it has as many
    bytes at least: element by element, each is read before a result is written there. One in
    ``Instruction.replaced`` may be exactly where the result is.
    """
    for result in operands.writes:
        for position, operand in enumerate(operands.reads):
            if operand.address < result.end and result.address < operand.end and operand.total and result.total:
                found = overlap(operand, result)
                if found is not None and not _harmless(command, position, operand, result):
                    return found
    return None


def _harmless(command: Command, position: int, operand: Access, result: Access) -> bool:
    if position in command.instruction.replaced:
        return operand == result
    dense = not operand.dims and not result.dims and operand.total >= result.total
    return position in command.instruction.streamed and dense and operand.address >= result.address
