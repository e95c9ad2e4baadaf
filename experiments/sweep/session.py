"""A session: networks, results file and workers of a specification, for points that are chosen one after another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments.sweep.canonical import canonical
from experiments.sweep.driver import Driver, Report, Tally, silent
from experiments.sweep.frame import flat_row
from experiments.sweep.grid import Batch, Grid
from experiments.sweep.keys import Keys
from experiments.sweep.manifest import make_manifest
from experiments.sweep.pools import opened
from experiments.sweep.preparation import Preparation, prepare_networks
from experiments.sweep.spec import Spec
from experiments.sweep.stages import Stage, quiet
from experiments.sweep.store import Store
from experiments.version import tool_version


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
        stage: Stage = quiet,
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
        driver = Driver(self.networks, self.store, self._pool, report)
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
