"""What a run of a system gives back in Python: the report, tables and pictures, and itself in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.extras import require_pandas
from experiments.report.charts.model import Chart
from experiments.report.charts.style import escaped
from experiments.report.plots import draw_chart
from experiments.systems.charts import memory_traffic, response_times, task_causes, unit_use, units_timeline
from experiments.systems.report import SystemReport, TaskResult, report_json, task_rows, unit_rows
from experiments.systems.run import RATE_STEPS, Rate
from isa.errors import InputError
from isa.files import write_atomically

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

_HEADINGS = ("task", "jobs", "missed", "deadline", "alone", "mean", "p99", "worst", "slowdown")


@dataclass(frozen=True, eq=False, repr=False)
class SystemResult:
    """One run of a system. ``report`` is the model of the JSON file of ``dla system``.

    ``rate``: of the search for the highest rate, if it was asked for.
    """

    report: SystemReport
    rate: Rate | None = None

    @property
    def missed(self) -> int:
        """Jobs that missed their deadlines."""
        return self.report.missed

    @property
    def highest_rate(self) -> float | None:
        """The highest rate of all tasks together without a miss, 1 as written; None if it was not searched."""
        return None if self.rate is None else self.rate.rate / RATE_STEPS

    @property
    def tasks(self) -> pandas.DataFrame:
        """The table of ``dla system --csv``: a row a task, times in cycles.

        Columns of integers have gaps where no job ended. Raises InputError where pandas is not installed.
        """
        return data_frame(task_rows(self.report))

    @property
    def units(self) -> pandas.DataFrame:
        """A row an accelerator or core: cycles it was busy and, of accelerators, in which the array computed."""
        return data_frame(unit_rows(self.report))

    @property
    def plot(self) -> SystemPlots:
        """The pictures of the run."""
        return SystemPlots(self)

    def save(self, path: str | Path) -> None:
        """Write the report as ``dla system --json`` does, for ``dla report``."""
        write_atomically(Path(path), report_json(self.report))

    def __repr__(self) -> str:
        return "\n".join(_lines(self.report))

    def _repr_html_(self) -> str:
        first, *_ = _lines(self.report)
        head = "".join(f"<th>{name}</th>" for name in _HEADINGS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in _cells(task)) + "</tr>"
            for task in self.report.tasks
        )
        return f"<div><p>{escaped(first)}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"


def data_frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a table; columns of integers, with gaps or without, are Int64. Raises InputError without pandas."""
    rows = list(rows)
    table: pandas.DataFrame = require_pandas().DataFrame(rows)
    known = {name: [row[name] for row in rows if row[name] is not None] for name in table.columns}
    whole = [name for name, found in known.items() if found and all(type(value) is int for value in found)]
    return table.astype(dict.fromkeys(whole, "Int64"))


def _lines(report: SystemReport) -> Iterator[str]:
    """The system and its conditions, and a line a task."""
    how = f"{report.policy}, preemption: {report.preemption}"
    yield f"{report.name}: {report.cycles:,} cycles, {how}; {report.missed:,} jobs missed a deadline"
    for task in report.tasks:
        name, jobs, missed, _, alone, mean, _, worst, _ = _cells(task)
        yield f"{name}: {jobs} jobs, {missed} missed; alone {alone}, mean {mean}, worst {worst}"


def _cells(task: TaskResult) -> tuple[str, ...]:
    found = task.response
    times = ("-",) * 3 if found is None else (f"{found.mean:,.0f}", f"{found.p99:,}", f"{found.worst:,}")
    deadline = "-" if task.deadline is None else f"{task.deadline:,}"
    slower = "-" if task.slowdown is None else f"{task.slowdown:.2f}"
    return (task.name, f"{task.ended:,}", f"{task.missed:,}", deadline, f"{task.alone:,}", *times, slower)


@dataclass(frozen=True, eq=False)
class SystemPlots:
    """Pictures of a run: each is drawn on ``axes``, by default new ones, which it returns."""

    result: SystemResult

    def timeline(self, axes: Axes | None = None) -> Axes:
        """What every accelerator and core does when, by task."""
        chart = units_timeline(self.result.report)
        if chart is None:
            raise InputError(f"{self.result.report.name}: this report has no timeline; run the system again")
        return draw_chart(chart, axes)

    def responses(self, axes: Axes | None = None) -> Axes:
        """Percentiles of response times against deadlines."""
        return self._of_jobs(response_times(self.result.report), axes)

    def causes(self, axes: Axes | None = None) -> Axes:
        """What mean response times consist of."""
        return self._of_jobs(task_causes(self.result.report), axes)

    def units(self, axes: Axes | None = None) -> Axes:
        """How busy units are."""
        return draw_chart(unit_use(self.result.report), axes)

    def memory(self, axes: Axes | None = None) -> Axes:
        """The memory's traffic over time."""
        return draw_chart(memory_traffic(self.result.report), axes)

    def _of_jobs(self, chart: Chart, axes: Axes | None) -> Axes:
        if not any(task.ended for task in self.result.report.tasks):
            raise InputError(f"{self.result.report.name}: no job ended; there is nothing to draw")
        return draw_chart(chart, axes)
