"""Workflows: the dla command, reports, sweeps, reproductions.

The public names are :func:`run` (one network on one machine) and :func:`load` (the results of a
sweep as a DataFrame). They load on first use. The package ``dla`` exports all public names of the
project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.running.inference import run
    from experiments.sweep.results import load
else:
    from isa.exports import lazily

    __getattr__, __dir__ = lazily(
        __name__, {"load": "experiments.sweep.results", "run": "experiments.running.inference"}
    )

__all__ = ["load", "run"]
