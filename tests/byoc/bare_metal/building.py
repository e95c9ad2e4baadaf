"""Compile C of the bundle for tests: every warning an error, with both sanitizers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from isa.headers import device_header

DRIVER = Path(str(files("byoc.bare_metal"))) / "c"
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")


def build(folder: Path, sources: Sequence[Path], *options: str) -> Path:
    """Compile the driver and ``sources`` with gcc and return the executable."""
    (folder / "dla_device.h").write_text(device_header(), encoding="ascii")
    made = folder / "made"
    names = [str(path) for path in (DRIVER / "dla_driver.c", *sources)]
    command = ["gcc", *WARNINGS, *SANITIZERS, "-I", str(folder), "-I", str(DRIVER), *options]
    done = subprocess.run(
        [*command, *names, "-o", str(made)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return made
