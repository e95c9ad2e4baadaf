"""Results of a sweep: flattened rows of the file, its columns and figures, and a pandas table.

A flat row has a column for every key of the machine and for every kind and cause of cycles.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc.options import PROGRAM_OPTIONS
from dla_sim.presets import list_settings
from experiments.cost.estimate import COLUMNS as ESTIMATES
from experiments.cost.estimate import Estimate, add_costs
from experiments.cost.table import load_table
from experiments.extras import require_pandas
from experiments.figure import BYTES, all_figures
from experiments.literal import neutral
from experiments.report.schema import Host, PointFigures
from experiments.sweep.constraints import NAMES, RESULTS, Constraint, parse_constraint
from experiments.sweep.store import COLUMNS, FIGURE_COLUMNS, NETWORKS, STATUSES, Store, is_finite
from experiments.sweep.units import UNITS, add_units
from isa.arch import PeArray, flat
from isa.errors import InputError, suggest_name
from isa.files import check_writable, write_atomically
from isa.reading import first_bytes

if TYPE_CHECKING:
    import pandas

FlatRow = dict[str, Any]
"""Row of a results file by column.

Nested columns are flattened: ``pe.ic``, ``kinds.CONV``, ``EX.busy``, ...
"""
_NESTED = {"arch": "", "timing": "", "kinds": "kinds.", "ex_cycles": "ex_cycles.", "units": ""}
"""Columns that contain JSON texts, and the prefix of the names in them."""
_GIVEN = (
    "network",
    "package",
    "preset",
    *(option.name for option in PROGRAM_OPTIONS),
    "arch",
    "timing",
    "version",
)
"""Columns that every row has, however its point ended."""
ENDINGS = (".csv", ".parquet")
_LARGEST = 1 << 63


def flat_rows(path: Path, cost: str | None = None) -> Iterator[FlatRow]:
    """Yield the rows of a results file in the order of keys, with flattened columns.

    Nested columns become ``pe.ic``, ``kinds.CONV``, ``EX.busy`` and so on. ``pe.count`` is the
    number of processing elements. Rows of systems have their axes and figures as columns.

    Args:
        path: the results file.
        cost: name or file of a cost table; adds the estimates
            ``experiments.cost.estimate.COLUMNS``.

    Raises:
        InputError: the file is no results file or is damaged, the table is bad, or ``cost`` is
            given for systems.
    """
    with Store(path) as store:
        kind = store.kind
    if cost is not None and kind is not NETWORKS:
        raise InputError(
            f"{path}: a sweep of a system; leave out --cost, which prices runs of networks"
        )
    if cost is not None:
        yield from add_costs(flat_rows(path), load_table(cost))
        return
    flattened = flat_row if kind is NETWORKS else flat_system_row
    with Store(path) as store:
        for row in store.rows():
            try:
                yield flattened(dict(zip(store.kind.columns, row, strict=True)))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(
                    f"{path}: damaged results (point {row[0]}: {error}); run the sweep again into "
                    "another file"
                ) from error


def flat_row(row: dict[str, Any]) -> FlatRow:
    """Return one row of a results file, given by column, in the form of :func:`flat_rows`.

    Raise ValueError if it is damaged.
    """
    found = {name: value for name, value in row.items() if name not in _NESTED}
    found |= {option.name: bool(found[option.name]) for option in PROGRAM_OPTIONS if option.switch}
    if row["status"] not in STATUSES or (
        row["status"] == "ok" and None in (row[name] for name in FIGURE_COLUMNS)
    ):
        raise ValueError(f"status is {row['status']!r:.40}")
    if None in (row[name] for name in _GIVEN):
        raise ValueError(f"one of {', '.join(_GIVEN)} is missing")
    for name, prefix in _NESTED.items():
        if row[name] is not None:
            found |= {
                key: _leaf(name, key, value)
                for key, value in flat(json.loads(row[name]), prefix).items()
            }
    pe = [
        size
        for size in (found.get(f"pe.{side}") for side in ("ic", "oc", "ow"))
        if isinstance(size, int)
    ]
    if len(pe) == 3:
        found["pe.count"] = prod(pe)
    if row["status"] == "ok" and not all(
        isinstance(found.get(name), int) for name in ("pe.count", "sram_bytes")
    ):
        raise ValueError("its machine has no array or no scratchpad")
    return found


def flat_system_row(row: dict[str, Any]) -> FlatRow:
    """Return one row of a sweep of a system, axes and figures as columns.

    Raise ValueError if it is damaged.
    """
    found = {name: value for name, value in row.items() if name not in ("axes", "figures")}
    if row["status"] not in STATUSES or (row["status"] == "ok") is not (row["figures"] is not None):
        raise ValueError(f"status is {row['status']!r:.40}")
    for name, value in (json.loads(row["axes"]) | json.loads(row["figures"] or "{}")).items():
        if (
            name in found
            or not (value is None or isinstance(value, int | float | str))
            or not is_finite(value)
        ):
            raise ValueError(f"{name} is {value!r:.40}")
        found[name] = value
    return found


def _leaf(column: str, key: str, value: Any) -> Any:
    """Check a value from a JSON column of a results file, and return it.

    Raise ValueError if its type is wrong or its key is a reserved column name.
    """
    if column == "arch" and key in ("isa", "numerics"):
        sound = isinstance(value, str)
    else:
        sound = value is None or (isinstance(value, int | float) and abs(value) <= _LARGEST)
    if not sound or key in COLUMNS:
        raise ValueError(f"{column} has {key} = {value!r:.40}")
    return value


def load(path: str | Path, cost: str | None = None) -> pandas.DataFrame:
    """Load the results of a sweep as a DataFrame, one row a point, ordered by key.

    Columns: key, network, package, preset, the options that programs depend on (schedule, ...),
    version, status, message, missing_bytes, figures (cycles, macs, ...), every key of Arch and
    Timing, ``pe.count``, ``kinds.*``, ``ex_cycles.*`` and ``LD.*``, ``EX.*``, ``ST.*`` (cycles by
    cause). Integer columns with gaps have the type Int64.

    With ``cost``, the name or file of a cost table, ``estimated_energy_pj`` and
    ``estimated_area_um2`` are added. Raises InputError if the file is no results file.
    """
    rows = list(flat_rows(Path(path), cost))
    pandas = require_pandas()
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pandas.DataFrame(
        {name: pandas.Series(values, dtype=_type(name, values)) for name, values in columns.items()}
    )


def _type(name: str, values: list[Any]) -> str:
    """Return the pandas type of a column, from its values, or from its name if it has none.

    Gaps do not change it.
    """
    found = {type(value) for value in values if value is not None}
    if found == {int} or (not found and COLUMNS.get(name, "INTEGER") == "INTEGER"):
        return "Int64" if None in values else "int64"
    return {frozenset({bool}): "bool", frozenset({float}): "float64"}.get(frozenset(found), "str")


def export(path: Path, target: Path, cost: str | None = None) -> int:
    """Write the results as CSV or Parquet and return the number of rows.

    The manifests are written as JSON next to the table. Each file is written completely or not at
    all. ``cost`` is as in :func:`load`.

    Raises:
        InputError: unknown file ending, a target that cannot be written, or pandas is not
            installed.
    """
    check_export(target)
    table = load(path, cost)
    if target.suffix == ".csv":
        for name in table.select_dtypes(exclude=["number", "bool"]):
            table[name] = table[name].map(neutral, na_action="ignore")
        content = table.to_csv(index=False, lineterminator="\n").encode()
    else:
        content = table.to_parquet(index=False)
    write_atomically(target, content)
    with Store(path) as store:
        manifests = store.manifests()
    write_atomically(
        target.with_name(target.name + ".manifest.json"), json.dumps(manifests, indent=1) + "\n"
    )
    return len(table)


def check_export(target: Path) -> None:
    """Raise InputError if :func:`export` could not write to ``target``.

    A sweep calls it before any work is done.
    """
    if target.suffix not in ENDINGS:
        raise InputError(f"--export {target}: it must end in {' or '.join(ENDINGS)}")
    require_pandas()
    check_writable(target)


PES = "pe.count"
"""Processing elements: a column computed from the sides of the array."""
_SETTINGS = {setting.key: setting for setting in list_settings()}


def _keys() -> Iterator[str]:
    """Yield every key of a machine, and the number of processing elements.

    That number comes after the sides of the array.
    """
    for key in _SETTINGS:
        yield key
        if key == "pe.ow":
            yield PES


AXES = tuple(
    dict.fromkeys(
        ("network", "preset", "isa", *(option.name for option in PROGRAM_OPTIONS), *_keys())
    )
)
"""Columns that a specification can vary; rows of every status have them."""
IGNORED = ("key", "package", "version", "status", "message", *ESTIMATES[:2])
"""Columns that are neither chosen nor figures. Energy and area have the columns of their units."""
SIZE = "pe_sram"
"""Processing elements times KiB of SRAM: the simplest measure of a machine's cost."""
AREA = "mm2"
"""Area of a machine, estimated from a cost table."""
OTHER_NAMES = {"KiB": "sram_bytes", **dict(zip(ESTIMATES, ("uJ", AREA), strict=False))}
"""Columns by their other names: the unit, or the name in a results file."""
LIMITS = "limits"
"""Column of a joint sweep: ``met`` if a machine meets all limits, else ``missed``."""
UNMET = "limits_missed"
"""Column of a joint sweep: the limits that a machine misses, as text."""
MISSED = "missed"
"""Number of jobs that missed their deadlines: the main result of a sweep of systems."""

