"""Sweep of a system over all combinations of values of some of its keys.

Each combination gives one row of figures.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Literal, NamedTuple

from dla_sim.presets import quantity
from dla_sim.systems.choices import policy_of
from dla_sim.systems.spec import System, SystemDocument, check_system, cycles_of, keys_of
from experiments.figure import format_figure
from experiments.report.shown import Presentation, Shown
from experiments.report.terminal import Column, Printed, ReportTable, line
from experiments.running.declared import command_of
from experiments.sweep.session import Manifest
from experiments.systems.points import run_points
from experiments.systems.request import SystemSweepRequest
from isa.errors import InputError, suggest_name
from isa.reading import toml_of, toml_text

SCHEMA: Literal["dla-system-sweep/1"] = "dla-system-sweep/1"
MOST_POINTS = 10_000
MOST_TOLD = 12
"""Most combinations of other axes in a line of the answer."""
MOST_ROWS = 200
"""Most rows that are printed."""
_RANKS = {"ended": 5, "model": 4, "missed": 3, "use": 2, "memory": 1, "worst": 1, "ms": 6}
"""Rank with which a narrow terminal drops a column, highest first.

The key is the part of the column's name before the point.
"""
_NUMBER = re.compile(r"[+-]?[0-9][0-9_]*(\.[0-9]+)?")
_WITHOUT_ORDER = ("seed", "priority")
"""Last parts of keys without an order.

A smaller value makes neither deadlines harder to meet nor the system cheaper.
"""
_KEYS = (
    "run.KEY, cpu.KEY, memory.KEY, accelerator.NAME.KEY, accelerator.NAME.settings.KEY or "
    "task.NAME.KEY"
)

Value = int | float | str
Axes = Mapping[str, Sequence[Value]]
"""Values of every axis, by dotted key."""
Row = Mapping[str, Any]
"""Number or text by column; None for a missing figure."""


class Lowest(NamedTuple):
    """Lowest value of a sweep axis at which no job misses its deadline, other axes fixed.

    ``at`` has these fixed values. ``value`` is None if every value has a miss.
    """

    at: dict[str, Value]
    value: Value | None


@dataclass(frozen=True, eq=False, repr=False)
class SystemSweep(Shown):
    """Points of a sweep, the last axis varying fastest: one row each, all with the same columns.

    Columns, in this order, with None for a missing figure:

    - the axes;
    - ``rate``: highest rate without a miss, relative to the given periods, if it was searched;
    - ``missed`` and ``ended``: jobs of all tasks;
    - ``quality``: sum over tasks with several variants, and ``model.TASK``: their chosen variant;
    - ``missed.TASK``: jobs; ``worst.TASK``: response time in cycles, and ``ms.TASK`` in ms;
    - ``use.UNIT``: share of the cycles in which the unit is busy;
    - ``memory.use``: share of the memory's slots that is granted, and ``memory.peak``: the same in
      the two-hundredth of the time with most traffic;
    - ``problem``: reason why a point cannot run, if there are such points.

    ``deadlines`` is True if any task has a deadline.
    """

    command: str
    name: str
    axes: Axes
    rows: tuple[Row, ...]
    clock_hz: int
    deadlines: bool

    @property
    def without_a_miss(self) -> tuple[int, ...]:
        """Indices of the rows in which no job misses its deadline; empty if no task has one."""
        return (
            tuple(number for number, row in enumerate(self.rows) if row.get("missed") == 0)
            if self.deadlines
            else ()
        )

    @property
    def lowest(self) -> dict[str, tuple[Lowest, ...]]:
        """Lowest values of each numeric axis at which no job misses its deadline.

        There is one value for every combination of the other axes.
        """
        return {
            key: tuple(self._lowest(key, sizes))
            for key in self.axes
            if self.deadlines and (sizes := self._sizes(key))
        }

    def _sizes(self, key: str) -> dict[Value, float]:
        """Return each value of a sweep axis as a number; empty for texts or a single value."""
        found = {value: _size(key, value, self.clock_hz) for value in self.axes[key]}
        known = {value: size for value, size in found.items() if size is not None}
        return known if len(known) == len(found) > 1 else {}

    def _lowest(self, key: str, sizes: Mapping[Value, float]) -> Iterator[Lowest]:
        others = [other for other in self.axes if other != key]
        groups: dict[tuple[Value, ...], list[Value]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row[other] for other in others), []).extend(
                [row[key]] * (row.get("missed") == 0)
            )
        for group, values in groups.items():
            yield Lowest(
                dict(zip(others, group, strict=True)),
                min(values, key=sizes.__getitem__, default=None),
            )

    @property
    def answer(self) -> Iterator[str]:
        """Lines that say how the points meet their deadlines."""
        if not self.deadlines:
            yield "no task has a deadline that a job could miss"
            return
        yield f"{len(self.without_a_miss)} of {len(self.rows)} points have 0 misses"
        ran = [row for row in self.rows if row.get("missed") is not None]
        if ran and not self.without_a_miss:
            fewest = min(ran, key=lambda row: int(row["missed"]))
            yield f"fewest misses: {fewest['missed']:,}{self._where(fewest)}"
            return
        for key, found in self.lowest.items():
            told = [
                f"{'none' if one.value is None else one.value}{self._where(one.at)}"
                for one in found[:MOST_TOLD]
            ]
            told += [f"and {len(found) - MOST_TOLD} more"] if len(found) > MOST_TOLD else []
            yield f"lowest {key} with 0 misses: {'; '.join(told)}"

    def _where(self, point: Row) -> str:
        """Return a sweep point's values on the axes that vary, as text."""
        return _format_point(
            {
                key: point[key]
                for key, values in self.axes.items()
                if len(values) > 1 and key in point
            }
        )

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self, SWEEP


