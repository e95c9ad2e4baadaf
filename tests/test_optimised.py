"""Texts for users do not depend on docstrings: Python strips them under ``-OO``."""

from __future__ import annotations

import subprocess
import sys

COMMANDS = (
    "['support', '--built-in', '--format', 'markdown']",
    "['isa', '--built-in', '--format', 'markdown']",
    "['partition', 'digits-cnn', '--isa', 'v1', '--set', 'sram_bytes=512']",
)
SCRIPT = "from experiments.cli.main import main\n" + "".join(
    f"main({words})\n" for words in COMMANDS
)


def test_rules_formulas_and_reasons_are_the_same_without_docstrings() -> None:
    plain, stripped = (
        subprocess.run(
            [sys.executable, *flags, "-c", SCRIPT], capture_output=True, text=True, check=True
        ).stdout
        for flags in ((), ("-OO",))
    )
    assert "each activation tensor has one scale and one zero point" in plain
    assert "does not fit in 512 bytes of SRAM" in plain
    assert stripped == plain
