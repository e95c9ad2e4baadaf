"""Records: how every point ends - ok, infeasible or failed - as a row of the results file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from byoc.options import CompileOptions
from experiments.sweep.preparation import Misfit
from experiments.sweep.store import COLUMNS, Row
from experiments.sweep.worker import FIGURES, Outcome

Status = Literal["ok", "infeasible", "failed"]
STATUS = tuple(COLUMNS).index("status")
"""Where a row has its status."""
_NO_FIGURES = (None,) * len(FIGURES)


class Point(NamedTuple):
    """A point of a subject: its key, its Timing as canonical JSON, and the preset that it comes from."""

    key: str
    timing: str
    preset: str


@dataclass(frozen=True)
class Subject:
    """What the points of one machine share in their rows. ``package`` is the digest, ``arch`` canonical JSON."""

    network: str
    package: str
    options: CompileOptions
    arch: str
    version: str
    host_nodes: int | None = None
    host_cycles: int | None = None

    def with_host(self, nodes: int, cycles: int) -> Subject:
        """The same with what runs on the CPU: nodes, and cycles by estimate."""
        return replace(self, host_nodes=nodes, host_cycles=cycles)

    def outcome_rows(self, points: Iterable[Point], outcomes: Iterable[Outcome]) -> tuple[Row, ...]:
        """Rows of points that a worker has dealt with: ok with their figures, or failed."""
        return tuple(
            self._row(point, "failed" if outcome.figures is None else "ok", outcome.message, None, outcome.figures)
            for point, outcome in zip(points, outcomes, strict=True)
        )

    def infeasible_rows(self, points: Iterable[Point], misfit: Misfit) -> tuple[Row, ...]:
        """Rows of points whose machine is too small."""
        return tuple(self._row(point, "infeasible", misfit.message, misfit.missing_bytes) for point in points)

    def failed_rows(self, points: Iterable[Point], message: str) -> tuple[Row, ...]:
        """Rows of points that failed together."""
        return tuple(self._row(point, "failed", message) for point in points)

    def _row(
        self,
        point: Point,
        status: Status,
        message: str | None,
        missing_bytes: int | None = None,
        figures: Sequence[object] | None = None,
    ) -> Row:
        choices = self.options.choices.values()
        subject = self.network, self.package, point.preset, *choices, self.arch, point.timing, self.version
        host = self.host_nodes, self.host_cycles
        return (point.key, *subject, status, message, missing_bytes, *host, *(figures or _NO_FIGURES))
