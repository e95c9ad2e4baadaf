"""Timeline of a system's run as a trace in Perfetto's format (docs/systems.md)."""

from __future__ import annotations

from collections.abc import Iterable

from dla_sim.systems.simulate import Interval
from experiments.report.perfetto_trace import PERCENT, PerfettoTrace
from experiments.systems.report import SystemReport


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
