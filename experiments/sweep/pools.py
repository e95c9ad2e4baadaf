"""Executors of jobs: local processes, this process, or the workers of an existing Dask cluster."""

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from importlib import import_module
from multiprocessing import resource_tracker, spawn
from multiprocessing.connection import Connection, wait
from typing import Any

from experiments.interruption import delay_interrupts
from experiments.sweep.worker import WorkerJob, run_job
from isa.errors import InputError, MissingExtraError
from isa.installation import remedy

CONNECT_SECONDS = 10
_SAFE_PATH = "PYTHONSAFEPATH"
_FRONT_DOOR = "dla"
"""First import of a worker.

It loads this project's packages from their installation, not from the user's folder.
"""
COLLECT_AFTER = 50_000
"""Net allocations in a worker before the garbage collector runs."""
PATIENCE_SECONDS = 5.0
"""Time that processes have to end by themselves; longer than any job."""


class WorkerPool:
    """Executor of jobs. ``window`` is the number of jobs that keeps all workers busy."""

    window = 1

    def warm(self) -> None:
        """Start the workers early, so that they get ready while the caller does other work."""

    def submit(self, job: WorkerJob) -> Future[bytes]:
        """Queue a job and return its future."""
        raise NotImplementedError

    def restart(self) -> None:
        """Start new workers after a BrokenExecutor; unfinished jobs are lost."""

    def close(self) -> None:
        """Cancel queued jobs and wait for running ones."""


