"""A sweep from its specification to its results file, for ``dla sweep`` and Python.

A session is networks, results file and workers of a specification, for points that are chosen one after another. Its
manifest says what made the rows of a results file, so that anyone can make them again.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.report.shown import Presentation, Shown
from experiments.running.declared import command_of
from experiments.running.door import door
from experiments.sweep.driver import Driver, Report, Tally
from experiments.sweep.grid import Batch, Grid, Keys
from experiments.sweep.pools import opened
from experiments.sweep.preparation import Preparation, prepare_networks
from experiments.sweep.request import Sweeping, SweepRequest
from experiments.sweep.results import flat_row, load, load_sweep, reasons
from experiments.sweep.spec import Spec, load_spec, parse_spec
from experiments.sweep.store import Store, canonical
from experiments.sweep.tasks import NetworkPlanner
from experiments.version import compiler_version
from isa.progress import Progress, silent
from isa.reading import toml_text

if TYPE_CHECKING:
    import pandas

_LIBRARIES = ("numpy", "onnx", "onnxruntime", "pydantic", "simpy")


@dataclass(frozen=True)
class Manifest:
    """What made the rows of a results file.

    ``command`` made it from ``specification`` (the text of the file), whose paths start from ``folder``; ``packages``
    are the digests of its networks. Versions of the project, Python and libraries are added.
    """

    format: str
    command: str
    specification: str
    folder: str
    points: int
    packages: Mapping[str, str]

    def add_to(self, store: Store) -> None:
        """Keep it there, by its digest; equal sweeps have equal ones."""
        text = json.dumps({**vars(self), "versions": versions()}, sort_keys=True, indent=1)
        store.add_manifest(hashlib.sha256(text.encode()).hexdigest(), text)


def versions() -> dict[str, str]:
    """Versions of what the figures depend on."""
    found = {
        "dla-byoc-simulator": compiler_version(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


class Session:
    """Everything that a sweep needs while it runs; a context manager.

    ``output`` is the results file, made where there is none. ``workers`` processes of this machine do the work, or the
    Dask cluster at ``scheduler``. ``stage`` is called with what is going on. Raises InputError for bad input and for
    places that cannot be written; rows already written stay.
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
            self._pool = stack.enter_context(opened(scheduler, workers))
            self.networks: dict[str, Preparation] = prepare_networks(spec, stage)
            packages = {name: network.package.digest for name, network in self.networks.items()}
            folder = str(spec.folder.resolve())
            Manifest("dla-sweep", command, spec.text, folder, self.grid.points, packages).add_to(self.store)
            self._stack = stack.pop_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *reason: object) -> None:
        self._stack.close()

    def run(self, batches: Iterable[Batch], report: Report = silent) -> Tally:
        """Give every point of ``batches`` a row; those that have one stay as they are. ``report`` hears of progress."""
        driver = Driver(NetworkPlanner(self.networks, self.store), self.store, self._pool, report)
        driver.run(batches)
        return driver.tally

    def evaluate(self, choices: Iterable[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        """The rows of chosen points as ``experiments.sweep.results.flat_rows`` has them, run where there is no row yet.

        A choice maps axes (``grid.axes``) to values; None for one that the constraints exclude.
        """
        batches = [self.grid.pick(choice) for choice in choices]
        self.run(batch for batch in batches if batch is not None)
        return [None if batch is None else self._row(batch) for batch in batches]

    def _row(self, batch: Batch) -> dict[str, Any] | None:
        keys = Keys(batch, self.networks[batch.network].package.digest, compiler_version())
        _, timing = next(iter(batch))
        row = self.store.row(keys.of(canonical(timing)))
        return None if row is None else flat_row(row)


def run_sweep(
    spec: Spec,
    output: Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    retry_failed: bool = False,
    command: str = "dla sweep",
    stage: Progress = silent,
    report: Report = silent,
) -> Tally:
    """Give every point of ``spec`` a row in the results file ``output``; points that have one are not run again.

    Arguments as for :class:`experiments.sweep.session.Session`; ``retry_failed`` forgets rows that failed first,
    ``report`` is called whenever rows have been written. Raises InputError as a session does.
    """
    with Session(spec, output, workers=workers, scheduler=scheduler, command=command, stage=stage) as session:
        if retry_failed:
            session.store.forget("failed")
        stage(f"running {session.grid.points} points")
        return session.run(session.grid.batches(), report)


IN_MEMORY = "<specification>"
"""The source of a specification that is in no file."""


@dataclass(frozen=True, repr=False)
class Swept(Shown):
    """What came of a sweep: its results file, how many points it has, and how it went."""

    path: Path
    points: int
    tally: Tally

    @property
    def table(self) -> pandas.DataFrame:
        """The results file as a DataFrame, a row a point (:func:`load`)."""
        return load(self.path)

    @property
    def failure(self) -> str | None:
        """Where no point is ok: the cause that most points have, in one line. Else None."""
        if self.tally.new["ok"] or self.tally.stored_ok:
            return None
        sweep = load_sweep(self.path)
        status, message, count = reasons(sweep)[0]
        return f"no point is ok; {count} of {sweep.points} {status}: {message}"

    @property
    def summary(self) -> str:
        """How many points there are, how many of them have ended how, in one line."""
        new = ", ".join(f"{count} {status}" for status, count in self.tally.new.items())
        before = f"; {self.tally.stored} had a row before" if self.tally.stored else ""
        machines = f"{self.tally.compilations} machine{'s' * (self.tally.compilations != 1)} compiled"
        return f"{self.points} points: {new}{before}; {machines}"

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self, Presentation(_lines)


def _lines(swept: Swept) -> Iterator[str]:
    """How it went, where the results are, and what failed if everything did."""
    yield from (swept.summary, f"results in {swept.path}")
    yield from filter(None, [swept.failure])


def sweep_requested(wanted: SweepRequest) -> Swept:
    """Give every point of a specification (docs/sweeps.md) a row in a results file, as ``dla sweep`` does.

    ``spec`` is a TOML file or the same keys in a dict, whose paths start from the working folder. ``output`` is by
    default ``runs/SPEC.sqlite``; points that have a row there stay as they are, ``retry_failed`` runs those again that
    failed. ``workers`` processes do the work, one a CPU by default, or the Dask cluster at ``scheduler``. ``stage`` is
    called with what goes on, ``report`` with the tally whenever rows have been written.

    Points that are infeasible or failed are rows like others; ``failure`` of the result tells where all are. Raises
    InputError for bad input.
    """
    checked = specified(wanted)
    place = results_file(checked, wanted.output)
    with going_on_in(place):
        tally = run_sweep(
            checked,
            place,
            workers=wanted.workers,
            scheduler=wanted.scheduler,
            retry_failed=wanted.retry_failed,
            command=command_of("sweep", wanted),
            stage=wanted.stage,
            report=wanted.report,
        )
    return Swept(place, Grid(checked).points, tally)


sweep = door("sweep", SweepRequest, SweepRequest, sweep_requested)


@contextmanager
def going_on_in(place: Path) -> Iterator[None]:
    """Whoever interrupts what is done within is told that what is finished stands in ``place``."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(f"stopped; what is finished stands in {place}, and the same command goes on there")
        raise


def specified(wanted: Sweeping) -> Spec:
    """The specification, read and checked; raises InputError as :func:`load_spec` does."""
    spec = wanted.spec
    if isinstance(spec, Mapping):
        spec = parse_spec(toml_text(spec, IN_MEMORY), Path(), IN_MEMORY)
    elif not isinstance(spec, Spec):
        spec = load_spec(Path(spec))
    return replace(spec, given={**spec.given, "cache": wanted.cache})


def results_file(spec: Spec, output: str | Path | None) -> Path:
    return Path(output) if output is not None else Path("runs") / f"{Path(spec.source.strip('<>')).stem}.sqlite"
