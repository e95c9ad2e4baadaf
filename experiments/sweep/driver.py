"""The driver: points that have no row yet become tasks, results become rows, and lost workers are replaced.

Never more tasks are alive than keep the workers busy, and a machine's Timings are made when they are needed, so that
memory does not grow with the number of points.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from experiments.sweep.pools import Pool
from experiments.sweep.store import Row, Store
from experiments.sweep.worker import Job, Result, message_of, unpacked
from isa.errors import InputError
from isa.progress import silent

WORKER_DIED = "its worker died"
"""What the message of a point begins with that has no result because its worker was lost."""
LIVES = 3
"""Workers that a task may lose while nothing else runs before its points are recorded as failed."""


@dataclass
class Tally:
    """How far a sweep is: points with a row from before, new ones by status, and machines compiled.

    ``stored_ok`` are those of ``stored`` that are ok.
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
class Task:
    """A job, and the rows that come of it.

    ``suspect``: a worker that may have had this task has died; ``deaths`` counts those that certainly had.
    """

    suspect: bool = False
    deaths: int = 0
    job: Job

    def rows(self, result: Result) -> tuple[Row, ...]:
        raise NotImplementedError

    def failed_rows(self, message: str) -> tuple[Row, ...]:
        raise NotImplementedError

    def following(self, result: Result) -> Iterator[Item]:
        return iter(())

    def following_failed(self, message: str) -> Iterator[Item]:
        return iter(())


Item = Task | tuple[Row, ...]
"""A task, or rows that need no worker."""
Points = TypeVar("Points", contravariant=True)
"""What a planner plans: points, or batches of them."""


class Planner(Protocol[Points]):
    """Makes items of one kind of points."""

    def items(self, points: Iterable[Points]) -> Iterator[Item]:
        """All that is to be done for ``points``, in their order."""

    def skipped(self) -> Collection[str]:
        """The statuses of points found to have a row, or to be another point of this sweep, since the last call."""

    def settled(self, keys: Iterable[str]) -> None:
        """These points have their rows."""


Wanted = TypeVar("Wanted")


class Driver(Generic[Wanted]):
    """Runs points, of whatever kind, to the end: each has a row in ``store`` afterwards."""

    def __init__(self, planner: Planner[Wanted], store: Store, pool: Pool, report: Report = silent) -> None:
        self.tally = Tally()
        self._store = store
        self._pool = pool
        self._report = report
        self._planner = planner
        self._running: dict[Future[bytes], Task] = {}
        self._suspects: deque[Task] = deque()
        self._sources: deque[Iterator[Item]] = deque()

    def run(self, points: Iterable[Wanted]) -> None:
        """Raises InputError when rows cannot be written or the cluster is gone; what was finished is kept, always."""
        self._sources.append(self._planner.items(points))
        try:
            while self._fill():
                done, _ = wait(self._running, return_when=FIRST_COMPLETED)
                self._collect(done)
        except BaseException:
            self._keep_finished()
            raise

    def _fill(self) -> bool:
        """Start tasks up to the window; False when nothing is left. A suspect runs while nothing else does."""
        while self._suspects and not self._running:
            self._start(self._suspects.popleft())
        alone = any(task.suspect for task in self._running.values())
        while not self._suspects and not alone and len(self._running) < self._pool.window:
            task = self._next()
            if task is None:
                break
            self._start(task)
        return bool(self._running or self._suspects)

    def _next(self) -> Task | None:
        """The next task; rows that need none are written on the way."""
        while self._sources:
            item = next(self._sources[0], None)
            self._count(self._planner.skipped())
            if item is None:
                self._sources.popleft()
            elif isinstance(item, Task):
                return item
            else:
                self._write(item)
        return None

    def _start(self, task: Task) -> None:
        try:
            self._running[self._pool.submit(task.job)] = task
        except BrokenExecutor:
            self._recover([task])

    def _collect(self, done: Iterable[Future[bytes]]) -> None:
        lost: list[Task] = []
        for future in done:
            task = self._running.pop(future)
            try:
                result = unpacked(future.result())
            except (BrokenExecutor, CancelledError):
                lost.append(task)
            except InputError:  # not about the task's points
                raise
            except Exception as error:  # the cluster's own, or what a worker could not send back
                self._fail(task, message_of(error))
            else:
                self._accept(task, result)
        if lost:
            self._recover(lost)

    def _accept(self, task: Task, result: Result) -> None:
        self.tally.compilations += result.compilations
        self._settle(task.rows(result))
        self._sources.appendleft(task.following(result))

    def _fail(self, task: Task, message: str) -> None:
        self._settle(task.failed_rows(message))
        self._sources.appendleft(task.following_failed(message))

    def _settle(self, rows: tuple[Row, ...]) -> None:
        self._write(rows)
        self._planner.settled([row[0] for row in rows])

    def _write(self, rows: tuple[Row, ...]) -> None:
        added = self._store.add(rows)
        if len(added) < len(rows):  # by another sweep, since this one looked
            theirs = self._store.stored([row[0] for row in rows if row not in added])
            self._count(theirs.values())
        for row in added:
            self.tally.new[self._store.status_of(row)] += 1
        self._report(self.tally)

    def _count(self, statuses: Collection[str]) -> None:
        """Points that have a row of this status, which this sweep did not make."""
        self.tally.stored += len(statuses)
        self.tally.stored_ok += sum(status == "ok" for status in statuses)

    def _recover(self, lost: list[Task]) -> None:
        """Workers died. Whose task it was is known only where nothing else ran: so each of them runs again, alone."""
        lost += self._running.values()
        self._running.clear()
        self._pool.restart()
        for task in lost:
            task.deaths += task.suspect
            task.suspect = True
            if task.deaths < LIVES:
                self._suspects.append(task)
            else:
                self._fail(task, f"{WORKER_DIED} {LIVES} times while nothing else ran: killed, or out of memory")

    def _keep_finished(self) -> None:
        """What has ended while something else went wrong is worth its rows."""
        for future, task in list(self._running.items()):
            if future.done() and not future.cancelled() and future.exception() is None:
                self._write(task.rows(unpacked(future.result())))
