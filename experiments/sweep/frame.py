"""Results as a table: pandas where it is installed, a column for every key of the machine and every kind and cause."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc.options import PROGRAM_OPTIONS
from experiments.cost.estimate import costed
from experiments.cost.table import load_table
from experiments.extras import require_pandas
from experiments.literal import neutral
from experiments.sweep.store import COLUMNS, FIGURE_COLUMNS, NETWORKS, STATUSES, Store
from isa.arch import flat
from isa.errors import InputError
from isa.files import check_writable, write_atomically

if TYPE_CHECKING:
    import pandas

FlatRow = dict[str, Any]
"""A row of a results file by column, nested columns taken apart: ``pe.ic``, ``kinds.CONV``, ``EX.busy``, ..."""
_NESTED = {"arch": "", "timing": "", "kinds": "kinds.", "ex_cycles": "ex_cycles.", "units": ""}
"""Columns of JSON texts, and what stands before the names in them."""
_GIVEN = ("network", "package", "preset", *(option.name for option in PROGRAM_OPTIONS), "arch", "timing", "version")
"""Columns that every row has, however its point ended."""
ENDINGS = (".csv", ".parquet")
_LARGEST = 1 << 63


def flat_rows(path: Path, cost: str | None = None) -> Iterator[FlatRow]:
    """The rows of a results file by key, nested columns taken apart: ``pe.ic``, ``kinds.CONV``, ``EX.busy``, ...

    ``pe.count`` is the number of processing elements. With ``cost``, the name or file of a cost table, the columns of
    ``experiments.cost.estimate.COLUMNS``: estimates. Of systems, their axes and figures. Raises InputError for a file
    that holds no results, and for a bad table.
    """
    with Store(path) as store:
        kind = store.kind
    if cost is not None and kind is not NETWORKS:
        raise InputError(f"{path}: a sweep of a system; leave out --cost, which prices runs of networks")
    if cost is not None:
        yield from costed(flat_rows(path), load_table(cost))
        return
    flattened = flat_row if kind is NETWORKS else flat_system_row
    with Store(path) as store:
        for row in store.rows():
            try:
                yield flattened(dict(zip(store.kind.columns, row, strict=True)))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(
                    f"{path}: damaged results (point {row[0]}: {error}); run the sweep again into another file"
                ) from error


def flat_row(row: dict[str, Any]) -> FlatRow:
    """One row, given by column, as :func:`flat_rows` has them."""
    found = {name: value for name, value in row.items() if name not in _NESTED}
    found |= {option.name: bool(found[option.name]) for option in PROGRAM_OPTIONS if option.switch}
    if row["status"] not in STATUSES or (row["status"] == "ok" and None in (row[name] for name in FIGURE_COLUMNS)):
        raise ValueError(f"status is {row['status']!r:.40}")
    if None in (row[name] for name in _GIVEN):
        raise ValueError(f"one of {', '.join(_GIVEN)} is missing")
    for name, prefix in _NESTED.items():
        if row[name] is not None:
            found |= {key: _leaf(name, key, value) for key, value in flat(json.loads(row[name]), prefix).items()}
    pe = [size for size in (found.get(f"pe.{side}") for side in ("ic", "oc", "ow")) if isinstance(size, int)]
    if len(pe) == 3:
        found["pe.count"] = prod(pe)
    if row["status"] == "ok" and not all(isinstance(found.get(name), int) for name in ("pe.count", "sram_bytes")):
        raise ValueError("its machine has no array or no scratchpad")
    return found


def flat_system_row(row: dict[str, Any]) -> FlatRow:
    """One row of a sweep of a system: its axes and figures are columns."""
    found = {name: value for name, value in row.items() if name not in ("axes", "figures")}
    if row["status"] not in STATUSES or (row["status"] == "ok") is not (row["figures"] is not None):
        raise ValueError(f"status is {row['status']!r:.40}")
    for name, value in (json.loads(row["axes"]) | json.loads(row["figures"] or "{}")).items():
        if name in found or not (value is None or isinstance(value, int | float | str)):
            raise ValueError(f"{name} is {value!r:.40}")
        found[name] = value
    return found


def _leaf(column: str, key: str, value: Any) -> Any:
    """A value of a JSON column, if it is of the type that it is in every row; else raises ValueError."""
    if column == "arch" and key in ("isa", "numerics"):
        sound = isinstance(value, str)
    else:
        sound = value is None or (isinstance(value, int | float) and abs(value) <= _LARGEST)
    if not sound or key in COLUMNS:
        raise ValueError(f"{column} has {key} = {value!r:.40}")
    return value


def load(path: str | Path, cost: str | None = None) -> pandas.DataFrame:
    """The results of a sweep as a DataFrame, one row a point, ordered by key; columns of integers with gaps are Int64.

    Columns: key, network, package, preset, the options that programs depend on (schedule, ...), version, status,
    message, missing_bytes, figures (cycles, macs, ...), every key of Arch and Timing, ``pe.count``, ``kinds.*``,
    ``ex_cycles.*`` and ``LD.*``, ``EX.*``, ``ST.*`` (cycles by cause); with ``cost``, a cost table's name or file,
    ``estimated_energy_pj`` and ``estimated_area_um2`` as well. Raises InputError where there are no results.
    """
    rows = list(flat_rows(Path(path), cost))
    pandas = require_pandas()
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pandas.DataFrame(
        {name: pandas.Series(values, dtype=_type(name, values)) for name, values in columns.items()}
    )


def _type(name: str, values: list[Any]) -> str:
    """The type of a column, which gaps do not change: it comes from the values, of a column without any by its name."""
    found = {type(value) for value in values if value is not None}
    if found == {int} or (not found and COLUMNS.get(name, "INTEGER") == "INTEGER"):
        return "Int64" if None in values else "int64"
    return {frozenset({bool}): "bool", frozenset({float}): "float64"}.get(frozenset(found), "str")


def export(path: Path, target: Path, cost: str | None = None) -> int:
    """Write the results as CSV or Parquet, whole or not at all, beside them the manifests; how many rows there were.

    ``cost`` as in :func:`load`. Raises InputError for another ending, a place that cannot be written, and where pandas
    is not installed.
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
    write_atomically(target.with_name(target.name + ".manifest.json"), json.dumps(manifests, indent=1) + "\n")
    return len(table)


def check_export(target: Path) -> None:
    """Raises InputError, before any work is done, where :func:`export` would."""
    if target.suffix not in ENDINGS:
        raise InputError(f"--export {target}: it must end in {' or '.join(ENDINGS)}")
    require_pandas()
    check_writable(target)
