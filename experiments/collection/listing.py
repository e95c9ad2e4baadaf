"""List of the results below a folder: runs, sweeps, and files that contain neither, newest first.

Files of equal time are in the order of their names. The list never follows a link out of the
folder, and a damaged file is an entry with its fault.

``dla report`` and ``dla serve`` show each result as the same document: a run, a system, a sweep, or
a comparison of runs.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.compare.comparison import ManyRuns, compare
from experiments.compare.presentation import COMPARISON, MANY_RUNS
from experiments.compare.sources import report_snapshot
from experiments.cost.table import DEFAULT_TABLE
from experiments.report.checks import find_difference
from experiments.report.schema import RunReport
from experiments.report.shown import Document, Presentation, Shown
from experiments.report.store import read_saved, run_report, schema_of
from experiments.report.tables import machine_line
from experiments.report.terminal import Printed, line, plain_table
from experiments.running.result import RUN
from experiments.sweep.joint import load_joint
from experiments.sweep.presentation import FRONT
from experiments.sweep.request import OfSweep
from experiments.sweep.results import OTHER_NAMES, is_sweep, load_sweep
from experiments.sweep.store import Store
from experiments.systems.report import SCHEMA as SYSTEM_SCHEMA
from experiments.systems.report import SystemReport, system_report
from experiments.systems.result import SYSTEM
from experiments.systems.sweep import SCHEMA as SYSTEM_SWEEP_SCHEMA
from isa.errors import InputError
from isa.reading import file_fault


def load_saved(file: Path) -> RunReport | SystemReport:
    """Return the report of a run of a network or a system.

    Raise InputError if the file contains none.
    """
    content = read_saved(file)
    if schema_of(content) == SYSTEM_SWEEP_SCHEMA:
        remedy = "'dla system ... --sweep ... --output FILE' keeps results of which there is one"
        raise InputError(f"{file}: a sweep of a system, of which there is no page; {remedy}")
    if schema_of(content) == SYSTEM_SCHEMA:
        return system_report(content, file)
    return run_report(content, file)


def load_document(file: Path, of_sweep: OfSweep | None = None) -> Document | Shown:
    """Return the document of a saved run, system or sweep; raise InputError if it is none."""
    if is_sweep(file):
        return _load_sweep(file, of_sweep or OfSweep())
    report = load_saved(file)
    return Document(report, RUN if isinstance(report, RunReport) else SYSTEM)


def load_comparison(files: Sequence[Path]) -> Document:
    """Return the comparison of two or more runs; raise InputError if a file contains none."""
    sides = [report_snapshot(_load_run(file), file.stem) for file in files]
    if len(sides) == 2:
        return Document(compare(*sides), COMPARISON)
    return Document(ManyRuns(tuple(sides)), MANY_RUNS)


def _load_run(file: Path) -> RunReport:
    """Return the report of a run of a network; raise InputError if the file contains none."""
    report = load_saved(file)
    if isinstance(report, SystemReport):
        remedy = "'dla system FILE --sweep KEY=VALUE,...' puts systems side by side"
        raise InputError(
            f"{file}: a run of a system, and only runs of networks can be compared; {remedy}"
        )
    return report


def _load_sweep(file: Path, wanted: OfSweep) -> Shown:
    """Load a sweep's results and return them with the Pareto front over two columns.

    Raise InputError for a wrong file or column. The results of a joint sweep are its machines and
    their answer, unless columns are chosen. A cost table adds energy and area.
    """
    if (wanted.x, wanted.y) == (None, None):
        joint = load_joint(file, wanted.cost, wanted.where)
        if joint is not None:
            return joint
    keys = " ".join(filter(None, (wanted.x, wanted.y, wanted.where)))
    priced = any(name in keys for name in ("uJ", "mm2", *list(OTHER_NAMES)[1:]))
    cost = wanted.cost or (DEFAULT_TABLE if priced else None)
    sweep = load_sweep(file, cost, wanted.where)
    return Document((sweep, sweep.objectives(wanted.x, wanted.y)), FRONT)


ENDINGS = (".json", ".sqlite")
RUNNING_SECONDS = 600.0
"""Time after its last result for which an unfinished sweep with an open file counts as running."""
MOST_FAULTS = 10
"""Most files without results that the terminal names one by one."""
RUN_HEADINGS = ("network", "machine", "time (ms)", "check", "written", "file")
SWEEP_HEADINGS = ("sweep", "points", "state", "ok", "infeasible", "failed", "last result", "file")


@dataclass(frozen=True, kw_only=True)
class SavedFile:
    """File below the listed folder: its relative name and its modification time in ns."""

    file: str
    modified: int

    @property
    def written(self) -> str:
        """Modification time in the local time zone."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.modified // 10**9))


