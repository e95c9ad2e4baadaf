"""Bundles built by GCC's cross compilers, executed by QEMU with the device behind its UART.

QEMU and the device map one file as memory. Registers pass through a socket with the requests of
docs/device.md (platform_qemu.c). Debian packages: qemu-system-arm, qemu-system-misc,
gcc-arm-none-eabi, gcc-riscv64-unknown-elf.
"""

from __future__ import annotations

import mmap
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dla_sim.device_server import REQUEST, RequestKind, answer
from dla_sim.mapped import make_bus
from tests.byoc.bare_metal.images import run_command
from tests.byoc.bare_metal.served import MainRun, Served

PLATFORM = Path(__file__).with_name("platform_qemu.c")


@dataclass(frozen=True)
class QemuMachine:
    """Machine of QEMU: compiler, and the memory that processor and device share.

    ``code`` and ``ram`` are (first address, size); constants and data are in ``ram``.
    """

    words: tuple[str, ...]
    compiler: str
    flags: str
    code: tuple[int, int]
    ram: tuple[int, int]


QEMU_MACHINES = {
    "qemu-riscv32": QemuMachine(
        ("qemu-system-riscv32", "-machine", "virt,memory-backend=ram", "-bios", "none"),
        "riscv64-unknown-elf-", "-march=rv32im -mabi=ilp32",
        (0x80000000, 0x100000), (0x80100000, 255 << 20),
    ),
    "qemu-cortex-m4": QemuMachine(
        ("qemu-system-arm", "-machine", "mps2-an386,memory-backend=ram"),
        "arm-none-eabi-", "-mcpu=cortex-m4 -mthumb", (0, 4 << 20), (0x21000000, 16 << 20),
    ),
}  # fmt: skip
TIMEOUT = 600
"""Seconds after which an image that does not end has failed."""


def build_qemu_image(machine: QemuMachine, folder: Path, *flags: str) -> Path:
    """Build a bundle in ``folder`` with ``make bare`` for a machine of QEMU."""
    shutil.copy(PLATFORM, folder)
    (code, code_bytes), (ram, ram_bytes) = machine.code, machine.ram
    text = (
        (folder / "link_example.ld")
        .read_text()
        .replace(
            "ORIGIN = 0x00000000, LENGTH = 256M", f"ORIGIN = {code:#x}, LENGTH = {code_bytes:#x}"
        )
        .replace("ORIGIN = 0x20000000, LENGTH = 64M", f"ORIGIN = {ram:#x}, LENGTH = {ram_bytes:#x}")
    )
    for section in (".dla ", ".rodata "):
        head, tail = text.split(section, 1)
        text = head + section + tail.replace("> FLASH", "> RAM", 1)
    (folder / "link_qemu.ld").write_text(text)
    run_command(["make", "-s", "-C", folder, "clean"])
    run_command(
        ["make", "-s", "-C", folder, "bare", f"CROSS={machine.compiler}",
         f"PLATFORM={PLATFORM.name}", "LDSCRIPT=link_qemu.ld",
         " ".join(("CFLAGS=-O2", machine.flags, *flags))]
    )  # fmt: skip
    return folder / "dla_bare.elf"


def run_qemu(served: Served, machine: QemuMachine, image: Path) -> MainRun:
    """Run an image on QEMU until it ends; ``waits`` counts the waits for the interrupt."""
    base = machine.ram[0] & ~0xFFFFFF
    size = machine.ram[0] + machine.ram[1] - base
    memory, place = image.with_suffix(".ram"), image.with_suffix(".sock")
    memory.write_bytes(b"")
    with memory.open("r+b") as file, socket.socket(socket.AF_UNIX) as listener:
        file.truncate(size)
        shared = mmap.mmap(file.fileno(), size)
        place.unlink(missing_ok=True)
        listener.bind(str(place))
        listener.listen()
        words = (
            *machine.words, "-m", f"{size >> 20}M", "-display", "none", "-monitor", "none",
            "-object", f"memory-backend-file,id=ram,size={size},mem-path={memory},share=on",
            "-chardev", f"socket,id=device,path={place}", "-serial", "chardev:device",
            "-semihosting-config", "enable=on,target=native", "-kernel", str(image),
        )  # fmt: skip
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        listener.settimeout(30)
        client, _ = listener.accept()
        client.settimeout(TIMEOUT)
        bus = make_bus(memoryview(shared), base)
        device = served.open(bus, deferred=True)
        waits = 0
        with client, client.makefile("rb") as stream:
            while len(head := stream.read(REQUEST.size)) == REQUEST.size:
                kind, address, value = REQUEST.unpack(head)
                waits += kind == RequestKind.WAIT
                if kind == RequestKind.WRITE32:
                    value ^= served.corrupt.get(address, 0)
                client.sendall(answer(device, bus, kind, address, value, stream.read))
        text, _ = process.communicate(timeout=TIMEOUT)
    return MainRun(process.returncode, text.decode(), waits)
