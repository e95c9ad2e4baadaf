"""Test bench for one instruction: store operands, run the semantics, read the result.

It uses a small scratchpad.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa.access import overlap, strided
from isa.arch import Arch
from isa.instruction import Command, Instruction, Machine, Unit
from isa.ops import ALL
from isa.variants import VARIANTS

ADDRESSES = (
    "EX_INPUT_ADDRESS",
    "EX_OPERAND_ADDRESS",
    "EX_CHANNEL_ADDRESS",
    "EX_TABLE_ADDRESS",
    "EX_PARTIAL_ADDRESS",
)


def make_command(
    mnemonic: str, registers: Mapping[str, int], fields: Mapping[str, int] | None = None
) -> Command:
    """A command outside any stream; registers that are not given have their reset values."""
    return command_of(*VARIANTS["v4"].by_mnemonic[mnemonic], registers, fields)


def command_of(
    instruction: Instruction,
    implied: Mapping[str, int],
    registers: Mapping[str, int],
    fields: Mapping[str, int] | None = None,
) -> Command:
    """Make a command like :func:`make_command`, for an instruction of any package."""
    declared = {f.name: 0 for f in instruction.fields} | dict(implied) | dict(fields or {})
    snapshot = {item.name: item.reset for item in instruction.register_declarations()} | dict(
        registers
    )
    unit = instruction.unit or Unit.EX
    return Command(0, instruction, unit, False, False, False, False, declared, snapshot)


def run(
    mnemonic: str,
    registers: Mapping[str, int],
    operands: list[NDArray[Any] | None] | list[NDArray[Any]],
    result: tuple[tuple[int, ...], Any],
    fields: Mapping[str, int] | None = None,
    arch: Arch | None = None,
) -> NDArray[Any]:
    """Result of one EX instruction.

    ``operands`` go to input, operand and channel addresses (None entries are skipped).

    Asserts that the instruction writes exactly where its declared operands say.
    """
    machine = Machine(arch or Arch(), np.full(1 << 18, 0xA5, np.uint8), np.zeros(0, np.uint8))
    settings = dict(registers)
    address = 64
    for name, data in zip(ADDRESSES, operands, strict=False):
        if data is None:
            continue
        raw = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        machine.sram[address : address + raw.size] = raw
        settings[name] = address
        address += -(-raw.size // 64) * 64
    settings["EX_OUTPUT_ADDRESS"] = address
    command = make_command(mnemonic, settings, fields)
    before = machine.sram.copy()
    command.instruction.semantics(command, machine)
    shape, dtype = result
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    changed = np.flatnonzero(before != machine.sram)
    for access in command.instruction.operands(command, machine.arch).writes:
        assert all(
            overlap(access, strided("sram", int(byte), 1))
            for byte in changed[:: max(1, len(changed) // 50)]
        )
        assert access.total == nbytes
    return machine.sram[address : address + nbytes].view(dtype).reshape(shape).copy()


def every_mnemonic() -> list[str]:
    """All mnemonics, for tests that must cover the whole table."""
    return sorted(ALL)