@dataclass(frozen=True, kw_only=True)
class SavedRun(SavedFile):
    """Run of a network or a system; ``milliseconds`` of a system is None."""

    network: str
    machine: str
    milliseconds: float | None
    check: str

    def cells(self, folder: Path) -> tuple[str, ...]:
        """Return the texts of a table row, in the order of :data:`RUN_HEADINGS`."""
        duration = "" if self.milliseconds is None else f"{self.milliseconds:,.4g}"
        return (
            self.network, self.machine, duration, self.check, self.written, str(folder / self.file),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SavedSweep(SavedFile):
    """Results file of a sweep; ``points`` is None for a search and for several specifications."""

    networks: str
    points: int | None
    statuses: Mapping[str, int]
    is_open: bool

    def state(self, now: float) -> str:
        """Return whether the sweep has all points, still runs at the time ``now``, or stopped."""
        if self.points is not None and sum(self.statuses.values()) >= self.points:
            return "complete"
        recent = now - self.modified / 1e9 < RUNNING_SECONDS
        return "running" if self.is_open and recent else "not running"

    def cells(self, folder: Path, now: float) -> tuple[str, ...]:
        """Return the texts of a table row, in the order of :data:`SWEEP_HEADINGS`."""
        done = sum(self.statuses.values())
        points = f"{done:,}" if self.points is None else f"{done:,} of {self.points:,}"
        counts = (f"{self.statuses.get(name, 0):,}" for name in ("ok", "infeasible", "failed"))
        return (
            self.networks, points, self.state(now), *counts, self.written, str(folder / self.file),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FaultyFile(SavedFile):
    """File that contains no results that can be shown; ``fault`` names it and says why."""

    fault: str


@dataclass(frozen=True, repr=False)
class ResultList(Shown):
    """Results below a folder, each kind newest first."""

    folder: Path
    runs: tuple[SavedRun, ...]
    sweeps: tuple[SavedSweep, ...]
    faults: tuple[FaultyFile, ...]

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self, Presentation(_lines, tables=_tables, records=_records)


class Collector:
    """Reader of the results below a folder, which reads a file again only after a change.

    Raise InputError if there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(
                f"{folder}: no such folder; 'dla run MODEL' and 'dla sweep SPEC.toml' make the "
                "folder runs, or name another folder"
            )
        self.folder = folder
        self._known: dict[str, tuple[object, SavedFile]] = {}

    def collect(self) -> ResultList:
        """Return the present results below the folder."""
        known, self._known = self._known, {}
        root = self.folder.resolve()
        for path in _list_files(self.folder):
            name = path.relative_to(self.folder).as_posix()
            state = _state(path)
            if name not in known or known[name][0] != state:
                known[name] = state, _read(path, name, root)
            self._known[name] = known[name]
        entries = sorted(
            (entry for _, entry in self._known.values()),
            key=lambda entry: (-entry.modified, entry.file),
        )
        return ResultList(
            self.folder,
            tuple(entry for entry in entries if isinstance(entry, SavedRun)),
            tuple(entry for entry in entries if isinstance(entry, SavedSweep)),
            tuple(entry for entry in entries if isinstance(entry, FaultyFile)),
        )


def find_latest(folder: Path) -> Path:
    """Return the newest run below a folder; raise InputError if there is none."""
    runs = Collector(folder).collect().runs
    if not runs:
        raise InputError(f"{folder}: has no report of a run; 'dla run MODEL' writes one")
    return folder / runs[0].file


def _list_files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in names if name.endswith(ENDINGS))


def _log_of(path: Path) -> Path:
    """Return the file to which SQLite writes while a sweep has its results file open."""
    return path.with_name(path.name + "-wal")


def _state(path: Path) -> tuple[tuple[int, int, int], ...]:
    """Return size, change time and modification time of a file and, if it exists, of its log."""
    found = []
    for one in (path, _log_of(path)):
        with suppress(OSError):
            now = one.stat()
            found.append((now.st_size, now.st_ctime_ns, now.st_mtime_ns))
    return tuple(found)


def _read(path: Path, name: str, root: Path) -> SavedFile:
    """Read a file and return its entry; a damaged or foreign file gives a :class:`FaultyFile`."""
    modified = max((times[-1] for times in _state(path)), default=0)
    about: dict[str, Any] = {"file": name, "modified": modified}
    try:
        if not path.resolve().is_relative_to(root):
            raise InputError(f"{path}: a link to a file outside of {root}")
        if fault := file_fault(path):
            raise InputError(f"{path}: {fault}")
        return _read_sweep(path, about) if path.suffix == ".sqlite" else _read_run(path, about)
    except (InputError, OSError) as error:
        return FaultyFile(**about, fault=str(error))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        return FaultyFile(
            **about, fault=f"{path}: damaged report ({type(error).__name__}: {error})"
        )


def _read_run(path: Path, about: dict[str, Any]) -> SavedRun:
    report = load_saved(path)
    if not isinstance(report, RunReport):
        units = len(report.units)
        check = report.check
        verdict = "not checked" if check is None else "wrong" if check.mismatches else "right"
        machine = f"system of {units} unit{'s' * (units != 1)}"
        return SavedRun(
            **about, network=report.name, machine=machine, milliseconds=None, check=verdict
        )
    machine, _, _ = machine_line(report).partition(", schedule ")
    return SavedRun(
        **about,
        network=report.model,
        machine=machine,
        milliseconds=1e3 * report.end_to_end.cycles / report.clock_hz,
        check=_verdict(report),
    )


def _verdict(report: RunReport) -> str:
    """Return whether the results of a run are right, wrong or not checked."""
    if find_difference(report.check, report.hardware, report.accuracy) or report.check.mismatches:
        return "wrong"
    return "right" if report.check.vouched else "not checked"


def _read_sweep(path: Path, about: dict[str, Any]) -> SavedSweep:
    with Store(path) as store:
        statuses = store.count_statuses()
        manifests = store.manifests()
    networks = dict.fromkeys(name for one in manifests for name in sorted(one["packages"]))
    is_grid = len(manifests) == 1 and not manifests[0]["command"].startswith("dla explore")
    return SavedSweep(
        **about,
        networks=", ".join(networks) or path.stem,
        points=manifests[0]["points"] if is_grid else None,
        statuses=statuses,
        is_open=_log_of(path).exists(),
    )


def _lines(found: ResultList) -> Iterable[str]:
    yield f"{len(found.runs)} runs and {len(found.sweeps)} sweeps below {found.folder}"


def _tables(found: ResultList) -> Iterator[Printed]:
    if not found.runs and not found.sweeps:
        yield line(f"no runs below {found.folder}; 'dla run MODEL' writes a report to runs")
    if found.runs:
        columns = zip(RUN_HEADINGS, ("fold", "fold", "right", "left", "left", "fold"), strict=True)
        ranks = {"machine": 1, "written": 2}
        yield plain_table(
            *((name, how, ranks.get(name, 0)) for name, how in columns),
            rows=(one.cells(found.folder) for one in found.runs),
        )
    if found.sweeps:
        now = time.time()
        yield plain_table(
            *((name, "fold") for name in SWEEP_HEADINGS),
            rows=(one.cells(found.folder, now) for one in found.sweeps),
        )
    for one in found.faults[:MOST_FAULTS]:
        yield line(f"not listed: {one.fault}")
    if len(found.faults) > MOST_FAULTS:
        yield line(f"not listed: {len(found.faults) - MOST_FAULTS} more files")


def _records(found: ResultList) -> Sequence[Mapping[str, Any]]:
    """Return a row of the CSV table for each run."""
    names = ("network", "machine", "milliseconds", "check", "modified")
    return [
        {**{name: getattr(one, name) for name in names}, "file": str(found.folder / one.file)}
        for one in found.runs
    ]
