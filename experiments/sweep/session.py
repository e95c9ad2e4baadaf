"""A session: networks, results file and workers of a specification, for points that are chosen one after another.

Its manifest says what made the rows of a results file, so that anyone can make them again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from experiments.sweep.driver import Driver, Report, Tally
from experiments.sweep.frame import flat_row
from experiments.sweep.grid import Batch, Grid, Keys
from experiments.sweep.pools import opened
from experiments.sweep.preparation import Preparation, prepare_networks
from experiments.sweep.spec import Spec
from experiments.sweep.store import Store, canonical
from experiments.sweep.tasks import Planner
from experiments.version import tool_version
from isa.progress import Progress, silent

_LIBRARIES = ("numpy", "onnx", "onnxruntime", "pydantic", "simpy")


def make_manifest(spec: Spec, points: int, command: str, networks: Mapping[str, Preparation]) -> tuple[str, str]:
    """(digest, JSON text) of the manifest of a sweep; equal sweeps have equal ones.

    Keys: ``command`` that made it, ``specification`` (the text of the file) and ``folder`` (where its paths start
    from), ``points``, ``versions`` of the project, Python and libraries, ``packages`` (digest of each network).
    """
    content: dict[str, Any] = {
        "format": "dla-sweep",
        "command": command,
        "specification": spec.text,
        "folder": str(spec.folder.resolve()),
        "points": points,
        "versions": versions(),
        "packages": {name: network.package.digest for name, network in networks.items()},
    }
    text = json.dumps(content, sort_keys=True, indent=1)
    return hashlib.sha256(text.encode()).hexdigest(), text


def versions() -> dict[str, str]:
    """Versions of what the figures depend on."""
    found = {"dla-byoc-simulator": tool_version(), "python": platform.python_version(), "machine": platform.machine()}
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
        with contextlib.ExitStack() as stack:
            self.store = stack.enter_context(Store(output, create=True))
            self._pool = stack.enter_context(opened(scheduler, workers))
            self.networks: dict[str, Preparation] = prepare_networks(spec, stage)
            self.store.add_manifest(*make_manifest(spec, self.grid.points, command, self.networks))
            self._stack = stack.pop_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *reason: object) -> None:
        self._stack.close()

    def run(self, batches: Iterable[Batch], report: Report = silent) -> Tally:
        """Give every point of ``batches`` a row; those that have one stay as they are. ``report`` hears of progress."""
        driver = Driver(Planner(self.networks, self.store), self.store, self._pool, report)
        driver.run(batches)
        return driver.tally

    def evaluate(self, choices: Iterable[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        """The rows of chosen points as ``experiments.sweep.frame.flat_rows`` has them, run where there is no row yet.

        A choice maps axes (``grid.axes``) to values; None for one that the constraints exclude.
        """
        batches = [self.grid.pick(choice) for choice in choices]
        self.run(batch for batch in batches if batch is not None)
        return [None if batch is None else self._row(batch) for batch in batches]

    def _row(self, batch: Batch) -> dict[str, Any] | None:
        keys = Keys(batch, self.networks[batch.network].package.digest, tool_version())
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
