"""Code that convolutions and pooling share: planes, kernel windows, padding and taps.

They share registers, operands, padding and results.
"""

from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import memory
from isa.access import Access, strided
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import (
    Command,
    ElementType,
    Machine,
    Operands,
    ceil_div,
    view,
)
from isa.ops.requant import load_records, requantise_channels
from isa.registers import BY_NAME, Field, Register

REQUANTISE = Field(
    "requantise", 51, 1, description="0 writes int32 accumulators, 1 requantises to int8"
)
RELU = Field("relu", 50, 1, description="1 raises the lower clamp limit to the output zero point")
RESULT = ElementType("int32", REQUANTISE.name, "int8")
"""Result type: int32 accumulators, or int8 if the command requantises."""
ACCUMULATE = Field(
    "accumulate",
    41,
    1,
    description="1 starts from the sums at EX_PARTIAL_ADDRESS instead of from the biases",
)
EX_PARTIAL_ADDRESS = Register(
    "EX_PARTIAL_ADDRESS",
    0x65,
    32,
    0,
    "unsigned",
    "dense int32 sums of an earlier command, as it wrote them",
)
_WINDOW = (
    "EX_KERNEL_HEIGHT", "EX_KERNEL_WIDTH", "EX_STRIDE_HEIGHT", "EX_STRIDE_WIDTH",
    "EX_DILATION_HEIGHT", "EX_DILATION_WIDTH", "EX_PAD_TOP", "EX_PAD_LEFT",
)  # fmt: skip
WIDER = tuple(replace(BY_NAME[name], width=11) for name in _WINDOW)
"""Window registers with 11 bits, for windows of up to 2,047 rows and columns (from ``v4``)."""
_PLANES = (
    "EX_INPUT_CHANNELS", "EX_INPUT_HEIGHT", "EX_INPUT_WIDTH", "EX_INPUT_PLANE",
    "EX_OUTPUT_CHANNELS", "EX_OUTPUT_HEIGHT", "EX_OUTPUT_WIDTH", "EX_OUTPUT_PLANE",
)  # fmt: skip
_AT_LEAST_ONE = tuple(
    name for name in (*_PLANES, *_WINDOW) if not name.endswith(("_PLANE", "_TOP", "_LEFT"))
)
_at_least_one = itemgetter(*_AT_LEAST_ONE)
_SMALL = 1 << 24
"""Bytes that no memory limit refuses; the program itself needs more."""
REGISTERS = (
    "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_CHANNEL_ADDRESS", "EX_OUTPUT_ADDRESS",
    *_PLANES, *_WINDOW,
    "EX_INPUT_ZERO_POINT", "EX_OUTPUT_ZERO_POINT", "EX_CLAMP_LOW", "EX_CLAMP_HIGH",
)  # fmt: skip


def input_access(command: Command) -> Access:
    """Return the bytes of a command's input planes: IC planes of IH·IW bytes."""
    plane = command["EX_INPUT_HEIGHT"] * command["EX_INPUT_WIDTH"]
    return strided(
        "sram",
        command["EX_INPUT_ADDRESS"],
        plane,
        (command["EX_INPUT_CHANNELS"], command["EX_INPUT_PLANE"] or plane),
    )


def output_access(command: Command, element: int) -> Access:
    """Return the bytes of a command's output planes: OC planes of OH·OW elements.

    Each element has ``element`` bytes.
    """
    plane = command["EX_OUTPUT_HEIGHT"] * command["EX_OUTPUT_WIDTH"] * element
    return strided(
        "sram",
        command["EX_OUTPUT_ADDRESS"],
        plane,
        (command["EX_OUTPUT_CHANNELS"], command["EX_OUTPUT_PLANE"] or plane),
    )


def element_bytes(command: Command) -> int:
    """Return the bytes of one output element of a convolution or pooling.

    They are 1 if the command requantises, and 4 if it writes accumulators.
    """
    return 1 if command.fields["requantise"] else 4


def check_window(command: Command) -> None:
    """Raise InputError if a command's kernel window is illegal or too large.

    A size, stride or dilation must not be 0, and the padded input must not exceed the memory limit.
    The semantics allocate the padded input as int64, 8 bytes per element.
    """
    at = command.registers
    if 0 in _at_least_one(at):
        zero = next(name for name in _AT_LEAST_ONE if not at[name])
        raise make_refusal(command, f"{zero} is 0; it must be 1 or more")
    rows, columns = window_extent(command)
    rows = max(rows, at["EX_PAD_TOP"] + at["EX_INPUT_HEIGHT"])
    columns = max(columns, at["EX_PAD_LEFT"] + at["EX_INPUT_WIDTH"])
    padded = 8 * at["EX_INPUT_CHANNELS"] * rows * columns
    if padded > _SMALL:  # querying the limit takes longer than everything else in a small command
        memory.require(
            padded, f"word {command.index}: the padded input of {command.instruction.mnemonic}"
        )


def make_refusal(command: Command, reason: str) -> InputError:
    return InputError(
        f"word {command.index}: {command.instruction.mnemonic}: {reason}", words=(command.index,)
    )


