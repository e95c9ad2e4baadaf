"""Display of results as text, DataFrame, charts and HTML page.

Text is for terminals and notebooks. Each kind of results declares its :class:`Presentation`; the
code that displays it is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from experiments.extras import require_pandas
from experiments.literal import escape_html
from experiments.report.terminal import Printed, ReportTable, line, report_console
from isa.errors import InputError
from isa.files import write_atomically

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from experiments.report.charts.model import Picture

MOST_ROWS = 30
"""Maximum number of rows of a table in a notebook."""


@dataclass(frozen=True)
class Presentation:
    """Functions that present one kind of results; None if this kind does not have such a form.

    Attributes:
        lines: text of several lines; the first one summarises everything.
        tables: output for a terminal, by default the lines.
        brief: output for a terminal that contains only totals.
        screen: output that fits one screen of a terminal of 80 columns.
        records: rows of a CSV file.
        json: text of a JSON file.
        charts: all charts in reading order.
        drawn: the chart that each method of ``plot`` draws, by the method's name.
        nothing: text that says why there is no chart.
        page: the HTML page.
    """

    lines: Callable[[Any], Iterable[str]]
    tables: Callable[[Any], Iterable[Printed]] | None = None
    brief: Callable[[Any], Iterable[Printed]] | None = None
    screen: Callable[[Any], Iterable[Printed]] | None = None
    records: Callable[[Any], Sequence[Mapping[str, Any]]] | None = None
    json: Callable[[Any], str] | None = None
    charts: Callable[[Any], Iterable[Picture]] = lambda subject: ()
    drawn: Mapping[str, str] = field(default_factory=dict)
    nothing: Callable[[Any], str] = lambda subject: "there is nothing to show in a chart"
    page: Callable[[Any], str] | None = None


class Shown:
    """Base of displayable results: ``repr`` is the first line, ``str`` all lines.

    A notebook also shows a table.
    """

    @property
    def presented(self) -> tuple[Any, Presentation]:
        """Results object to display, and the functions that present it."""
        raise NotImplementedError

    def lines(self) -> list[str]:
        """Return the text that describes the results, line by line."""
        subject, how = self.presented
        return list(how.lines(subject))

    def __repr__(self) -> str:
        return self.lines()[0]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        subject, how = self.presented
        told = "<br>".join(escape_html(said) for said in self.lines())
        tables = how.tables(subject) if how.tables is not None else ()
        table = next((html_table(one) for one in tables if isinstance(one, ReportTable)), "")
        return f"<div><p>{told}</p>{table}</div>"

    def show(
        self,
        console: Console | None = None,
        form: Literal["tables", "brief", "screen"] = "tables",
    ) -> None:
        """Print all tables of the results, only totals (``brief``), or one ``screen``.

        Without ``console`` they go to standard output.
        """
        subject, how = self.presented
        console = console or report_console()
        wanted = getattr(how, form)
        for one in map(line, self.lines()) if wanted is None else wanted(subject):
            console.print(one)

    def records(self) -> Sequence[Mapping[str, Any]]:
        """Return the results as CSV rows; raise InputError if they have no such form."""
        subject, how = self.presented
        if how.records is None:
            raise InputError(f"{self!r}: there is no table of it")
        return how.records(subject)

    @property
    def table(self) -> pandas.DataFrame:
        """Rows of the results' CSV file as a DataFrame.

        Raises InputError if there are none, or pandas is not installed.
        """
        return data_frame(self.records())

    def save(self, path: str | Path) -> None:
        """Write the results as ``--json`` does; raise InputError if they have no JSON form."""
        subject, how = self.presented
        if how.json is None:
            raise InputError(f"{self!r}: there is no file of it")
        write_atomically(Path(path), how.json(subject))

    def page(self) -> str:
        """Return the HTML page of the results; equal results give equal pages.

        Raise InputError if this kind of results has none.
        """
        subject, how = self.presented
        if how.page is None:
            raise InputError(f"{self!r}: there is no page of it")
        return how.page(subject)

    def pictures(self, folder: Path) -> tuple[Path, ...]:
        """Draw all charts of the results into a folder; raise InputError if writing fails."""
        from experiments.report.plots import save_charts

        subject, how = self.presented
        return save_charts(how.charts(subject), folder)

    @property
    def plot(self) -> Plots:
        """Charts of the results, each a method that draws on given axes or on new ones."""
        return Plots(*self.presented)


@dataclass(frozen=True, eq=False, repr=False)
class Document(Shown):
    """Results that consist of data alone, such as those from a file, with their presentation."""

    subject: Any
    how: Presentation

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self.subject, self.how


@dataclass(frozen=True, eq=False)
class Plots:
    """Charts of results, one method per chart.

    A method draws on ``axes``, by default new ones, and returns the axes.
    """

    subject: Any
    how: Presentation

    def __getattr__(self, name: str) -> Callable[..., Axes]:
        if name not in self.how.drawn:
            raise AttributeError(
                f"no chart is called {name}; there are {', '.join(self.how.drawn)}"
            )

        def draw_chart(axes: Axes | None = None) -> Axes:
            """Draw one chart of the results; raise InputError if there is nothing to show."""
            from experiments.report.plots import draw_chart

            for chart in self.how.charts(self.subject):
                if chart.identity == self.how.drawn[name]:
                    return draw_chart(chart, axes)
            raise InputError(self.how.nothing(self.subject))

        return draw_chart

    def __dir__(self) -> Iterable[str]:
        return [*self.how.drawn]


def html_table(table: ReportTable) -> str:
    """Return the first rows of a table as HTML for a notebook."""
    head = "".join(f"<th>{escape_html(column.heading)}</th>" for column in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape_html(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows[:MOST_ROWS]
    )
    left = len(table.rows) - MOST_ROWS
    more = f"<p>{left:,} more rows.</p>" if left > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


def data_frame(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
    whole: Sequence[str] = (),
) -> pandas.DataFrame:
    """Convert rows to a DataFrame whose columns of integers have the type Int64.

    Int64 also allows gaps in a column. ``columns`` selects the columns, by default the keys of the
    rows. Columns in ``whole`` are Int64 even if they are empty. Raises InputError if pandas is not
    installed.
    """
    rows = list(rows)
    table: pandas.DataFrame = require_pandas().DataFrame(rows, columns=columns and list(columns))
    known = {name: [row[name] for row in rows if row[name] is not None] for name in table.columns}
    integers = [
        name
        for name, found in known.items()
        if found and all(type(value) is int for value in found)
    ]
    return table.astype(dict.fromkeys([*whole, *integers], "Int64"))