HOST_CYCLES = "host_estimated_cycles"
"""Column of the estimated cycles of the nodes on the CPU."""
SWEPT = {
    figure.name: figure
    for record in (PointFigures, Host, Estimate)
    for figure in all_figures(record)
} | UNITS
"""Figures of points, by column."""
_KNOWN = {
    **{setting.key: (setting.words, setting.unit) for setting in _SETTINGS.values()},
    **{f"pe.{side}": (_SETTINGS[f"pe.{side}"].words, "") for side in PeArray.model_fields},
    **{figure.name: (figure.words, figure.unit) for figure in SWEPT.values()},
    PES: ("processing elements", ""),
    SIZE: ("PEs × SRAM", "PE·KiB"),
    MISSED: ("missed deadlines", "jobs"),
    "missing_bytes": ("SRAM missing", BYTES),
}
"""Plain words and units of columns; sizes are written in KiB and MiB (``experiments.figure``)."""
_ENDINGS = {"_bytes": BYTES, "_cycles": "cycles"}
_PREFIXES = {
    "kinds.": ("cycles of {}", "cycles"), "ex_cycles.": ("EX busy with {}", "cycles"),
    "LD.": ("LD: {}", "cycles"), "EX.": ("EX: {}", "cycles"), "ST.": ("ST: {}", "cycles"),
    **{f"{name}.": ("{}", figure.unit) for name, figure in UNITS.items()},
}  # fmt: skip
"""Words and unit of the columns with a prefix, such as those of one network."""


