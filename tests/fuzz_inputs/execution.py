"""One case in a forked child: what its commands ended with, and whether that is how bad input may end."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from isa import memory

SECONDS = 20
LIMIT = 1 << 30
"""What ``--max-memory`` is in the children."""
ALLOWANCE = 3 << 30
"""Address space that a child may take beyond what it is born with: the limit, and what libraries reserve."""
HANG = -1
KILLED = -2


@dataclass(frozen=True)
class Ending:
    """What a case ended with; ``wrong`` says in a word why it should not have, empty where it may."""

    status: int
    message: str
    wrong: str = ""


def execute(action: Callable[[], int], folder: Path) -> Ending:
    """Run ``action`` in a forked child that works in ``folder``, with a watchdog and a limit on its address space."""
    output = folder / "child.out", folder / "child.err"
    child = os.fork()
    if not child:
        _child(action, folder, output)
    status, peak = _wait(child)
    message = output[1].read_text(encoding="utf-8", errors="replace") if output[1].exists() else ""
    wrong = _wrong(status, message, peak)
    details = [file.read_text(encoding="utf-8") for file in folder.glob("dla-bug-*")]
    return Ending(status, "".join([message, *details]), wrong)


def _child(action: Callable[[], int], folder: Path, output: Sequence[Path]) -> None:
    status = 70
    try:
        os.setsid()
        os.chdir(folder)
        os.environ[memory.VARIABLE] = str(LIMIT)
        tempfile.tempdir = str(folder)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number, place in enumerate(output, start=1):
            os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8")
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8", line_buffering=True)
        taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + ALLOWANCE, taken + ALLOWANCE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.resetwarnings()
        status = action()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _wait(child: int) -> tuple[int, int]:
    """The exit status, and the most memory in bytes."""
    deadline, pause = time.monotonic() + SECONDS, 0.001
    while True:
        found, status, usage = os.wait4(child, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            return (code if code >= 0 else KILLED + code), usage.ru_maxrss * 1024
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.wait4(child, 0)
            return HANG, 0
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)


def _wrong(status: int, message: str, peak: int) -> str:
    lines = message.splitlines()
    if status == HANG:
        return "hang"
    if status < 0:
        return "killed"
    if "the memory is used up" in message or peak > 2 * LIMIT + (1 << 29):
        return "memory"
    if status not in (0, 1, 2) or any(line.startswith("Traceback") for line in lines):
        return "traceback"
    if status == 2 and (len(lines) != 1 or not lines[0].startswith("error: ")):
        return "lines"
    return ""
