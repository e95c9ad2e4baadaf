"""Register map of the device: how a processor runs a program on the accelerator.

Declares registers, fault reasons and counters once (docs/device.md is the description). The
simulator, the RTL's executable, the C driver and ``dla_device.h`` follow this declaration.
:func:`to_image` prepares a program for the registers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isa.arch import Arch
from isa.errors import InputError
from isa.program import Program

IDENTITY = 0x31414C44
"""Value of the register ID: the text ``DLA1``, first character in the lowest byte."""
MAP_VERSION = 1
WINDOW_ALIGNMENT = 64
"""Bytes by whose multiples a window's bus address and program address may differ."""
MAP_BYTES = 4096
"""Size of the register map on the bus."""

RegisterAccess = Literal["r", "w", "rw"]


class FaultReason(IntEnum):
    """Values of the register FAULT_REASON; ``meaning`` describes each."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> FaultReason:
        """Create a reason from its number and its description."""
        reason = int.__new__(cls, value)
        reason._value_ = value
        reason.meaning = meaning
        return reason

    NONE = 0, "no fault"
    HASH = 1, "PROGRAM_HASH differs from ARCH_HASH: the program is for another machine"
    ALIGNMENT = 2, "a base and its start do not differ by a multiple of 64 bytes"
    MEMORY = 3, "a window ends beyond 2^32 bytes, or its bus addresses are not all memory"
    OVERLAP = 4, "two windows share a bus address or a program address"
    WORD = 5, "a command word is illegal, or OP_END is missing or not last"
    ADDRESS = 6, "an operand is not inside one window or the scratchpad, or is read-only"
    DEADLOCK = 7, "a command waits for a token that no command pushes"
    HAZARD = 8, "two executing commands collide in memory because a token is missing"
    OVERFLOW = 9, "a result does not fit its type"
    OPERAND = 10, "the registers of a command describe no operation that it can execute"
    LIMIT = 11, "the program needs more memory or time than the model of the device may use"


@dataclass(frozen=True)
class DeviceRegister:
    """A 32-bit register at byte ``offset`` of the map.

    ``bits`` has (name, position, meaning) of each single bit.
    """

    name: str
    offset: int
    access: RegisterAccess
    meaning: str
    bits: tuple[tuple[str, int, str], ...] = ()


COUNTED_UNITS = ("LD", "EX", "ST")
COUNTED_CAUSES = {
    "busy": "executes",
    "token_LD": "waits for a token of LD",
    "token_EX": "waits for a token of EX",
    "token_ST": "waits for a token of ST",
    "bus": "waits for the bus",
    "dram": "waits for the main memory",
    "flash": "waits for the flash",
    "sram": "waits for the scratchpad",
    "queue_empty": "has no command before its last one",
    "drained": "has no command after its last one",
}
"""Causes of a unit's cycles; all cycles of a unit sum to those of the run."""

WINDOWS = ("COMMAND", "CONSTANT", "ACTIVATION", "STATE")
_START = "first program address of the {}, in bytes"
_HASH = "SHA-256 of the machine (JSON of its settled values), hexadecimal digits {} to {}"


def _describe_window(name: str, offset: int, text: str) -> tuple[DeviceRegister, ...]:
    return (
        DeviceRegister(f"{name}_BASE", offset, "rw", f"bus address of the {text}"),
        DeviceRegister(f"{name}_BYTES", offset + 4, "rw", f"size of the {text} in bytes"),
        DeviceRegister(f"{name}_START", offset + 8, "rw", _START.format(text)),
    )


