"""``OP_LUT``: the bytes of each channel translated at once by its table, also in place."""

from __future__ import annotations

import numpy as np

from dla_sim.kernels.attempt import Scratch
from isa.instruction import Command, Machine
from isa.ops.lookup import TABLE_BYTES, shape


def look_up(command: Command, machine: Machine, scratch: Scratch) -> bool:
    """Executes the command; False, with nothing written, for what is left to the semantics."""
    outer, channels, inner = shape(command)
    count, table_bytes = outer * channels * inner, TABLE_BYTES * channels
    source, tables, target = (command[f"EX_{name}_ADDRESS"] for name in ("INPUT", "OPERAND", "OUTPUT"))
    if not count or max(source + count, tables + table_bytes, target + count) > machine.sram.size:
        return False
    run = count if channels == 1 else inner
    if channels > 1 and run < TABLE_BYTES:
        return False
    # Copies: what the result overwrites has been read.
    data, table = machine.sram[source : source + count].tobytes(), machine.sram[tables : tables + table_bytes].tobytes()
    pieces = []
    for number in range(count // run):
        first = number % channels * TABLE_BYTES
        pieces.append(data[number * run : (number + 1) * run].translate(table[first : first + TABLE_BYTES]))
    machine.sram[target : target + count] = np.frombuffer(b"".join(pieces), np.uint8)
    return True