def words(name: str) -> str:
    """Return a column's name in plain words.

    An unknown name loses its underscores and the unit at its end.
    """
    if name in _KNOWN:
        return _KNOWN[name][0]
    for prefix, (text, _) in _PREFIXES.items():
        if name.startswith(prefix):
            return text.format(name.removeprefix(prefix))
    ending = next((found for found in _ENDINGS if name.endswith(found)), "")
    return name.removesuffix(ending).replace("_", " ")


def unit(name: str) -> str:
    """Return the unit of a column; empty for names, counts and unknown columns."""
    if name in _KNOWN:
        return _KNOWN[name][1]
    known = ((prefix, found) for prefix, (_, found) in _PREFIXES.items())
    return next(
        (found for prefix, found in known if name.startswith(prefix)),
        next((found for ending, found in _ENDINGS.items() if name.endswith(ending)), ""),
    )


def title(name: str) -> str:
    """Return the title of an axis: words and unit.

    Sizes have no unit here because every number shows it.
    """
    what = words(name)
    measure = unit(name)
    return what if measure in ("", BYTES) or measure in what else f"{what} ({measure})"


def sign(name: str) -> int:
    """Return 1 if smaller values of a column are better, -1 if larger ones are."""
    return -1 if name in SWEPT and SWEPT[name].better == "more" else 1


def check_column(option: str, name: str, known: Iterable[str]) -> str:
    """Check that a results column can be drawn, and return its name.

    Raise InputError that suggests a close name if no such column can be drawn.
    """
    names = list(known)
    if name in names:
        return name
    close = suggest_name(name, names)
    raise InputError(
        f"{option} {name}: no such column of numbers; {close}choose one of {', '.join(names)}"
    )


