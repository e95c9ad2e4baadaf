"""The planner: batches of points become tasks for workers. A machine is compiled by one task and by no other.

Machines with few Timings travel together, those that share tilings above all. One with many goes alone: when it has
been compiled its programs come back, and its other Timings follow in tasks that bring the programs along.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from experiments.sweep.canonical import canonical
from experiments.sweep.grid import Batch
from experiments.sweep.keys import Keys
from experiments.sweep.preparation import Preparation, Prepared
from experiments.sweep.records import Point, Subject
from experiments.sweep.store import Row, Store
from experiments.sweep.task import Points, Task, timings_of
from experiments.sweep.worker import Job, Machine, machine_problem
from experiments.version import tool_version
from isa.arch import Arch

MACHINES = 4
"""Machines that one task compiles at most."""
POINTS = 64
"""Points of one task at most."""

Item = Task | tuple[Row, ...]
"""A task, or rows that need no worker."""


@dataclass(frozen=True, eq=False)
class _Load:
    """One machine with few points, to travel with others."""

    prepared: Prepared
    batch: Batch
    machine: Machine
    subject: Subject
    points: Points

    def joins(self, others: list[_Load]) -> bool:
        """Whether it can share a task with ``others``."""
        if not others:
            return True
        first = others[0]
        points = sum(len(other.points) for other in (*others, self))
        same = self.prepared is first.prepared and self.batch.options == first.batch.options
        return same and len(others) < MACHINES and points <= POINTS


class Planner:
    """Plans for networks by name; knows which points are under way, so that none is done twice."""

    def __init__(self, networks: Mapping[str, Preparation], store: Store) -> None:
        self._networks = networks
        self._store = store
        self._version = tool_version()
        self._under_way: set[str] = set()
        self._skipped = 0

    def settled(self, task: Task) -> None:
        """The points of a task have their rows."""
        self._under_way.difference_update(point.key for _, points in task.points for point in points)

    def items(self, batches: Iterable[Batch]) -> Iterator[Item]:
        """All that is to be done for ``batches``, in their order."""
        loads: list[_Load] = []
        for batch in batches:
            for item in self._batch_items(batch):
                if not isinstance(item, _Load):
                    yield item
                    continue
                if not item.joins(loads):
                    yield self._joint(loads)
                    loads = []
                loads.append(item)
        if loads:
            yield self._joint(loads)

    def _batch_items(self, batch: Batch) -> Iterator[Item | _Load]:
        preparation = self._networks[batch.network]
        keys = Keys(batch, preparation.package.digest, self._version)
        subject = Subject(batch.network, preparation.package.digest, batch.options, keys.arch, self._version)
        chunks = self._chunks(batch, keys)
        try:
            arch = Arch.model_validate(batch.arch)
        except ValidationError as error:
            yield from (subject.failed_rows(points, machine_problem(error)) for points in chunks)
            return
        first = next(chunks, None)
        if first is not None:
            yield from self._machine_items(batch, preparation, arch, subject, first, chunks)

    def _machine_items(
        self,
        batch: Batch,
        preparation: Preparation,
        arch: Arch,
        bare: Subject,
        first: Points,
        chunks: Iterator[Points],
    ) -> Iterator[Item | _Load]:
        prepared = preparation.prepared(arch, batch.options)
        misfit = preparation.misfit(prepared, arch, batch.options)
        subject = bare.with_host(prepared.host_nodes, prepared.host_cycles)
        if misfit is not None:
            yield from (subject.infeasible_rows(points, misfit) for points in itertools.chain([first], chunks))
            return
        second = next(chunks, None)
        machine = Machine(arch, timings_of(first))
        if second is None:
            self._under_way.update(point.key for point in first)
            yield _Load(prepared, batch, machine, subject, first)
            return
        self._under_way.update(point.key for point in (*first, *second))
        job = Job(self._version, prepared.regions, batch.options, (machine,), keep=True)
        yield Task(job, ((subject, first),), rest=itertools.chain([second], self._claimed(chunks)))

    def _joint(self, loads: list[_Load]) -> Task:
        first = loads[0]
        machines = tuple(load.machine for load in loads)
        job = Job(self._version, first.prepared.regions, first.batch.options, machines)
        return Task(job, tuple((load.subject, load.points) for load in loads))

    def _chunks(self, batch: Batch, keys: Keys) -> Iterator[Points]:
        """The points of a batch that have no row and are not under way, as many at a time as one task takes."""
        timings = iter(batch)
        while some := list(itertools.islice(timings, POINTS)):
            texts = [(canonical(timing), preset) for preset, timing in some]
            points = [Point(keys.of(text), text, preset) for text, preset in texts]
            known = self._store.stored([point.key for point in points]) | self._under_way
            fresh = tuple({point.key: point for point in points if point.key not in known}.values())
            self._skipped += len(points) - len(fresh)
            if fresh:
                yield fresh

    def _claimed(self, chunks: Iterator[Points]) -> Iterator[Points]:
        for points in chunks:
            self._under_way.update(point.key for point in points)
            yield points

    def skipped(self) -> int:
        """Points found to have a row, or to be another point of this sweep, since this was last asked."""
        skipped, self._skipped = self._skipped, 0
        return skipped
