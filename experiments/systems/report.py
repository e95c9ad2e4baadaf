"""What became of a system's tasks, units and memory: the public JSON format of ``dla system``, and its making."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import ceil, sqrt
from typing import Literal

from experiments.report.schema import Count, Fraction, Part, Text, Word
from experiments.systems.check import PiecesCheck
from experiments.systems.simulate import CAUSES, Record
from experiments.systems.spec import System
from experiments.systems.work import Plans

SCHEMA: Literal["dla-system/1"] = "dla-system/1"


class Response(Part):
    """Response times in cycles, from release to end; percentiles are those of nearest rank."""

    mean: float
    deviation: float
    p50: Count
    p95: Count
    p99: Count
    worst: Count


class TaskResult(Part):
    """What became of a task's jobs.

    ``alone``: cycles of a job alone in the system, where it runs fastest. ``skipped``: releases while the job before
    was under way. ``late``: jobs that ended behind their deadline; ``missed``: those, and the ones that had not ended
    when it passed. ``causes``: what the cycles of all jobs that ended went into, together their response times.
    ``response`` is None if no job ended.
    """

    name: Text
    model: Text | None
    quality: float
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

    @property
    def slowdown(self) -> float | None:
        """Mean response time over the time alone."""
        return self.response.mean / self.alone if self.response and self.alone else None


class UnitResult(Part):
    """An accelerator or a core. ``compute``: cycles in which an accelerator's EX executed, None of cores."""

    name: Text
    busy: Count
    compute: Count | None
    utilization: Fraction


class MemoryResult(Part):
    """The shared memory: ``slots`` granted, of ``grants`` a cycle; ``traffic``: those of equal parts of the time."""

    slots: Count
    grants: Count
    utilization: Fraction
    traffic: tuple[Count, ...]


class Pieces(Part):
    """Programs that gave way, run in pieces on data: the distinct ways, and elements that differ from the whole's."""

    ways: Count
    elements: Count
    mismatches: Count
    first: Text | None


class SystemReport(Part):
    """A run of a system."""

    schema_: Literal["dla-system/1"] = SCHEMA
    command: Text
    name: Text
    policy: Word
    preemption: Word
    quantum: Count
    seed: Count
    clock_hz: Count
    cycles: Count
    unfinished: Count
    tasks: tuple[TaskResult, ...]
    units: tuple[UnitResult, ...]
    memory: MemoryResult
    check: Pieces | None

    @property
    def missed(self) -> int:
        """Jobs of all tasks that missed their deadlines."""
        return sum(task.missed for task in self.tasks)


def make_report(
    system: System,
    plans: Plans,
    record: Record,
    variants: Sequence[int],
    check: PiecesCheck | None = None,
    command: str = "",
) -> SystemReport:
    """The report of a run whose jobs were of ``variants``."""
    chosen, cycles = system.conditions, record.cycles
    tasks = []
    for index, (task, found) in enumerate(zip(system.tasks, record.tasks, strict=True)):
        mine = [plan for (number, variant, _), plan in plans.items() if (number, variant) == (index, variants[index])]
        kind = task.variants[variants[index]] if task.variants else None
        tasks.append(
            TaskResult(
                name=task.name, model=kind.model if kind else None, quality=kind.quality if kind else 1.0,
                released=found.released, skipped=found.skipped,
                ended=len(found.responses), late=found.late, missed=found.late + found.overdue, deadline=task.deadline,
                alone=min(plan.cycles for plan in mine), response=_response(found.responses),
                preemptions=found.preemptions, causes={cause: found.spent[cause] for cause in CAUSES},
            )
        )  # fmt: skip
    grants = 1 if system.shared_port else min(system.grants, len(system.accelerators))
    return SystemReport(
        command=command, name=system.name, policy=chosen.policy, preemption=chosen.preemption,
        quantum=chosen.quantum, seed=system.seed, clock_hz=system.clock_hz, cycles=cycles,
        unfinished=record.unfinished, tasks=tuple(tasks),
        units=tuple(
            UnitResult(name=name, busy=busy, compute=record.compute.get(name), utilization=busy / cycles)
            for name, busy in record.busy.items()
        ),
        memory=MemoryResult(
            slots=record.memory_slots, grants=grants, traffic=tuple(record.traffic),
            utilization=record.memory_slots / (grants * cycles),
        ),
        check=Pieces(**asdict(check)) if check else None,
    )  # fmt: skip


def _response(times: Sequence[int]) -> Response | None:
    if not times:
        return None
    ordered, count = sorted(times), len(times)
    mean = sum(ordered) / count
    deviation = sqrt(sum((time - mean) ** 2 for time in ordered) / count)
    p50, p95, p99 = (ordered[ceil(count * share / 100) - 1] for share in (50, 95, 99))
    return Response(mean=mean, deviation=deviation, p50=p50, p95=p95, p99=p99, worst=ordered[-1])


def report_json(report: SystemReport) -> str:
    """The report as text; equal reports give equal bytes."""
    return json.dumps(report.model_dump(mode="json"), indent=1) + "\n"
