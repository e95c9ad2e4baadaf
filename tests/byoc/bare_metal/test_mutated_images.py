"""A bundle with changed bytes ends each run with a status, without undefined behaviour."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.byoc.bare_metal.mutated_images import run_protected, write_networks


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the Debian package gcc is not installed")
def test_mutated_images_end_with_a_status(tmp_path: Path) -> None:
    write_networks(tmp_path, random_networks=1)
    ends = run_protected(250, 0, tmp_path, "both")
    assert sum(ends.values()) == 500
    assert {"OK", "HASH", "WORD", "ADDRESS", "MEMORY", "PROGRAM", "INDEX"} <= set(ends)
