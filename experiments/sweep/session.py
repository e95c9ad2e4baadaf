"""A sweep from its specification to its results file, for ``dla sweep`` and Python.

A session owns the networks, the results file and the workers of a specification, and runs points
that the caller chooses one after another. Its manifest records how the rows were made, so that they
can be reproduced.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cost.table import DEFAULT_TABLE, load_table
from experiments.report.shown import Presentation, Shown
from experiments.running.declared import command_of
from experiments.running.door import door
from experiments.sweep.described import (
    MachineSpec,
    is_of_machines,
    load_packages,
    parse_machines,
    run_machines,
    specification_text,
)
from experiments.sweep.driver import Driver, Report, Tally
from experiments.sweep.grid import Batch, Grid, Keys
from experiments.sweep.joint import Joint, collect_joint
from experiments.sweep.pools import open_started
from experiments.sweep.request import Sweeping, SweepRequest
from experiments.sweep.results import flat_row, load, load_sweep, reasons
from experiments.sweep.spec import Spec, load_spec, parse_spec, read_text
from experiments.sweep.store import SYSTEMS, Store, canonical
from experiments.sweep.tasks import NetworkPlanner, Preparation, prepare_networks
from experiments.version import compiler_version
from isa.errors import InputError
from isa.installation import NAME, version_of
from isa.progress import Progress, silent
from isa.reading import toml_text

if TYPE_CHECKING:
    import pandas

_LIBRARIES = ("numpy", "onnx", "onnxruntime", "pydantic", "simpy")


@dataclass(frozen=True)
class Manifest:
    """Record of how the rows of a results file were made.

    ``command`` is the command line and ``specification`` the text of its file, whose paths are
    relative to ``folder``. ``packages`` maps networks to digests. Versions of the project, Python
    and libraries are added when it is stored.
    """

    format: str
    command: str
    specification: str
    folder: str
    points: int
    packages: Mapping[str, str]

    def add_to(self, store: Store) -> None:
        """Store the manifest under its digest; equal sweeps have equal manifests.

        If the file has other manifests, ``serial`` counts up, so that the largest is the latest.
        """
        content = {**vars(self), "versions": versions()}
        digest = hashlib.sha256(_manifest_text(content).encode()).hexdigest()
        others = (
            one for one in store.manifests() if one | {"serial": 0} != content | {"serial": 0}
        )
        serial = max((one.get("serial", 0) + 1 for one in others), default=0)
        store.add_manifest(digest, _manifest_text(content | ({"serial": serial} if serial else {})))


def _manifest_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, indent=1)


def versions() -> dict[str, str]:
    """Return the versions of the software and the processor that figures depend on.

    The software is the project, Python and some libraries; for the processor it is the type.
    """
    found = {
        NAME: compiler_version(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    return found | {name: version_of(name) or "unknown" for name in _LIBRARIES}


class SweepSession:
    """Resources of a running sweep; a context manager.

    ``output`` is the results file; it is created if missing. ``workers`` local processes do the
    work, or the Dask cluster at ``scheduler``. ``stage`` is called with a text for each step.
    Raises InputError for bad input and for files that cannot be written; rows already written stay.
    """

    def __init__(
        self,
        spec: Spec,
        output: Path,
        *,
        workers: int | None = None,
        scheduler: str | None = None,
        command: str = "dla sweep",
        stage: Progress = silent,
    ) -> None:
        self.grid = Grid(spec)
        with ExitStack() as stack:
            self.store = stack.enter_context(Store(output, create=True))
            self.store.require_version(compiler_version())
            self._pool = stack.enter_context(open_started(scheduler, workers))
            self.networks: dict[str, Preparation] = prepare_networks(spec, stage)
            packages = {name: network.package.digest for name, network in self.networks.items()}
            self.packages: Mapping[str, str] = packages
            folder = str(spec.folder.resolve())
            Manifest("dla-sweep", command, spec.text, folder, self.grid.points, packages).add_to(
                self.store
            )
            self._stack = stack.pop_all()

    def __enter__(self) -> SweepSession:
        return self

    def __exit__(self, *reason: object) -> None:
        self._stack.close()

    def run(self, batches: Iterable[Batch], report: Report = silent) -> Tally:
        """Run the points of ``batches`` until each has a results row, and return the tally.

        Points with a row are not run again.

        ``report`` is called with the tally whenever rows have been written.
        """
        driver = Driver(NetworkPlanner(self.networks, self.store), self.store, self._pool, report)
        driver.run(batches)
        return driver.tally

    def run_all(
        self, retry_failed: bool = False, stage: Progress = silent, report: Report = silent
    ) -> Tally:
        """Run every point of the grid that has no row, and return the tally.

        With ``retry_failed``, points that failed run again.
        """
        if retry_failed:
            self.store.forget("failed")
        stage(f"running {self.grid.points} points")
        return self.run(self.grid.batches(), report)

    def evaluate(self, choices: Iterable[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        """Return the results rows of chosen points, and run the points that have no row yet.

        Args:
            choices: each maps axes (``grid.axes``) to values.

        Returns:
            Rows in the form of ``experiments.sweep.results.flat_rows``; None for a choice that the
            constraints exclude.
        """
        batches = [self.grid.pick(choice) for choice in choices]
        self.run(batch for batch in batches if batch is not None)
        return [None if batch is None else self._row(batch) for batch in batches]

    def _row(self, batch: Batch) -> dict[str, Any] | None:
        keys = Keys(batch, self.networks[batch.network].package.digest, compiler_version())
        _, timing = next(iter(batch))
        row = self.store.row(keys.compute_key(canonical(timing)))
        return None if row is None else flat_row(row)


IN_MEMORY = "<specification>"
"""Source name of a specification that was not read from a file."""


@dataclass(frozen=True, repr=False)
class Swept(Shown):
    """Result of a sweep: its results file, the number of points, and the final tally.

    ``joint`` is the result over all networks, or None unless the sweep is joint. ``described``
    is True for a sweep of described machines, which compiles nothing.
    """

    path: Path
    points: int
    tally: Tally
    joint: Joint | None = None
    described: bool = False

    @property
    def table(self) -> pandas.DataFrame:
        """The results file as a DataFrame, one row per point (:func:`load`)."""
        return load(self.path)

    @property
    def failure(self) -> str | None:
        """If no point is ok, the most frequent cause in one line; else None."""
        if self.tally.new["ok"] or self.tally.stored_ok:
            return None
        sweep = load_sweep(self.path)
        status, message, count = reasons(sweep)[0]
        return f"no point is ok; {count} of {sweep.points} {status}: {message}"

    @property
    def summary(self) -> str:
        """Number of sweep points, by status, in one line."""
        new = ", ".join(f"{count} {status}" for status, count in self.tally.new.items())
        before = f"; {self.tally.stored} had a row before" if self.tally.stored else ""
        if self.described:
            return f"{self.points} points: {new}{before}"
        machines = (
            f"{self.tally.compilations} machine{'s' * (self.tally.compilations != 1)} compiled"
        )
        return f"{self.points} points: {new}{before}; {machines}"

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self, Presentation(_lines)


def _lines(swept: Swept) -> Iterator[str]:
    """Yield the summary, the results file, and the cause if all points failed."""
    yield from (swept.summary, f"results in {swept.path}")
    yield from filter(None, [swept.failure])
    yield from () if swept.joint is None else swept.joint.lines()


def sweep_requested(wanted: SweepRequest) -> Swept:
    """Give every point of a specification (docs/sweeps.md) a row in a results file.

    ``dla sweep`` does the same.

    ``spec`` is a TOML file, or a dict with the same keys whose paths are relative to the working
    folder. ``output`` is by default ``runs/SPEC.sqlite``. Points that have a row there are not run
    again; ``retry_failed`` repeats those that failed. ``workers`` local processes do the work, by
    default one per CPU, or the Dask cluster at ``scheduler``. ``stage`` is called with a text for
    each step, ``report`` with the tally whenever rows have been written. ``cost`` is the cost table
    of a joint sweep's areas and energies.

    Infeasible and failed points are rows like others. If no point is ok, ``failure`` of the result
    names the cause. Raises InputError for bad input.
    """
    machines = read_machines(wanted)
    if machines is not None:
        return _sweep_machines(machines, wanted)
    checked = read_specification(wanted)
    place = results_file(checked, wanted.output)
    table = load_table(wanted.cost or DEFAULT_TABLE)
    with (
        note_place(place),
        SweepSession(
            checked,
            place,
            workers=wanted.workers,
            scheduler=wanted.scheduler,
            command=command_of("sweep", wanted),
            stage=wanted.stage,
        ) as session,
    ):
        tally = session.run_all(wanted.retry_failed, wanted.stage, wanted.report)
        joint = collect_joint(session.grid, session.packages, session.store, table)
    return Swept(place, session.grid.points, tally, joint)


def _sweep_machines(spec: MachineSpec, wanted: SweepRequest) -> Swept:
    """Run a sweep of described machines, whose formulas need no workers."""
    place = results_file(spec.networks, wanted.output)
    with note_place(place), Store(place, create=True, kind=SYSTEMS) as store:
        store.require_version(compiler_version())
        if wanted.retry_failed:
            store.forget("failed")
        packages = load_packages(spec, wanted.stage)
        digests = {name: package.digest for name, package in packages.items()}
        folder = str(spec.networks.folder.resolve())
        command, text = command_of("sweep", wanted), specification_text(spec)
        manifest = Manifest("dla-machine-sweep", command, text, folder, spec.points, digests)
        manifest.add_to(store)
        tally = run_machines(spec, packages, store, wanted.report)
    return Swept(place, spec.points, tally, described=True)


sweep = door("sweep", SweepRequest, SweepRequest, sweep_requested)


@contextmanager
def note_place(place: Path) -> Iterator[None]:
    """If the block is interrupted, add a note that finished results are in ``place``."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"stopped; the finished points are in {place}, and the same command continues"
        )
        raise


