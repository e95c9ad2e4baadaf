"""Row-major int8 matrix products (M, K) × (K, N).

``OP_MAT_MUL`` multiplies by constant weights, with one channel record per column.
``OP_DYN_MAT_MUL`` multiplies two activations, with one zero point per operand and one scale.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.access import strided
from isa.arch import Arch
from isa.instruction import (
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
from isa.ops.convolution import add_partial_sums
from isa.ops.lookup import add_tables
from isa.ops.requant import load_records, requantise_channels
from isa.ops.windows import (
    RELU,
    REQUANTISE,
    RESULT,
    element_bytes,
    fused_cycles,
    initial_sums,
    lower_limit,
    make_refusal,
)
from isa.registers import Field, float_value


def shape(command: Command) -> tuple[int, int, int]:
    """Return the sizes (M, K, N) of a matrix product command."""
    return command["EX_ROWS"], command["EX_INPUT_CHANNELS"], command["EX_OUTPUT_CHANNELS"]


def _read_sizes(command: Command) -> tuple[int, int, int]:
    """Return the sizes (M, K, N) of a matrix product; raise InputError if K is 0."""
    if not command["EX_INPUT_CHANNELS"]:
        raise make_refusal(command, "EX_INPUT_CHANNELS is 0; it must be 1 or more")
    return shape(command)


def _operands(command: Command, arch: Arch) -> Operands:
    m, k, n = _read_sizes(command)
    reads = (
        strided("sram", command["EX_INPUT_ADDRESS"], m * k),
        strided("sram", command["EX_OPERAND_ADDRESS"], k * n),
        strided("sram", command["EX_CHANNEL_ADDRESS"], n * arch.channel_record_bytes),
    )
    return Operands(
        reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], m * n * element_bytes(command)),)
    )


@formula(
    """
    y[m, n] = bias[n] + Σ over k of A[m, k] · B[k, n].

    A has the shape (M, K), and B has the shape (K, N'); both are row-major. M is EX_ROWS, K is IC,
    and N' is OC.
    """
)
def _matmul(command: Command, machine: Machine) -> None:
    m, k, n = shape(command)
    left = view(machine.sram, command["EX_INPUT_ADDRESS"], (m, k), np.int8).astype(np.int64)
    right = view(machine.sram, command["EX_OPERAND_ADDRESS"], (k, n), np.int8).astype(np.int64)
    records = load_records(machine, command["EX_CHANNEL_ADDRESS"], n)
    accumulator = left @ right + initial_sums(command, machine, (m, n), records.bias)
    _check_int32(accumulator, command)
    result: NDArray[Any] = accumulator.astype(np.int32)
    if command.fields["requantise"]:
        result = requantise_channels(
            accumulator, records, 1, command, machine, lower_limit(command)
        )
    view(machine.sram, command["EX_OUTPUT_ADDRESS"], (m, n), result.dtype)[...] = result


def _check_int32(accumulator: NDArray[np.int64], command: Command) -> None:
    if np.abs(accumulator).max(initial=0) >= 1 << 31:
        raise OverflowError(
            f"{command.instruction.mnemonic} at word {command.index}: an accumulator leaves int32"
        )


@formula("⌈K/a⌉ · ⌈N'/b⌉ · ⌈M/c⌉; with requantise at least ⌈M·N' / post_lanes⌉.")
def _cycles(command: Command, arch: Arch) -> int:
    m, k, n = shape(command)
    macs = ceil_div(k, arch.pe.ic) * ceil_div(n, arch.pe.oc) * ceil_div(m, arch.pe.ow)
    return fused_cycles(macs, m * n, command, arch)


def _macs(command: Command) -> int:
    m, k, n = shape(command)
    return m * k * n


OP_MAT_MUL = Instruction(
    mnemonic="OP_MAT_MUL", opcode=0x22, unit=Unit.EX, kind="MATMUL",
    description="Matrix product with one channel record for each column; the result is int32 "
                "accumulators or requantised int8.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_CHANNEL_ADDRESS", "EX_OUTPUT_ADDRESS",
        "EX_ROWS", "EX_INPUT_CHANNELS", "EX_OUTPUT_CHANNELS",
        "EX_OUTPUT_ZERO_POINT", "EX_CLAMP_LOW", "EX_CLAMP_HIGH",
    ),
    fields=(REQUANTISE, RELU),
    operands=_operands, semantics=_matmul, cycles=_cycles, macs=_macs,
    inputs=(INT8,), outputs=(RESULT,),
)  # fmt: skip


TRANSPOSED = Field(
    "transposed", 50, 1, description="1: the second operand has the shape (N', K), not (K, N')"
)


def second_shape(command: Command) -> tuple[int, int]:
    """Return the stored shape of the second operand of ``OP_DYN_MAT_MUL``.

    The shape is (K, N), or (N, K) with ``transposed``.
    """
    _, k, n = shape(command)
    return (n, k) if command.fields["transposed"] else (k, n)


def _dynamic_operands(command: Command, arch: Arch) -> Operands:
    m, k, n = _read_sizes(command)
    reads = (
        strided("sram", command["EX_INPUT_ADDRESS"], m * k),
        strided("sram", command["EX_OPERAND_ADDRESS"], k * n),
    )
    return Operands(
        reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], m * n * element_bytes(command)),)
    )


def requantise_sums(accumulator: NDArray[Any], command: Command, arch: Arch) -> NDArray[np.int8]:
    """Requantise accumulators in the range of int32 to int8.

    All use the command's single scale, zero point and limits.
    """
    limits = command["EX_OUTPUT_ZERO_POINT"], command["EX_CLAMP_LOW"], command["EX_CLAMP_HIGH"]
    if arch.numerics == "fixed":
        return numerics.requantise_fixed(
            accumulator, command["EX_SCALE_A"], command["EX_SHIFT_A"], *limits
        )
    return numerics.requantise(accumulator, np.float32(float_value(command["EX_SCALE_A"])), *limits)


@formula(
    """
    y[m, n] = Σ over k of (A[m, k] - INPUT_ZERO_POINT) · (B[k, n] - OPERAND_ZERO_POINT), as int32.

    With requantise, y = clip(rint(float32(Σ) · SCALE_A) + OUTPUT_ZERO_POINT). With numerics fixed,
    multiplier and shift A scale the sum instead.

    A has the shape (M, K), and B has the shape (K, N') or, with transposed, (N', K). Both are
    row-major. M is EX_ROWS, K is IC, and N' is OC.
    """
)
def _dynamic(command: Command, machine: Machine) -> None:
    m, k, n = shape(command)
    left = view(machine.sram, command["EX_INPUT_ADDRESS"], (m, k), np.int8).astype(np.int64)
    right = view(
        machine.sram, command["EX_OPERAND_ADDRESS"], second_shape(command), np.int8
    ).astype(np.int64)
    right = right.T if command.fields["transposed"] else right
    accumulator = (left - command["EX_INPUT_ZERO_POINT"]) @ (
        right - command["EX_OPERAND_ZERO_POINT"]
    )
    _check_int32(accumulator, command)
    requantised = command.fields["requantise"]
    result: NDArray[Any] = (
        requantise_sums(accumulator, command, machine.arch)
        if requantised
        else accumulator.astype(np.int32)
    )
    view(machine.sram, command["EX_OUTPUT_ADDRESS"], (m, n), result.dtype)[...] = result


OP_DYN_MAT_MUL = Instruction(
    mnemonic="OP_DYN_MAT_MUL", opcode=0x25, unit=Unit.EX, kind="MATMUL",
    description="Matrix product of two activations, the second one transposed or not; the result "
                "is int32 or requantised int8.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS",
        "EX_ROWS", "EX_INPUT_CHANNELS", "EX_OUTPUT_CHANNELS",
        "EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT", "EX_CLAMP_LOW",
        "EX_CLAMP_HIGH",
        "EX_SCALE_A", "EX_SHIFT_A",
    ),
    fields=(REQUANTISE, TRANSPOSED),
    operands=_dynamic_operands, semantics=_dynamic, cycles=_cycles, macs=_macs,
    inputs=(INT8, INT8), outputs=(RESULT,),
)  # fmt: skip
INSTRUCTIONS = (add_tables(add_partial_sums(OP_MAT_MUL)), add_tables(OP_DYN_MAT_MUL))
