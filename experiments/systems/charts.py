"""Charts of a system's run: response times, their causes, units and memory over time."""

from collections.abc import Iterator
from itertools import cycle

from dla_sim.systems.simulate import CAUSES
from experiments.report.charts.model import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LIGHT,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    BarChart,
    Chart,
    Gantt,
    Series,
    StepChart,
    Style,
    UnitActivity,
)
from experiments.systems.report import SAVING, SystemReport

MEANING = {
    "dla": "accelerator", "cpu": "CPU", "transfer": "transfers", "wait_dla": "wait accelerator",
    "wait_cpu": "wait CPU", "memory": "memory shared", "preempted": "going on", "saving": "saving",
}  # fmt: skip
"""Column headings of the causes."""
_CAUSES = {
    "dla": Style(BLUE), "cpu": Style(VERMILION, "x"), "transfer": Style(GREY, "|"),
    "wait_dla": Style(SKY, "\\"),
    "wait_cpu": Style(ORANGE, "/"), "memory": Style(PURPLE, "."), "preempted": Style(YELLOW, "+"),
    "saving": Style(GREEN, "-"),
}  # fmt: skip
_TIMES = {
    "p50": Style(SKY, "\\"), "p95": Style(BLUE), "p99": Style(PURPLE, "."),
    "worst": Style(VERMILION, "x"),
}  # fmt: skip
_TASKS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, BLACK)
"""Colours of tasks on the timeline; the ninth task starts again with the first colour."""


def system_charts(report: SystemReport) -> tuple[Chart, ...]:
    """Return all charts in reading order, without charts that have nothing to show."""
    ended = any(task.ended for task in report.tasks)
    shown: list[Chart | None] = [response_times(report), task_causes(report)] if ended else []
    shown += [unit_use(report), memory_traffic(report), units_timeline(report)]
    return tuple(chart for chart in shown if chart is not None)


def response_times(report: SystemReport) -> BarChart:
    """Return the chart of response-time percentiles.

    The values are in per cent of the deadlines if a task has one.
    """
    relative = any(task.deadline for task in report.tasks if task.response)
    tasks = [task for task in report.tasks if task.response and (task.deadline or not relative)]

    def values(key: str) -> tuple[float, ...]:
        return tuple(
            getattr(task.response, key) * (100 / task.deadline if relative and task.deadline else 1)
            for task in tasks
        )

    series = [Series(key, values(key), style) for key, style in _TIMES.items()]
    note = "Percentiles of nearest rank, of the jobs that ended."
    if relative:
        note += " Tasks without a deadline are only in the table."
    return BarChart(
        "response-times",
        "Response times against deadlines" if relative else "Response times",
        "% of the deadline" if relative else "cycles",
        "%" if relative else "cycles",
        tuple(task.name for task in tasks),
        tuple(series),
        layers=False,
        grouped=True,
        note=note,
        marks=(("deadline", 100.0),) if relative else (),
    )


def task_causes(report: SystemReport) -> BarChart:
    """Return the chart of the components of a job's mean response time."""
    tasks = [task for task in report.tasks if task.ended]
    shares = {cause: tuple(task.causes[cause] / task.ended for task in tasks) for cause in CAUSES}
    series = tuple(
        Series(MEANING[cause], found, _CAUSES[cause])
        for cause, found in shares.items()
        if any(found)
    )
    return BarChart(
        "task-causes",
        "Causes of the mean response time",
        "cycles of a job",
        "cycles",
        tuple(task.name for task in tasks),
        series,
        layers=False,
        note="Accelerator, CPU and transfers: what a job takes alone. The parts add up to the mean "
        "response time.",
    )


def unit_use(report: SystemReport) -> BarChart:
    """Return the chart of busy cycles per unit.

    For accelerators, computing cycles of the array are separate.
    """
    computing = [100 * (unit.compute or 0) / report.cycles for unit in report.units]
    busy = [100 * unit.utilization for unit in report.units]
    cores = [unit.compute is None for unit in report.units]
    parts = (
        ("computing", tuple(computing), Style(BLUE)),
        ("busy, not computing", _where(cores, False, busy, computing), Style(SKY, "\\")),
        ("CPU busy", _where(cores, True, busy, computing), Style(VERMILION, "x")),
    )
    series = tuple(Series(name, found, style) for name, found, style in parts)
    return BarChart(
        "unit-use",
        "Utilisation of the units",
        "% of the run's cycles",
        "%",
        tuple(unit.name for unit in report.units),
        series,
        layers=False,
        limit=100.0,
    )


def _where(
    cores: list[bool], wanted: bool, busy: list[float], computing: list[float]
) -> tuple[float, ...]:
    """Return the share of time, in per cent, that each unit is busy but does not compute.

    ``wanted`` chooses cores or accelerators; the others have 0.
    """
    found = zip(cores, busy, computing, strict=True)
    return tuple(max(0.0, whole - part) if core == wanted else 0.0 for core, whole, part in found)


def memory_traffic(report: SystemReport) -> StepChart:
    """Return the chart of the memory's granted slots over time."""
    memory = report.memory
    width = report.cycles / len(memory.traffic)
    levels = tuple(100 * share for share in report.memory_shares)
    note = (
        f"Each step is {width:,.6g} cycles. The whole is {memory.grants:,} "
        f"slot{'s' * (memory.grants != 1)} a cycle."
    )
    limits = ((f"mean ({100 * memory.utilization:.1f} %)", 100 * memory.utilization),)
    return StepChart(
        "memory-traffic",
        "Traffic of the memory over time",
        tuple(width * number for number in range(len(levels) + 1)),
        (Series("slots granted", levels, Style(SKY)),),
        limits,
        "%",
        note,
        "slots granted",
    )


def units_timeline(report: SystemReport) -> Gantt | None:
    """Return the timeline of every unit, coloured by task; None for a report without a timeline."""
    found = report.timeline
    if found is None:
        return None
    names = [task.name for task in report.tasks]
    groups = [(name, Style(color)) for name, color in zip(names, cycle(_TASKS), strict=False)]
    if any(SAVING in unit.task for unit in found.units.values()):
        groups.append(("saving the scratchpad", Style(LIGHT)))
    rows = tuple((unit, tuple(_activities(report, unit))) for unit in found.units)
    note = (
        "Each span is a program, a piece of one, or a job's time on a core."
        if found.window == 1
        else f"Each span shows the work that a unit began in {found.window:,} cycles, named by its "
        "main task."
    )
    note += " Very short spans are drawn as one; zoom in to see each. Colours are tasks."
    return Gantt(
        "unit-timeline",
        "Activity of every unit over time",
        tuple(groups),
        rows,
        report.cycles,
        note,
        noun="intervals of work",
    )


def _activities(report: SystemReport, unit: str) -> Iterator[UnitActivity]:
    assert report.timeline is not None
    spans = report.timeline.units[unit]
    for begin, end, active, count, task in zip(
        spans.begin, spans.end, spans.active, spans.intervals, spans.task, strict=True
    ):
        saving = task == SAVING
        name = "saving the scratchpad" if saving else report.tasks[task].name
        yield UnitActivity(begin, end, active, count, len(report.tasks) if saving else task, name)
