"""Report of a system's run in the public JSON format of ``dla system``.

It covers tasks, units and memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from math import ceil, sqrt
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dla_sim.systems.check import PreemptionCheck
from dla_sim.systems.simulate import CAUSES, SystemRecord
from dla_sim.systems.spec import System, SystemTask
from dla_sim.systems.work import Plans
from experiments.report.parts import Count, Fraction, Part, Text, Word
from experiments.report.store import validate_report

SCHEMA: Literal["dla-system/1"] = "dla-system/1"
SAVING = -1
"""Value in place of a task on the timeline while the scratchpad of a preempted program is saved."""
Cycles = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[Count, Field(ge=1)]


class Response(Part):
    """Response times in cycles, from release to end; percentiles use the nearest rank."""

    mean: Cycles
    deviation: Cycles
    p50: Count
    p95: Count
    p99: Count
    worst: Count


class Predecessor(Part):
    """A direct or indirect predecessor of a task, and the cycles between its releases."""

    name: Text
    period: Positive


class TaskResult(Part):
    """Results of a task's jobs in a system's run.

    ``alone`` is the cycles of one job alone in the system, on its fastest unit. ``skipped`` counts
    releases while the previous job was unfinished. ``late`` jobs ended after their deadline;
    ``missed`` adds the jobs that were unfinished when it passed. ``causes`` are the cycles of all
    ended jobs by cause; their sum is the sum of the response times. ``response`` is None if no job
    ended. ``rarer`` is the predecessor with the longest period (the first of equal ones), if that
    period is longer than the deadline: some readers expect a deadline to count from the
    predecessor's release.
    """

    name: Text
    model: Text | None
    quality: Annotated[float, Field(allow_inf_nan=False)]
    released: Count
    skipped: Count
    ended: Count
    late: Count
    missed: Count
    deadline: Count | None
    alone: Count
    response: Response | None
    preemptions: Count
    causes: dict[Word, Count]
    rarer: Predecessor | None = None

    @model_validator(mode="after")
    def _consistent(self) -> TaskResult:
        if tuple(self.causes) != CAUSES:
            raise ValueError(f"causes are {', '.join(self.causes)}; they are {', '.join(CAUSES)}")
        if (self.response is None) != (not self.ended):
            raise ValueError("response times exist if and only if a job ended")
        return self

    @property
    def slowdown(self) -> float | None:
        """Mean response time relative to the task running alone; None if no job ended."""
        return self.response.mean / self.alone if self.response and self.alone else None


class UnitResult(Part):
    """Figures of one accelerator or CPU core in a system's run.

    ``compute``: cycles in which an accelerator's EX executed, None for cores.

    Programs that the end of the run cuts off count as ``busy``, but not in ``compute``.
    """

    name: Text
    busy: Count
    compute: Count | None
    utilization: Fraction


class MemoryResult(Part):
    """Results of the shared memory, which can grant up to ``grants`` slots per cycle.

    ``slots`` is the number of granted slots; ``traffic`` is the number in each of several equal
    parts of the run.
    """

    slots: Count
    grants: Positive
    utilization: Fraction
    traffic: Annotated[tuple[Count, ...], Field(min_length=1)]


class Pieces(Part):
    """Comparison of preempted programs, which run in pieces on data, with whole programs.

    ``ways`` counts the distinct sets of preemption points; ``mismatches`` counts the output
    elements that differ.
    """

    ways: Count
    elements: Count
    mismatches: Count
    first: Text | None


class Activities(Part):
    """Activity of a unit as spans in time order.

    Each span has its ``active`` cycles and its number of ``intervals``. ``task`` is the index of
    the task with the most cycles in the span, or :data:`SAVING`.
    """

    begin: tuple[Count, ...]
    end: tuple[Count, ...]
    active: tuple[Count, ...]
    intervals: tuple[Count, ...]
    task: tuple[Annotated[int, Field(ge=SAVING)], ...]

    @model_validator(mode="after")
    def _consistent(self) -> Activities:
        columns = (self.begin, self.end, self.active, self.intervals, self.task)
        if len({len(column) for column in columns}) > 1:
            raise ValueError("the columns of a unit's spans are of different lengths")
        return self


class SystemTimeline(Part):
    """Activity of every unit over time, as spans.

    Intervals that begin in the same ``window`` of cycles form one span. With a window of 1, each
    interval is a span: one program of a job, a piece of one, or a job's time on a core.
    """

    window: Positive
    units: dict[Text, Activities]


class SystemReport(Part):
    """Report of a system's run."""

    schema_: Literal["dla-system/1"] = Field(default=SCHEMA, alias="schema")
    command: Text
    name: Text
    policy: Word
    preemption: Word
    quantum: Count
    seed: Count
    clock_hz: Positive
    cycles: Positive
    unfinished: Count
    tasks: tuple[TaskResult, ...]
    units: tuple[UnitResult, ...]
    memory: MemoryResult
    check: Pieces | None
    timeline: SystemTimeline | None = None

    @model_validator(mode="after")
    def _consistent(self) -> SystemReport:
        if self.timeline is not None:
            if tuple(self.timeline.units) != tuple(unit.name for unit in self.units):
                raise ValueError("the timeline refers to other units")
            if any(
                task >= len(self.tasks)
                for unit in self.timeline.units.values()
                for task in unit.task
            ):
                raise ValueError("the timeline refers to unknown tasks")
        return self

    @property
    def memory_shares(self) -> tuple[float, ...]:
        """Share of the memory's slots that was granted, in each part of the run.

        :class:`MemoryResult` describes the parts.
        """
        slots = self.memory.traffic
        ends = [-(-part * self.cycles // len(slots)) for part in range(len(slots) + 1)]
        lengths = [self.memory.grants * max(1, end - start) for start, end in pairwise(ends)]
        return tuple(granted / length for granted, length in zip(slots, lengths, strict=True))

    @property
    def missed(self) -> int:
        """Number of jobs of all tasks that missed their deadlines."""
        return sum(task.missed for task in self.tasks)


def make_report(
    system: System,
    plans: Plans,
    record: SystemRecord,
    variants: Sequence[int],
    check: PreemptionCheck | None = None,
    command: str = "",
    timeline: SystemTimeline | None = None,
) -> SystemReport:
    """Return the report of a run; ``variants`` has the chosen variant of every task."""
    chosen = system.conditions
    cycles = record.cycles
    tasks = []
    for index, (task, found) in enumerate(zip(system.tasks, record.tasks, strict=True)):
        mine = [
            plan
            for (number, variant, _), plan in plans.items()
            if (number, variant) == (index, variants[index])
        ]
        kind = task.variants[variants[index]] if task.variants else None
        tasks.append(
            TaskResult(
                name=task.name, model=kind.model if kind else None,
                quality=kind.quality if kind else 1.0,
                released=found.released, skipped=found.skipped,
                ended=len(found.responses), late=found.late, missed=found.late + found.overdue,
                deadline=task.deadline,
                alone=min(plan.cycles for plan in mine), response=_response(found.responses),
                preemptions=found.preemptions,
                causes={cause: found.spent[cause] for cause in CAUSES},
                rarer=_rarer(task, system.tasks),
            )
        )  # fmt: skip
    # Without accelerators there are no ports: count one slot per cycle, which is never granted.
    grants = 1 if system.shared_port else max(1, min(system.grants, len(system.accelerators)))
    return SystemReport(
        command=command, name=system.name, policy=chosen.policy, preemption=chosen.preemption,
        quantum=chosen.quantum, seed=system.seed, clock_hz=system.clock_hz, cycles=cycles,
        unfinished=record.unfinished, tasks=tuple(tasks),
        units=tuple(
            UnitResult(
                name=name, busy=busy, compute=record.compute.get(name), utilization=busy / cycles
            )
            for name, busy in record.busy.items()
        ),
        memory=MemoryResult(
            slots=record.memory_slots, grants=grants, traffic=tuple(record.traffic),
            utilization=record.memory_slots / (grants * cycles),
        ),
        check=Pieces(**asdict(check)) if check else None, timeline=timeline,
    )  # fmt: skip


def _rarer(task: SystemTask, tasks: Sequence[SystemTask]) -> Predecessor | None:
    named = {one.name: one for one in tasks}
    found = dict.fromkeys(task.after)
    wanted = list(task.after)
    while wanted:
        more = [name for name in named[wanted.pop()].after if name not in found]
        found |= dict.fromkeys(more)
        wanted += more
    periods = {name: named[name].period or 0 for name in named if name in found}
    longest = max(periods, key=lambda name: periods[name], default=None)
    if longest is None or task.deadline is None or periods[longest] <= task.deadline:
        return None
    return Predecessor(name=longest, period=periods[longest])


def _response(times: Sequence[int]) -> Response | None:
    if not times:
        return None
    ordered = sorted(times)
    count = len(times)
    mean = sum(ordered) / count
    deviation = sqrt(sum((time - mean) ** 2 for time in ordered) / count)
    p50, p95, p99 = (ordered[ceil(count * share / 100) - 1] for share in (50, 95, 99))
    return Response(mean=mean, deviation=deviation, p50=p50, p95=p95, p99=p99, worst=ordered[-1])


def report_json(report: SystemReport) -> str:
    """Return the report as JSON text; equal reports give equal bytes."""
    return json.dumps(report.model_dump(mode="json"), indent=1) + "\n"


def system_report(content: Any, path: Path) -> SystemReport:
    """Return the system report in the content of file ``path``.

    Raise InputError if it is none of this version.
    """
    return validate_report(content, path, SystemReport, SCHEMA, "system report", "dla system")


def task_rows(report: SystemReport) -> Iterator[dict[str, Any]]:
    """Yield one row of figures per task.

    The columns include ``response.p99`` and ``causes.memory``. A missing figure is None.
    """
    for task in report.tasks:
        row = {
            **task.model_dump(mode="json", exclude={"response", "causes", "rarer"}),
            "slowdown": task.slowdown,
        }
        times = (
            task.response.model_dump() if task.response else dict.fromkeys(Response.model_fields)
        )
        row |= {f"response.{name}": value for name, value in times.items()}
        yield row | {f"causes.{cause}": cycles for cause, cycles in task.causes.items()}
