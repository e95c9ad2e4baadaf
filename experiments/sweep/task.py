"""Tasks: jobs for workers together with the points that they settle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.sweep.records import Point, Subject
from experiments.sweep.store import Row
from experiments.sweep.worker import Job, Machine, Result
from experiments.sweep.workshop import CompiledProgram

Points = tuple[Point, ...]


@dataclass(eq=False)
class Task:
    """A job with the points it settles, machine by machine.

    ``rest``: further points of its only machine, which wait for its programs. ``suspect``: a worker that may have had
    this task has died; ``deaths`` counts those that certainly had.
    """

    job: Job
    points: tuple[tuple[Subject, Points], ...]
    rest: Iterator[Points] | None = None
    suspect: bool = False
    deaths: int = 0

    def rows(self, result: Result) -> tuple[Row, ...]:
        """The rows of a result."""
        parts = zip(self.points, result.outcomes, strict=True)
        return tuple(row for (subject, points), outcomes in parts for row in subject.outcome_rows(points, outcomes))

    def failed_rows(self, message: str) -> tuple[Row, ...]:
        """The rows when there is no result."""
        return tuple(row for subject, points in self.points for row in subject.failed_rows(points, message))

    def following(self, programs: tuple[CompiledProgram, ...]) -> Iterator[Task]:
        """Tasks for the points that waited for the machine's programs."""
        subject, machine = self.points[0][0], self.job.machines[0]
        for points in self.rest or ():
            timed = Machine(machine.arch, timings_of(points), programs)
            yield Task(replace(self.job, machines=(timed,), keep=False), ((subject, points),))

    def following_failed(self, message: str) -> Iterator[tuple[Row, ...]]:
        """Rows for the points that waited in vain."""
        for points in self.rest or ():
            yield self.points[0][0].failed_rows(points, message)


def timings_of(points: Points) -> tuple[Mapping[str, Any], ...]:
    """The Timings of points, field by field."""
    return tuple(json.loads(point.timing) for point in points)
