"""Kernels that move bytes: transfers, permutations, look-up tables and unary int8 instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import AtOnce, Attempt, Workspace, bind_once
from isa.access import Access, row_starts
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.numerics.unary import Function
from isa.ops import movement
from isa.ops.dma import side
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


def transfer(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for a DMA transfer; None if the kernel cannot execute the command."""
    found = describe_transfer(command)
    return None if found is None else bind_once(found.bind)


def describe_transfer(command: Command) -> ByteTransfer | None:
    """Return a DMA transfer; None if it has no bytes or writes bytes twice."""
    unit = command.unit.name
    reading = command.instruction.mnemonic == "OP_DMA_READ"
    sram = side(command, "sram")
    dram = side(command, "dram")
    size = (*(command[f"{unit}_COUNT_{d}"] for d in (3, 2, 1)), command[f"{unit}_BYTES"])
    if not prod(size) or not _is_nested(sram if reading else dram):
        return None
    if not sram.dims and not dram.dims:
        return ByteTransfer(
            (sram.nbytes,), sram.address, (1,), sram.end, dram.address, (1,), dram.end, reading
        )
    steps = (
        (*(command[f"{unit}_{name}_STRIDE_{d}"] for d in (3, 2, 1)), 1) for name in ("SRAM", "DRAM")
    )
    return ByteTransfer(
        size, sram.address, next(steps), sram.end, dram.address, next(steps), dram.end, reading
    )


@dataclass(frozen=True, eq=False)
class ByteTransfer:
    """Prepared transfer of ``size`` bytes between two strided boxes.

    With ``reading`` it copies from system memory to the scratchpad.
    """

    size: tuple[int, ...]
    sram: int
    sram_strides: tuple[int, ...]
    sram_end: int
    dram: int
    dram_strides: tuple[int, ...]
    dram_end: int
    reading: bool

    def bind(self, machine: Machine, scratch: Workspace) -> Callable[[], bool]:
        """Return a function that executes the transfer, and returns False if it cannot."""
        if self.sram_end > machine.sram.size or self.dram_end > machine.dram.size:
            return lambda: False
        target, source = self._views(machine)

        def attempt() -> bool:
            np.copyto(target, source)
            return True

        return attempt

    def move(self, machine: Machine) -> None:
        """Copy the bytes of a transfer inside both memories."""
        np.copyto(*self._views(machine))

    def _views(self, machine: Machine) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return the views of the bytes that the transfer writes and reads."""
        sram = np.ndarray(self.size, np.uint8, machine.sram, self.sram, self.sram_strides)
        dram = np.ndarray(self.size, np.uint8, machine.dram, self.dram, self.dram_strides)
        return (sram, dram) if self.reading else (dram, sram)


def permutation(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a copy within the scratchpad; None if the kernel cannot execute the command.

    This is the case if there are no bytes or if bytes are written twice. Results may overlap
    sources: NumPy handles that.
    """
    source, target = (movement.side(command, name) for name in ("INPUT", "OUTPUT"))
    read, written = (movement.find_touched(command, name) for name in ("INPUT", "OUTPUT"))
    fill = command["EX_INPUT_ZERO_POINT"] & 0xFF if command.fields["fill"] else None
    if not is_written_once(command):
        return None
    size = tuple(number for number, _ in target.dims)
    source_strides, target_strides = (
        tuple(stride for _, stride in access.dims) for access in (source, target)
    )
    end = written.end if fill is not None else max(read.end, written.end)

    def attempt(machine: Machine, scratch: Workspace) -> bool:
        if end > machine.sram.size:
            return False
        result = np.ndarray(size, np.uint8, machine.sram, target.address, target_strides)
        if fill is not None:
            result[...] = fill
        else:
            np.copyto(
                result, np.ndarray(size, np.uint8, machine.sram, source.address, source_strides)
            )
        return True

    return attempt


def is_written_once(command: Command) -> bool:
    """Return True if an ``OP_PERMUTE`` writes bytes, and none of them twice."""
    written = movement.find_touched(command, "OUTPUT")
    total = written.total
    return bool(total) and total == movement.count(command) and _is_nested(written)


def _is_nested(access: Access) -> bool:
    """Return True if each stride of a box exceeds the extent of its inner dimensions.

    Then no byte is accessed twice.
    """
    reach = access.nbytes
    for count, stride in reversed(access.dims):
        if stride < reach:
            return False
        reach += (count - 1) * stride
    return True