def plane_operands(command: Command, arch: Arch, weight_bytes: int) -> Operands:
    """Return the bytes that a convolution or pooling command reads and writes.

    It reads input planes, ``weight_bytes`` of weights and one record per output channel, and writes
    output planes.

    Raises InputError as :func:`check_window` does.
    """
    check_window(command)
    records = command["EX_OUTPUT_CHANNELS"] * arch.channel_record_bytes
    reads = (
        input_access(command),
        strided("sram", command["EX_OPERAND_ADDRESS"], weight_bytes),
        strided("sram", command["EX_CHANNEL_ADDRESS"], records),
    )
    return Operands(reads=reads, writes=(output_access(command, element_bytes(command)),))


def taps(command: Command) -> int:
    """Return the number of taps of a command's kernel, KH·KW."""
    return command["EX_KERNEL_HEIGHT"] * command["EX_KERNEL_WIDTH"]


def padded_input(command: Command, machine: Machine, fill: int) -> NDArray[np.int64]:
    """Return a command's input as int64 (IC, rows, columns), padded with ``fill``.

    It contains every tap of every window.
    """
    height = command["EX_INPUT_HEIGHT"]
    width = command["EX_INPUT_WIDTH"]
    shape = (command["EX_INPUT_CHANNELS"], height, width)
    data = view(
        machine.sram, command["EX_INPUT_ADDRESS"], shape, np.int8, command["EX_INPUT_PLANE"]
    )
    top = command["EX_PAD_TOP"]
    left = command["EX_PAD_LEFT"]
    rows, columns = window_extent(command)
    padded = np.full(
        (shape[0], max(rows, top + height), max(columns, left + width)), fill, dtype=np.int64
    )
    padded[:, top : top + height, left : left + width] = data
    return padded


def window_extent(command: Command) -> tuple[int, int]:
    """Return the rows and columns of padded input that all kernel windows cover."""
    at = command.registers
    rows = (at["EX_OUTPUT_HEIGHT"] - 1) * at["EX_STRIDE_HEIGHT"]
    rows += (at["EX_KERNEL_HEIGHT"] - 1) * at["EX_DILATION_HEIGHT"] + 1
    columns = (at["EX_OUTPUT_WIDTH"] - 1) * at["EX_STRIDE_WIDTH"]
    columns += (at["EX_KERNEL_WIDTH"] - 1) * at["EX_DILATION_WIDTH"] + 1
    return rows, columns


def tap(command: Command, padded: NDArray[Any], row: int, column: int) -> NDArray[Any]:
    """Return the input elements (IC, OH, OW) that one tap of the kernel reads.

    The tap is (row, column); there is one element per output.
    """
    top = row * command["EX_DILATION_HEIGHT"]
    left = column * command["EX_DILATION_WIDTH"]
    step_y = command["EX_STRIDE_HEIGHT"]
    step_x = command["EX_STRIDE_WIDTH"]
    rows = slice(top, top + (command["EX_OUTPUT_HEIGHT"] - 1) * step_y + 1, step_y)
    columns = slice(left, left + (command["EX_OUTPUT_WIDTH"] - 1) * step_x + 1, step_x)
    return padded[:, rows, columns]


def finish(command: Command, machine: Machine, accumulator: NDArray[np.int64]) -> None:
    """Add the bias to a convolution's int64 sums and write the results.

    Sums are (OC, OH, OW).

    They are accumulators, or with ``requantise`` int8.
    """
    records = load_records(machine, command["EX_CHANNEL_ADDRESS"], command["EX_OUTPUT_CHANNELS"])
    accumulator = accumulator + initial_sums(
        command, machine, accumulator.shape, records.bias[:, None, None]
    )
    if np.abs(accumulator).max(initial=0) >= 1 << 31:
        raise OverflowError(
            f"{command.instruction.mnemonic} at word {command.index}: an accumulator leaves int32"
        )
    if command.fields["requantise"]:
        low = lower_limit(command)
        result: NDArray[Any] = requantise_channels(accumulator, records, 0, command, machine, low)
    else:
        result = accumulator.astype(np.int32)
    output = view(
        machine.sram,
        command["EX_OUTPUT_ADDRESS"],
        result.shape,
        result.dtype,
        command["EX_OUTPUT_PLANE"],
    )
    output[...] = result


def initial_sums(
    command: Command, machine: Machine, shape: tuple[int, ...], bias: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return the sums from which a convolution starts: biases or earlier partial sums.

    They are the biases, or with ``accumulate`` the sums of an earlier command.
    """
    if command.fields.get(ACCUMULATE.name, 0):
        return view(machine.sram, command[EX_PARTIAL_ADDRESS.name], shape, np.int32).astype(
            np.int64
        )
    return bias.astype(np.int64)


def lower_limit(command: Command) -> int:
    """Return the lower clamp limit, EX_CLAMP_LOW.

    With ``relu`` it is at least the output zero point.
    """
    if command.fields["relu"]:
        return max(command["EX_CLAMP_LOW"], command["EX_OUTPUT_ZERO_POINT"])
    return command["EX_CLAMP_LOW"]


def output_count(command: Command) -> int:
    """Return the number of results of a convolution or pooling, OC·OH·OW."""
    return command["EX_OUTPUT_CHANNELS"] * command["EX_OUTPUT_HEIGHT"] * command["EX_OUTPUT_WIDTH"]


def fused_cycles(mac_cycles: int, outputs: int, command: Command, arch: Arch) -> int:
    """Return the cycles of multiply-accumulates with fused post-processing.

    Both overlap, so the larger number counts.
    """
    return (
        max(mac_cycles, ceil_div(outputs, arch.lanes))
        if command.fields["requantise"]
        else mac_cycles
    )
