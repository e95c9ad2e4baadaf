"""The page of a run of a system: every figure of every task, charts, what every unit did when, and what made it."""

from __future__ import annotations

from typing import Any

from dla_sim.systems.simulate import CAUSES
from experiments.report.charts.interactive import figure, rounded
from experiments.report.html import Html, Section, chart_place, joined, page, pairs, paragraph, table_place
from experiments.systems.charts import MEANING, system_charts
from experiments.systems.presentation import system_lines
from experiments.systems.report import Response, SystemReport, task_rows

_COLUMNS: dict[str, tuple[str, str]] = {
    "name": ("task", "text"), "model": ("model", "text"), "quality": ("quality", ""), "released": ("released", "jobs"),
    "skipped": ("skipped", "jobs"), "ended": ("ended", "jobs"), "late": ("late", "jobs"), "missed": ("missed", "jobs"),
    "deadline": ("deadline", "cycles"), "alone": ("alone", "cycles"), "slowdown": ("slowdown", ""),
    **{f"response.{key}": (key, "cycles") for key in Response.model_fields},
    **{f"causes.{cause}": (f"{MEANING[cause]}, all jobs", "cycles") for cause in CAUSES},
    "preemptions": ("preemptions", ""),
}  # fmt: skip
"""Headings and units of :func:`task_rows`; ``text`` is no unit."""
_NOTE = "Times from a job's release to its end. CPU and transfers are estimates."


def system_page(report: SystemReport) -> str:
    """The page as HTML text; equal reports give equal text."""
    charts = system_charts(report)
    places = {chart.identity: chart_place(chart.identity, chart.title, chart.note) for chart in charts}
    sections = [
        Section("summary", "Summary", joined(*map(paragraph, system_lines(report)))),
        Section("tasks", "All figures of every task", joined(paragraph(_NOTE), table_place("task-table"))),
        _charts("responses", "Response times", places, "response-times", "task-causes"),
        _charts("machine", "Units and memory", places, "unit-use", "memory-traffic", "unit-timeline"),
        Section("configuration", "Command and conditions", _configuration(report)),
    ]
    data = {"figures": [figure(chart) for chart in charts], "table": _table(report)}
    shown = [section for section in sections if section.body]
    return page(f"{report.name}: system report", shown, data, ["gantt.js", "system.js"])


def _charts(identity: str, heading: str, places: dict[str, Html], *names: str) -> Section:
    return Section(identity, heading, joined(*(places[name] for name in names if name in places)))


def _table(report: SystemReport) -> dict[str, Any]:
    rows = list(task_rows(report))
    known = {name: [row[name] for row in rows] for name in _COLUMNS}
    told = [name for name, cells in known.items() if any(cells) or name in ("name", "missed")]
    columns = [dict(zip(("heading", "unit"), _COLUMNS[name], strict=True)) for name in told]
    cells = ([rounded(cell) if isinstance(cell, float) else cell for cell in known[name]] for name in told)
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
