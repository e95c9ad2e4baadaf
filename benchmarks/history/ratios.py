"""The geometric mean of the ratios of each script."""

from __future__ import annotations

from statistics import geometric_mean


class Ratios:
    """Benchmark of asv; a parameter is a script of ``benchmarks``."""

    params = ("inference", "start", "compiler")
    param_names = ("script",)
    timeout = 1800

    def track_geometric_mean(self, script: str) -> float:
        """Return the geometric mean of a script's ratios."""
        from benchmarks.__main__ import measure

        return geometric_mean(row.ratio for row in measure(script))
