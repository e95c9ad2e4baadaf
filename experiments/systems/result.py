"""Result of a system's run and its presentation as tables and as an HTML page.

The page has every figure of every task, charts, the timeline of every unit, and the command with
its conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dla_sim.systems.choices import RATE_STEPS, Rate
from dla_sim.systems.simulate import CAUSES
from experiments.report.charts.interactive import figure, round_value
from experiments.report.html import (
    Html,
    Section,
    chart_place,
    join_parts,
    page,
    pairs,
    paragraph,
    table_place,
)
from experiments.report.shown import Presentation, Shown, data_frame
from experiments.report.terminal import Printed, ReportTable, line, plain_table
from experiments.systems.charts import MEANING, system_charts
from experiments.systems.report import (
    Response,
    SystemReport,
    TaskResult,
    report_json,
    task_rows,
)

if TYPE_CHECKING:
    import pandas

_COLUMNS: dict[str, tuple[str, str]] = {
    "name": ("task", "text"), "model": ("model", "text"), "quality": ("quality", ""),
    "released": ("released", "jobs"),
    "skipped": ("skipped", "jobs"), "ended": ("ended", "jobs"), "late": ("late", "jobs"),
    "missed": ("missed", "jobs"),
    "deadline": ("deadline", "cycles"), "alone": ("alone", "cycles"), "slowdown": ("slowdown", ""),
    **{f"response.{key}": (key, "cycles") for key in Response.model_fields},
    **{f"causes.{cause}": (f"{MEANING[cause]}, all jobs", "cycles") for cause in CAUSES},
    "preemptions": ("preemptions", ""),
}  # fmt: skip
"""Headings and units of :func:`task_rows`; ``text`` marks a column without a unit."""
_NOTE = "Times from a job's release to its end. CPU and transfers are estimates."


def system_page(report: SystemReport) -> str:
    """Return the HTML page of a system's run; equal reports give equal text."""
    charts = system_charts(report)
    places = {
        chart.identity: chart_place(chart.identity, chart.title, chart.note) for chart in charts
    }
    sections = [
        Section("summary", "Summary", join_parts(*map(paragraph, system_lines(report)))),
        Section(
            "tasks",
            "All figures of every task",
            join_parts(paragraph(_NOTE), table_place("task-table")),
        ),
        _charts("responses", "Response times", places, "response-times", "task-causes"),
        _charts(
            "machine", "Units and memory", places, "unit-use", "memory-traffic", "unit-timeline"
        ),
        Section("configuration", "Command and conditions", _configuration(report)),
    ]
    data = {"figures": [figure(chart) for chart in charts], "table": _task_table(report)}
    shown = [section for section in sections if section.body]
    return page(f"{report.name}: system report", shown, data, ["gantt.js", "system.js"])


def _charts(identity: str, heading: str, places: dict[str, Html], *names: str) -> Section:
    return Section(
        identity, heading, join_parts(*(places[name] for name in names if name in places))
    )


def _task_table(report: SystemReport) -> dict[str, Any]:
    rows = list(task_rows(report))
    known = {name: [row[name] for row in rows] for name in _COLUMNS}
    told = [name for name, cells in known.items() if any(cells) or name in ("name", "missed")]
    columns = [dict(zip(("heading", "unit"), _COLUMNS[name], strict=True)) for name in told]
    cells = (
        [round_value(cell) if isinstance(cell, float) else cell for cell in known[name]]
        for name in told
    )
    return {"columns": columns, "rows": list(zip(*cells, strict=True))}


def _configuration(report: SystemReport) -> Html:
    rows: list[tuple[str, object]] = [
        ("command", report.command),
        ("policy", report.policy),
        ("preemption", report.preemption),
        ("quantum (cycles)", f"{report.quantum:,}"),
        ("clock (Hz)", f"{report.clock_hz:,}"),
        ("seed", report.seed),
    ]
    return pairs(rows)


def system_tables(report: SystemReport) -> Iterator[Printed]:
    yield line(conditions_line(report), style="bold")
    yield from (_tasks(report), _causes(report), _units(report))
    yield from map(line, system_lines(report)[1:])


def system_lines(report: SystemReport) -> list[str]:
    """Return the system with its conditions, and the lines that follow the tables."""
    memory = report.memory
    ended = sum(task.ended for task in report.tasks)
    said = [
        conditions_line(report),
        f"memory: {memory.slots:,} slots of {memory.grants} a cycle, {memory.utilization:.1%} used",
        f"jobs: {ended:,} ended, {report.unfinished:,} under way at the end, {report.missed:,} "
        "missed a deadline",
        *deadline_lines(report),
    ]
    return said + ([check_line(report)] if report.check is not None else [])


def conditions_line(report: SystemReport) -> str:
    """Return the line with the system's name, its run time and its conditions."""
    time = report.cycles / report.clock_hz * 1e3
    how = f"preemption at {report.preemption}s" if report.preemption != "none" else "no preemption"
    return f"{report.name}: {report.cycles:,} cycles ({time:,.3f} ms), {report.policy}, {how}"