def _lines(found: SystemSweep) -> Iterator[str]:
    yield f"{found.name}: {len(found.rows):,} points"
    yield from found.answer


def _tables(found: SystemSweep) -> Iterator[Printed]:
    """Yield the table of the points, and the lines about deadlines."""
    first, *answer = _lines(found)
    yield line(first, style="bold")
    table = ReportTable(tuple(_column(name, found) for name in found.rows[0]))
    for row in found.rows[:MOST_ROWS]:
        table.add_row(*(format_figure(value) for value in row.values()))
    if len(found.rows) > MOST_ROWS:
        table.add_row(f"{len(found.rows) - MOST_ROWS:,} more")
    yield table
    yield from map(line, answer)


def _column(name: str, found: SystemSweep) -> Column:
    if name == "problem":
        return Column(name, "fold")
    texts = any(isinstance(row[name], str) for row in found.rows)
    axis = name in found.axes or name == "missed"
    return Column(
        name, "left" if texts else "right", 0 if axis else _RANKS.get(name.partition(".")[0], 0)
    )


def sweep_json(found: SystemSweep) -> str:
    """Return the sweep as JSON text; equal sweeps give equal bytes."""
    content = {
        "schema": SCHEMA, "command": found.command, "name": found.name, "axes": found.axes,
        "rows": found.rows,
        "without_a_miss": found.without_a_miss,
        "lowest": {
            key: [one._asdict() for one in several] for key, several in found.lowest.items()
        },
    }  # fmt: skip
    return json.dumps(content, indent=1) + "\n"


SWEEP = Presentation(
    lines=_lines, tables=_tables, records=lambda found: found.rows, json=sweep_json
)


def parse_axes(texts: Sequence[str]) -> dict[str, list[Value]]:
    """Return the axes in texts such as ``run.policy=fcfs,edf``, by key.

    Raise InputError for another form.

    Values that look like numbers become numbers.
    """
    axes: dict[str, list[Value]] = {}
    for text in texts:
        key, separator, values = text.partition("=")
        if not separator:
            raise InputError(f"--sweep {text}: it is not of the form KEY=VALUE,VALUE,...")
        if key.strip() in axes:
            raise InputError(
                f"--sweep {text}: {key.strip()} is given twice; give all of its values at once"
            )
        axes[key.strip()] = [number_or_text(value.strip()) for value in values.split(",")]
    return axes


def number_or_text(text: str) -> Value:
    """Return a value as TOML reads it, except that texts need no quotation marks."""
    found = _NUMBER.fullmatch(text)
    if found:
        # Python rejects some digits that match: 1_, 1__0, and integers of over 4,300 digits.
        with suppress(ValueError):
            return float(text) if found[1] else int(text)
    return text


