"""``OP_MAT_MUL``: row-major matrix product (M, K) × (K, N) on int8 with a channel record a column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa.access import strided
from isa.arch import Arch
from isa.instruction import INT8, Command, Instruction, Machine, Operands, Unit, ceil_div, formula, view
from isa.ops.convolution import RELU, REQUANTISE, RESULT, element_bytes, fused_cycles, lower_limit
from isa.ops.requant import load_records, requantise_channels


def shape(command: Command) -> tuple[int, int, int]:
    """(M, K, N)."""
    return command["EX_ROWS"], command["EX_INPUT_CHANNELS"], command["EX_OUTPUT_CHANNELS"]


def _operands(command: Command, arch: Arch) -> Operands:
    m, k, n = shape(command)
    reads = (
        strided("sram", command["EX_INPUT_ADDRESS"], m * k),
        strided("sram", command["EX_OPERAND_ADDRESS"], k * n),
        strided("sram", command["EX_CHANNEL_ADDRESS"], n * arch.channel_record_bytes),
    )
    return Operands(reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], m * n * element_bytes(command)),))


@formula(
    "y[m, n] = bias[n] + Σ over k of A[m, k] · B[k, n]; A is (M, K), B (K, N'), row-major; M rows, K = IC, N' = OC."
)
def _matmul(command: Command, machine: Machine) -> None:
    m, k, n = shape(command)
    left = view(machine.sram, command["EX_INPUT_ADDRESS"], (m, k), np.int8).astype(np.int64)
    right = view(machine.sram, command["EX_OPERAND_ADDRESS"], (k, n), np.int8).astype(np.int64)
    records = load_records(machine, command["EX_CHANNEL_ADDRESS"], n)
    accumulator = left @ right + records.bias.astype(np.int64)
    if np.abs(accumulator).max(initial=0) >= 1 << 31:
        raise OverflowError(f"OP_MAT_MUL at word {command.index}: an accumulator leaves int32")
    result: NDArray[Any] = accumulator.astype(np.int32)
    if command.fields["requantise"]:
        result = requantise_channels(accumulator, records, 1, command, machine, lower_limit(command))
    view(machine.sram, command["EX_OUTPUT_ADDRESS"], (m, n), result.dtype)[...] = result


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
    description="Matrix product with one channel record a column; int32 accumulators or requantised int8.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_CHANNEL_ADDRESS", "EX_OUTPUT_ADDRESS",
        "EX_ROWS", "EX_INPUT_CHANNELS", "EX_OUTPUT_CHANNELS",
        "EX_OUTPUT_ZERO_POINT", "EX_CLAMP_LOW", "EX_CLAMP_HIGH",
    ),
    fields=(REQUANTISE, RELU),
    operands=_operands, semantics=_matmul, cycles=_cycles, macs=_macs,
    inputs=(INT8,), outputs=(RESULT,),
)  # fmt: skip
INSTRUCTIONS = (OP_MAT_MUL,)
