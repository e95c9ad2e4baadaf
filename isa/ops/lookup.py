"""Functions of one int8 value, looked up in tables of 256 bytes in the scratchpad.

``OP_LUT`` looks up a whole tensor and may work in place. Other instructions can look up their
results as a last step (:func:`add_tables`).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from isa.access import byte_addresses, strided
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import (
    INT8,
    Command,
    Instruction,
    Machine,
    Operands,
    Unit,
    ceil_div,
    formula,
    formula_of,
    view,
)
from isa.registers import Field, Register

TABLE_BYTES = 256
"""Bytes of one table: one result per int8 input, ordered by the input's byte: 0 to 127, then
-128 to -1.
"""


def shape(command: Command) -> tuple[int, int, int]:
    """Return the shape of a look-up: (outer, tables, elements per table).

    One table gives (1, 1, n); planes give (1, C, H·W); a matrix gives (M, N, 1).
    """
    return command["EX_ROWS"], command["EX_OUTPUT_CHANNELS"], command["EX_LENGTH"]


def elements(command: Command) -> int:
    outer, channels, inner = shape(command)
    return outer * channels * inner


def _operands(command: Command, arch: Arch) -> Operands:
    count = elements(command)
    reads = (
        strided("sram", command["EX_INPUT_ADDRESS"], count),
        strided("sram", command["EX_OPERAND_ADDRESS"], TABLE_BYTES * command["EX_OUTPUT_CHANNELS"]),
    )
    return Operands(reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], count),))


@formula(
    """
    y = table[channel][x mod 256]. Entry 0 is the result of 0, entry 127 of 127, entry 128 of -128,
    and entry 255 of -1.

    x and y are int8 with the shape (rows, OC, length). The tables are int8 with the shape (OC,
    256). With OC = 1, one table serves all elements.

    A look-up uses no scale, zero point or limit, and its results are the same with both numerics.
    """
)
def _semantics(command: Command, machine: Machine) -> None:
    dimensions = shape(command)
    tables = view(
        machine.sram, command["EX_OPERAND_ADDRESS"], (dimensions[1], TABLE_BYTES), np.uint8
    )
    entries = view(machine.sram, command["EX_INPUT_ADDRESS"], dimensions, np.uint8)
    view(machine.sram, command["EX_OUTPUT_ADDRESS"], dimensions, np.uint8)[...] = look_up(
        entries, tables
    )


@formula("⌈rows·OC·length / post_lanes⌉.")
def _cycles(command: Command, arch: Arch) -> int:
    return ceil_div(elements(command), arch.lanes)


OP_LUT = Instruction(
    mnemonic="OP_LUT", opcode=0x3A, unit=Unit.EX, kind="ACT",
    description="Any function of an int8 value: looks it up in a table of 256 bytes. There is one "
                "table for all channels or one for each channel.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS",
        "EX_ROWS", "EX_OUTPUT_CHANNELS", "EX_LENGTH",
    ),
    operands=_operands, semantics=_semantics, cycles=_cycles, inputs=(INT8, INT8), outputs=(INT8,),
    streamed=(0,),
)  # fmt: skip
INSTRUCTIONS = (OP_LUT,)


# Look-up as the last step of other instructions

EX_TABLE_ADDRESS = Register(
    "EX_TABLE_ADDRESS",
    0x64,
    32,
    0,
    "unsigned",
    "tables of 256 bytes in which look_up finds results",
)
LOOK_UP = Field(
    "look_up", 44, 2, defined=3,
    description="0 no look-up, 1 looks results up in one table, 2 in the table of their channel",
)  # fmt: skip


def table_count(command: Command) -> int:
    """Return the number of tables that look up a command's results.

    There are none, one, or one per output channel. A missing ``look_up`` field counts as 0.
    """
    choice = command.fields.get(LOOK_UP.name, 0)
    return command.registers.get("EX_OUTPUT_CHANNELS", 1) if choice > 1 else choice


def result_shape(command: Command, elements: int) -> tuple[int, int, int]:
    """Return the shape of looked-up results: (outer, channels, elements per channel).

    The dimensions are in the order of the results' addresses. Planes give (1, OC, OH·OW), a matrix
    (M, N, 1), a requantisation (rows, OC, length); element-wise operations have one channel.
    """
    registers = command.registers
    outer = registers.get("EX_ROWS", 1)
    channels = registers.get("EX_OUTPUT_CHANNELS", 1)
    return outer, channels, elements // max(outer * channels, 1)


def look_up(entries: NDArray[np.uint8], tables: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Replace int8 values by their entries in look-up tables of 256 bytes.

    Values are (outer, channels, elements), tables (1 or channels, 256).
    """
    return tables[np.arange(len(tables))[:, np.newaxis], entries.astype(np.int64)]


def _execute_with_tables(base: Instruction, command: Command, machine: Machine) -> None:
    """Execute ``base``, then replace its results by the entries of the command's tables."""
    count = table_count(command)
    if not count:
        base.semantics(command, machine)
        return
    tables = view(
        machine.sram, command[EX_TABLE_ADDRESS.name], (count, TABLE_BYTES), np.uint8
    ).copy()
    access = base.operands(command, machine.arch).writes[0]
    base.semantics(command, machine)
    places = byte_addresses(access)
    entries = machine.sram[places].reshape(result_shape(command, access.total))
    machine.sram[places] = look_up(entries, tables).reshape(-1)


def add_tables(base: Instruction, *wider: Register) -> Instruction:
    """Add a look-up of the results to the instruction ``base``.

    The field is :data:`LOOK_UP`, the register EX_TABLE_ADDRESS.

    Field value 0 changes nothing.

    Args:
        base: the instruction to extend.
        wider: registers of ``base`` that get more bits in the extended instruction.

    Only int8 results can be looked up: a command with another result type raises InputError when
    its operands are read.
    """

    def operands(command: Command, arch: Arch) -> Operands:
        found = base.operands(command, arch)
        tables = table_count(command)
        if not tables:
            return found
        if base.outputs[0].read_from(command) != INT8.name:
            raise InputError(
                f"word {command.index}: {base.mnemonic}: only int8 is looked up; set "
                f"{base.outputs[0].field} to 1",
                words=(command.index,),
            )
        table = strided("sram", command[EX_TABLE_ADDRESS.name], TABLE_BYTES * tables)
        return Operands((*found.reads, table), found.writes)

    @formula(
        f"{formula_of(base.semantics)}\n\nWith look_up, each result y becomes table[y mod "
        "256], as in OP_LUT."
    )
    def semantics(command: Command, machine: Machine) -> None:
        _execute_with_tables(base, command, machine)

    @formula(
        f"{formula_of(base.cycles)}\n\nWith look_up, the command takes at least "
        "⌈results / post_lanes⌉ cycles."
    )
    def cycles(command: Command, arch: Arch) -> int:
        return max(base.cycles(command, arch), count_look_up(command, arch))

    def least(command: Command, arch: Arch) -> int:
        return max(base.least_cycles(command, arch), count_look_up(command, arch))

    def count_look_up(command: Command, arch: Arch) -> int:
        """Return the cycles that the table look-up of a command adds; 0 without a look-up."""
        return (
            ceil_div(base.operands(command, arch).writes[0].total, arch.lanes)
            if table_count(command)
            else 0
        )

    return replace(
        base, fields=(*base.fields, LOOK_UP), registers=(*base.registers, EX_TABLE_ADDRESS.name),
        adds_registers=(*base.adds_registers, EX_TABLE_ADDRESS, *wider),
        earlier=base.earlier or base,
        operands=operands, semantics=semantics, cycles=cycles, least=least,
    )  # fmt: skip
