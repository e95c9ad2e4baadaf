"""Repetition of a saved run, or of the points of a sweep, and exact comparison of every figure.

A run report contains the command that made it. A results file contains manifests, which say what to
run, and rows with the expected results.
"""

import io
import random
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from byoc.options import OPTIONS, PROGRAM_OPTIONS
from experiments.report.store import load_report
from experiments.running.declared import list_declared
from experiments.running.given import RunRequest
from experiments.sweep.driver import WORKER_DIED, Driver, Report
from experiments.sweep.grid import Batch, Grid
from experiments.sweep.pools import open_started
from experiments.sweep.session import versions
from experiments.sweep.spec import Spec, parse_spec
from experiments.sweep.store import COLUMNS, NETWORKS, Store, canonical
from experiments.sweep.tasks import NetworkPlanner, Preparation, prepare_networks
from isa.arch import flat
from isa.errors import InputError
from isa.progress import Progress, silent

CommandLine = Callable[[Sequence[str]], int]
Identity = tuple[Any, ...]
Record = dict[str, Any]

_RUN_CONDITIONS = frozenset({"version"})
"""Keys of a report that are not results: another version may give the same figures."""
_READING = (
    {one.word for one in list_declared(RunRequest).values() if one.repeats}
    | {f"--{option.word}" for option in OPTIONS}
    | {"--pins", "--tuned"}
)
"""Options of ``dla run`` that a report's command may have.

They only read: a file must not choose where to write.
"""
_IDENTITY = ("network", *(option.name for option in PROGRAM_OPTIONS), "arch", "timing")
"""Columns that identify a point, for any version of the project and of the network's package."""
_POINT_CONDITIONS = ("key", "package", "preset", "version")
"""Columns that are not results: they may differ between versions."""


@dataclass(frozen=True)
class FigureDeviation:
    """A figure that differs when a saved run is repeated.

    ``name`` is a key of a report, or a point with its column.
    """

    name: str
    stored: Any
    repeated: Any

    def message(self) -> str:
        return f"{self.name} is {self.stored!r} in the file and {self.repeated!r} repeated"


@dataclass(frozen=True)
class Repetition:
    """Result of repeating a saved run or sweep: the number of compared values and the differences.

    ``compared`` is the number of values or points. ``deviations`` has every value that differs, for
    points only the first one each. ``changes`` are conditions that changed.
    """

    compared: int
    deviations: tuple[FigureDeviation, ...]
    changes: tuple[str, ...]


def run_again(path: Path, command_line: CommandLine) -> Repetition:
    """Repeat the run of a report and compare every value exactly.

    ``command_line`` runs the command: it takes arguments and returns an exit status. Files that the
    command names must still exist. Raises InputError for a file that is no run report, for a
    command other than ``dla run``, and for one that could write files other than its report.
    """
    before = load_report(path)
    words = _words(path, before.command)
    with (
        tempfile.TemporaryDirectory() as folder,
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()) as said,
    ):
        again = Path(folder) / "again.json"
        command_line([*words, "--no-advice", "--json", str(again)])
        if not again.is_file():
            why = said.getvalue().strip().removeprefix("error: ")
            raise InputError(
                f"{path}: its command '{before.command:.200}' gives no report any more: {why}"
            )
        after = load_report(again)
    old, new = (
        flat(report.model_dump(mode="json", by_alias=True, exclude={"advice"}))
        for report in (before, after)
    )
    names = [name for name in dict.fromkeys((*old, *new)) if name not in _RUN_CONDITIONS]
    differing = [name for name in names if old.get(name) != new.get(name)]
    changes = (
        ()
        if before.version == after.version
        else (f"version was {before.version} and is {after.version}",)
    )
    deviations = (FigureDeviation(name, old.get(name), new.get(name)) for name in differing)
    return Repetition(len(names), tuple(deviations), changes)


