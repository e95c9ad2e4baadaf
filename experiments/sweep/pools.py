"""Where jobs run: processes on this machine, or a Dask cluster that exists. Both are concurrent.futures Executors."""

from __future__ import annotations

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
from typing import Any, Protocol

from experiments.interruption import delayed
from experiments.sweep.worker import Job, run_job
from isa.errors import InputError
from isa.installation import remedy

CONNECT_SECONDS = 10
_SAFE_PATH = "PYTHONSAFEPATH"
_FRONT_DOOR = "dla"
"""What a worker imports first: it takes our packages from where they are installed, whatever else has their names."""
COLLECT_AFTER = 50_000
"""Objects that a worker makes before it looks for cycles among them."""
PATIENCE_SECONDS = 5.0
"""How long processes may take to end by themselves: longer than any job."""


class Pool(Protocol):
    """Runs jobs. ``window`` is the number of jobs that keep all workers busy."""

    window: int

    def warm(self) -> None:
        """Let workers get ready while something else goes on here."""

    def submit(self, job: Job) -> Future[bytes]:
        """Start a job some time."""

    def restart(self) -> None:
        """After a BrokenExecutor: make new workers. Jobs that had not ended are lost."""

    def close(self) -> None:
        """Drop what has not begun and wait for what has."""


