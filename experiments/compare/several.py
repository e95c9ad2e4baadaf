"""Comparison of three or more runs: conditions, totals and layers, with a column for each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from experiments.compare.comparison import FIGURES, Snapshot
from experiments.compare.presentation import NO_CONDITION, format_number, name_total
from experiments.report.charts.interactive import MARGIN_PIXELS, figure
from experiments.report.charts.model import FIRST, BarChart, Series
from experiments.report.html import (
    Section,
    chart_place,
    join_parts,
    page,
    pairs,
    table,
)
from experiments.report.shown import Presentation
from experiments.report.terminal import Printed, line, plain_table
from isa.errors import InputError

Cells = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ManyRuns:
    """Runs to compare, named by the letters A, B, C and so on; raise InputError for too many."""

    sides: tuple[Snapshot, ...]

    def __post_init__(self) -> None:
        if len(self.sides) > len(ascii_uppercase):
            raise InputError(f"{len(self.sides)} runs; compare at most {len(ascii_uppercase)}")

    @property
    def letters(self) -> str:
        return ascii_uppercase[: len(self.sides)]

    def _rows(
        self, of_side: Callable[[Snapshot], Mapping[str, Any]]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield each key that a run has, with the value of each run; None if unknown."""
        tables = [of_side(side) for side in self.sides]
        for name in dict.fromkeys(name for one in tables for name in one):
            yield name, tuple(one.get(name) for one in tables)

    @property
    def conditions(self) -> list[Sequence[str]]:
        """Table rows of the conditions that differ between the runs."""
        rows = ((name, *map(str, row)) for name, row in self._rows(lambda side: side.conditions))
        return [row for row in rows if len(set(row[1:])) > 1] or [
            (*NO_CONDITION[:1], *[""] * len(self.sides))
        ]

    @property
    def totals(self) -> Iterator[Sequence[str]]:
        """Table rows of the figures of the whole runs, those that all versions record first."""
        known = dict(self._rows(lambda side: side.totals))
        for name in dict.fromkeys((*(key for key in FIGURES if key in known), *known)):
            words, unit = name_total(name)
            yield words, *(format_number(value, unit) for value in known[name])

    @property
    def layers(self) -> Iterator[tuple[str, tuple[int | None, ...]]]:
        """Cycles of each layer in each run; None if a run lacks the layer."""
        return self._rows(
            lambda side: {layer.name: layer.figures.get("cycles") for layer in side.layers}
        )

    @property
    def layer_rows(self) -> Iterator[Sequence[str]]:
        return ((name, *(format_number(value, "") for value in row)) for name, row in self.layers)


def _tables(found: ManyRuns) -> Iterator[Printed]:
    for letter, side in zip(found.letters, found.sides, strict=True):
        yield line(": ".join(filter(None, (letter, side.title, side.command))))
    for heading, how, rows in (
        ("what differs", "fold", found.conditions),
        ("total", "right", found.totals),
        ("cycles of layer", "right", found.layer_rows),
    ):
        yield plain_table((heading, "fold"), *((name, how) for name in found.letters), rows=rows)


def _records(found: ManyRuns) -> Sequence[Mapping[str, Any]]:
    names = [f"cycles_{letter.lower()}" for letter in found.letters]
    return [{"layer": name, **dict(zip(names, row, strict=True))} for name, row in found.layers]


def _charts(found: ManyRuns) -> tuple[BarChart, ...]:
    """Return a chart of the cycles of each run."""
    labels = tuple(
        f"{letter}: {side.title}" for letter, side in zip(found.letters, found.sides, strict=True)
    )
    series = (Series("cycles", tuple(side.totals["cycles"] for side in found.sides), FIRST),)
    return (
        BarChart("run-cycles", "Cycles per run", "cycles", "cycles", labels, series, layers=False),
    )


def _page(found: ManyRuns) -> str:
    """Return the HTML page that compares several runs; equal comparisons give equal text."""
    charts = _charts(found)
    commands = [
        (f"{letter}: {side.title}", side.command)
        for letter, side in zip(found.letters, found.sides, strict=True)
    ]
    letters = tuple(found.letters)
    numbers = range(1, len(letters) + 1)
    parts = join_parts(
        pairs(commands),
        table(("what differs", *letters), found.conditions),
        table(("total", *letters), found.totals, numbers),
    )
    sections = [
        Section("summary", "Summary", parts),
        Section("runs", "Runs", chart_place("run-cycles", charts[0].title)),
        Section(
            "layers", "Cycles per layer", table(("layer", *letters), found.layer_rows, numbers)
        ),
    ]
    data = {
        "figures": list(map(figure, charts)),
        "layers": [],
        "order": "",
        "margin": MARGIN_PIXELS,
    }
    return page(_title(found), sections, data, ["gantt.js", "layers.js"])


def _title(found: ManyRuns) -> str:
    return f"{len(found.sides)} runs: {', '.join(side.title for side in found.sides)}"


def _lines(found: ManyRuns) -> Iterable[str]:
    yield _title(found)


MANY_RUNS = Presentation(lines=_lines, tables=_tables, records=_records, charts=_charts, page=_page)
