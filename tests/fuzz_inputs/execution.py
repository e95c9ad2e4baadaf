"""Run one case in a forked child and check that it ends as bad input may.

The parent has imported, warmed up and frozen everything, so a child costs its own work and a few
milliseconds. It ends like a process that ran nothing else: with the output of functions at exit,
and with the status of an uncaught exception.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import resource
import select
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from experiments.sweep.pools import LocalPool
from isa import memory
from isa.errors import InputError

SECONDS = 20
"""Of the processor, which others may have.

A child that does nothing hangs when it did so :data:`PATIENCE` times.
"""
PATIENCE = 5
LIMIT = 1 << 30
"""What ``--max-memory`` is in the children."""
ALLOWANCE = 3 << 30
"""Address space that a child may take beyond what it is born with: the limit, and what libraries
reserve.
"""
HANG = -1
KILLED = -2


@dataclass(frozen=True)
class Ending:
    """End of a case; ``wrong`` is the kind of a wrong end, or empty.

    ``place`` is the ``module.function`` that rejected it, or empty.
    """

    status: int
    message: str
    wrong: str = ""
    place: str = ""


class _Here(Executor):
    """Executor that does the work of a sweep's workers in this process.

    A process of its own would take two seconds of imports.
    """

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*given, **named))
        except Exception as error:
            done.set_exception(error)
        return done


def work_here() -> None:
    """From now on sweeps make no processes."""
    LocalPool._get_started = lambda pool: _Here()  # type: ignore[method-assign]


Case = tuple[Callable[[], int], Path]
"""What a child does, and the folder that it works in."""


def execute(action: Callable[[], int], folder: Path) -> Ending:
    """Run ``action`` in a forked child that works in ``folder``.

    The child has a watchdog and a limit on its address space.
    """
    return execute_together([(action, folder)])[0]


def execute_together(cases: Sequence[Case]) -> list[Ending]:
    """Run cases one after the other in a child, as :func:`execute` does.

    A new child goes on where one ends early.

    A fork costs more than most cases; what one case leaves in the process, the next one finds.
    """
    endings: list[Ending] = []
    while len(endings) < len(cases):
        left = cases[len(endings) :]
        child = os.fork()
        if not child:
            _child(left)
        status, peak = _wait(child, [_output(folder)[3] for _, folder in left])
        done = [folder for _, folder in left if _output(folder)[3].exists()]
        if status >= 0 and len(done) < len(left):  # it ended by os._exit within a case
            status = KILLED
        for folder in done:
            endings.append(
                _ending(folder, int(_output(folder)[3].read_text()), peak if len(cases) == 1 else 0)
            )
        if len(done) < len(left):
            endings.append(_ending(left[len(done)][1], status, peak))
    return endings


def _output(folder: Path) -> tuple[Path, Path, Path, Path]:
    """Return the files for a child's output, errors, place of rejection, and status."""
    return folder / "child.out", folder / "child.err", folder / "child.at", folder / "child.status"


def _ending(folder: Path, status: int, peak: int) -> Ending:
    output = _output(folder)
    message = output[1].read_text(encoding="utf-8", errors="replace") if output[1].exists() else ""
    wrong = _wrong(status, message, peak)
    details = [file.read_text(encoding="utf-8") for file in folder.glob("dla-bug-*")]
    place = output[2].read_text(encoding="utf-8") if output[2].exists() and status == 2 else ""
    if wrong and output[0].exists():  # a call says first what it is
        details.insert(0, output[0].read_text(encoding="utf-8", errors="replace")[:400] + "\n")
    return Ending(status, "".join([*details[:1], message, *details[1:]]), wrong, place)


def _child(cases: Sequence[Case]) -> None:
    try:
        os.setsid()
        os.environ[memory.VARIABLE] = str(LIMIT)
        atexit._clear()  # what the parent has to do when it ends
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        taken = (
            int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            * resource.getpagesize()
        )
        resource.setrlimit(resource.RLIMIT_AS, (taken + ALLOWANCE, taken + ALLOWANCE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.resetwarnings()
        for quiet in (
            DeprecationWarning,
            PendingDeprecationWarning,
            ImportWarning,
            ResourceWarning,
        ):
            warnings.simplefilter("ignore", quiet)  # as Python has it
        work_here()
        refused = _note_refusals()
        for number, (action, folder) in enumerate(cases, start=1):
            refused[0] = _output(folder)[2]
            status = _case(action, folder, last=number == len(cases))
            _output(folder)[3].write_text(str(status), encoding="ascii")
    finally:
        os._exit(0)


def _case(action: Callable[[], int], folder: Path, last: bool) -> int:
    """Run one case in this process and return its exit status.

    Behind the ``last`` case, do what a process does at its end.
    """
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    status = 1
    for number, place in enumerate(_output(folder)[:2], start=1):
        file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), encoding="utf-8", line_buffering=True
    )
    try:
        status = action()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        if last:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    return status


_CHECKS = ("isa.reading", "isa.errors", "isa.reading")
"""What refuses for others: whoever asked it is the place."""


def _note_refusals() -> list[Path]:
    """Write where an InputError is made to the file that the list holds, the last one last."""
    begin = InputError.__init__
    files = [Path(os.devnull)]

    def noted(self: InputError, *given: object, **named: object) -> None:
        begin(self, *given, **named)  # type: ignore[arg-type]
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") in _CHECKS:
            frame = frame.f_back
        if frame is not None:
            files[0].write_text(
                f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}", encoding="utf-8"
            )

    InputError.__init__ = noted  # type: ignore[method-assign]
    return files


def _wait(child: int, marks: Sequence[Path]) -> tuple[int, int]:
    """The exit status, and the most memory in bytes.

    A case hangs where no further one of ``marks`` appears.
    """
    ending = os.pidfd_open(child)
    ends = select.poll()
    ends.register(ending, select.POLLIN)
    hangs = True
    waits = 0
    done = 0
    since = 0.0
    while hangs and waits < PATIENCE and _seconds(child) - since < SECONDS:
        hangs = not ends.poll(SECONDS * 1000)
        waits = waits + 1
        before = done
        done = sum(mark.exists() for mark in marks)
        if done > before:
            waits = 0
            since = _seconds(child)
    os.close(ending)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # the child if it hangs, and its remaining processes
    _, status, usage = os.wait4(child, 0)
    if hangs:
        return HANG, 0
    code = os.waitstatus_to_exitcode(status)
    return (code if code >= 0 else KILLED + code), usage.ru_maxrss * 1024


def _seconds(child: int) -> float:
    """Return the processor time of a child that has not been waited for."""
    times = (
        Path(f"/proc/{child}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:15]
    )
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def _wrong(status: int, message: str, peak: int) -> str:
    lines = message.splitlines()
    if status == HANG:
        return "hang"
    if status < 0:
        return "killed"
    if "the memory is used up" in message or peak > 2 * LIMIT + (1 << 29):
        return "memory"
    if status not in (0, 1, 2) or any(
        line.startswith(("Traceback", "Exception ignored")) for line in lines
    ):
        return "traceback"
    if status == 2 and (len(lines) != 1 or not lines[0].startswith("error: ")):
        return "lines"
    return ""
