"""Models in the forms of public reports run in one region, exactly."""

from __future__ import annotations

import pytest

from tests.e2e.field_files import KINDS, failure


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_the_field_runs(kind: str, seed: int) -> None:
    """``python -m tests.e2e.field_files`` runs more of each."""
    assert failure(kind, seed) == ""
