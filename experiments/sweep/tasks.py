"""Conversion of batches of points to tasks for workers, and of results to rows.

A row is ok, infeasible or failed. One task compiles a machine for a bus. Machines with few Timings
share a task, above all those that share tilings. A machine with many Timings has its own task: that
task returns the compiled programs, and further tasks with the programs cost the remaining Timings.
The points of a network share its package, its operations, and one partition per machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from pydantic import ValidationError

from byoc.compiled import Partition
from byoc.compiler import CompilerPool, partition_package
from byoc.host.sessions import estimate_cycles
from byoc.options import CompileOptions
from byoc.package.package import Package
from byoc.scheduling.search_pool import sizeless
from experiments.running.network import load
from experiments.sweep.driver import Item, Planner, SweepTask
from experiments.sweep.grid import Batch, Keys
from experiments.sweep.spec import Spec
from experiments.sweep.store import FIGURE_COLUMNS, Row, Store
from experiments.sweep.worker import (
    MachineJob,
    NetworkJob,
    PointOutcome,
    WorkerResult,
    blank_regions,
    machine_problem,
)
from experiments.version import compiler_version
from isa.arch import Arch
from isa.progress import Progress, silent


@dataclass(frozen=True)
class Misfit:
    """Reason why a machine is too small for a network.

    It names the node with the largest shortage, its buffers, and the missing bytes.
    """

    message: str
    missing_bytes: int


@dataclass(frozen=True)
class PreparedPartition:
    """Partition that is ready to be compiled in any worker, and the nodes that stay on the CPU.

    ``host_cycles`` is an estimate.
    """

    regions: bytes
    host_nodes: int
    host_cycles: int
    misfit: Misfit | None


class Preparation:
    """Network that is partitioned for one machine after another.

    Work that depends on no machine is done once.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self._pool = CompilerPool()
        self._parts: object = None
        self._last: PreparedPartition | None = None

    def prepare(self, arch: Arch, options: CompileOptions) -> PreparedPartition:
        """Return the network's partition for a machine.

        A partition equal to the previous one is the same object.
        """
        found = partition_package(self.package, arch, options, self._pool)
        parts = found.graph, [vars(part) for part in found.parts], found.shortages
        if self._last is None or parts != self._parts:  # packing the regions takes milliseconds
            self._parts = parts
            prepared = _prepare_partition(found)
            self._last = self._last if prepared == self._last else prepared
        return self._last


def _prepare_partition(found: Partition) -> PreparedPartition:
    return PreparedPartition(
        regions=blank_regions(found.regions, found.graph.values),
        host_nodes=sum(len(part.nodes) for part in found.host_parts),
        host_cycles=sum(estimate_cycles(found.graph, part) for part in found.host_parts),
        misfit=_misfit(found),
    )


def _misfit(found: Partition) -> Misfit | None:
    """Return the largest shortage of scratchpad space, or None if everything fits."""
    if not found.shortages:
        return None
    worst = max(found.shortages, key=lambda name: found.shortages[name].missing)
    count = f"; {len(found.shortages)} operations do not fit" if len(found.shortages) > 1 else ""
    return Misfit(f"{worst}: {found.shortages[worst]}{count}", found.shortages[worst].missing)


def prepare_networks(spec: Spec, stage: Progress = silent) -> dict[str, Preparation]:
    """Import and quantise every network of a specification, once."""
    networks: dict[str, Preparation] = {}
    for name in spec.networks:
        stage(f"importing {name}")
        networks[name] = Preparation(load(spec.network(name)).package)
    return networks


Status = Literal["ok", "infeasible", "failed"]
_NO_FIGURES = (None,) * len(FIGURE_COLUMNS)


class SweepPoint(NamedTuple):
    """A point of a machine: its key, its Timing as canonical JSON, and its preset."""

    key: str
    timing: str
    preset: str


