"""Operations on whole rows: ``OP_REDUCE``, ``OP_SOFTMAX`` and ``OP_NORM``.

A tensor is (EX_ROWS, EX_INPUT_CHANNELS, EX_LENGTH). A row has EX_INPUT_CHANNELS elements, EX_LENGTH
apart, so there are EX_ROWS · EX_LENGTH rows; with EX_LENGTH = 1 rows are dense. A row of OP_NORM
contains all elements of one index of EX_ROWS.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.access import Access, strided
from isa.arch import Arch
from isa.instruction import (
    FLOAT32,
    INT8,
    Command,
    Instruction,
    Machine,
    Operands,
    Unit,
    ceil_div,
    formula,
    view,
)
from isa.ops.windows import make_refusal
from isa.registers import Field, float_value, to_signed

SUM = 0
MAXIMUM = 1
MINIMUM = 2
TABLE_ENTRIES = 256
TABLE_BYTES = 4 * TABLE_ENTRIES
PARAMETER_BYTES = 8
"""Bytes of gain and bias of OP_NORM: two float32 numbers, or two int32 numbers with numerics
``fixed``.
"""


def shape(command: Command) -> tuple[int, int, int]:
    """Return the shape of a row operation: (outer, elements per row, inner).

    Neighbouring elements of a row are ``inner`` bytes, or one plane, apart.
    """
    return command["EX_ROWS"], command["EX_INPUT_CHANNELS"], command["EX_LENGTH"]


def elements(command: Command) -> int:
    outer, count, inner = shape(command)
    return outer * count * inner


def operand(command: Command, machine: Machine, name: str) -> NDArray[np.int8]:
    """Return a view of a row operation's operand tensor as (outer, count, inner).

    The register EX_..._PLANE has the distance of planes.
    """
    outer, count, inner = shape(command)
    planes = view(
        machine.sram,
        command[f"EX_{name}_ADDRESS"],
        (outer * count, inner),
        np.int8,
        command[f"EX_{name}_PLANE"],
    )
    return np.lib.stride_tricks.as_strided(
        planes,
        (outer, count, inner),
        (count * planes.strides[0], *planes.strides),
        writeable=name == "OUTPUT",
    )


def _access(command: Command, name: str) -> Access:
    outer, count, inner = shape(command)
    plane = command[f"EX_{name}_PLANE"] or inner
    return strided("sram", command[f"EX_{name}_ADDRESS"], inner, (outer * count, plane))


# Reductions


def _reduce_operands(command: Command, arch: Arch) -> Operands:
    outer, count, inner = shape(command)
    if not count:
        raise make_refusal(command, "EX_INPUT_CHANNELS = 0: a row has at least one element")
    plane = command["EX_OUTPUT_PLANE"] or inner
    return Operands(
        (_access(command, "INPUT"),),
        (strided("sram", command["EX_OUTPUT_ADDRESS"], inner, (outer, plane)),),
    )


def result(command: Command, machine: Machine) -> NDArray[np.int8]:
    """Return the view of memory into which a reduction writes its results.

    The shape is (outer, inner).
    """
    outer, _, inner = shape(command)
    return view(
        machine.sram,
        command["EX_OUTPUT_ADDRESS"],
        (outer, inner),
        np.int8,
        command["EX_OUTPUT_PLANE"],
    )


@formula(
    """
    Sum: y = clip(rint(float32(Σ (x - INPUT_ZERO_POINT)) · SCALE_A) + OUTPUT_ZERO_POINT). The sum is
    a sum of integers. For a mean, SCALE_A includes the division by the number of elements.

    Maximum and minimum: y = clip(rint(float32((m - INPUT_ZERO_POINT) · SCALE_A) / SCALE_Y) +
    OUTPUT_ZERO_POINT), where m is the largest or smallest stored value.

    x is int8 with the shape (rows, IC, length), and y has the shape (rows, length). With numerics
    fixed, multiplier SCALE_A and shift SHIFT_A scale the sum, the maximum and the minimum (LiteRT's
    Mean and Sum).
    """
)
def _reduce(command: Command, machine: Machine) -> None:
    result(command, machine)[...] = reduce_rows(
        operand(command, machine, "INPUT"), command, machine.arch
    )


def reduce_rows(data: NDArray[np.int8], command: Command, arch: Arch) -> NDArray[np.int8]:
    """Reduce each row of ``data`` to one value, as the command says.

    ``data`` is (outer, count, inner), the result (outer, inner).
    """
    before = command["EX_INPUT_ZERO_POINT"]
    after = command["EX_OUTPUT_ZERO_POINT"]
    low = command["EX_CLAMP_LOW"]
    high = command["EX_CLAMP_HIGH"]
    mode = command.fields["mode"]
    if mode == SUM:
        value = data.sum(axis=1, dtype=np.int64) - before * data.shape[1]
    else:
        value = (data.max(axis=1) if mode == MAXIMUM else data.min(axis=1)).astype(np.int64)
    if arch.numerics == "fixed":
        centred = value if mode == SUM else value - before
        multiplier = to_signed(command["EX_SCALE_A"])
        return numerics.requantise_fixed(
            centred, multiplier, command["EX_SHIFT_A"], after, low, high
        )
    scale = float_value(command["EX_SCALE_A"])
    if mode == SUM:
        return numerics.global_average(value, np.float32(scale), after, low, high)
    scales = scale, float_value(command["EX_SCALE_Y"])
    return numerics.unary(value, "leaky_relu", scales, (before, after), 1.0, low, high)


@formula("⌈rows·IC·length / post_lanes⌉.")
def _reduce_cycles(command: Command, arch: Arch) -> int:
    return ceil_div(elements(command), arch.lanes)


OP_REDUCE = Instruction(
    mnemonic="OP_REDUCE", opcode=0x52, unit=Unit.EX, kind="POOL",
    description="Sum or mean, maximum or minimum of every row; input and result have their own "
                "quantisations.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS", "EX_ROWS", "EX_INPUT_CHANNELS", "EX_LENGTH",
        "EX_INPUT_PLANE", "EX_OUTPUT_PLANE", "EX_INPUT_ZERO_POINT", "EX_OUTPUT_ZERO_POINT",
        "EX_CLAMP_LOW", "EX_CLAMP_HIGH", "EX_SCALE_A", "EX_SCALE_Y", "EX_SHIFT_A",
    ),
    fields=(Field("mode", 50, 2, description="0 sum, 1 maximum, 2 minimum", defined=3),),
    operands=_reduce_operands, semantics=_reduce, cycles=_reduce_cycles, inputs=(INT8,),
    outputs=(INT8,),
)  # fmt: skip


# Softmax


def _softmax_operands(command: Command, arch: Arch) -> Operands:
    table = strided("sram", command["EX_OPERAND_ADDRESS"], TABLE_BYTES)
    return Operands((_access(command, "INPUT"), table), (_access(command, "OUTPUT"),))


@formula(
    """
    for every row, v = table[255 + x - max(x)] and s = Σ v in order. The result is
    y = clip(rint(v · SCALE_Y / s) + OUTPUT_ZERO_POINT).

    x and y are int8 with the shape (rows, IC, length), and the table has 256 float32 entries. Sum,
    product and quotient are float32, each rounded.

    With numerics fixed (LiteRT's Softmax), the table is uint32 with entries below 2^31. The sum
    s = Σ round(v / 2^12) has b bits, at most 31, and d = s · 2^(31-b). The reciprocal r of d is
    min(2z, 2^31 - 1). z starts as 1515870810 - 1010580540 ⊗ d, followed by three steps
    z ← z + 4 · (z ⊗ (2^29 - d ⊗ z)). The result is
    y = clip(round((v ⊗ r) · SCALE_Y / 2^(b+19)) + OUTPUT_ZERO_POINT), with SCALE_Y below 2^24.

    In these formulas, ⊗ is the product / 2^31, rounded with ties upwards. Other ties are rounded
    away from zero.
    """
)
def _softmax(command: Command, machine: Machine) -> None:
    data = operand(command, machine, "INPUT")
    if data.size:
        operand(command, machine, "OUTPUT")[...] = softmax_result(data, command, machine)


def softmax_result(data: NDArray[np.int8], command: Command, machine: Machine) -> NDArray[np.int8]:
    """Return the softmax of ``data`` (outer, count, inner), as the command says."""
    words = machine.sram[command["EX_OPERAND_ADDRESS"] :][:TABLE_BYTES].copy()
    zero_point = command["EX_OUTPUT_ZERO_POINT"]
    factor = command["EX_SCALE_Y"]
    if machine.arch.numerics == "fixed":
        if factor >= 1 << 24:
            raise make_refusal(
                command, f"EX_SCALE_Y = {factor} must be below {1 << 24} with numerics fixed"
            )
        return numerics.softmax_fixed(data, words.view("<u4"), factor, zero_point)
    return numerics.softmax(data, words.view("<f4"), np.float32(float_value(factor)), zero_point)


@formula(
    """
    2 · ⌈rows·IC·length / post_lanes⌉ + IC · ⌈rows·length / post_lanes⌉.

    The lanes compute maxima and quotients of all elements in parallel. They compute the sums in
    order, one row for each lane.
    """
)
def _softmax_cycles(command: Command, arch: Arch) -> int:
    outer, count, inner = shape(command)
    return 2 * ceil_div(elements(command), arch.lanes) + count * ceil_div(outer * inner, arch.lanes)


OP_SOFTMAX = Instruction(
    mnemonic="OP_SOFTMAX", opcode=0x53, unit=Unit.EX, kind="ACT",
    description="Softmax of every row. A table contains 256 exponentials of the distance to the "
                "row's maximum.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS", "EX_ROWS",
        "EX_INPUT_CHANNELS", "EX_LENGTH",
        "EX_INPUT_PLANE", "EX_OUTPUT_PLANE", "EX_OUTPUT_ZERO_POINT", "EX_SCALE_Y",
    ),
    operands=_softmax_operands, semantics=_softmax, cycles=_softmax_cycles, inputs=(INT8, FLOAT32),
    outputs=(INT8,),
    replaced=(0,),
)  # fmt: skip


# Normalisation


def parameters(command: Command) -> int:
    """Return the number of (gain, bias) pairs that a normalisation reads."""
    outer, count, _ = shape(command)
    return count * (outer if command.fields["by_row"] else 1)


def _norm_operands(command: Command, arch: Arch) -> Operands:
    count = elements(command)
    pairs = strided("sram", command["EX_OPERAND_ADDRESS"], PARAMETER_BYTES * parameters(command))
    data = strided("sram", command["EX_INPUT_ADDRESS"], count)
    return Operands((data, pairs), (strided("sram", command["EX_OUTPUT_ADDRESS"], count),))


@formula(
    """
    y = clip(rint(d / sqrt(v + SCALE_A) · gain + bias) + OUTPUT_ZERO_POINT). d and v are integers;
    each step from d and v on is rounded to float32.

    | centred | d | v |
    | --- | --- | --- |
    | 1 | n·x - Σx | n·Σx² - (Σx)² |
    | 0 | x - INPUT_ZERO_POINT | Σd² |

    A row has n = IC·length elements. x and y are int8 with the shape (rows, IC·length). Gain and
    bias are pairs of float32 with the shape (IC,), or (rows, IC) with by_row. Each pair applies to
    length elements.

    With numerics fixed, gain and bias are int32 with 15 and 16 fraction bits, and SCALE_A is an
    integer. With t = ⌊d · 2^16 / max(⌊sqrt(v + SCALE_A)⌋, 1)⌋, y = clip(⌊(t · gain + bias · 2^15 +
    2^30) / 2^31⌋ + OUTPUT_ZERO_POINT).
    """
)
def _norm(command: Command, machine: Machine) -> None:
    outer, count, inner = shape(command)
    data = view(machine.sram, command["EX_INPUT_ADDRESS"], (outer, count * inner), np.int8)
    target = view(machine.sram, command["EX_OUTPUT_ADDRESS"], (outer, count * inner), np.int8)
    if data.size:
        target[...] = normalise_rows(data, command, machine)


def normalise_rows(data: NDArray[np.int8], command: Command, machine: Machine) -> NDArray[np.int8]:
    """Normalise ``data`` (rows, elements per row), as the command says."""
    _, count, inner = shape(command)
    fixed = machine.arch.numerics == "fixed"
    start = command["EX_OPERAND_ADDRESS"]
    pairs = parameters(command)
    words = (
        machine.sram[start : start + PARAMETER_BYTES * pairs].copy().view("<i4" if fixed else "<f4")
    )
    table: NDArray[Any] = words.reshape(-1, count, 1, 2)
    gain, bias = (
        np.broadcast_to(table[..., part], (len(table), count, inner)).reshape(len(table), -1)
        for part in (0, 1)
    )
    centre = None if command.fields["centred"] else command["EX_INPUT_ZERO_POINT"]
    zero_point = command["EX_OUTPUT_ZERO_POINT"]
    if fixed:
        wide = gain.astype(np.int64), bias.astype(np.int64)
        return numerics.normalise_fixed(data, *wide, command["EX_SCALE_A"], centre, zero_point)
    return numerics.normalise(
        data, gain, bias, np.float32(float_value(command["EX_SCALE_A"])), centre, zero_point
    )


@formula(
    """
    2 · ⌈rows·IC·length / post_lanes⌉ + rows: a pass for the sums, a pass for the results, and a
    root for each row.
    """
)
def _norm_cycles(command: Command, arch: Arch) -> int:
    return 2 * ceil_div(elements(command), arch.lanes) + command["EX_ROWS"]


OP_NORM = Instruction(
    mnemonic="OP_NORM", opcode=0x54, unit=Unit.EX, kind="ACT",
    description="Normalises rows by mean and variance, or by their root mean square, with a gain "
                "and a bias.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS", "EX_ROWS",
        "EX_INPUT_CHANNELS", "EX_LENGTH",
        "EX_INPUT_ZERO_POINT", "EX_OUTPUT_ZERO_POINT", "EX_SCALE_A",
    ),
    fields=(
        Field("centred", 51, 1, description="1 subtracts the mean, 0 EX_INPUT_ZERO_POINT"),
        Field("by_row", 50, 1, description="1 if every row has its own gains and biases"),
    ),
    operands=_norm_operands, semantics=_norm, cycles=_norm_cycles, inputs=(INT8, FLOAT32),
    outputs=(INT8,),
    replaced=(0,),
)  # fmt: skip
INSTRUCTIONS = (OP_REDUCE, OP_SOFTMAX, OP_NORM)
