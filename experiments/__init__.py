"""Workflows: the dla command, reports, reproductions.

The public API is :func:`run` (one network on one machine) and :func:`load` (the results of a sweep as a DataFrame); it
loads when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.running.workflow import run
    from experiments.sweep.frame import load

__all__ = ["load", "run"]


def __getattr__(name: str) -> Any:
    """``run`` (model → checked report) and ``load`` (results file → DataFrame), imported when asked for."""
    if name == "load":
        from experiments.sweep.frame import load

        return load
    if name == "run":
        from experiments.running.workflow import run

        return run
    raise AttributeError(f"module 'experiments' has no attribute '{name}'")