@dataclass(frozen=True)
class SharedColumns:
    """Values of result columns that are equal for all points of one network, machine and options.

    ``package`` is the digest, ``arch`` canonical JSON.
    """

    network: str
    package: str
    options: CompileOptions
    arch: str
    version: str
    host_nodes: int | None = None
    host_cycles: int | None = None

    def outcome_rows(self, points: Points, outcomes: Iterable[PointOutcome]) -> Iterator[Row]:
        """Yield the rows of points that a worker has processed.

        A row is ok and has figures, or it is failed.
        """
        for outcome in outcomes:
            some = [points[place] for place in outcome.places]
            status: Status = "failed" if outcome.figures is None else "ok"
            yield from self._rows(some, status, outcome.message, None, outcome.figures)

    def infeasible_rows(self, points: Points, misfit: Misfit) -> tuple[Row, ...]:
        """Return the rows of points whose machine is too small."""
        return tuple(self._rows(points, "infeasible", misfit.message, misfit.missing_bytes))

    def make_failed_rows(self, points: Points, message: str) -> tuple[Row, ...]:
        return tuple(self._rows(points, "failed", message))

    def _rows(
        self,
        points: Sequence[SweepPoint],
        status: Status,
        message: str | None,
        missing_bytes: int | None = None,
        figures: Sequence[object] | None = None,
    ) -> Iterator[Row]:
        """Yield rows; a list has the values of a column, any other value is that of all rows."""
        keys, timings, presets = (list(column) for column in zip(*points, strict=True))
        shared = (self.network, self.package, presets, *self.options.choices.values(), self.arch)
        ended = (self.version, status, message, missing_bytes, self.host_nodes, self.host_cycles)
        columns = (keys, *shared, timings, *ended, *(figures or _NO_FIGURES))
        return zip(
            *(one if isinstance(one, list) else itertools.repeat(one) for one in columns),
            strict=False,
        )


Points = tuple[SweepPoint, ...]


@dataclass(eq=False)
class NetworkTask(SweepTask):
    """Task that runs sweep points of one network, machine by machine.

    ``rest`` has further points of its only machine; they wait for the compiled programs.
    """

    job: NetworkJob
    points: tuple[tuple[SharedColumns, Points], ...]
    rest: Iterator[Points] | None = None

    def rows(self, result: WorkerResult) -> tuple[Row, ...]:
        parts = zip(self.points, result.outcomes, strict=True)
        return tuple(
            row
            for (shared, points), outcomes in parts
            for row in shared.outcome_rows(points, outcomes)
        )

    def make_failed_rows(self, message: str) -> tuple[Row, ...]:
        return tuple(
            row
            for shared, points in self.points
            for row in shared.make_failed_rows(points, message)
        )

    def list_following(self, result: WorkerResult) -> Iterator[Item]:
        """Yield tasks for points that waited until the machine's programs were compiled."""
        shared = self.points[0][0]
        machine = self.job.machines[0]
        for points in self.rest or ():
            timed = MachineJob(machine.arch, timings_of(points), result.programs)
            yield NetworkTask(replace(self.job, machines=(timed,), keep=False), ((shared, points),))

    def list_following_failed(self, message: str) -> Iterator[Item]:
        for points in self.rest or ():
            yield self.points[0][0].make_failed_rows(points, message)


def timings_of(points: Points) -> tuple[str, ...]:
    """Return the Timings of points as JSON texts."""
    return tuple(point.timing for point in points)


MACHINES = 4
"""Most machines that one task compiles, unless they differ only in scratchpad size."""
ALIKE = 16
"""Most machines in a task that differ only in scratchpad size.

Searches for one of them help the others.
"""
AHEAD = 4
"""Divisor that limits a task above :data:`MACHINES` machines, to keep all workers busy.

Such a task gets at most 1/AHEAD of the machines that earlier tasks got.
"""
POINTS = 64
"""Most points of one task, but for the later tasks of a machine with many Timings."""
MANY_POINTS = 8192
"""Most points of the later tasks of a machine, which one call of the engine times together."""


