"""Settings of all tests: Hypothesis judges results, never times, and draws the same examples everywhere."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")
