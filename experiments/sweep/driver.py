"""The driver: points that have no row yet become tasks, results become rows, and lost workers are replaced.

Never more tasks are alive than keep the workers busy, and a machine's Timings are made when they are needed, so that
memory does not grow with the number of points.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field

from experiments.sweep.grid import Batch
from experiments.sweep.pools import Pool
from experiments.sweep.preparation import Preparation
from experiments.sweep.store import Row, Store
from experiments.sweep.tasks import STATUS, Item, Planner, Task
from experiments.sweep.worker import Result, message_of, unpacked
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
        """Points that have a row."""
        return self.stored + sum(self.new.values())


Report = Callable[[Tally], None]


class Driver:
    """Runs batches of points to the end: each has a row in ``store`` afterwards."""

    def __init__(self, networks: Mapping[str, Preparation], store: Store, pool: Pool, report: Report = silent) -> None:
        self.tally = Tally()
        self._store = store
        self._pool = pool
        self._report = report
        self._planner = Planner(networks, store)
        self._running: dict[Future[bytes], Task] = {}
        self._suspects: deque[Task] = deque()
        self._sources: deque[Iterator[Item]] = deque()

    def run(self, batches: Iterable[Batch]) -> None:
        """Raises InputError when rows cannot be written or the cluster is gone; what was finished is kept, always."""
        self._sources.append(self._planner.items(batches))
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
        self._settle(task, task.rows(result))
        if result.programs is not None:
            self._sources.appendleft(task.following(result.programs))
        elif task.rest is not None:
            self._sources.appendleft(task.following_failed(result.outcomes[0][0].message or "not compiled"))

    def _fail(self, task: Task, message: str) -> None:
        self._settle(task, task.failed_rows(message))
        self._sources.appendleft(task.following_failed(message))

    def _settle(self, task: Task, rows: tuple[Row, ...]) -> None:
        self._write(rows)
        self._planner.settled(task)

    def _write(self, rows: tuple[Row, ...]) -> None:
        added = self._store.add(rows)
        if len(added) < len(rows):  # by another sweep, since this one looked
            theirs = self._store.stored([row[0] for row in rows if row not in added])
            self._count(theirs.values())
        for row in added:
            self.tally.new[row[STATUS]] += 1
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
