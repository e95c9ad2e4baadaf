"""What a run of a system gives back in Python: the report, tables and pictures, and itself in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.report.shown import Presentation, Shown, data_frame
from experiments.systems.charts import system_charts
from experiments.systems.page import system_page
from experiments.systems.presentation import system_lines, system_tables
from experiments.systems.report import SystemReport, report_json, task_rows, unit_rows
from experiments.systems.run import RATE_STEPS, Rate
from isa.files import write_atomically

if TYPE_CHECKING:
    import pandas


def _nothing(report: SystemReport) -> str:
    ended = any(task.ended for task in report.tasks)
    why = "this report has no timeline; run the system again" if ended else "no job ended; there is nothing to draw"
    return f"{report.name}: {why}"


SYSTEM = Presentation(
    lines=system_lines,
    tables=system_tables,
    records=lambda report: list(task_rows(report)),
    charts=system_charts,
    drawn={
        "timeline": "unit-timeline", "responses": "response-times", "causes": "task-causes", "units": "unit-use",
        "memory": "memory-traffic",
    },
    nothing=_nothing,
    page=system_page,
)  # fmt: skip
"""How a run of a system is presented."""


@dataclass(frozen=True, eq=False, repr=False)
class SystemResult(Shown):
    """One run of a system. ``report`` is the model of the JSON file of ``dla system``.

    ``rate``: of the search for the highest rate, if it was asked for.
    """

    report: SystemReport
    rate: Rate | None = None

    @property
    def presented(self) -> tuple[Any, Presentation]:
        """The report, presented."""
        return self.report, SYSTEM

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

    def save(self, path: str | Path) -> None:
        """Write the report as ``dla system --json`` does, for ``dla report``."""
        write_atomically(Path(path), report_json(self.report))