@dataclass(frozen=True, eq=False)
class _Load:
    """Machine with few sweep points, which can share a task with other machines."""

    prepared: PreparedPartition
    batch: Batch
    machine: MachineJob
    shared: SharedColumns
    points: Points

    def can_join(self, others: list[_Load], given: int) -> bool:
        """Return True if this machine's points can share a task with the points of ``others``.

        ``given`` is the number of machines in earlier tasks.
        """
        if not others:
            return True
        first = others[0]
        kind = sizeless(self.machine.arch)
        alike = sizeless(first.machine.arch) == kind == sizeless(others[-1].machine.arch)
        most = max(MACHINES, min(ALIKE, given // AHEAD)) if alike else MACHINES
        points = sum(len(other.points) for other in (*others, self))
        same = self.prepared is first.prepared and self.batch.options == first.batch.options
        return same and len(others) < most and points <= POINTS


class NetworkPlanner(Planner[Batch]):
    """Planner for networks by name. It tracks the points in progress, so that none is run twice."""

    def __init__(self, networks: Mapping[str, Preparation], store: Store) -> None:
        super().__init__(store)
        self._networks = networks
        self._version = compiler_version()
        self._under_way: set[str] = set()

    def note_settled(self, keys: Iterable[str]) -> None:
        self._under_way.difference_update(keys)

    def items(self, batches: Iterable[Batch]) -> Iterator[Item]:
        """Yield tasks that run batches of points, and rows of points that need no task."""
        loads = list[_Load]()
        given = 0
        for batch in batches:
            for item in self._batch_items(batch):
                if not isinstance(item, _Load):
                    yield item
                    continue
                if not item.can_join(loads, given):
                    yield self._joint(loads)
                    given += len(loads)
                    loads = []
                loads.append(item)
        if loads:
            yield self._joint(loads)

    def _batch_items(self, batch: Batch) -> Iterator[Item | _Load]:
        preparation = self._networks[batch.network]
        keys = Keys(batch, preparation.package.digest, self._version)
        shared = SharedColumns(
            batch.network, preparation.package.digest, batch.options, keys.arch, self._version
        )
        chunks = self._chunks(batch, keys)
        try:
            arch = Arch.model_validate(batch.arch)
        except ValidationError as error:
            yield from (
                shared.make_failed_rows(points, machine_problem(error)) for points in chunks
            )
            return
        first = next(chunks, None)
        if first is not None:
            yield from self._machine_items(batch, preparation, arch, shared, first, chunks)

    def _machine_items(
        self,
        batch: Batch,
        preparation: Preparation,
        arch: Arch,
        bare: SharedColumns,
        first: Points,
        chunks: Iterator[Points],
    ) -> Iterator[Item | _Load]:
        prepared = preparation.prepare(arch, batch.options)
        shared = replace(bare, host_nodes=prepared.host_nodes, host_cycles=prepared.host_cycles)
        if prepared.misfit is not None:
            yield from (
                shared.infeasible_rows(points, prepared.misfit)
                for points in itertools.chain([first], chunks)
            )
            return
        second = next(chunks, None)
        machine = MachineJob(arch, timings_of(first))
        if second is None:
            self._under_way.update(point.key for point in first)
            yield _Load(prepared, batch, machine, shared, first)
            return
        self._under_way.update(point.key for point in (*first, *second))
        job = NetworkJob(self._version, prepared.regions, batch.options, (machine,), keep=True)
        yield NetworkTask(
            job, ((shared, first),), rest=itertools.chain([second], self._claim_points(chunks))
        )

    def _joint(self, loads: list[_Load]) -> NetworkTask:
        first = loads[0]
        machines = tuple(load.machine for load in loads)
        job = NetworkJob(self._version, first.prepared.regions, first.batch.options, machines)
        return NetworkTask(job, tuple((load.shared, load.points) for load in loads))

    def _chunks(self, batch: Batch, keys: Keys) -> Iterator[Points]:
        """Yield the points of a batch that have no row and are not in progress.

        They come in portions of at most one task; each is twice as large as the one before.
        """
        timings = batch.texts()
        size = POINTS
        while some := list(itertools.islice(timings, size)):
            size = min(2 * size, MANY_POINTS)
            points = [SweepPoint(keys.compute_key(text), text, preset) for text, preset in some]
            known = self._store.find_stored([point.key for point in points])
            fresh: dict[str, SweepPoint] = {}
            for point in points:
                if point.key in known or point.key in self._under_way or point.key in fresh:
                    self._skipped.append(known.get(point.key, "under way"))
                else:
                    fresh[point.key] = point
            if fresh:
                yield tuple(fresh.values())

    def _claim_points(self, chunks: Iterator[Points]) -> Iterator[Points]:
        for points in chunks:
            self._under_way.update(point.key for point in points)
            yield points
