"""One sweep, from a specification to a results file: the workflow behind ``dla sweep`` and its Python API."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from experiments.network import load_network
from experiments.sweep.driver import Driver, Report, Tally, silent
from experiments.sweep.grid import Grid
from experiments.sweep.manifest import make_manifest
from experiments.sweep.pools import Pool, open_pool
from experiments.sweep.preparation import Preparation
from experiments.sweep.spec import Spec
from experiments.sweep.store import Store

Stage = Callable[[str], None]


def _quiet(stage: str) -> None:
    return None


def run_sweep(
    spec: Spec,
    output: Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    retry_failed: bool = False,
    command: str = "dla sweep",
    stage: Stage = _quiet,
    report: Report = silent,
) -> Tally:
    """Give every point of ``spec`` a row in the results file ``output``; points that have one are not run again.

    ``workers`` processes of this machine do the work, or the Dask cluster at ``scheduler``; ``retry_failed`` forgets
    rows that failed first. ``stage`` is called with what is going on, ``report`` whenever rows have been written.
    Raises InputError for bad input and for places that cannot be written; rows already written stay.
    """
    grid = Grid(spec)
    with Store(output, create=True) as store, opened(scheduler, workers) as pool:
        networks = prepare_networks(spec, stage)
        store.add_manifest(*make_manifest(spec, grid.points, command, networks))
        if retry_failed:
            store.forget("failed")
        stage(f"running {grid.points} points")
        driver = Driver(networks, store, pool, report)
        driver.run(grid.batches())
        return driver.tally


def prepare_networks(spec: Spec, stage: Stage = _quiet) -> dict[str, Preparation]:
    """Import and quantise every network of a specification, once."""
    networks: dict[str, Preparation] = {}
    for name in spec.networks:
        stage(f"importing {name}")
        path = spec.model_path(name)
        shapes = spec.shapes if path.endswith(".onnx") else None
        networks[name] = Preparation(load_network(path, shapes, spec.seed).package)
    return networks


@contextlib.contextmanager
def opened(scheduler: str | None, workers: int | None) -> Iterator[Pool]:
    """A pool that is closed in the end."""
    pool = open_pool(scheduler, workers)
    try:
        yield pool
    finally:
        pool.close()