def read_machines(wanted: Sweeping) -> MachineSpec | None:
    """Return the specification of a sweep of described machines; None for an ordinary one."""
    spec = wanted.spec
    if isinstance(spec, MachineSpec):
        return spec
    if isinstance(spec, Spec):
        return None
    if isinstance(spec, Mapping):
        text, folder, source = toml_text(spec, IN_MEMORY), Path(), IN_MEMORY
    else:
        text, folder, source = read_text(Path(spec)), Path(spec).parent, str(spec)
    if not is_of_machines(text, source):
        return None
    options = {"--cost": getattr(wanted, "cost", None), "--scheduler": wanted.scheduler}
    for option, value in options.items():
        if value is not None:
            raise InputError(f"{option}: described machines do not use it; leave it out")
    return parse_machines(text, folder, source)


def read_specification(wanted: Sweeping) -> Spec:
    """Return a checked sweep specification; raise InputError as :func:`load_spec` does."""
    if read_machines(wanted) is not None:
        raise InputError(
            "a search compiles for our machines, and this specification has described machines; "
            "run 'dla sweep' with it, which evaluates all points"
        )
    spec = wanted.spec
    if isinstance(spec, Mapping):
        spec = parse_spec(toml_text(spec, IN_MEMORY), Path(), IN_MEMORY)
    elif not isinstance(spec, Spec):
        spec = load_spec(Path(spec))
    return replace(spec, given={**spec.given, "cache": wanted.cache})


def results_file(spec: Spec, output: str | Path | None) -> Path:
    return (
        Path(output)
        if output is not None
        else Path("runs") / f"{Path(spec.source.strip('<>')).stem}.sqlite"
    )
