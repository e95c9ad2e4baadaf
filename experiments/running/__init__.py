"""One run: a network or a program on a simulated machine, checked to the bit. How far it is, others may hear."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]
"""Is called with what is going on."""


def silent(said: object) -> None:
    """Hears, and says nothing."""