def _words(path: Path, command: str) -> list[str]:
    """Split a ``dla run`` command into words, without ``dla``.

    Raise InputError for an option that writes.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(
            f"{path}: its command '{command:.200}' cannot be read ({error}); run 'dla run' again"
        ) from error
    if words[:2] != ["dla", "run"]:
        raise InputError(
            f"{path}: its command '{command:.200}' is not one of dla run; run 'dla run' again"
        )
    for word in words[2:]:
        if word.startswith("-") and word not in _READING:
            raise InputError(
                f"{path}: its command has {word:.40}, which no run records; run 'dla run' again"
            )
    return words[1:]


def repeat_sweep(
    path: Path,
    *,
    points: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    scheduler: str | None = None,
    stage: Progress = silent,
    report: Report = silent,
) -> Repetition:
    """Run the points of a results file again and compare every figure exactly.

    With ``points``, only that many points are repeated, drawn with ``seed``. Rows that failed
    because a worker died are left out. Raises InputError for a file without results or manifests,
    and for bad specifications in it.
    """
    with Store(path) as store:
        if store.kind is not NETWORKS:
            raise InputError(
                f"{path}: a sweep of a system; 'dla system' with another --output "
                "runs its points again"
            )
        manifests = store.manifests()
        stored = {
            _identity(row): row
            for row in _records(store)
            if row["status"] != "failed" or not str(row["message"]).startswith(WORKER_DIED)
        }
    if not manifests or not stored:
        raise InputError(f"{path}: it holds no results that can be repeated; run 'dla sweep' first")
    chosen = _choose_identities(sorted(stored), points, seed)
    changes: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        open_started(scheduler, workers) as pool,
        Store(Path(folder) / "repeated.sqlite", create=True) as scratch,
    ):
        for manifest in manifests:
            spec = parse_spec(manifest["specification"], Path(manifest["folder"]), str(path))
            networks = prepare_networks(spec, stage)
            changes += _list_changes(manifest, networks)
            stage(f"repeating {len(chosen)} points")
            Driver(NetworkPlanner(networks, scratch), scratch, pool, report).run(
                _select_batches(spec, chosen)
            )
        repeated = {_identity(row): row for row in _records(scratch)}
    found = (_deviation(stored[identity], repeated.get(identity)) for identity in sorted(chosen))
    deviations = tuple(deviation for deviation in found if deviation is not None)
    return Repetition(len(chosen), deviations, tuple(dict.fromkeys(changes)))


def _records(store: Store) -> Iterator[Record]:
    return (dict(zip(COLUMNS, row, strict=True)) for row in store.rows())


def _identity(row: Record) -> Identity:
    return tuple(row[name] for name in _IDENTITY)


def _choose_identities(identities: list[Identity], points: int | None, seed: int) -> set[Identity]:
    if points is None or points >= len(identities):
        return set(identities)
    if points < 1:
        raise InputError(f"--points is {points}; it must be 1 or more")
    return set(random.Random(seed).sample(identities, points))


def _select_batches(spec: Spec, chosen: set[Identity]) -> Iterator[Batch]:
    for batch in Grid(spec).batches():
        machine = batch.network, *batch.options.choices.values(), canonical(batch.arch)
        yield batch.where(partial(_is_chosen, machine, chosen))


def _is_chosen(machine: Identity, chosen: set[Identity], timing: Record) -> bool:
    return (*machine, canonical(timing)) in chosen


def _list_changes(manifest: Record, networks: dict[str, Preparation]) -> Iterator[str]:
    """Yield each software version or package that has changed since a sweep was run."""
    now = versions()
    for name, before in manifest["versions"].items():
        if now.get(name) != before:
            yield f"{name} was {before} and is {now.get(name, 'absent')}"
    for name, digest in manifest["packages"].items():
        if name in networks and networks[name].package.digest != digest:
            yield (
                f"the package of {name} was {digest[:16]} and is "
                f"{networks[name].package.digest[:16]}"
            )


def _deviation(stored: Record, repeated: Record | None) -> FigureDeviation | None:
    point = f"point {stored['key']}"
    if repeated is None:
        return FigureDeviation(f"{point}: status", stored["status"], "not in the grid")
    for name in COLUMNS:
        if name not in _POINT_CONDITIONS and stored[name] != repeated[name]:
            return FigureDeviation(f"{point}: {name}", stored[name], repeated[name])
    return None