Pair = tuple[float, float]


def front(pairs: Sequence[Pair]) -> list[int]:
    """Return the indices of the pairs on the Pareto front, ordered by the first objective.

    Of equal pairs the first.

    One pair beats another if it is not worse in either objective and better in one.
    """
    ranked = sorted(range(len(pairs)), key=lambda place: (*pairs[place], place))
    found: list[int] = []
    for place in ranked:
        if not found or pairs[place][1] < pairs[found[-1]][1]:
            found.append(place)
    return found


Column = tuple[Any, ...]
Objectives = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Sweep:
    """Results of a sweep.

    ``columns`` has every column by name, one value per point, ordered by the points' keys; a
    missing value is None. ``chosen`` lists the columns that the specification chooses. ``main`` is
    the main result if it is neither cycles nor missed deadlines.
    """

    name: str
    columns: Mapping[str, Column]
    manifests: tuple[Mapping[str, Any], ...]
    chosen: tuple[str, ...] = AXES
    main: str = ""

    @property
    def points(self) -> int:
        return len(self.columns["status"])

    @property
    def statuses(self) -> dict[str, int]:
        return dict(sorted(Counter(self.columns["status"]).items()))

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per point, with the columns of the results file."""
        columns = {name: values for name, values in self.columns.items() if name != SIZE}
        return [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]

    @cached_property
    def finished(self) -> tuple[int, ...]:
        """Indices of the points that ended ok."""
        return tuple(
            number for number, status in enumerate(self.columns["status"]) if status == "ok"
        )

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Axes of the sweep that vary, ``network`` first.

        If several always vary together, only the first is included.
        """
        known: dict[Column, str] = {}
        for name in self.chosen:
            if name in self.columns and len(set(self.columns[name])) > 1:
                known.setdefault(_pattern(self.columns[name]), name)
        return tuple(known.values())

    @cached_property
    def figures(self) -> tuple[str, ...]:
        """Numeric result columns that vary among the points that ended ok."""
        known = {
            name: [values[number] for number in self.finished]
            for name, values in self.columns.items()
            if name not in self.chosen and name not in IGNORED
        }
        return tuple(
            name
            for name, values in known.items()
            if all(isinstance(value, int | float) for value in values) and len(set(values)) > 1
        )

    @property
    def networks(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.columns["network"])))

    def drawable(self) -> tuple[str, ...]:
        """Return the numeric columns that an axis can show, results first."""
        numbers = (name for name in self.axes if _numeric(self.columns[name]))
        usual = [
            name
            for name in ("cycles", SIZE, MISSED, AREA, self.main)
            if name in self.columns and name not in self.figures
        ]
        return (*self.figures, *usual, *numbers)

    def objectives(self, across: str | None, up: str | None) -> Objectives:
        """Return the Pareto front's two columns; raise InputError for one without numbers.

        The default is the estimated area (if a cost table gives it) or processing elements × SRAM,
        against cycles.
        """
        known = self.drawable()
        usual = next(
            (name for name in (AREA, SIZE) if name in known), next(reversed(known), self.measure)
        )
        if not self.finished:
            known = (*known, self.measure)  # no figure has a column, and nothing is drawn
        first, second = (
            OTHER_NAMES.get(name, name) for name in (across or usual, up or self.measure)
        )
        return check_column("--x", first, known), check_column("--y", second, known)

    @property
    def measure(self) -> str:
        """Main result of the sweep: cycles, or missed deadlines for systems."""
        return self.main or ("cycles" if "cycles" in self.columns else MISSED)

    def select_network(self, network: str) -> tuple[int, ...]:
        """Return the indices of a network's points that ended ok."""
        return tuple(
            number for number in self.finished if self.columns["network"][number] == network
        )

    def front(self, objectives: Objectives, points: Iterable[int]) -> tuple[int, ...]:
        """Return the Pareto front of the ``points`` that meet all limits, by the first objective.

        Of equal points the one with the first key.
        """
        limits = self.columns.get(LIMITS)
        points = [point for point in sorted(points) if not limits or limits[point] == "met"]
        signed = [(sign(name), self.columns[name]) for name in objectives]
        pairs = [
            (signed[0][0] * signed[0][1][point], signed[1][0] * signed[1][1][point])
            for point in points
        ]
        return tuple(points[place] for place in front(pairs))


