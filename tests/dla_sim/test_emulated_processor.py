"""The oracle and the kernels are exact on an emulated processor without VNNI."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from dla_sim.kernels import products
from tests.e2e.mixed_products import main
print({kind: products.is_exact(products.IntegerProducts(products.session(kind), kind == "uint8"))
       for kind in ("int8", "uint8")})
print(products.integer_products().kind)
sys.argv[1:] = ["--count", "3"]
raise SystemExit(main())
"""


@pytest.mark.slow
def test_products_are_exact_without_vnni() -> None:
    """The int8 kernel saturates without VNNI, so the uint8 one is chosen.

    Drawn networks give no false alarm.
    """
    emulator = shutil.which("qemu-x86_64")
    if emulator is None or platform.machine() != "x86_64":
        pytest.skip("needs qemu-x86_64 (Debian: qemu-user) on an x86-64 processor")
    words = [emulator, "-cpu", "Haswell", sys.executable, "-c", SCRIPT]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    kernels, chosen, *drawn = done.stdout.splitlines()
    assert kernels == "{'int8': False, 'uint8': True}"
    assert chosen == "uint8"
    assert "'right': 3" in drawn[-1]
