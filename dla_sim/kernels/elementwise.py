"""Kernels of element-wise int8 instructions, tables and requantisation.

A unary function uses a table of 256 entries; minimum and maximum use NumPy. ``OP_E_ADD`` is
computed in blocks, in float64 if that is provably as exact as the fused multiply-adds of the
semantics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import AtOnce, Attempt, Workspace, disjoint
from dla_sim.kernels.results import LARGEST_SQUARES
from isa import numerics
from isa.access import row_starts
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.numerics.unary import Function
from isa.ops.elementwise import unary_result
from isa.ops.lookup import TABLE_BYTES, look_up, result_shape, shape, table_count
from isa.ops.lookup import shape as planes_of
from isa.ops.requant import load_records
from isa.registers import float_value

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


def comparison(function: Callable[..., Any]) -> AtOnce:
    """Return the kernel of ``OP_C_MIN`` or ``OP_C_MAX``.

    NumPy's ``function`` handles overlapping operands.
    """

    def kernel(command: Command, machine: Machine, scratch: Workspace) -> bool:
        a = _operand(command, machine, "INPUT")
        b = _operand(command, machine, "OPERAND")
        output = _operand(command, machine, "OUTPUT")
        if a is None or b is None or output is None:
            return False
        function(a, b, out=output)
        return True

    return kernel


_BLOCK_ELEMENTS = 16 * 1024
_OPERAND = 128 + 255
"""Largest magnitude of an operand plus the offset."""


def addition(command: Command, machine: Machine, scratch: Workspace) -> bool:
    """Execute an element-wise addition; return False if the kernel cannot execute it.

    Nothing is written if it returns False.
    """
    length = command["EX_LENGTH"]
    offset = command["EX_OFFSET"]
    low = command["EX_CLAMP_LOW"]
    high = command["EX_CLAMP_HIGH"]
    constants = tuple(float_value(command[f"EX_SCALE_{name}"]) for name in "ABY")
    starts = tuple(command[f"EX_{name}_ADDRESS"] for name in ("INPUT", "OPERAND", "OUTPUT"))
    if (
        machine.arch.numerics != "onnxruntime"
        or not length
        or low > high
        or not exact_in_float64(*constants)
    ):
        return False
    output = starts[2]
    if max(starts) + length > machine.sram.size or not all(
        output <= s or output >= s + length for s in starts
    ):
        return False
    a, b, y = (machine.sram[start : start + length].view(np.int8) for start in starts)
    for first in range(0, length, _BLOCK_ELEMENTS):
        block = slice(first, min(first + _BLOCK_ELEMENTS, length))
        total = _add_fused(a[block], b[block], constants, offset, scratch)
        numerics.requantise_float32(
            total, np.ones((), np.float32), -offset, low, high, out=y[block]
        )
    return True


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


def _add_fused(
    a: NDArray[np.int8],
    b: NDArray[np.int8],
    constants: tuple[float, ...],
    offset: int,
    scratch: Workspace,
) -> NDArray[np.float32]:
    """Return float32 a' * ratio_a + float32(b' * ratio_b + constant), each rounded once.

    a' and b' are the operands plus the offset.
    """
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


# Requantisation.
# ``OP_REQUANT`` in blocks of float32, also in place.

_REQUANT_BLOCK = 64 * 1024


def requantisation(command: Command, machine: Machine, scratch: Workspace) -> bool:
    """Execute a requantisation; return False if the kernel cannot execute it.

    Nothing is written if it returns False.
    """
    outer, channels, inner = planes_of(command)
    low = command["EX_CLAMP_LOW"]
    high = command["EX_CLAMP_HIGH"]
    if machine.arch.numerics != "onnxruntime" or not outer * channels * inner or low > high:
        return False
    if not _safe(command, machine, outer * channels * inner):
        return False
    scale = load_records(machine, command["EX_CHANNEL_ADDRESS"], channels).scale
    if not np.vdot(scale, scale) <= LARGEST_SQUARES:
        return False
    accumulator = np.ndarray(
        (outer, channels, inner), np.int32, machine.sram, command["EX_INPUT_ADDRESS"]
    )
    output = np.ndarray(
        (outer, channels, inner), np.int8, machine.sram, command["EX_OUTPUT_ADDRESS"]
    )
    for block in _blocks(outer, channels, inner):
        wide = scratch.array("sums", accumulator[block].shape, np.float32)
        np.copyto(wide, accumulator[block], casting="unsafe")
        factors = scale[block[1], None]
        numerics.requantise_float32(
            wide, factors, command["EX_OUTPUT_ZERO_POINT"], low, high, out=output[block]
        )
    return True


def _safe(command: Command, machine: Machine, elements: int) -> bool:
    """Return True if computing blocks in ascending order never overwrites unread input.

    In place is safe: the byte of result i is at or below the first byte of accumulator i, which has
    been read.
    """
    source = command["EX_INPUT_ADDRESS"]
    target = command["EX_OUTPUT_ADDRESS"]
    records = command["EX_CHANNEL_ADDRESS"]
    records_end = records + command["EX_OUTPUT_CHANNELS"] * machine.arch.channel_record_bytes
    ends = target + elements, source + 4 * elements, records_end
    if max(ends) > machine.sram.size or not disjoint((target, ends[0]), ((records, records_end),)):
        return False
    return target <= source or target >= ends[1]


def _blocks(outer: int, channels: int, inner: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yield blocks of a tensor with at most about 64 Ki elements, in memory order.

    A block has several matrices, several channels of one matrix, or part of one channel.
    """
    matrices = max(_REQUANT_BLOCK // (channels * inner), 1)
    planes = min(max(_REQUANT_BLOCK // inner, 1), channels)
    elements = min(_REQUANT_BLOCK, inner)
    for first in range(0, outer, matrices):
        for channel in range(0, channels, planes):
            for element in range(0, inner, elements):
                yield (
                    slice(first, min(first + matrices, outer)),
                    slice(channel, min(channel + planes, channels)),
                    slice(element, min(element + elements, inner)),
                )
