"""Counterparts of Vela's operators run as docs/validation.md states, and equal ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.counterparts import all_outcomes, page

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"


@pytest.mark.slow
def test_the_page_says_what_runs() -> None:
    outcomes = all_outcomes()
    assert [outcome.operator for outcome in outcomes if outcome.mismatches] == []
    assert all(outcome.elements for outcome in outcomes if not outcome.reason)
    assert PAGE.read_text(encoding="utf-8").endswith("\n\n" + page(outcomes))
