"""Ctrl-C in the ``dla`` command: it ends as of the signal, as whoever called it can see, without a word of Python."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_RETRY_SECONDS = 0.02
_IMPORT = "<frozen importlib"
"""How the files of Python's import system begin, as the frames of a stack name them."""
_heard = False
_delays = 0


def interrupted() -> bool:
    """Whether the process was interrupted, whatever became of the exception: libraries may make another of it."""
    return _heard


@contextmanager
def ending() -> Iterator[None]:
    """Within, an interrupt raises KeyboardInterrupt: nothing is left half written; then the process ends by it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell nobody interrupts
        yield
        return
    atexit.register(_end)  # the first that is registered is the last that is called
    signal.signal(signal.SIGINT, _hear)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def delayed() -> Iterator[None]:
    """Within, an interrupt waits until the end: what is done there must not stop half way."""
    global _delays
    _delays += 1
    try:
        yield
    finally:
        _delays -= 1


def _hear(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, after an import or a delay that is under way.

    A library's C++ code that is being imported ends the process by SIGABRT or SIGSEGV when Python raises within.
    """
    global _heard
    _heard = True
    sys.excepthook = sys.unraisablehook = _nothing
    if hasattr(signal, "setitimer") and (_delays or _importing(frame)):
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)  # SIGALRM calls this function again
        return
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORT):
            return True
        frame = frame.f_back
    return False


def _end() -> None:
    if _heard:
        os.kill(os.getpid(), signal.SIGINT)


def _nothing(*what: object) -> None:
    """What is raised now is only that the process ends."""