class LocalPool(WorkerPool):
    """Pool of ``workers`` local processes that end with this process, however it ends.

    Each worker watches a pipe (the leash) and exits when its other end, in this process, is closed.
    """

    def __init__(self, workers: int) -> None:
        self.window = 2 * workers
        self._workers = workers
        self._executor: Executor | None = None
        self._leash: Connection | None = None

    def warm(self) -> None:
        with contextlib.suppress(BrokenExecutor):  # the first job reports it
            for _ in range(self._workers):
                self._submit_started(_nothing)

    def submit(self, job: WorkerJob) -> Future[bytes]:
        """Queue a job; the first one starts the processes.

        Raises BrokenExecutor if the executor is breaking down.
        """
        return self._submit_started(run_job, job)

    def _submit_started(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        _replace_tracker()
        try:
            with _from_here_only(), _block_interrupts():
                return self._get_started().submit(work, *arguments)
        except (EOFError, ConnectionError) as error:  # the server that forks the processes is gone
            print(
                "a helper process of the workers was killed; it is started again", file=sys.stderr
            )
            raise BrokenExecutor(str(error)) from error
        except OSError as error:
            if error.errno is None:  # a pipe that the executor closes while it detects the failure
                raise BrokenExecutor(str(error)) from error
            raise

    def _get_started(self) -> Executor:
        if self._executor is None:
            context = _context()
            held, self._leash = context.Pipe(duplex=False)
            self._executor = ProcessPoolExecutor(self._workers, context, _begin, (held,))
        return self._executor

    def restart(self) -> None:
        """Kill the processes; the next job starts new ones."""
        self._end(patience=0.0)

    def close(self) -> None:
        """Let the processes finish their current jobs, then end them."""
        self._end(patience=PATIENCE_SECONDS)

    def _end(self, patience: float) -> None:
        """Ask the processes to end, and kill them after ``patience`` seconds.

        A worker that was killed may leave the others waiting forever, for example for a lock.
        """
        if self._executor is None or self._leash is None:
            return
        _replace_tracker()
        force = threading.Timer(patience, self._leash.close)
        force.start()
        self._executor.shutdown(wait=True, cancel_futures=True)
        force.cancel()
        force.join()
        self._leash.close()
        self._executor = self._leash = None


def _context() -> Any:
    """Return a multiprocessing context that shares no threads or locks with this process.

    The start method is forkserver if available, else spawn.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = _Served()
    context.set_forkserver_preload([_FRONT_DOOR, __name__])
    return context


if "forkserver" in multiprocessing.get_all_start_methods():

    class _Worker(multiprocessing.context.ForkServerProcess):
        """Worker process that sends the exceptions of its jobs back to the parent.

        It exits quietly if its queue is closed.
        """

        def run(self) -> None:
            """Work until the queue is closed.

            It is closed, for example, if the pool was dropped while this worker started.
            """
            with contextlib.suppress(EOFError, ConnectionError):
                super().run()

    class _Served(multiprocessing.context.ForkServerContext):
        Process = _Worker


@contextlib.contextmanager
def _from_here_only() -> Iterator[None]:
    """Start processes without the user's modules, and do not run the user's script again in them.

    Workers run only this project's jobs, so a script that sweeps needs no
    ``if __name__ == "__main__"``.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    vars(spawn).update(get_preparation_data=_preparation)
    try:
        yield
    finally:
        vars(spawn).update(get_preparation_data=_FOR_ANYBODY)
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


@contextlib.contextmanager
def _block_interrupts() -> Iterator[None]:
    """Start processes with SIGINT blocked.

    A terminal sends Ctrl-C to all processes, and the parent ends its workers. The processes inherit
    the signal mask of this thread. The parent's own interrupt is delayed until the end of the
    block; the mask alone does not delay it, because the system may deliver the signal to another
    thread.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with delay_interrupts():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_FOR_ANYBODY = spawn.get_preparation_data


def _preparation(name: str) -> dict[str, Any]:
    """Return multiprocessing's preparation data for a new process.

    The data leave out the main module and the script's folder.
    """
    told = {
        key: value
        for key, value in _FOR_ANYBODY(name).items()
        if not key.startswith("init_main_from_")
    }
    return told | {"sys_path": _get_installed_path()}


def _get_installed_path() -> list[str]:
    """Return ``sys.path`` without the working folder and the script's folder.

    Python puts one of them before the standard library. Folders that PYTHONPATH names also come
    before the standard library; they are kept.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    here = {"", os.getcwd(), *([os.path.dirname(os.path.abspath(main))] if main else [])}
    here -= set(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    library = os.path.dirname(os.__file__)
    first = sys.path.index(library) if library in sys.path else 0
    return [place for place in sys.path[:first] if place not in here] + sys.path[first:]


def _replace_tracker() -> None:
    """Restart multiprocessing's resource tracker if it was killed.

    Its warnings about lost semaphores are suppressed.
    """
    if os.name != "posix":
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with warnings.catch_warnings(record=True) as said, open(os.devnull, "wb") as nowhere:
            warnings.simplefilter("always")
            os.dup2(nowhere.fileno(), 2)
            resource_tracker.ensure_running()
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
    if said:
        print("a helper process of the workers was killed; it is started again", file=sys.stderr)


def _nothing() -> None:
    return None


def _begin(leash: Connection) -> None:
    """Prepare a new worker process: signals, garbage collection, and exit with its parent.

    It ignores SIGINT, which the parent handles, and exits when the leash is closed. Imported
    modules are never freed, and compilations leave few reference cycles. With the default
    thresholds, garbage collection would take a fifth of the compile time.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(leash,), daemon=True).start()


def _end_with(leash: Connection) -> None:
    wait([leash])
    os._exit(1)


class Here(WorkerPool):
    """Pool that runs each job in this process, when it is submitted."""

    def submit(self, job: WorkerJob) -> Future[bytes]:
        """Run a job and store its result or its exception in the future.

        KeyboardInterrupt is raised at once.
        """
        future: Future[bytes] = Future()
        try:
            future.set_result(run_job(job))
        except Exception as error:
            future.set_exception(error)
        return future


class DaskPool(WorkerPool):
    """Pool of the workers of the Dask scheduler at ``address``.

    Dask itself repeats the jobs of workers that die.
    """

    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError as error:
            raise MissingExtraError(
                f"--scheduler needs Dask; install it with: {remedy('sweep')}"
            ) from error
        try:
            connect: Any = distributed.Client
            self._client: Any = connect(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(
                f"--scheduler {address}: no Dask scheduler answers there ({error})"
            ) from error
        self._address = address
        threads = self._client.nthreads()
        if not threads:
            self._client.close()
            raise InputError(
                f"--scheduler {address}: it has no workers; start some with 'dask worker {address}'"
            )
        self.window = 2 * sum(threads.values())
        self._client.register_worker_callbacks(_make_claim())
        self._executor: Executor = self._client.get_executor()

    def submit(self, job: WorkerJob) -> Future[bytes]:
        return self._executor.submit(run_job, job)

    def restart(self) -> None:
        """Raise InputError, because a sweep cannot restart the workers of a Dask cluster."""
        raise InputError(
            f"--scheduler {self._address}: lost; what was finished is kept: run the sweep again"
        )

    def close(self) -> None:
        self._executor.shutdown(wait=False)  # this cancels unfinished jobs
        self._client.close()


def _make_claim() -> Callable[[], None]:
    """Return the first function that a cluster worker runs.

    It is pickled by value, so no import is needed there.
    """

    def claim() -> None:
        path = sys.path
        sys.path = [place for place in path if place not in ("", os.getcwd())]
        try:
            import_module("dla")
        finally:
            sys.path = path

    return claim


def open_pool(scheduler: str | None, workers: int | None) -> WorkerPool:
    """Return the Dask cluster at ``scheduler``, or else a pool of local processes.

    ``workers`` is the number of processes; None means one per processor. Raises InputError for less
    than 1.
    """
    if scheduler is not None:
        return DaskPool(scheduler)
    if workers is not None and workers < 1:
        raise InputError(f"--workers is {workers}; it must be 1 or more")
    return LocalPool(
        workers or len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


@contextlib.contextmanager
def open_started(scheduler: str | None, workers: int | None) -> Iterator[WorkerPool]:
    """Open a pool as :func:`open_pool` does, start its workers, and close it at the end."""
    pool = open_pool(scheduler, workers)
    try:
        pool.warm()
        yield pool
    finally:
        pool.close()
