"""Tests of the machine as gates compile it: without a C++ compiler and make they are skipped."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiled(compiler: None) -> None:
    """Require a compiler for all tests before anything shared is built."""