def _pattern(values: Column) -> Column:
    """Return a pattern of a column's equal values, which columns that vary together share."""
    numbers: dict[Any, int] = {}
    return tuple(numbers.setdefault(value, len(numbers)) for value in values)


def _numeric(values: Column) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def load_sweep(path: Path, cost: str | None = None, where: str | None = None) -> Sweep:
    """Read a results file; raise InputError if it is no results file or has no points yet.

    With ``cost``, the name or file of a cost table, there are columns of estimated energy and area
    as well. ``where`` is a comparison as in a constraint, such as ``ms < 5``; only the points that
    ran and satisfy it remain.
    """
    with Store(path) as store:
        manifests = tuple(store.manifests())
        kind = store.kind
    found = flat_rows(path, cost)
    rows = list(map(add_units, found) if kind is NETWORKS else found)
    if not rows:
        raise InputError(f"{path}: no point has ended yet; run the sweep again to continue it")
    if where is not None:
        rows = _select_rows(rows, where)
    names = dict.fromkeys(
        name for row in rows for name in row if name not in UNITS or row[name] is not None
    )
    columns = {name: tuple(row.get(name) for row in rows) for name in names}
    if kind is not NETWORKS:
        axes = dict.fromkeys(
            name for one in manifests for name in tomllib.loads(one["specification"])["sweep"]
        )
        return Sweep(path.stem, columns, manifests, ("network", *axes))
    columns[SIZE] = _sizes(columns)
    return Sweep(path.stem, columns, manifests)


def _select_rows(rows: Sequence[FlatRow], where: str) -> list[FlatRow]:
    """Return the rows that ran and satisfy a comparison; raise InputError if none does."""
    names = dict.fromkeys((*NAMES, *RESULTS, *(name for row in rows for name in row)))
    limit = parse_constraint(where, tuple(names), "--where")
    kept = [
        row
        for row in rows
        if row["status"] == "ok"
        and is_met(limit, {**dict.fromkeys(names), **row, "N": row.get(PES)}, row["network"])
    ]
    if not kept:
        raise InputError(f"--where: no point of {len(rows):,} satisfies '{where}'; relax it")
    return kept


UNKNOWN_BECAUSE = (
    "because sweeps do not count the bytes of a flash, only a cost table gives energies and areas, "
    "and a network without cycles has no rate"
)
"""Why a figure of a network that runs can be unknown."""


def is_met(limit: Constraint, values: Mapping[str, Any], network: str) -> bool:
    """Return True if a point meets a limit; raise InputError if a figure of it is unknown."""
    unknown = [name for name in limit.names & {*UNITS} if values[name] is None]
    if unknown:
        raise InputError(
            f"{limit.key}: '{limit.text}': {unknown[0]} of {network} is unknown, {UNKNOWN_BECAUSE}"
            "; leave out this limit"
        )
    return limit.is_satisfied(values)


def _sizes(columns: Mapping[str, Column]) -> Column:
    """Return processing elements times KiB of SRAM, for every point."""
    pairs = zip(columns.get("pe.count", ()), columns.get("sram_bytes", ()), strict=True)
    return tuple(
        None if count is None or size is None else _kibi(count * size) for count, size in pairs
    )


def _kibi(count: int) -> float:
    return count / 1024 if count % 1024 else count // 1024


def reasons(sweep: Sweep) -> Sequence[tuple[str, str, int]]:
    """Return (status, message, points) for points that did not end ok, the most frequent first."""
    found: Counter[tuple[str, str]] = Counter()
    for status, message in zip(sweep.columns["status"], sweep.columns["message"], strict=True):
        if status != "ok":
            found[status, message or ""] += 1
    ranked = sorted(found, key=lambda reason: (-found[reason], reason))
    return [(*reason, found[reason]) for reason in ranked]


_BEGINNING = b"SQLite format 3\0"


def is_sweep(path: Path) -> bool:
    """Return True if ``path`` is an SQLite file that can be read."""
    return first_bytes(path, len(_BEGINNING)) == _BEGINNING
