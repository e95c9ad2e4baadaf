"""``OP_SOFTMAX`` and ``OP_NORM`` on whole tiles.

The kernels make fewer and narrower passes than the semantics.
"""

import numpy as np

from dla_sim.kernels.attempt import Workspace
from isa import numerics
from isa.instruction import Command, Machine
from isa.ops.rows import PARAMETER_BYTES, TABLE_BYTES, operand, parameters, shape
from isa.registers import float_value

_EXACT = 1 << 15
"""Maximum elements of a row: up to it, sums of int8 and n · x - Σx are integers that float32
represents exactly.
"""
_ONE = np.ones((), np.float32)


def softmax(command: Command, machine: Machine, scratch: Workspace) -> bool:
    """Execute a softmax command; return False if the kernel cannot execute it.

    Nothing is written if it returns False.
    """
    outer, count, inner = shape(command)
    start = command["EX_OPERAND_ADDRESS"]
    if (
        machine.arch.numerics != "onnxruntime"
        or not outer * count * inner
        or start + TABLE_BYTES > machine.sram.size
    ):
        return False
    table = machine.sram[start : start + TABLE_BYTES].copy().view("<f4")
    factor = np.float32(float_value(command["EX_SCALE_Y"]))
    with np.errstate(all="ignore"):
        finite = (
            np.isfinite(table[255] * factor)
            and np.isfinite(table[255] * np.float32(count))
            and factor >= 0
        )
    if not finite or not table[255] > 0 or not (table[0] >= 0 and (np.diff(table) >= 0).all()):
        return False  # only a table that rises from 0 bounds the largest numerator and sum
    data = operand(command, machine, "INPUT")
    distance = np.subtract(data.max(axis=1, keepdims=True), data, dtype=np.int16)
    value = table[::-1][distance]
    if inner == 1:
        total = np.add.accumulate(value, axis=1, dtype=np.float32)[:, -1:]
    else:
        total = value[:, :1].copy()
        for number in range(1, count):
            np.add(total, value[:, number : number + 1], out=total)
    np.multiply(value, factor, out=value)
    np.divide(value, total, out=value)
    numbers = np.empty(data.shape, np.int8)
    numerics.requantise_float32(value, _ONE, command["EX_OUTPUT_ZERO_POINT"], out=numbers)
    operand(command, machine, "OUTPUT")[...] = numbers
    return True


def normalisation(command: Command, machine: Machine, scratch: Workspace) -> bool:
    """Execute a normalisation command; return False if the kernel cannot execute it.

    Nothing is written if it returns False.
    """
    outer, count, inner = shape(command)
    size = count * inner
    pairs = parameters(command)
    source, start, target = (
        command[f"EX_{name}_ADDRESS"] for name in ("INPUT", "OPERAND", "OUTPUT")
    )
    end = max(source + outer * size, start + PARAMETER_BYTES * pairs, target + outer * size)
    epsilon = np.float32(float_value(command["EX_SCALE_A"]))
    if (
        machine.arch.numerics != "onnxruntime"
        or not outer
        or not 0 < size <= _EXACT
        or end > machine.sram.size
    ):
        return False
    words = machine.sram[start : start + PARAMETER_BYTES * pairs].copy().view("<f4")
    if not (np.isfinite(words).all() and 0 < epsilon < np.inf):
        return False
    data = (
        machine.sram[source : source + outer * size]
        .view(np.int8)
        .reshape(outer, size)
        .astype(np.float32)
    )
    if command.fields["centred"]:
        total = data.sum(axis=1, dtype=np.float64, keepdims=True)
        squares = np.einsum("ij,ij->i", data, data, dtype=np.float64)[:, np.newaxis]
        spread = size * squares.astype(np.int64) - np.square(total.astype(np.int64))
        np.multiply(data, np.float32(size), out=data)
        np.subtract(data, total.astype(np.float32), out=data)
    else:
        if abs(command["EX_INPUT_ZERO_POINT"]) > 255:
            return False
        np.subtract(data, np.float32(command["EX_INPUT_ZERO_POINT"]), out=data)
        spread = np.einsum("ij,ij->i", data, data, dtype=np.float64)[:, np.newaxis].astype(np.int64)
    root = np.sqrt(spread.astype(np.float32) + epsilon)
    np.divide(data, root, out=data)
    table = words.reshape(-1, count, 1, 2)
    value = data.reshape(outer, count, inner)
    with np.errstate(all="ignore"):
        np.multiply(value, table[..., 0], out=value)
        np.add(value, table[..., 1], out=value)
    if not np.isfinite(value).all():
        return False
    rows = machine.sram[target : target + outer * size].view(np.int8).reshape(value.shape)
    numerics.requantise_float32(value, _ONE, command["EX_OUTPUT_ZERO_POINT"], out=rows)
    return True
