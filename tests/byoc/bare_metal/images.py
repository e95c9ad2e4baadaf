"""Builds of bundles for tests: a shared library for ctypes, programs for the host and for MCUs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.byoc.bare_metal.building import WARNINGS

UNDEFINED = ("-fsanitize=undefined", "-fno-sanitize-recover=all")

HOST_PLATFORM = """
#include "platform.h"
static struct dla_port port;
static char printed[1 << 16];
static size_t length;
const struct dla_port *platform_port(void) { return &port; }
void platform_print(const char *text) {
    for (; *text != '\\0' && length + 1 < sizeof printed; length++) printed[length] = *text++;
    printed[length] = '\\0';
}
int main(void);
int run_main(const struct dla_port *given);
const char *get_printed(void);
int run_main(const struct dla_port *given) {
    port = *given;
    length = 0;
    return main();
}
const char *get_printed(void) { return printed; }
"""


def run_command(words: Sequence[str | Path], **options: object) -> str:
    """Run a command and return its output; fail with the output if the command fails."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, **options
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def build_library(folder: Path, sources: Sequence[Path], *flags: str) -> Path:
    """Build a shared library from C files with the sanitizer of undefined behaviour."""
    library = folder / "bundle.so"
    options = ("-O1", "-g", "-shared", "-fPIC", *WARNINGS, *UNDEFINED, *flags)
    run_command(["gcc", *options, *sources, "-o", library])
    return library


MACHINES = {
    "riscv32": ("-target", "riscv32-freestanding", "-mcpu=generic_rv32+m"),
    "cortex-m4": ("-target", "thumb-freestanding-eabi", "-mcpu=cortex_m4"),
}
"""Options of ziglang's clang for each microcontroller."""


COMMON = ("dla_driver.c", "dla_host.c", "main.c", "networks.c", "network_*.c")
"""Sources of every image."""


def list_common(folder: Path) -> list[Path]:
    """Return the sources of a bundle that every image needs."""
    return sorted(path for pattern in COMMON for path in folder.glob(pattern))


def build_bundle(folder: Path) -> Path:
    """Build a bundle in ``folder`` as a shared library with :data:`HOST_PLATFORM`."""
    (folder / "host.c").write_text(HOST_PLATFORM)
    return build_library(folder, [*list_common(folder), folder / "host.c"])


def build_image(machine: str, folder: Path, *flags: str) -> Path:
    """Build a bundle in ``folder`` as a program for a microcontroller, with ziglang's clang."""
    image = folder / f"{machine}.elf"
    sources = [*list_common(folder), folder / "start_bare.c", folder / "platform_bare.c"]
    run_command(
        [sys.executable, "-m", "ziglang", "cc", *MACHINES[machine], "-O2", "-ffreestanding",
         "-fno-sanitize=undefined", *WARNINGS, *flags, *sources,
         f"-Wl,-T,{folder / 'link_example.ld'}", "-o", image]
    )  # fmt: skip
    return image
