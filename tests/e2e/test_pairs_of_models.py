"""Two versions of one model that differ in one number: two packages.

More: python -m tests.e2e.pairs_of_models.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.pairs_of_models import alike


def test_two_versions_are_two_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path / "cache"))
    found = [alike(seed, tmp_path) for seed in range(24)]
    assert {wrong for _, wrong in found} == {""}
    assert len(Counter(kind for kind, _ in found if kind)) == 4


def test_a_table_inside_of_what_cannot_be_one_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor that is dequantised with another scale ends a computed function.

    It ends no table inside the function.
    """
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path / "cache"))
    assert alike(1700, tmp_path) == ("zero_point", "")
