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
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.rtl.simulator.kept import get_or_make
from experiments.cli.options import parse_words
from experiments.running.declared import list_declared
from experiments.running.given import MachineChoice
from experiments.running.provider import FIELD, NAME, RECORD, ProviderSession
from isa.errors import InputError
from isa.installation import processor
from isa.reading import first_line

_SOURCES = ("provider.c", "ort_abi.h")
_FLAGS = ("-std=c99", "-O2", "-fPIC", "-shared")
_OPEN, _PLACE, _COMPILE, _RUN, _RELEASE, _PROFILE, _EVENTS = range(7)
_PREFIX = f"ep.{NAME.lower()}."
_Serve = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
)


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_size_t),
        ("nbytes", ctypes.c_size_t),
    )


def get_ep_name() -> str:
    """Return the name of the execution provider."""
    return NAME


@cache
def get_library_path() -> str:
    """Return the path of the provider's library for ``register_execution_provider_library``.

    The C compiler of the computer builds it once; later processes use the copy in the user's cache.
    Raises InputError if there is no compiler.
    """
    folder = files("byoc.hooks.onnxruntime")
    sources = {name: folder.joinpath(name).read_text() for name in _SOURCES}
    key = hashlib.sha256("\0".join((*sources.values(), *_FLAGS, processor())).encode())
    place = get_or_make(f"{key.hexdigest()[:32]}.so", lambda made: _build(made, sources))
    library = ctypes.CDLL(str(place))
    served = _Serve(_Server(library).serve)
    library.dla_connect(served)
    # also keeps the function alive, as ctypes does not
    atexit.register(lambda _: library.dla_connect(None), served)
    return str(place)


def _build(folder: Path, sources: Mapping[str, str]) -> Path:
    known = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    compiler = next(filter(None, map(shutil.which, known)), None)
    if compiler is None:
        raise InputError(
            f"the provider for ONNX Runtime needs a C compiler ({' or '.join(known)}); install it, "
            "on Debian with: apt install gcc libc6-dev"
        )
    for name, text in sources.items():
        (folder / name).write_text(text)
    words = [compiler, *_FLAGS, _SOURCES[0], "-o", "provider.so"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        found = first_line(InputError("\n".join(lines) or "no message"))
        raise InputError(f"{compiler}: {found}; it must build shared C libraries")
    return folder / "provider.so"


def _open_session(settings: Mapping[str, str]) -> ProviderSession:
    """Return the session of a configuration; its provider options are options of ``dla``.

    Each line of a value is the value of one option on a command line.
    """
    given = {
        key.removeprefix(_PREFIX): text.splitlines() or [""]
        for key, text in settings.items()
        if key.startswith(_PREFIX)
    }
    model = "\n".join(given.pop("model", ()))
    machine = {f"--{key}" for key in given} & {
        one.word for one in list_declared(MachineChoice).values()
    }
    words = [
        word
        for key, lines in given.items()
        for line in lines
        for word in ([f"--{key}"] if line == "yes" else [f"--{key}", line])
    ]
    return ProviderSession(parse_words([*words, "--", model]), bool(machine), settings)


class _Server:
    """Sessions and regions of this process by number, and the answers to the library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._reply = library.dla_reply
        self._reply.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64)
        self._numbers = count(1)
        self._known = dict[int, Any]()

    def serve(self, request: int, number: int, data: int, size: int, reply: int) -> int:
        """Answer a request of the library; return 1 if the reply is an error's message."""
        failed = 0
        try:
            answer = self._answer(request, number, data, size)
        except BaseException as error:  # also an interrupt: ONNX Runtime reports it; C cannot
            failed = 1
            kind = "" if isinstance(error, InputError) else f"dla: {type(error).__name__}: "
            answer = f"{kind}{first_line(error)}"
        content = answer.encode(errors="surrogateescape")
        self._reply(reply, content, len(content))
        return failed

    def _answer(self, request: int, number: int, data: int, size: int) -> str:
        if request == _RELEASE:
            self._known.pop(number, None)
            return ""
        if request == _RUN:
            session, region = self._known[number]
            arrays = (_Array * size).from_address(data)
            session.run(region, list(map(_view_bytes, arrays)))
            return ""
        text = ctypes.string_at(data, size).decode(errors="surrogateescape") if size else ""
        if request == _OPEN:
            pairs = (record.split(FIELD) for record in text.split(RECORD)[:-1])
            return self._keep(_open_session(dict(pairs)))
        session = self._known[number]
        if request == _COMPILE:
            region, answer = session.compile(text)
            return f"{self._keep((session, region))} {answer}"
        actions = {
            _PLACE: session.place,
            _PROFILE: session.start_profiling,
            _EVENTS: session.end_profiling,
        }
        return str(actions[request](text))

    def _keep(self, thing: object) -> str:
        number = next(self._numbers)
        self._known[number] = thing
        return str(number)


def _view_bytes(tensor: _Array) -> NDArray[np.uint8]:
    """Return a tensor as bytes, with a last dimension for the bytes of an element."""
    shape = tensor.shape[: tensor.rank]
    if not tensor.nbytes:
        return np.zeros((*shape, 1), np.uint8)
    content = (ctypes.c_uint8 * tensor.nbytes).from_address(tensor.data)
    return np.ctypeslib.as_array(content).reshape(*shape, -1)
