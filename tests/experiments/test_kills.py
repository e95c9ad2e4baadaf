"""Commands that write, killed at a few random moments.

``tests.kill_writers`` kills any number of them.
"""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_nothing_is_half_written_and_nothing_foreign_touched() -> None:
    """In a process of its own, for it forks: this one may have threads."""
    command = [sys.executable, "-m", "tests.kill_writers", "--count", "12", "--seed", "7"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, ""), found.stdout
    assert found.stdout.endswith("12 kills, 0 violations\n")
