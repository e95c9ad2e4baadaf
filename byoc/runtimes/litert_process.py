"""Run LiteRT in a child process, so that a crashing kernel gives a one-line error instead.

LiteRT's kernels trust the models that it accepts: a depthwise convolution without a bias, for
example, causes a segmentation fault (LiteRT 2.3). The child starts on first use, serves any number
of sessions and ends with this process. The two exchange lines of JSON, each followed by the bytes
of its arrays.
"""

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from byoc.runtimes import litert
from byoc.runtimes.litert import Resolver
from isa import memory
from isa.errors import InputError

if sys.platform != "win32":
    import resource

Arrays = Sequence[NDArray[Any]]
_SERVE = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); import byoc, isa; del "
    "sys.path[0]; from byoc.runtimes.litert_process import serve; serve()"
)
"""Program of the child process.

It imports our packages from this checkout whatever the working folder contains.
"""


class LiteRTModel:
    """Model on LiteRT, one thread; tensors are identified by their indices.

    ``delegated`` is the result of :func:`byoc.runtimes.litert.find_delegated`; ``shapes`` are the
    shapes before the model runs.
    """

    def __init__(
        self, model: bytes, resolver: Resolver, *, keep: bool = False, thing: str = "the model"
    ) -> None:
        """Open a model in the LiteRT child process.

        Raises InputError as :func:`byoc.runtimes.litert.interpreter`, or if the process ends.
        """
        self._thing = thing
        self._opening = {"do": "open", "resolver": resolver, "keep": keep, "thing": thing}
        self._content = np.frombuffer(model, np.uint8)
        self._open()

    def _open(self) -> None:
        self._process = _process()
        answer, _ = self._process.ask(self._opening, [self._content], self._thing)
        self._number: int = answer["session"]
        self.delegated: list[tuple[list[int], list[int]]] = [
            (part[0], part[1]) for part in answer["delegated"]
        ]
        self.shapes: dict[int, tuple[int, ...]] = {
            number: tuple(shape) for number, shape in answer["shapes"]
        }
        finalize(self, self._process.forget, self._number)

    def run(
        self, given: Mapping[int, NDArray[Any]], wanted: Sequence[int], *, carry: bool = False
    ) -> dict[int, NDArray[Any]]:
        """Run one inference and return the tensors ``wanted``.

        State tensors have the model's initial values, or with ``carry`` those of the inference
        before. ``given`` has the input arrays by tensor index. Raises InputError if LiteRT fails.
        """
        if not self._process.there:  # a crash in another session ended the child
            self._open()
        request = {
            "do": "run",
            "session": self._number,
            "given": list(given),
            "wanted": list(wanted),
            "carry": carry,
        }
        _, arrays = self._process.ask(
            {**request, "thing": self._thing}, list(given.values()), self._thing
        )
        return dict(zip(wanted, arrays, strict=True))


def get_session(model: bytes, thing: str = "the model") -> LiteRTModel:
    """Return a LiteRT session on the reference kernels.

    It uses the default kernels if the former lack an operator. Both compute the same shapes and
    move elements alike. Raises InputError if neither runs the model.
    """
    try:
        return LiteRTModel(model, "reference", thing=thing)
    except InputError:
        return LiteRTModel(model, "default", thing=thing)


class _Process:
    def __init__(self) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        self._lock = Lock()
        self._owner = os.getpid()
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )
        atexit.register(self.end)

    @property
    def there(self) -> bool:
        """True if the child process runs and belongs to this process.

        A forked process shares the child's pipes with its parent and must not use them.
        """
        return self._owner == os.getpid() and self._child.poll() is None

    def ask(
        self, request: Mapping[str, Any], arrays: Arrays, thing: str
    ) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        """Send a request about the model ``thing`` to the child process and return the answer.

        Raises InputError if LiteRT rejects the request or the child process ends.
        """
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            with self._lock:
                _write(self._child.stdin, request, arrays)
                answer, found = _read(self._child.stdout)
        except (EOFError, OSError) as error:
            code = self._child.wait()
            raise InputError(
                f"LiteRT ended its process on {thing} (exit status {code}); correct or convert it "
                "again"
            ) from error
        if "error" in answer:
            raise InputError(answer["error"])
        return answer, found

    def forget(self, session: int) -> None:
        if self.there:
            self.ask({"do": "close", "session": session}, [], "the model")

    def end(self) -> None:
        """End the child process if it belongs to this process."""
        if self._owner != os.getpid():
            return
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        self._child.wait()


@cache
def _last() -> list[_Process]:
    """Return a list with the current child process, empty before the first one starts."""
    return []


def _process() -> _Process:
    kept = _last()
    if kept and not kept[0].there:
        kept.pop().end()
    if not kept:
        kept.append(_Process())
    return kept[0]


# Messages.


def _write(stream: IO[bytes], message: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a line of JSON and the bytes of ``arrays``."""
    forms = [(array.dtype.str, array.shape) for array in arrays]
    stream.write(json.dumps({**message, "arrays": forms}).encode() + b"\n")
    for array in arrays:
        stream.write(np.ascontiguousarray(array).tobytes())
    stream.flush()


def _read(stream: IO[bytes]) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Read a message written by :func:`_write`; raise EOFError if the stream ends."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    message = json.loads(line)
    arrays = []
    for dtype, shape in message.pop("arrays"):
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        content = stream.read(count)
        if len(content) < count:
            raise EOFError
        arrays.append(np.frombuffer(content, dtype).reshape(shape))
    return message, arrays


# The child process.


def serve() -> None:
    """Answer requests until the input ends; the main function of the child process."""
    source = os.fdopen(os.dup(0), "rb")
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output that kernels print must not mix with answers
    if sys.platform != "win32":
        resource.setrlimit(
            resource.RLIMIT_DATA, (memory.maximum(), resource.getrlimit(resource.RLIMIT_DATA)[1])
        )
    sessions: dict[int, Any] = {}
    while True:
        try:
            request, arrays = _read(source)
        except EOFError:
            return
        try:
            answer, made = _answer(request, arrays, sessions)
        except (InputError, MemoryError) as error:
            answer = {"error": str(error) or "LiteRT ran out of memory"}
            made = []
        _write(target, answer, made)


def _answer(
    request: Mapping[str, Any], arrays: Arrays, sessions: dict[int, Any]
) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    if request["do"] == "close":
        sessions.pop(request["session"], None)
        return {}, []
    if request["do"] == "open":
        number = max(sessions, default=0) + 1
        keep = request["keep"]
        thing = request["thing"]
        made = litert.interpreter(arrays[0].tobytes(), request["resolver"], keep=keep, thing=thing)
        sessions[number] = made
        shapes = [(one["index"], one["shape"].tolist()) for one in made.get_tensor_details()]
        return {"session": number, "delegated": litert.find_delegated(made), "shapes": shapes}, []
    made = sessions[request["session"]]
    with litert.readable_errors(request["thing"]):
        given = dict(zip(request["given"], arrays, strict=True))
        return {}, _run(made, given, request["wanted"], request["carry"])


def _run(
    made: Any, given: Mapping[int, NDArray[Any]], wanted: Sequence[int], carry: bool
) -> list[NDArray[Any]]:
    shapes = {one["index"]: tuple(one["shape"]) for one in made.get_input_details()}
    for number, array in given.items():
        if shapes[number] != array.shape:
            made.resize_tensor_input(number, array.shape)
            made.allocate_tensors()
    if not carry:
        made.reset_all_variables()
    for number, array in given.items():
        made.set_tensor(number, array)
    made.invoke()
    return [made.get_tensor(number) for number in wanted]