_DESCRIPTIONS = (
    DeviceRegister("ID", 0x000, "r", f"{IDENTITY:#010x}, the text DLA1"),
    DeviceRegister("MAP_VERSION", 0x004, "r", f"version of this register map: {MAP_VERSION}"),
    DeviceRegister("ISA", 0x008, "r", "number of the instruction set, 1 to 5; 0: another one"),
    *(
        DeviceRegister(
            f"ARCH_HASH{number}", 0x010 + 4 * number, "r",
            _HASH.format(8 * number + 1, 8 * number + 8),
        )
        for number in range(4)
    ),
    *(
        DeviceRegister(
            f"PROGRAM_HASH{number}", 0x020 + 4 * number, "rw",
            f"ARCH_HASH{number} of the machine that the program was compiled for",
        )
        for number in range(4)
    ),
    DeviceRegister("COMMAND_BASE", 0x030, "rw", "bus address of the command words"),
    DeviceRegister("COMMAND_WORDS", 0x034, "rw", "number of 64-bit command words"),
    *_describe_window("CONSTANT", 0x038, "constants"),
    *_describe_window("ACTIVATION", 0x044, "activations"),
    *_describe_window("STATE", 0x050, "state"),
    DeviceRegister("COMMAND_START", 0x05C, "rw", _START.format("command words")),
    DeviceRegister(
        "CONTROL", 0x060, "w", "starts a run or resets the device",
        (("RUN", 0, "start a run; no effect while busy"), ("RESET", 1, "abort and reset")),
    ),
    DeviceRegister(
        "STATUS", 0x064, "r", "state of the last run",
        (("BUSY", 0, "running"), ("DONE", 1, "complete"), ("FAULT", 2, "ended by a fault")),
    ),
    DeviceRegister(
        "INTERRUPT_ENABLE", 0x068, "rw", "enables the interrupt line",
        (("ENABLE", 0, "drive the interrupt line while PENDING is 1"),),
    ),
    DeviceRegister(
        "INTERRUPT", 0x06C, "rw", "pending interrupt",
        (("PENDING", 0, "a run ended; write 1 to clear"),),
    ),
    DeviceRegister("FAULT_REASON", 0x070, "r", "reason of the last run's fault, or 0"),
    DeviceRegister("FAULT_WORD", 0x074, "r", "index of the faulty command word, or 0"),
    DeviceRegister("FAULT_ADDRESS", 0x078, "r", "address of the fault, or 0"),
)  # fmt: skip


def _list_counters() -> Iterator[DeviceRegister]:
    counters = {"CYCLES": "cycles of the run"}
    for unit in COUNTED_UNITS:
        for cause, text in COUNTED_CAUSES.items():
            counters[f"{unit}_{cause}".upper()] = f"cycles in which {unit} {text}"
    for number, (name, text) in enumerate(counters.items()):
        yield DeviceRegister(f"{name}_LOW", 0x080 + 8 * number, "r", f"{text}, bits 0 to 31")
        yield DeviceRegister(f"{name}_HIGH", 0x084 + 8 * number, "r", f"{text}, bits 32 to 63")


DEVICE_REGISTERS = {register.name: register for register in (*_DESCRIPTIONS, *_list_counters())}
"""All registers by name, in order of the declaration."""


def hash_arch(arch: Arch) -> tuple[int, int, int, int]:
    """Return the values of ARCH_HASH0 to ARCH_HASH3, equal for the same machine.

    The hash is of the settled values, so that writing out a default does not change it.
    """
    values = json.dumps(arch.list_settled_values(), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(values.encode()).digest()
    first, second, third, fourth = np.frombuffer(digest[:16], ">u4").tolist()
    return first, second, third, fourth


def number_isa(arch: Arch) -> int:
    """Return the value of the register ISA: 1 for v1 to 5 for v5, 0 for an ISA of a package.

    An ISA with added instructions keeps its number.
    """
    return {f"v{number}": number for number in range(1, 6)}.get(arch.isa.split("+", 1)[0], 0)


@dataclass(frozen=True, eq=False)
class ProgramImage:
    """A program as the registers describe it: words, constants, and sizes of the other windows.

    ``arch_hash`` has the four words of PROGRAM_HASH. ``words`` is uint64, ``constants`` is uint8.
    """

    name: str
    arch_hash: tuple[int, int, int, int]
    words: NDArray[np.uint64]
    command_start: int
    constants: NDArray[np.uint8]
    constant_start: int
    activation_start: int
    activation_bytes: int


def to_image(program: Program) -> ProgramImage:
    """Return a program's words, constants and windows for the registers of the device.

    The activations are the system memory before the constants. The compiler places inputs, outputs
    and intermediates there. It makes no state; the state is empty.

    Raises:
        InputError: a tensor is not before all constants, or the program needs more than 4 GiB.
    """
    low = min((one.address for one in program.segments), default=program.command_address)
    high = max((one.address + one.data.size for one in program.segments), default=low)
    for tensor in program.tensors:
        if tensor.address + tensor.nbytes > low:
            raise InputError(
                f"program '{program.name}': tensor '{tensor.name}' at {tensor.address:#x} is not "
                f"before the constants at {low:#x}; compile the program with this version"
            )
    if program.dram_bytes > 1 << 32:
        raise InputError(
            f"program '{program.name}' needs {program.dram_bytes} bytes of system memory; the "
            "device's registers reach 2^32 bytes"
        )
    constants = np.zeros(high - low, dtype=np.uint8)
    for segment in program.segments:
        constants[segment.address - low :][: segment.data.size] = segment.data
    return ProgramImage(
        name=program.name,
        arch_hash=hash_arch(program.arch),
        words=program.words,
        command_start=program.command_address,
        constants=constants,
        constant_start=low,
        activation_start=0,
        activation_bytes=low,
    )
