"""Fixtures of the tasks of users."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from tests.e2e.user_tasks import User
from tests.rotation import TURN

SHARE = 4
"""One task in so many starts processes at a turn; the others call the command in this process."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def user(request: pytest.FixtureRequest, tmp_path: Path, cache: Path) -> User:
    starts_processes = (crc32(request.node.name.encode()) - TURN) % SHARE == 0
    return User(tmp_path, cache, in_process=not starts_processes)
