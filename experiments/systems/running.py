"""Run of a system under its conditions, and its timeline for a page or a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dla_sim.systems.check import check_preemption
from dla_sim.systems.choices import policy_of, simulate_ways, variants_of
from dla_sim.systems.simulate import Interval, Ways
from dla_sim.systems.spec import System, check_work
from dla_sim.systems.work import Plans
from experiments.report.perfetto_trace import PERCENT, PerfettoTrace
from experiments.systems.plans import PlanMaker
from experiments.systems.report import SAVING, Activities, SystemReport, SystemTimeline, make_report
from isa.progress import Progress, silent

MOST_SPANS = 16_384
"""Most spans of all units together."""


@dataclass
class _Span:
    """Intervals of a unit that begin in one window of cycles: number, and cycles by task."""

    begin: int
    end: int
    intervals: int
    cycles: dict[int, int]

    def add(self, other: _Span) -> None:
        """Add the intervals of a later span to this one."""
        self.end = other.end
        self.intervals += other.intervals
        for task, cycles in other.cycles.items():
            self.cycles[task] = self.cycles.get(task, 0) + cycles


class Recorder:
    """Recorder of the intervals in which units are busy; its memory use is bounded.

    Intervals arrive in the order in which they end on each unit.

    Intervals of a unit that begin in the same window form one span. Windows start with one cycle,
    and double whenever there are more than :data:`MOST_SPANS` spans.
    """

    def __init__(self, units: Sequence[str]) -> None:
        self._units: dict[str, list[_Span]] = {unit: [] for unit in units}
        self._window = 1
        self._count = 0

    def hear(self, interval: Interval) -> None:
        task = SAVING if interval.saving else interval.task
        span = _Span(interval.start, interval.end, 1, {task: interval.end - interval.start})
        self._count += self._put(self._units[interval.unit], span)
        while self._count > MOST_SPANS:
            self._window *= 2
            self._count = 0
            for unit, spans in self._units.items():
                wider: list[_Span] = []
                self._units[unit] = wider
                for one in spans:
                    self._count += self._put(wider, one)

    def _put(self, spans: list[_Span], span: _Span) -> bool:
        if spans and spans[-1].begin // self._window == span.begin // self._window:
            spans[-1].add(span)
            return False
        spans.append(span)
        return True

    def timeline(self) -> SystemTimeline:
        """Return the recorded intervals of all units as the report's timeline.

        A span's task is the one with the most cycles, or the lowest of several.
        """
        return SystemTimeline(
            window=self._window,
            units={
                unit: Activities(
                    begin=tuple(one.begin for one in spans),
                    end=tuple(one.end for one in spans),
                    active=tuple(sum(one.cycles.values()) for one in spans),
                    intervals=tuple(one.intervals for one in spans),
                    task=tuple(
                        max(one.cycles.items(), key=lambda item: (item[1], -item[0]))[0]
                        for one in spans
                    ),
                )
                for unit, spans in self._units.items()
            },
        )


def run_system(
    system: System,
    plans: Plans | None = None,
    *,
    watch: Callable[[Interval], None] | None = None,
    check: bool = False,
    progress: Progress = silent,
    command: str = "",
) -> SystemReport:
    """Run a system under its conditions. Equal arguments give equal reports.

    ``plans`` are those of a :class:`PlanMaker` if they already exist. ``watch`` is called with
    every interval of a unit. ``check`` also runs preempted programs on data. Raises InputError for
    an invalid model or an unknown policy.
    """
    policy_of(system)  # fail before networks are compiled
    check_work(system)
    plans = plans or PlanMaker(progress).plans(system)
    variants = variants_of(system, plans, progress)
    recorder = Recorder(system.units)

    def hear(interval: Interval) -> None:
        recorder.hear(interval)
        if watch is not None:
            watch(interval)

    ways: Ways | None = {} if check else None
    record = simulate_ways(system, plans, variants, hear, ways, progress)
    pieces = None if ways is None else check_preemption(ways, system.seed)
    return make_report(system, plans, record, variants, pieces, command, recorder.timeline())


def timeline_trace(report: SystemReport, intervals: Iterable[Interval]) -> bytes:
    """Return the timeline in Perfetto's format, in which 1 cycle is 1 ns.

    A flow connects the intervals of a job, which may be on several units.
    """
    memory = "memory slots"
    units = {unit.name: number for number, unit in enumerate(report.units)}
    trace = PerfettoTrace(f"{report.name}, 1 ns = 1 cycle", units, {memory: PERCENT})
    flows: dict[tuple[int, int], int] = {}
    for one in sorted(intervals, key=lambda item: (item.start, units[item.unit])):
        task = report.tasks[one.task].name
        flow = flows.setdefault((one.task, one.number), len(flows) + 1)
        name = f"{task}#{one.number}{' saving' * one.saving}"
        arguments = {"task": task, "job": one.number, "saving": int(one.saving)}
        trace.add_slice(one.unit, name, task, (one.start, one.end), arguments, ((flow,), ()))
    for number, share in enumerate(report.memory_shares):
        begin = number * report.cycles // len(report.memory.traffic)
        trace.add_value(memory, begin, 100 * share)
    return trace.serialize()
