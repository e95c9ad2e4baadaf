"""Driver of a sweep: it turns points into tasks, and results into rows.

Points that have a row need no task. The driver also replaces dead workers. It keeps only as many
tasks as the workers need, and creates the Timings of a machine on demand. Memory therefore does not
grow with the number of points.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from experiments.sweep.pools import WorkerPool
from experiments.sweep.store import Row, Store
from experiments.sweep.worker import WorkerJob, WorkerResult, message_of, unpack_result
from isa.errors import InputError
from isa.progress import silent

WORKER_DIED = "its worker died"
"""First words of the message for a point that has no result because its worker died."""
LIVES = 3
"""Deaths of workers after which a task is recorded as failed.

Only deaths while no other task ran are counted.
"""


@dataclass
class Tally:
    """Progress of a sweep: stored points, new points by status, and compilations.

    ``stored`` counts the points that had a row before. ``stored_ok`` counts the points among
    ``stored`` whose status is ok.
    """

    stored: int = 0
    stored_ok: int = 0
    compilations: int = 0
    new: dict[str, int] = field(default_factory=lambda: {"ok": 0, "infeasible": 0, "failed": 0})

    @property
    def done(self) -> int:
        return self.stored + sum(self.new.values())


Report = Callable[[Tally], None]


@dataclass(eq=False, kw_only=True)
class SweepTask:
    """Task of a sweep: a job for a worker, and the conversion of its result into rows.

    ``suspect`` is True after the death of a worker that may have run this task. ``deaths`` counts
    the workers that certainly died while they ran it.
    """

    suspect: bool = False
    deaths: int = 0
    job: WorkerJob

    def rows(self, result: WorkerResult) -> tuple[Row, ...]:
        raise NotImplementedError

    def make_failed_rows(self, message: str) -> tuple[Row, ...]:
        raise NotImplementedError

    def list_following(self, result: WorkerResult) -> Iterator[Item]:
        return iter(())

    def list_following_failed(self, message: str) -> Iterator[Item]:
        return iter(())


Item = SweepTask | tuple[Row, ...]
"""A task, or rows that need no worker."""
Points = TypeVar("Points", contravariant=True)
"""Type of a planner's input: points, or batches of points."""


class Planner(Generic[Points]):
    """Planner that creates the tasks and rows for one kind of sweep points."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._skipped: list[str] = []

    def items(self, points: Iterable[Points]) -> Iterator[Item]:
        """Yield tasks that run ``points``, and rows of points that need no task, in order."""
        raise NotImplementedError

    def take_skipped(self) -> list[str]:
        """Return the statuses of the points that were skipped since the last call.

        The sweep skips points that have a row, and its own duplicates.
        """
        skipped = self._skipped
        self._skipped = []
        return skipped

    def note_settled(self, keys: Iterable[str]) -> None:
        """Record that the points with these keys now have rows in the results file.

        By default nothing is recorded, because the rows show which points are done.
        """


Wanted = TypeVar("Wanted")


class Driver(Generic[Wanted]):
    """Driver that runs sweep points of any kind until each has a row in ``store``."""

    def __init__(
        self, planner: Planner[Wanted], store: Store, pool: WorkerPool, report: Report = silent
    ) -> None:
        self.tally = Tally()
        self._store = store
        self._pool = pool
        self._report = report
        self._planner = planner
        self._running: dict[Future[bytes], SweepTask] = {}
        self._suspects: deque[SweepTask] = deque()
        self._sources: deque[Iterator[Item]] = deque()

    def run(self, points: Iterable[Wanted]) -> None:
        """Run all points of a sweep.

        Finished points keep their rows even if an error or an interrupt ends the run.

        Raises:
            InputError: rows cannot be written, or the cluster is gone.
        """
        self._sources.append(self._planner.items(points))
        try:
            while self._fill():
                done, _ = wait(self._running, return_when=FIRST_COMPLETED)
                self._collect(done)
        except BaseException:
            self._keep_finished()
            raise

    def _fill(self) -> bool:
        """Start sweep tasks until enough are running; return False when no work is left.

        A suspect task runs alone.
        """
        while self._suspects and not self._running:
            self._start(self._suspects.popleft())
        alone = any(task.suspect for task in self._running.values())
        while not self._suspects and not alone and len(self._running) < self._pool.window:
            task = self._next()
            if task is None:
                break
            self._start(task)
        return bool(self._running or self._suspects)

    def _next(self) -> SweepTask | None:
        """Return the next sweep task, and write the results rows that need no task."""
        while self._sources:
            item = next(self._sources[0], None)
            self._count(self._planner.take_skipped())
            if item is None:
                self._sources.popleft()
            elif isinstance(item, SweepTask):
                return item
            else:
                self._write(item)
        return None

    def _start(self, task: SweepTask) -> None:
        try:
            self._running[self._pool.submit(task.job)] = task
        except BrokenExecutor:
            self._recover([task])

    def _collect(self, done: Iterable[Future[bytes]]) -> None:
        lost: list[SweepTask] = []
        for future in done:
            task = self._running.pop(future)
            try:
                result = unpack_result(future.result())
            except (BrokenExecutor, CancelledError):
                lost.append(task)
            except InputError:  # not specific to the task's points
                raise
            # from the cluster, or an exception that could not be pickled
            except Exception as error:
                self._fail(task, message_of(error))
            else:
                self._accept(task, result)
        if lost:
            self._recover(lost)

    def _accept(self, task: SweepTask, result: WorkerResult) -> None:
        self.tally.compilations += result.compilations
        self._settle(task.rows(result))
        self._sources.appendleft(task.list_following(result))

    def _fail(self, task: SweepTask, message: str) -> None:
        self._settle(task.make_failed_rows(message))
        self._sources.appendleft(task.list_following_failed(message))

    def _settle(self, rows: tuple[Row, ...]) -> None:
        self._write(rows)
        self._planner.note_settled([row[0] for row in rows])

    def _write(self, rows: tuple[Row, ...]) -> None:
        added = self._store.add(rows)
        if len(added) < len(rows):  # another sweep wrote the same points in the meantime
            ours = {row[0] for row in added}
            theirs = self._store.find_stored([row[0] for row in rows if row[0] not in ours])
            self._count(theirs.values())
        for row in added:
            self.tally.new[self._store.status_of(row)] += 1
        self._report(self.tally)

    def _count(self, statuses: Collection[str]) -> None:
        """Add points that already have results rows to the tally of stored points."""
        self.tally.stored += len(statuses)
        self.tally.stored_ok += sum(status == "ok" for status in statuses)

    def _recover(self, lost: list[SweepTask]) -> None:
        """Restart the workers and run every lost task again, alone.

        The task that killed the worker is known only if no other task was running, so all of them
        become suspects.
        """
        lost += self._running.values()
        self._running.clear()
        self._pool.restart()
        for task in lost:
            task.deaths += task.suspect
            task.suspect = True
            if task.deaths < LIVES:
                self._suspects.append(task)
            else:
                self._fail(
                    task,
                    f"{WORKER_DIED} {LIVES} times while nothing else ran: killed, or out of memory",
                )

    def _keep_finished(self) -> None:
        """Write the rows of tasks that had finished when the run was stopped."""
        for future, task in list(self._running.items()):
            if future.done() and not future.cancelled() and future.exception() is None:
                self._write(task.rows(unpack_result(future.result())))
