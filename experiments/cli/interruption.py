"""Ctrl-C in the ``dla`` command: it ends as of the signal, as whoever called it can see, without a word of Python."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_heard = False


def interrupted() -> bool:
    """Whether the process was interrupted, whatever became of the exception: imports may make another of it."""
    return _heard


@contextmanager
def ending() -> Iterator[None]:
    """Within, an interrupt raises KeyboardInterrupt: nothing is left half written; then the process ends by it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell nobody interrupts
        yield
        return
    atexit.register(_end)  # the first that is registered is the last that is called
    signal.signal(signal.SIGINT, _hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _hear(number: int, frame: FrameType | None) -> None:
    global _heard
    _heard = True
    sys.excepthook = sys.unraisablehook = _nothing
    raise KeyboardInterrupt


def _end() -> None:
    if _heard:
        os.kill(os.getpid(), signal.SIGINT)


def _nothing(*what: object) -> None:
    """What is raised now is only that the process ends."""
