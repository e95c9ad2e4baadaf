"""Look-ups: the bytes of each channel translated at once by its table, for ``OP_LUT`` and as a last step of others."""

from __future__ import annotations

import numpy as np

from dla_sim.kernels.attempt import Attempt, Scratch
from isa.access import row_starts
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.lookup import TABLE_BYTES, look_up, result_shape, shape, table_count


def look_up_tensor(command: Command, machine: Machine, scratch: Scratch) -> bool:
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


def looked_up(attempt: Attempt, command: Command, arch: Arch) -> Attempt:
    """``attempt``, and then its results looked up as the command says."""
    count, first = table_count(command), command["EX_TABLE_ADDRESS"]
    end = first + TABLE_BYTES * count
    access = command.instruction.operands(command, arch).writes[0]
    results = result_shape(command, access.total)
    # Where a table serves many bytes side by side they are translated; else NumPy takes each from its table.
    run = access.nbytes if count == 1 else results[2]
    apart = all(step >= access.nbytes for _, step in access.dims)
    long = run >= TABLE_BYTES and (count == 1 or results[0] == 1) and apart
    places = (row_starts(access)[:, np.newaxis] + np.arange(0, access.nbytes, run)).reshape(-1).tolist() if long else ()
    size, strides = (*(times for times, _ in access.dims), access.nbytes), (*(step for _, step in access.dims), 1)

    def both(machine: Machine, scratch: Scratch) -> bool:
        if end > machine.sram.size:
            return False
        tables = machine.sram[first:end].copy()  # the results may lie over them
        if not attempt(machine, scratch):
            return False
        for number, place in enumerate(places):
            table = tables[TABLE_BYTES * number % tables.size :][:TABLE_BYTES].tobytes()
            result = machine.sram[place : place + run].tobytes().translate(table)
            machine.sram[place : place + run] = np.frombuffer(result, np.uint8)
        if not long:
            found = np.ndarray(size, np.uint8, machine.sram, access.address, strides)
            found[...] = look_up(found.reshape(results), tables.reshape(count, TABLE_BYTES)).reshape(size)
        return True

    return both
