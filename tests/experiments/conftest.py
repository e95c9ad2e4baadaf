"""Fixtures of tests of commands and of pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.experiments.browser import Browser


@pytest.fixture
def advice() -> None:
    """Runs of the test end with advice."""


@pytest.fixture(autouse=True)
def _no_advice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """End runs without advice, which compiles for seven more machines.

    Tests of advice use the fixture ``advice``.
    """
    if "advice" not in request.fixturenames:
        from experiments.cli import run

        monkeypatch.setattr(run, "MOST_INSTRUCTIONS", -1)


@pytest.fixture
def fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs in a folder that has nothing in it."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser of the module's own; its tests are skipped where there is no Chromium."""
    from tests.experiments.browser import browser

    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found
