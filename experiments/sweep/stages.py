"""How long work says what it is doing."""

from __future__ import annotations

from collections.abc import Callable

Stage = Callable[[str], None]
"""Is called with what is going on."""


def quiet(stage: str) -> None:
    """Says nothing."""
