"""Layouts and words of operands that several packed instructions share."""

from isa.arch import Arch, words_of
from isa.instruction import Atoms, Command, OperandLayout, Plain, ceil_div
from isa.ops import matmul
from isa.ops.convolution import MAPPING
from isa.ops.lookup import EX_TABLE_ADDRESS, TABLE_BYTES, table_count
from isa.ops.products import (
    WHOLE_KERNEL,
    pixel_bytes,
)
from isa.ops.windows import ACCUMULATE, element_bytes


def list_tables(command: Command) -> tuple[OperandLayout, ...]:
    """Return the operand layout of a command's look-up tables.

    Return nothing if the command does not look up its results.
    """
    count = table_count(command)
    return (Plain(EX_TABLE_ADDRESS.name, TABLE_BYTES * count),) if count else ()


def compute_finishing_cycles(command: Command, outputs: int, arch: Arch) -> int:
    """Return the cycles that the post-processing lanes take after the array is done.

    They are ⌈results / L⌉ if the lanes requantise, add sums or look up, else 0.
    """
    fields = command.fields
    busy = fields.get("requantise", 0) or fields.get(ACCUMULATE.name, 0) or table_count(command)
    return ceil_div(outputs, arch.lanes) if busy else 0


def list_table_words(command: Command, arch: Arch) -> tuple[int, ...]:
    count = table_count(command)
    return (words_of(arch).count(TABLE_BYTES * count),) if count else ()


def list_planes(command: Command) -> tuple[OperandLayout, OperandLayout]:
    source = input_atoms(command)
    groups = command.registers.get("EX_GROUPS", 1)
    if command.fields.get(MAPPING.name, 0) == WHOLE_KERNEL:
        source = source._replace(narrow=pixel_bytes(groups, command["EX_INPUT_CHANNELS"]))
    return source, output_atoms(command, element_bytes(command))


def input_atoms(command: Command) -> Atoms:
    positions = command["EX_INPUT_HEIGHT"] * command["EX_INPUT_WIDTH"]
    return Atoms("EX_INPUT_ADDRESS", command["EX_INPUT_CHANNELS"], positions, 1, "EX_INPUT_PLANE")


def output_atoms(command: Command, element: int) -> Atoms:
    positions = command["EX_OUTPUT_HEIGHT"] * command["EX_OUTPUT_WIDTH"]
    return Atoms(
        "EX_OUTPUT_ADDRESS", command["EX_OUTPUT_CHANNELS"], positions, element, "EX_OUTPUT_PLANE"
    )


def list_matrices(command: Command) -> tuple[OperandLayout, OperandLayout]:
    rows, inputs, outputs = matmul.shape(command)
    source = Atoms("EX_INPUT_ADDRESS", inputs, rows, rows=True)
    return source, Atoms("EX_OUTPUT_ADDRESS", outputs, rows, element_bytes(command), rows=True)
