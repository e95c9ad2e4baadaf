"""``dla.ort``: the accelerator as an execution provider of ONNX Runtime (docs/onnxruntime.md).

:func:`get_library_path` builds the library that ONNX Runtime loads, on first use, and connects it
to this process.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import shutil
import subprocess
from functools import cache
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.rtl.simulator.kept import get_or_make
from experiments.running.provider import (
    FIELD,
    NAME,
    RECORD,
    FusedRegion,
    ProviderSession,
)
from isa.errors import InputError
from isa.installation import processor
from isa.reading import first_line

_SOURCES = ("provider.c", "ort_abi.h")
_FLAGS = ("-std=c99", "-O2", "-fPIC", "-shared")
_OPEN, _PLACE, _COMPILE, _RUN, _CLOSE, _DROP, _PROFILE, _EVENTS = range(8)
_Serve = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
)


class _Array(ctypes.Structure):
    """Memory of a tensor, as the library passes it."""

    _fields_ = (("data", ctypes.c_void_p), ("nbytes", ctypes.c_int64))


def get_ep_name() -> str:
    """Return the name of the execution provider."""
    return NAME


@cache
def get_library_path() -> str:
    """Return the path of the provider's library for ``register_execution_provider_library``.

    The C compiler of the computer builds it once; later processes use the copy in the user's cache.
    Raises InputError if there is no compiler.
    """
    sources = {
        name: files("byoc.hooks.onnxruntime").joinpath(name).read_text() for name in _SOURCES
    }
    facts = (*sources.values(), *_FLAGS, processor())
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]
    place = str(get_or_make(f"{key}.so", lambda folder: _build(folder, sources)))
    _connect(ctypes.CDLL(place))
    return place


def _find_compiler() -> str:
    known = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    found = next(filter(None, map(shutil.which, known)), None)
    if found is None:
        raise InputError(
            f"the provider for ONNX Runtime needs a C compiler ({' or '.join(known)}); install it, "
            "on Debian with: apt install gcc libc6-dev"
        )
    return found


def _build(folder: Path, sources: dict[str, str]) -> Path:
    compiler = _find_compiler()
    for name, text in sources.items():
        (folder / name).write_text(text)
    words = [compiler, *_FLAGS, "provider.c", "-o", "provider.so"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr]
        raise InputError(f"{compiler}: {lines[0]}; it must build shared C libraries")
    return folder / "provider.so"


class _Server:
    """Sessions and regions of this process by number, and the answers to the library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._reply = library.dla_reply
        self._reply.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64)
        self._numbers = count(1)
        self._sessions = dict[int, ProviderSession]()
        self._regions = dict[int, tuple[ProviderSession, FusedRegion]]()

    def serve(self, request: int, number: int, data: int, size: int, reply: int) -> int:
        """Answer a request of the library; return 1 if the reply is an error's message."""
        try:
            answer, failed = self._answer(request, number, data, size), 0
        except InputError as error:
            answer, failed = str(error), 1
        except Exception as error:  # ONNX Runtime reports it; C cannot
            answer, failed = f"dla: {type(error).__name__}: {first_line(error)}", 1
        content = answer.encode(errors="surrogateescape")
        self._reply(reply, content, len(content))
        return failed

    def _answer(self, request: int, number: int, data: int, size: int) -> str:
        if request == _RUN:
            session, region = self._regions[number]
            session.run(region, _list_arrays(data, size))
            return ""
        if request in (_CLOSE, _DROP):
            (self._sessions if request == _CLOSE else self._regions).pop(number, None)
            return ""
        content = ctypes.string_at(data, size) if size else b""
        if request == _OPEN:
            pairs = (record.split(FIELD) for record in content.decode().split(RECORD)[:-1])
            session = ProviderSession(dict(pairs))
            return str(self._number(self._sessions, session))
        return self._answer_session(request, self._sessions[number], content)

    def _answer_session(self, request: int, session: ProviderSession, content: bytes) -> str:
        if request == _PLACE:
            return session.place(content.decode(errors="surrogateescape"))
        if request == _COMPILE:
            region, text = session.compile(content.decode(errors="surrogateescape"))
            return f"{self._number(self._regions, (session, region))} {text}"
        if request == _PROFILE:
            session.start_profiling(int.from_bytes(content, "little", signed=True))
            return ""
        return session.end_profiling()

    def _number(self, table: dict[int, Any], thing: object) -> int:
        number = next(self._numbers)
        table[number] = thing
        return number


def _list_arrays(data: int, size: int) -> list[NDArray[np.uint8]]:
    """Return the bytes of the tensors of a run, without copying them."""
    return [
        np.frombuffer((ctypes.c_uint8 * one.nbytes).from_address(one.data), np.uint8)
        if one.nbytes
        else np.zeros(0, np.uint8)
        for one in (_Array * size).from_address(data)
    ]


def _connect(library: ctypes.CDLL) -> None:
    """Let the library ask this process until the interpreter ends."""
    served = _Serve(_Server(library).serve)
    library.dla_connect(served)
    atexit.register(_disconnect, library, served)  # and keep the function, which ctypes does not


def _disconnect(library: ctypes.CDLL, served: object) -> None:
    library.dla_connect(None)
