"""Repeating a sweep from its results file: the manifests say what to run, the rows what should come out."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from byoc.options import PROGRAM_OPTIONS
from experiments.sweep.canonical import canonical
from experiments.sweep.driver import Driver, Report, silent
from experiments.sweep.grid import Batch, Grid
from experiments.sweep.manifest import versions
from experiments.sweep.pools import opened
from experiments.sweep.preparation import Preparation, prepare_networks
from experiments.sweep.spec import Spec, parse_spec
from experiments.sweep.stages import Stage, quiet
from experiments.sweep.store import COLUMNS, Store
from isa.errors import InputError

_IDENTITY = ("network", *(option.name for option in PROGRAM_OPTIONS), "arch", "timing")
"""What a point is, whatever the version of the project and of the network's package."""
_CONDITIONS = ("key", "package", "preset", "version")
"""Columns that are no result: other versions may have others."""

Identity = tuple[Any, ...]
Record = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """The first column in which a repeated point differs from its row; ``point`` is the key of the row."""

    point: str
    column: str
    stored: Any
    repeated: Any

    def message(self) -> str:
        """One line."""
        return f"point {self.point}: {self.column} is {self.stored!r} in the file and {self.repeated!r} repeated"


@dataclass(frozen=True)
class Repetition:
    """What came of it: ``points`` compared, those that differ, and versions and packages that are others now."""

    points: int
    differences: tuple[Difference, ...]
    changes: tuple[str, ...]


def repeat_sweep(
    path: Path,
    *,
    points: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    scheduler: str | None = None,
    stage: Stage = quiet,
    report: Report = silent,
) -> Repetition:
    """Run the points of a results file again and compare every figure, exactly.

    ``points`` repeats so many of them, drawn with ``seed``, instead of all. Rows that failed because a worker died are
    left out. Raises InputError for a file without results or manifests and for bad specifications in them.
    """
    with Store(path) as store:
        manifests = [json.loads(text) for text in store.manifests()]
        stored = {_identity(row): row for row in _records(store) if not _died(row)}
    if not manifests or not stored:
        raise InputError(f"{path}: it holds no results that can be repeated; run 'dla sweep' first")
    chosen = _chosen(sorted(stored), points, seed)
    changes: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(scheduler, workers) as pool,
        Store(Path(folder) / "repeated.sqlite", create=True) as scratch,
    ):
        for manifest in manifests:
            spec = parse_spec(manifest["specification"], Path(manifest["folder"]), str(path))
            networks = prepare_networks(spec, stage)
            changes += _changes(manifest, networks)
            stage(f"repeating {len(chosen)} points")
            Driver(networks, scratch, pool, report).run(_selected(spec, chosen))
        repeated = {_identity(row): row for row in _records(scratch)}
    found = (_difference(stored[identity], repeated.get(identity)) for identity in sorted(chosen))
    differences = tuple(difference for difference in found if difference is not None)
    return Repetition(len(chosen), differences, tuple(dict.fromkeys(changes)))


def _records(store: Store) -> Iterator[Record]:
    return (dict(zip(COLUMNS, row, strict=True)) for row in store.rows())


def _identity(row: Record) -> Identity:
    return tuple(row[name] for name in _IDENTITY)


def _died(row: Record) -> bool:
    return row["status"] == "failed" and str(row["message"]).startswith("its worker died")


def _chosen(identities: list[Identity], points: int | None, seed: int) -> set[Identity]:
    if points is None or points >= len(identities):
        return set(identities)
    if points < 1:
        raise InputError(f"--points is {points}; it must be 1 or more")
    return set(random.Random(seed).sample(identities, points))


def _selected(spec: Spec, chosen: set[Identity]) -> Iterator[Batch]:
    """The batches of a grid with the chosen points alone."""
    for batch in Grid(spec).batches():
        machine = batch.network, *batch.options.choices.values(), canonical(batch.arch)
        yield batch.where(partial(_is_chosen, machine, chosen))


def _is_chosen(machine: Identity, chosen: set[Identity], timing: Record) -> bool:
    return (*machine, canonical(timing)) in chosen


def _changes(manifest: Record, networks: dict[str, Preparation]) -> Iterator[str]:
    """What is another now than when the sweep ran, a line each."""
    now = versions()
    for name, before in manifest["versions"].items():
        if now.get(name) != before:
            yield f"{name} was {before} and is {now.get(name, 'absent')}"
    for name, digest in manifest["packages"].items():
        if name in networks and networks[name].package.digest != digest:
            yield f"the package of {name} was {digest[:16]} and is {networks[name].package.digest[:16]}"


def _difference(stored: Record, repeated: Record | None) -> Difference | None:
    if repeated is None:
        return Difference(stored["key"], "status", stored["status"], "not in the grid")
    for name in COLUMNS:
        if name not in _CONDITIONS and stored[name] != repeated[name]:
            return Difference(stored["key"], name, stored[name], repeated[name])
    return None
