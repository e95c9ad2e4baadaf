"""Points of a sweep of a system, for the sweep engine.

Each point is one system, which any free worker simulates. The key of a point is a hash of
everything that its figures depend on: the checked system, the packages of its networks, the code,
and the requested figures. A process compiles shared networks once.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, closing
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from dla_sim.systems.choices import RATE_STEPS, check_rate, highest_rate
from dla_sim.systems.spec import System, check_work
from experiments.sweep.driver import Driver, Item, Planner, SweepTask, Tally
from experiments.sweep.pools import Here, WorkerPool, open_started
from experiments.sweep.session import Manifest
from experiments.sweep.store import SYSTEMS, Row, Store, canonical
from experiments.sweep.worker import PointOutcome, WorkerResult, message_of
from experiments.systems.plans import PlanMaker
from experiments.systems.report import SystemReport
from experiments.systems.request import SystemSweepRequest
from experiments.systems.running import run_system
from experiments.version import compiler_version
from isa.errors import DoesNotFitError, InputError

Figures = dict[str, Any]
_SYSTEM = TypeAdapter(System)
_sweeps = itertools.count()


@lru_cache(maxsize=1)
def _planner(sweep: str, cache: bool) -> PlanMaker:
    """Return the plan maker that all points of a system sweep share in this process."""
    return PlanMaker(cache=cache)


@dataclass(frozen=True, eq=False)
class SystemPoint:
    """Point of a system sweep: a system, its values on the axes, and its package digests.

    ``digests`` has the digest of each network's package by the network's path.
    """

    system: System
    axes: Mapping[str, Any]
    digests: Mapping[str, str]
    search_rate: bool
    cache: bool

    @cached_property
    def key(self) -> str:
        """Key of a sweep point: a hash of everything that its figures depend on.

        The key is the first 32 hexadecimal digits of a SHA-256.
        """
        system = _SYSTEM.dump_python(self.system, mode="json", exclude={"source", "folder"})
        packages = list(self.digests.values())
        wanted = {"rate": self.search_rate, "code": compiler_version()}
        whole = canonical({"system": system, "packages": packages, **wanted})
        return hashlib.sha256(whole.encode()).hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class PointJob:
    """Job that simulates one point of the system sweep ``sweep``.

    Relative paths start from ``folder``.
    """

    sweep: str
    point: SystemPoint
    folder: Path

    def run(self) -> WorkerResult:
        """Simulate the system of a sweep point and return its figures.

        Infeasible if a network fits no accelerator, failed after any other error.
        """
        try:
            with chdir(self.folder):
                outcome = PointOutcome((json.dumps(self._figures()),))
        except DoesNotFitError as error:
            outcome = PointOutcome(None, str(error), infeasible=True)
        except Exception as error:  # any exception belongs in the results row
            outcome = PointOutcome(None, message_of(error))
        return WorkerResult(((outcome,),), 0)

    def _figures(self) -> Figures:
        point = self.point
        planner = _planner(self.sweep, self.point.cache)
        for model, digest in point.digests.items():
            if planner.digest(model) != digest:
                raise InputError(f"{model} changed while the sweep ran; run it again")
        plans = planner.plans(point.system)
        rate = (
            {"rate": highest_rate(point.system, plans).rate / RATE_STEPS}
            if point.search_rate
            else {}
        )
        choices = [task.name for task in point.system.tasks if len(task.variants) > 1]
        return rate | figures(run_system(point.system, plans), choices)


def figures(report: SystemReport, choices: Sequence[str] = ()) -> Figures:
    """Return the result columns of a sweep point, which follow the columns of the axes.

    :class:`experiments.systems.sweep.SystemSweep` describes them. ``choices`` are the names of
    tasks with several variants.
    """
    chosen = [task for task in report.tasks if task.name in choices]
    found: Figures = {"missed": report.missed, "ended": sum(task.ended for task in report.tasks)}
    found |= {"quality": sum(task.quality for task in chosen)} if chosen else {}
    found |= {f"model.{task.name}": task.model for task in chosen}
    found |= {f"missed.{task.name}": task.missed for task in report.tasks}
    found |= {
        f"worst.{task.name}": task.response.worst if task.response else None
        for task in report.tasks
    }
    found |= {
        f"ms.{task.name}": 1e3 * task.response.worst / report.clock_hz if task.response else None
        for task in report.tasks
    }
    found |= {f"use.{unit.name}": unit.utilization for unit in report.units}
    return found | {
        "memory.use": report.memory.utilization,
        "memory.peak": max(report.memory_shares),
    }


@dataclass(eq=False)
class PointTask(SweepTask):
    """Task of the sweep driver that runs one point of a system sweep."""

    job: PointJob

    def rows(self, result: WorkerResult) -> tuple[Row, ...]:
        ((outcome,),) = result.outcomes
        status = (
            "infeasible" if outcome.infeasible else "failed" if outcome.figures is None else "ok"
        )
        return (self._row(status, outcome.message, *(outcome.figures or (None,))),)

    def make_failed_rows(self, message: str) -> tuple[Row, ...]:
        return (self._row("failed", message, None),)

    def _row(self, status: str, message: str | None, found: str | None) -> Row:
        point = self.job.point
        return (
            point.key,
            point.system.name,
            compiler_version(),
            status,
            message,
            canonical(point.axes),
            found,
        )


class PointPlanner(Planner[SystemPoint]):
    """Planner that creates a task for every point of a system sweep that has no row."""

    def __init__(self, sweep: str, store: Store) -> None:
        super().__init__(store)
        self._sweep = sweep

    def items(self, points: Iterable[SystemPoint]) -> Iterator[Item]:
        begun: set[str] = set()
        for point in points:
            known = self._store.find_stored([point.key])
            if known or point.key in begun:
                self._skipped.append(known.get(point.key, "under way"))
                continue
            begun.add(point.key)
            yield PointTask(job=PointJob(self._sweep, point, Path.cwd()))


def run_points(
    systems: Sequence[tuple[Mapping[str, Any], System]],
    wanted: SystemSweepRequest,
    manifest: Manifest,
) -> list[Figures]:
    """Run every system and return its figures, in order, or its ``problem`` if it cannot run.

    Rows that are in the results file stay; failed ones are tried again. All networks are read
    before the first system runs, and their digests are added to the ``manifest``.

    Args:
        systems: pairs of the values on the axes and the system.
        wanted: the request with the results file, workers and progress callback.
        manifest: record of the sweep, stored in the results file.

    Raises:
        InputError: a model is invalid, or a file cannot be written.
    """
    sweep = f"{os.getpid()} {next(_sweeps)}"
    planner = _planner(sweep, wanted.cache)
    points: list[SystemPoint] = []
    for axes, system in systems:
        check_work(system)
        if wanted.search_rate:
            check_rate(system)
        points.append(
            SystemPoint(
                system,
                axes,
                planner.digests(system, wanted.progress),
                wanted.search_rate,
                wanted.cache,
            )
        )

    def report(tally: Tally) -> None:
        wanted.progress(f"{tally.done} of {len(points)} points", tally.done, len(points))

    assert wanted.output is not None
    with (
        Store(Path(wanted.output), create=True, kind=SYSTEMS) as store,
        _pool(wanted.workers) as pool,
    ):
        packages = {model: digest for point in points for model, digest in point.digests.items()}
        store.require_version(compiler_version())
        replace(manifest, points=len(points), packages=packages).add_to(store)
        store.forget("failed")
        Driver(PointPlanner(sweep, store), store, pool, report).run(points)
        rows = [store.row(point.key) or {} for point in points]
    _planner.cache_clear()
    return [
        json.loads(row["figures"]) if row["status"] == "ok" else {"problem": row["message"]}
        for row in rows
    ]


def _pool(workers: int | None) -> AbstractContextManager[WorkerPool]:
    return closing(Here()) if workers is None else open_started(None, workers)