def check_axes(axes: Mapping[str, Any], given: SystemDocument) -> dict[str, tuple[Value, ...]]:
    """Check the axes of a sweep and remove duplicate values.

    Raises InputError for a key that the system does not have, for invalid values, and if ``given``
    is no valid system.
    """
    check_system(given)
    known = keys_of(given)
    found: dict[str, tuple[Value, ...]] = {}
    for key, values in toml_of(toml_text(axes, given.source), given.source).items():
        if key not in known:
            raise InputError(
                f"{given.source}: unknown axis '{key}'; {suggest_name(key, known)}write {_KEYS}"
            )
        several = values if isinstance(values, list) else [values]
        if not several or not all(
            isinstance(value, int | float | str) and value != "" for value in several
        ):
            raise InputError(
                f"{given.source}: axis {key} is {values!r}; give it numbers and texts, one at least"
            )
        found[key] = tuple(dict.fromkeys(several))
    points = prod(map(len, found.values()))
    if points > MOST_POINTS:
        raise InputError(
            f"{given.source}: the sweep has {points:,} points; give values for "
            f"{MOST_POINTS:,} at most"
        )
    return found


def replace_values(given: SystemDocument, values: Mapping[str, Value]) -> SystemDocument:
    """Return a system's document with other values for some dotted keys."""
    known = keys_of(given)
    changed = deepcopy(dict(given.values))
    for key, value in values.items():
        table: Any = changed
        folders = known[key][:-1]
        last = known[key][-1]
        for step in folders:
            table = table[step] if isinstance(step, int) else table.setdefault(step, {})
        table[last] = value
    return replace(given, values=changed)


def systems_of(given: SystemDocument, axes: Axes) -> list[System]:
    """Return the system of every sweep point, in order.

    Raise InputError that locates the first invalid one.
    """
    systems = []
    for combination in product(*axes.values()):
        chosen = dict(zip(axes, combination, strict=True))
        try:
            systems.append(check_system(replace_values(given, chosen)))
            policy_of(systems[-1])
        except InputError as error:
            raise InputError(f"{error};{_format_point(chosen)}") from error
    return systems


def run_sweep(given: SystemDocument, wanted: SystemSweepRequest) -> SystemSweep:
    """Run every point of the axes from :func:`check_axes`, each exactly as its system alone.

    All systems are read before the first one runs. Raises InputError for invalid values and models.
    A point in which a network fits no accelerator, or another error occurs, is a row with that
    ``problem``. Equal arguments give equal rows.
    """
    axes = wanted.axes
    command = command_of("system", wanted, "sweep_system")
    systems = systems_of(given, axes)
    combinations = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    written = toml_text({"system": given.values, "sweep": axes}, given.source)
    manifest = Manifest(SCHEMA, command, written, str(given.folder.resolve()), len(systems), {})
    found = run_points(list(zip(combinations, systems, strict=True)), wanted, manifest)
    deadlines = any(task.deadline is not None for system in systems for task in system.tasks)
    rows = [point | figures for point, figures in zip(combinations, found, strict=True)]
    return SystemSweep(
        command, systems[0].name, axes, _complete(rows), systems[0].clock_hz, deadlines
    )


def _complete(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return rows that all have the same columns, with None for missing values.

    Each column is at its place in the longest rows.
    """
    places: dict[str, int] = {}
    for row in rows:
        for place, name in enumerate(row):
            places[name] = max(place, places.get(name, 0))
    columns = sorted(places, key=lambda name: (name == "problem", places[name]))
    return tuple({name: row.get(name) for name in columns} for row in rows)


def _size(key: str, value: Value, clock_hz: int) -> float | None:
    """Convert a number, a size or a time to a number; return None for other values."""
    if key.rpartition(".")[2] in _WITHOUT_ORDER:
        return None
    if not isinstance(value, str):
        return value
    with suppress(InputError):
        return cycles_of(key, value, clock_hz)
    with suppress(InputError):
        measured = quantity(key, value)
        return measured if isinstance(measured, int) else None
    return None


def _format_point(point: Mapping[str, Value]) -> str:
    """Return the axis values of a sweep point as text; empty without axes."""
    return f" with {', '.join(f'{key} = {value}' for key, value in point.items())}" if point else ""
