"""Handling of Ctrl-C in the ``dla`` command: end by SIGINT without a Python traceback.

The calling process, such as a shell, can see that the signal ended the command.
"""

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
"""Prefix of the file names of Python's import system in stack frames."""
_heard = False
_delays = 0


def is_interrupted() -> bool:
    """Return whether the process received an interrupt.

    The result is True even if a library replaced the exception by another one.
    """
    return _heard


@contextmanager
def end_on_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on an interrupt in the block, and end the process afterwards.

    The process ends by SIGINT. The exception gives the running code time to clean up, so that no
    file stays half written.
    """
    # a shell starts background jobs with SIGINT ignored
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    atexit.register(_end)  # handlers run in reverse order: this one runs last
    signal.signal(signal.SIGINT, _hear)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay interrupts until the end of the block, for work that must not stop half way."""
    global _delays
    _delays += 1
    try:
        yield
    finally:
        _delays -= 1


def _hear(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT: raise KeyboardInterrupt when no import or delayed block is running.

    If Python raises an exception while a library's C++ code is imported, that code ends the process
    by SIGABRT or SIGSEGV. A second interrupt does not wait, because an import may hang.
    """
    global _heard
    is_second = _heard and number == signal.SIGINT
    _heard = True
    sys.excepthook = _nothing
    sys.unraisablehook = _repeat
    if not is_second and hasattr(signal, "setitimer") and (_delays or _is_import(frame)):
        _call_again()
        return
    raise KeyboardInterrupt


def _call_again() -> None:
    """Let SIGALRM call :func:`_hear` soon."""
    signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORT):
            return True
        frame = frame.f_back
    return False


def _end() -> None:
    if _heard:
        os.kill(os.getpid(), signal.SIGINT)


def _nothing(*what: object) -> None:
    """Suppress the report of an exception that is raised while the process ends."""


def _repeat(lost: sys.UnraisableHookArgs) -> None:
    """Interrupt again after an interrupt in a finaliser or a weak reference's callback.

    Python reports the exception of such a function and goes on.
    """
    if issubclass(lost.exc_type, KeyboardInterrupt) and hasattr(signal, "setitimer"):
        _call_again()
