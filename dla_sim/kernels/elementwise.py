"""Kernels of unary int8 instructions and look-up tables: bytes are translated by tables."""

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import AtOnce, Attempt, Workspace
from isa.access import row_starts
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.numerics.unary import Function
from isa.ops.elementwise import unary_result
from isa.ops.lookup import TABLE_BYTES, look_up, result_shape, shape, table_count

_EVERY = np.arange(256, dtype=np.uint8).view(np.int8)


def _operand(command: Command, machine: Machine, name: str) -> NDArray[np.int8] | None:
    """Return the tensor at an address register; None if empty or beyond the scratchpad."""
    address = command[f"EX_{name}_ADDRESS"]
    length = command["EX_LENGTH"]
    if not length or address + length > machine.sram.size:
        return None
    return machine.sram[address : address + length].view(np.int8)


def unary(function: Function) -> AtOnce:
    """Return the kernel of a unary instruction, which looks up each element in a table.

    The table has the semantics' result for every int8 value.
    """

    def kernel(command: Command, machine: Machine, scratch: Workspace) -> bool:
        x = _operand(command, machine, "INPUT")
        output = _operand(command, machine, "OUTPUT")
        if x is None or output is None or x.size < 2 * _EVERY.size:
            return False
        with np.errstate(all="ignore"):
            table = unary_result(_EVERY, function, command, machine.arch)
        output[...] = np.frombuffer(x.tobytes().translate(table.tobytes()), np.int8)
        return True

    return kernel


# Tables.
# Look-ups translate all bytes of a channel by its table at once, for ``OP_LUT`` and as a last step
# of others.


def look_up_tensor(command: Command, machine: Machine, scratch: Workspace) -> bool:
    """Execute a table look-up of a tensor; return False if the kernel cannot execute it.

    Nothing is written if it returns False.
    """
    outer, channels, inner = shape(command)
    count = outer * channels * inner
    table_bytes = TABLE_BYTES * channels
    source, tables, target = (
        command[f"EX_{name}_ADDRESS"] for name in ("INPUT", "OPERAND", "OUTPUT")
    )
    if not count or max(source + count, tables + table_bytes, target + count) > machine.sram.size:
        return False
    run = count if channels == 1 else inner
    if channels > 1 and run < TABLE_BYTES:
        return False
    # Copies, because the result may overwrite the source or the tables.
    data = machine.sram[source : source + count].tobytes()
    table = machine.sram[tables : tables + table_bytes].tobytes()
    pieces = []
    for number in range(count // run):
        first = number % channels * TABLE_BYTES
        pieces.append(
            data[number * run : (number + 1) * run].translate(table[first : first + TABLE_BYTES])
        )
    machine.sram[target : target + count] = np.frombuffer(b"".join(pieces), np.uint8)
    return True


def add_look_up(attempt: Attempt, command: Command, arch: Arch) -> Attempt:
    """Return a kernel that runs ``attempt`` and then looks up its results in a table.

    The registers of ``command`` give the tables.
    """
    count = table_count(command)
    first = command["EX_TABLE_ADDRESS"]
    end = first + TABLE_BYTES * count
    access = command.instruction.operands(command, arch).writes[0]
    results = result_shape(command, access.total)
    # Runs that share one table are translated as bytes; otherwise NumPy gathers each element from
    # its table.
    run = access.nbytes if count == 1 else results[2]
    apart = all(step >= access.nbytes for _, step in access.dims)
    long = run >= TABLE_BYTES and (count == 1 or results[0] == 1) and apart
    places = (
        (row_starts(access)[:, np.newaxis] + np.arange(0, access.nbytes, run)).reshape(-1).tolist()
        if long
        else ()
    )
    size = (*(times for times, _ in access.dims), access.nbytes)
    strides = (*(step for _, step in access.dims), 1)

    def both(machine: Machine, scratch: Workspace) -> bool:
        if end > machine.sram.size:
            return False
        tables = machine.sram[first:end].copy()  # the results may overwrite them
        if not attempt(machine, scratch):
            return False
        for number, place in enumerate(places):
            table = tables[TABLE_BYTES * number % tables.size :][:TABLE_BYTES].tobytes()
            result = machine.sram[place : place + run].tobytes().translate(table)
            machine.sram[place : place + run] = np.frombuffer(result, np.uint8)
        if not long:
            found = np.ndarray(size, np.uint8, machine.sram, access.address, strides)
            found[...] = look_up(
                found.reshape(results), tables.reshape(count, TABLE_BYTES)
            ).reshape(size)
        return True

    return both
