"""One case in a forked child: what its commands ended with, and whether that is how bad input may end.

The parent has imported and warmed all, and froze it: a child costs its own work and a few milliseconds. It ends as a
process does that ran nothing else: with what functions at exit print, and with the status of an exception that nobody
caught.
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
"""Of the processor, which others may have; a child that does nothing hangs when it did so :data:`PATIENCE` times."""
PATIENCE = 5
LIMIT = 1 << 30
"""What ``--max-memory`` is in the children."""
ALLOWANCE = 3 << 30
"""Address space that a child may take beyond what it is born with: the limit, and what libraries reserve."""
HANG = -1
KILLED = -2


@dataclass(frozen=True)
class Ending:
    """What a case ended with; ``wrong`` says in a word why it should not have, empty where it may.

    ``place``: where it was refused, as ``module.function``; empty where nobody did.
    """

    status: int
    message: str
    wrong: str = ""
    place: str = ""


class _Here(Executor):
    """What the workers of a sweep would do, done here: a process of their own is two seconds of imports."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*given, **named))
        except Exception as error:
            done.set_exception(error)
        return done


def work_here() -> None:
    """From now on sweeps make no processes."""
    LocalPool._started = lambda pool: _Here()  # type: ignore[method-assign]


def execute(action: Callable[[], int], folder: Path) -> Ending:
    """Run ``action`` in a forked child that works in ``folder``, with a watchdog and a limit on its address space."""
    output = folder / "child.out", folder / "child.err", folder / "child.at"
    child = os.fork()
    if not child:
        _child(action, folder, output)
    status, peak = _wait(child)
    message = output[1].read_text(encoding="utf-8", errors="replace") if output[1].exists() else ""
    wrong = _wrong(status, message, peak)
    details = [file.read_text(encoding="utf-8") for file in folder.glob("dla-bug-*")]
    place = output[2].read_text(encoding="utf-8") if output[2].exists() and status == 2 else ""
    if wrong and output[0].exists():  # a call says first what it is
        details.insert(0, output[0].read_text(encoding="utf-8", errors="replace")[:400] + "\n")
    return Ending(status, "".join([*details[:1], message, *details[1:]]), wrong, place)


def _child(action: Callable[[], int], folder: Path, output: Sequence[Path]) -> None:
    status = 1
    try:
        os.setsid()
        os.chdir(folder)
        os.environ[memory.VARIABLE] = str(LIMIT)
        tempfile.tempdir = str(folder)
        atexit._clear()  # what the parent has to do when it ends
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number, place in enumerate(output[:2], start=1):
            os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8")
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8", line_buffering=True)
        taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + ALLOWANCE, taken + ALLOWANCE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.resetwarnings()
        for quiet in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", quiet)  # as Python has it
        _note_refusals(output[2])
        work_here()
        status = action()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


_CHECKS = ("isa.reading", "isa.errors", "isa.reading")
"""What refuses for others: whoever asked it is the place."""


def _note_refusals(file: Path) -> None:
    """Write where an InputError is made to ``file``, the last one last."""
    begin = InputError.__init__

    def noted(self: InputError, *given: object, **named: object) -> None:
        begin(self, *given, **named)  # type: ignore[arg-type]
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") in _CHECKS:
            frame = frame.f_back
        if frame is not None:
            file.write_text(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}", encoding="utf-8")

    InputError.__init__ = noted  # type: ignore[method-assign]


def _wait(child: int) -> tuple[int, int]:
    """The exit status, and the most memory in bytes."""
    ending = os.pidfd_open(child)
    ends = select.poll()
    ends.register(ending, select.POLLIN)
    hangs, waits = True, 0
    while hangs and waits < PATIENCE and _seconds(child) < SECONDS:
        hangs, waits = not ends.poll(SECONDS * 1000), waits + 1
    os.close(ending)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # it, where it hangs, and what it started and left
    _, status, usage = os.wait4(child, 0)
    if hangs:
        return HANG, 0
    code = os.waitstatus_to_exitcode(status)
    return (code if code >= 0 else KILLED + code), usage.ru_maxrss * 1024


def _seconds(child: int) -> float:
    """What a child that has not been waited for has had of the processor."""
    times = Path(f"/proc/{child}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:15]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def _wrong(status: int, message: str, peak: int) -> str:
    lines = message.splitlines()
    if status == HANG:
        return "hang"
    if status < 0:
        return "killed"
    if "the memory is used up" in message or peak > 2 * LIMIT + (1 << 29):
        return "memory"
    if status not in (0, 1, 2) or any(line.startswith(("Traceback", "Exception ignored")) for line in lines):
        return "traceback"
    if status == 2 and (len(lines) != 1 or not lines[0].startswith("error: ")):
        return "lines"
    return ""
