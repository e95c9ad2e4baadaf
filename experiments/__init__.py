"""Workflows: the dla command, reports, reproductions.

The public API is :func:`run`; it loads when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.workflow import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    """``run`` (model → checked report), imported when asked for."""
    if name == "run":
        from experiments.workflow import run

        return run
    raise AttributeError(f"module 'experiments' has no attribute '{name}'")
