"""The C driver: its accesses on the host, and its size on a microcontroller."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from isa.device import FaultReason
from isa.headers import device_header
from tests.byoc.bare_metal.building import DRIVER, WARNINGS, build

HERE = Path(__file__).parent
MAXIMUM_CODE = 4096


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the Debian package gcc is not installed")
def test_the_driver_makes_the_accesses_that_the_page_describes(tmp_path: Path) -> None:
    made = build(tmp_path, [HERE / "driver_check.c"])
    done = subprocess.run([made], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[-1] == "unknown status"
    assert len(set(lines)) == len(lines) == (len(FaultReason) - 1) + 7 + 1


@pytest.mark.parametrize("target", ["thumb-freestanding-eabi", "riscv32-freestanding"])
def test_the_driver_needs_no_library_and_little_code(target: str, tmp_path: Path) -> None:
    (tmp_path / "dla_device.h").write_text(device_header(), encoding="ascii")
    made = tmp_path / "driver.o"
    processor = {"thumb-freestanding-eabi": "cortex_m4", "riscv32-freestanding": "generic_rv32+m"}
    options = ["-target", target, f"-mcpu={processor[target]}", "-Os", "-ffreestanding", "-c"]
    options += ["-fno-unwind-tables", "-fno-asynchronous-unwind-tables"]
    command = [sys.executable, "-m", "ziglang", "cc", *options, *WARNINGS, "-I", str(tmp_path)]
    subprocess.run([*command, str(DRIVER / "dla_driver.c"), "-o", str(made)], check=True)
    sizes, undefined = read_object(made.read_bytes())
    assert sum(sizes.values()) <= MAXIMUM_CODE, sizes
    assert undefined <= {"memcpy"}


def read_object(content: bytes) -> tuple[dict[str, int], set[str]]:
    """Sizes of the allocated sections and names of the undefined symbols of a 32-bit ELF file."""
    (start,) = struct.unpack_from("<I", content, 0x20)
    size, count, names = struct.unpack_from("<HHH", content, 0x2E)
    headers = [
        struct.unpack_from("<10I", content, start + number * size) for number in range(count)
    ]
    texts = headers[names][4]
    sizes = {
        text_at(content, texts + head[0]): head[5]
        for head in headers
        if head[2] & 2 and not text_at(content, texts + head[0]).startswith(".ARM")
    }
    (table,) = (head for head in headers if head[1] == 2)
    strings = headers[table[6]][4]
    symbols = [
        struct.unpack_from("<IIIBBH", content, at)
        for at in range(table[4] + 16, table[4] + table[5], 16)
    ]
    return sizes, {text_at(content, strings + one[0]) for one in symbols if one[5] == 0 and one[0]}


def text_at(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()