class LocalPool:
    """``workers`` processes on a leash: a pipe whose other end closes when this process lets go, however it ends."""

    def __init__(self, workers: int) -> None:
        self.window = 2 * workers
        self._workers = workers
        self._executor: Executor | None = None
        self._leash: Connection | None = None

    def warm(self) -> None:
        with contextlib.suppress(BrokenExecutor):  # which the first job will find out
            for _ in range(self._workers):
                self._submitted(_nothing)

    def submit(self, job: Job) -> Future[bytes]:
        """Start a job; the processes are made with the first. Raises BrokenExecutor where they are just breaking."""
        return self._submitted(run_job, job)

    def _submitted(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        _replace_tracker()
        try:
            with _from_here_only(), _uninterrupted():
                return self._started().submit(work, *arguments)
        except (EOFError, ConnectionError) as error:  # the server that makes the processes is gone
            print("a helper process of the workers was killed; it is started again", file=sys.stderr)
            raise BrokenExecutor(str(error)) from error
        except OSError as error:
            if error.errno is None:  # a pipe that the executor itself closes while it finds out
                raise BrokenExecutor(str(error)) from error
            raise

    def _started(self) -> Executor:
        if self._executor is None:
            context = _context()
            held, self._leash = context.Pipe(duplex=False)
            self._executor = ProcessPoolExecutor(self._workers, context, _begin, (held,))
        return self._executor

    def restart(self) -> None:
        """Drop the processes; the next job makes new ones."""
        self._end(patience=0.0)

    def close(self) -> None:
        """End the processes when they have done what they are doing."""
        self._end(patience=PATIENCE_SECONDS)

    def _end(self, patience: float) -> None:
        """Ask the processes to end, then let go: one that was killed may have left the others waiting for ever."""
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
    """Processes that share no threads or locks with this one: from a small server where there is one, else afresh."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = _Served()
    context.set_forkserver_preload([_FRONT_DOOR, __name__])
    return context


if "forkserver" in multiprocessing.get_all_start_methods():

    class _Worker(multiprocessing.context.ForkServerProcess):
        """A worker. What its jobs raise is sent back; a queue that ends means that nobody waits for it any more."""

        def run(self) -> None:
            """Work until there is nothing more, or nobody who asks: made just while the others were given up, say."""
            with contextlib.suppress(EOFError, ConnectionError):
                super().run()

    class _Served(multiprocessing.context.ForkServerContext):
        Process = _Worker


@contextlib.contextmanager
def _from_here_only() -> Iterator[None]:
    """What is started within has nothing of the user's: no module of the working folder, no script that is run again.

    Workers do nothing but our jobs, so that a script that sweeps needs no ``if __name__ == "__main__"``.
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
def _uninterrupted() -> Iterator[None]:
    """Start processes that never hear the Ctrl-C that a terminal sends to all: the parent ends them.

    They inherit the mask of this thread. The parent's own interrupt waits until the end: the mask alone does not
    delay it, because the system may deliver the signal to another thread.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with delayed():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_FOR_ANYBODY = spawn.get_preparation_data


def _preparation(name: str) -> dict[str, Any]:
    """What multiprocessing tells a new process, but for the main module and the folder of whatever is run."""
    told = {key: value for key, value in _FOR_ANYBODY(name).items() if not key.startswith("init_main_from_")}
    return told | {"sys_path": _installed_path()}


def _installed_path() -> list[str]:
    """``sys.path`` without the folders that Python itself put there: the working folder, or that of the script.

    They stand before the standard library; so does what PYTHONPATH names, which stays.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    here = {"", os.getcwd(), *([os.path.dirname(os.path.abspath(main))] if main else [])}
    here -= set(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    library = os.path.dirname(os.__file__)
    first = sys.path.index(library) if library in sys.path else 0
    return [place for place in sys.path[:first] if place not in here] + sys.path[first:]


def _replace_tracker() -> None:
    """Where the helper that counts semaphores was killed, start another one, which says nothing of those it missed."""
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
    """A worker's first act: leave interrupts to the parent, and end when it lets go.

    Modules stay, and compilations leave hardly any cycles behind: looking for these at the usual pace is a fifth of it.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(leash,), daemon=True).start()


def _end_with(leash: Connection) -> None:
    wait([leash])
    os._exit(1)


class Here:
    """This process, which does a job when it is submitted."""

    window = 1

    def warm(self) -> None:
        """It is there."""

    def submit(self, job: Job) -> Future[bytes]:
        """Do a job; what it raises is the future's, unless somebody interrupts."""
        future: Future[bytes] = Future()
        try:
            future.set_result(run_job(job))
        except Exception as error:
            future.set_exception(error)
        return future

    def restart(self) -> None:
        """Nothing of it can have died."""

    def close(self) -> None:
        """Nothing is left behind."""


class DaskPool:
    """The workers of the Dask scheduler at ``address``. Dask itself repeats the jobs of workers that die."""

    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError as error:
            raise InputError(f"--scheduler needs Dask; install it with: {remedy('sweep')}") from error
        try:
            connect: Any = distributed.Client
            self._client: Any = connect(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"--scheduler {address}: no Dask scheduler answers there ({error})") from error
        self._address = address
        threads = self._client.nthreads()
        if not threads:
            self._client.close()
            raise InputError(f"--scheduler {address}: it has no workers; start some with 'dask worker {address}'")
        self.window = 2 * sum(threads.values())
        self._client.register_worker_callbacks(_claiming())
        self._executor: Executor = self._client.get_executor()

    def warm(self) -> None:
        """They are there."""

    def submit(self, job: Job) -> Future[bytes]:
        return self._executor.submit(run_job, job)

    def restart(self) -> None:
        """The cluster is not ours to restart."""
        raise InputError(f"--scheduler {self._address}: lost; what was finished is kept: run the sweep again")

    def close(self) -> None:
        self._executor.shutdown(wait=False)  # which cancels what has not ended
        self._client.close()


def _claiming() -> Callable[[], None]:
    """What a worker of a cluster does first. It is sent as it is: not even its module is looked for there."""

    def claim() -> None:
        path = sys.path
        sys.path = [place for place in path if place not in ("", os.getcwd())]
        try:
            import_module("dla")
        finally:
            sys.path = path

    return claim


def open_pool(scheduler: str | None, workers: int | None) -> Pool:
    """The Dask cluster at ``scheduler``, or else ``workers`` processes (None: one a processor) on this machine."""
    if scheduler is not None:
        return DaskPool(scheduler)
    if workers is not None and workers < 1:
        raise InputError(f"--workers is {workers}; it must be 1 or more")
    return LocalPool(
        workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


@contextlib.contextmanager
def opened(scheduler: str | None, workers: int | None) -> Iterator[Pool]:
    """A pool as :func:`open_pool` makes it, ready soon and closed in the end."""
    pool = open_pool(scheduler, workers)
    try:
        pool.warm()
        yield pool
    finally:
        pool.close()
