"""Fixtures of the tasks of users."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.user_tasks import User


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def user(tmp_path: Path, cache: Path) -> User:
    return User(tmp_path, cache)
