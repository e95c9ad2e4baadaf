"""The notebooks show what they showed when they were last executed."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.docs.notebooks import NOTEBOOKS, executed, shown


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_the_notebook_is_current(path: Path, tmp_path: Path) -> None:
    """Else run ``python -m tests.docs.notebooks``."""
    assert shown(executed(path, tmp_path)) == shown(nbformat.read(path, as_version=4))
