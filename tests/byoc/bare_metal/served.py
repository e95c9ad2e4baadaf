"""Devices for a bundle's C code: registers served by the simulator, in process and in unicorn."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dla_sim.device import Device
from dla_sim.mapped import DeviceBus, MappedDevice
from dla_sim.presets import load_hardware
from experiments.rtl.device import make_hardware

READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
ADDRESS = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)
MARGIN = 1 << 30
"""Bytes before the arena that bus addresses of the host include."""
REGISTERS = 0x40000000
"""DeviceBus address of the registers in an image for a microcontroller."""


class Port(ctypes.Structure):
    """``struct dla_port``."""

    _fields_ = (
        ("read", READ), ("write", WRITE), ("context", ctypes.c_void_p), ("base", ctypes.c_size_t),
        ("clean", ctypes.c_void_p), ("invalidate", ctypes.c_void_p), ("wait", ctypes.c_void_p),
        ("profile", ctypes.c_void_p), ("bus_address", ADDRESS),
    )  # fmt: skip


@dataclass
class MainRun:
    """Result of a bundle's ``main``: return value, printed text, and interrupts waited for."""

    status: int
    text: str
    waits: int = 0


@dataclass
class Served:
    """Device served to C code; ``corrupt`` changes a register's value when C writes it.

    With ``hardware`` the RTL's executable runs the programs, else the simulator.
    """

    machine: dict[str, Any] = field(default_factory=dict)
    corrupt: dict[int, int] = field(default_factory=dict)
    hardware: bool = False

    def open(self, bus: DeviceBus, *, deferred: bool = False) -> MappedDevice:
        machine = load_hardware(None, **self.machine)
        device = Device(machine.arch, machine.timing)
        execute = make_hardware(device) if self.hardware else None
        return MappedDevice(device, bus, execute=execute, deferred=deferred)

    def write(self, device: MappedDevice, offset: int, value: int) -> None:
        device.write32(offset, value ^ self.corrupt.get(offset, 0))

    def open_port(self, code: ctypes.CDLL) -> Port:
        """Return a port of a new device to the memory of a library."""
        base = ctypes.addressof(ctypes.c_uint8.in_dll(code, "dla_arena")) - MARGIN

        def store(address: int, data: bytes) -> None:
            ctypes.memmove(base + address, data, len(data))

        ranges = ((0, 1 << 32),)
        bus = DeviceBus(lambda at, count: ctypes.string_at(base + at, count), store, ranges)
        device = self.open(bus)
        return Port(
            READ(lambda _, offset: device.read32(offset)),
            WRITE(lambda _, offset, value: self.write(device, offset, value)),
            None, 0, None, None, None, None, ADDRESS(lambda _, pointer: pointer - base),
        )  # fmt: skip

    def run_library(self, library: Path) -> MainRun:
        """Run ``main`` of a bundle built by :func:`tests.byoc.bare_metal.images.build_bundle`."""
        code = ctypes.CDLL(str(library))
        port = self.open_port(code)
        code.get_printed.restype = ctypes.c_char_p
        status = code.run_main(ctypes.byref(port))
        return MainRun(status, code.get_printed().decode())

    def run_image(self, machine: str, image: Path, *, interrupts: bool = False) -> MainRun:
        """Run a bundle's image on an emulated microcontroller until it stops.

        With ``interrupts`` a run of the device is busy until the processor waits for an interrupt.
        """
        segments, symbols = read_elf(image)
        emulator = open_emulator(machine)
        ranges = []
        for part in sorted({address >> 28 for address, _, _ in segments}):  # flash and RAM
            ends = [address + size for address, _, size in segments if address >> 28 == part]
            ranges.append((part << 28, -(-max(ends) // 0x1000) * 0x1000))
            emulator.mem_map(part << 28, ranges[-1][1] - ranges[-1][0])
        for address, data, _ in segments:
            emulator.mem_write(address, data)
        stack = symbols["dla_stack_end"]
        emulator.mem_map(stack - (1 << 16), 1 << 16)
        memories = tuple(ranges)
        bus = DeviceBus(
            lambda at, count: bytes(emulator.mem_read(at, count)), emulator.mem_write, memories
        )
        device = self.open(bus, deferred=interrupts)
        printed: list[str] = []

        def read(_: object, offset: int, size: int, data: object) -> int:
            return device.read32(offset)

        def write(_: object, offset: int, size: int, value: int, data: object) -> None:
            if offset == PRINT_OFFSET:
                printed.append(chr(value))
            else:
                self.write(device, offset, value)

        emulator.mmio_map(REGISTERS, 0x2000, read, None, write, None)
        waits = end_waits(machine, emulator, device, segments) if interrupts else []
        set_stack(machine, emulator, stack)
        thumb = int(machine == "cortex-m4")
        emulator.emu_start(symbols["dla_start"] | thumb, symbols["dla_stop"] & ~thumb)
        result = emulator.mem_read(symbols["dla_main_result"], 4)
        status = int.from_bytes(result, "little", signed=True)
        return MainRun(status, "".join(printed), len(waits))


PRINT_OFFSET = 0x1000
"""Offset behind the registers at which an image prints characters."""


def open_emulator(machine: str) -> Any:
    """Return unicorn's emulator of a microcontroller."""
    import unicorn
    from unicorn import arm_const

    if machine == "riscv32":
        return unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
    emulator = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
    emulator.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_M4)
    return emulator


def end_waits(
    machine: str, emulator: Any, device: MappedDevice, segments: list[tuple[int, bytes, int]]
) -> list[int]:
    """Let the device finish its run at the first WFI of an image; return a list that grows then.

    Without an interrupt the processor would sleep for ever: that fails.
    """
    import unicorn
    from unicorn import arm_const, riscv_const

    word, step, counter = {
        "cortex-m4": (b"\x30\xbf", 2 | 1, arm_const.UC_ARM_REG_PC),
        "riscv32": (b"\x73\x00\x50\x10", 4, riscv_const.UC_RISCV_REG_PC),
    }[machine]
    begin, code, _ = segments[0]
    places = range(0, len(code), len(word))
    place = begin + next(at for at in places if code[at : at + len(word)] == word)
    emulator.mem_map(0xE000E000, 0x1000)  # the NVIC of a Cortex-M
    waits: list[int] = []

    def wake(_: object, address: int, size: int, data: object) -> None:
        device.finish()
        assert device.interrupt
        waits.append(address)
        emulator.reg_write(counter, address + step)

    emulator.hook_add(unicorn.UC_HOOK_CODE, wake, None, place, place)
    return waits


def set_stack(machine: str, emulator: Any, stack: int) -> None:
    """Set the stack pointer, as a Cortex-M does from its vector table."""
    from unicorn import arm_const

    if machine == "cortex-m4":
        emulator.reg_write(arm_const.UC_ARM_REG_SP, stack)


def read_elf(image: Path) -> tuple[list[tuple[int, bytes, int]], dict[str, int]]:
    """Return (address, bytes, size in memory) of an image's segments, and its symbols."""
    content = image.read_bytes()
    (programs, sections) = struct.unpack_from("<II", content, 28)
    count, section_bytes, section_count = (
        struct.unpack_from("<H", content, at)[0] for at in (44, 46, 48)
    )
    segments = []
    for number in range(count):
        kind, offset, address, _, filed, size = struct.unpack_from(
            "<6I", content, programs + 32 * number
        )
        if kind == 1 and size:
            segments.append((address, content[offset : offset + filed], size))
    headers = [
        struct.unpack_from("<10I", content, sections + section_bytes * number)
        for number in range(section_count)
    ]
    symbols = {}
    for header in headers:
        if header[1] == 2:  # SHT_SYMTAB; its link is the section of names
            names = headers[header[6]][4]
            for at in range(header[4], header[4] + header[5], 16):
                name, value = struct.unpack_from("<II", content, at)
                end = content.index(b"\0", names + name)
                symbols[content[names + name : end].decode()] = value
    return segments, symbols