def deadline_lines(report: SystemReport) -> Iterator[str]:
    """Yield a line for every task with a suspicious deadline.

    Such a deadline is shorter than the task's time alone, so that no job can meet it; or it is
    shorter than the period of a predecessor, which suggests that it was meant to count from the
    predecessor's release.
    """
    for task in report.tasks:
        if task.deadline is not None and task.alone > task.deadline:
            yield (
                f"task '{task.name}': no job can meet its deadline of {task.deadline:,} cycles, "
                f"because it takes {task.alone:,}"
            )
        if task.deadline is not None and task.rarer is not None:
            yield (
                f"task '{task.name}': its deadline of {task.deadline:,} cycles is before the "
                "period of "
                f"'{task.rarer.name}', {task.rarer.period:,}; deadlines count from the release of "
                "a job"
            )


def check_line(report: SystemReport) -> str:
    found = report.check
    assert found is not None
    text = (
        f"{found.ways:,} ways of programs in pieces, {found.elements:,} elements, "
        f"{found.mismatches:,} mismatches"
    )
    return f"check: {text}" + (f", the first in {found.first}" if found.first else "")


def _tasks(report: SystemReport) -> ReportTable:
    return plain_table(
        ("task", "fold"), ("model", "fold", 6), ("jobs", "right"), ("missed", "right"),
        ("deadline", "right", 2), ("alone", "right", 1), ("mean", "right"),
        ("deviation", "right", 5), ("p50", "right", 4), ("p95", "right", 3), ("p99", "right", 4),
        ("worst", "right"), ("slowdown", "right", 2),
        rows=(tuple(_task_cells(task)) for task in report.tasks),
    )  # fmt: skip


def _task_cells(task: TaskResult) -> Iterator[str]:
    yield from (task.name, task.model or "CPU work", f"{task.ended:,}", f"{task.missed:,}")
    yield "-" if task.deadline is None else f"{task.deadline:,}"
    yield f"{task.alone:,}"
    found = task.response
    if found is None:
        return
    yield from (f"{found.mean:,.0f}", f"{found.deviation:,.0f}")
    yield from (f"{value:,}" for value in (found.p50, found.p95, found.p99, found.worst))
    yield "-" if task.slowdown is None else f"{task.slowdown:.2f} ×"


def _causes(report: SystemReport) -> ReportTable:
    """Return the table of the components of every task's mean response time."""
    shown = [cause for cause in CAUSES if any(task.causes[cause] for task in report.tasks)]
    rows = (
        (
            task.name,
            *(f"{task.causes[cause] / task.ended:,.0f}" for cause in shown),
            f"{task.preemptions:,}",
        )
        for task in report.tasks
        if task.ended
    )
    columns = ((MEANING[cause], "right") for cause in shown)
    return plain_table(
        ("mean cycles of a job", "fold"), *columns, ("preemptions", "right", 1), rows=rows
    )


def _units(report: SystemReport) -> ReportTable:
    rows = (
        (
            unit.name,
            f"{unit.utilization:.1%}",
            "" if unit.compute is None else f"{unit.compute / report.cycles:.1%}",
        )
        for unit in report.units
    )
    return plain_table(("unit", "fold"), ("busy", "right"), ("computing", "right", 1), rows=rows)


def _nothing(report: SystemReport) -> str:
    ended = any(task.ended for task in report.tasks)
    why = (
        "this report has no timeline; run the system again"
        if ended
        else "no job ended; there is nothing to show in a chart"
    )
    return f"{report.name}: {why}"


SYSTEM = Presentation(
    lines=system_lines,
    tables=system_tables,
    records=lambda report: list(task_rows(report)),
    json=report_json,
    charts=system_charts,
    drawn={
        "timeline": "unit-timeline", "responses": "response-times", "causes": "task-causes",
        "units": "unit-use",
        "memory": "memory-traffic",
    },
    nothing=_nothing,
    page=system_page,
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class SystemResult(Shown):
    """Result of one run of a system. ``report`` is the model of the JSON file of ``dla system``.

    ``rate`` is the result of the search for the highest rate, if it was requested.
    """

    report: SystemReport
    rate: Rate | None = None

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self.report, SYSTEM

    @property
    def missed(self) -> int:
        return self.report.missed

    @property
    def highest_rate(self) -> float | None:
        """Highest rate of all tasks together without a miss; 1 is the given periods.

        None if the rate was not searched.
        """
        return None if self.rate is None else self.rate.rate / RATE_STEPS

    @property
    def tasks(self) -> pandas.DataFrame:
        """Table of ``dla system --csv``: one row per task, times in cycles.

        Integer columns have gaps where no job ended. Raises InputError if pandas is not installed.
        """
        return data_frame(task_rows(self.report))

    @property
    def units(self) -> pandas.DataFrame:
        """Table with one row per accelerator or core.

        A row has the busy cycles of the unit and, for accelerators, its computing cycles.
        """
        return data_frame(unit.model_dump(mode="json") for unit in self.report.units)
