"""Interface of kernels, which prepare an attempt from a command alone.

The attempt is executed on memories with scratch buffers. A kernel may write results before it has
read all operands only if their ranges are disjoint.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from isa.access import Range
from isa.arch import Arch
from isa.instruction import Command, Machine

_GRANULE = 1 << 16
_LINE = 64
_Given = TypeVar("_Given")
_Found = TypeVar("_Found")


class Workspace:
    """Named scratch buffers.

    Not thread-safe: each device needs its own.

    An array from :meth:`array` is not initialised, and is valid until the next call with the same
    name. ``replacements`` counts the buffers that larger ones replaced.
    """

    def __init__(self) -> None:
        self.replacements = 0
        self._buffers: dict[str, NDArray[np.uint8]] = {}
        self._arrays: dict[tuple[str, tuple[int, ...], DTypeLike], NDArray[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an uninitialised, dense array in the buffer ``name``, aligned to a cache line."""
        found = self._arrays.get((name, shape, dtype))
        if found is not None:
            return found
        kind = np.dtype(dtype)
        size = prod(shape) * kind.itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            self.replacements += buffer is not None
            raw = np.empty(-(-size // _GRANULE) * _GRANULE + _LINE, dtype=np.uint8)
            start = -raw.ctypes.data % _LINE
            buffer = self._buffers[name] = raw[start : raw.size - _LINE + start]
            self._arrays.clear()  # they would keep the smaller buffers
        found = self._arrays[name, shape, dtype] = np.ndarray(shape, kind, buffer)
        return found

    @property
    def nbytes(self) -> int:
        """Total bytes of all scratch buffers."""
        return sum(buffer.size for buffer in self._buffers.values())


Attempt = Callable[[Machine, Workspace], bool]
"""Executes one command.

Returns False, with nothing written, if the kernel cannot execute it with these memory contents.
"""
Prepare = Callable[[Command, Arch], Attempt | None]
"""Prepares the kernel of a command; returns None if the kernel cannot execute the command."""
AtOnce = Callable[[Command, Machine, Workspace], bool]
"""Executes one command without preparation.

Returns False, with nothing written, if the kernel cannot execute it.
"""


def prepare_whole(kernel: AtOnce) -> Prepare:
    def prepare(command: Command, arch: Arch) -> Attempt:
        return lambda machine, scratch: kernel(command, machine, scratch)

    return prepare


def bind_once(
    bind: Callable[[_Given, Workspace], Callable[[], _Found]],
) -> Callable[[_Given, Workspace], _Found]:
    """Return a function that calls the result of ``bind`` and keeps it while its operands last.

    ``bind`` makes the views of memories and buffers that a command needs.
    """
    last: tuple[_Given, Workspace, int, Callable[[], _Found]] | None = None

    def run(given: _Given, scratch: Workspace) -> _Found:
        nonlocal last
        if (
            last is None
            or last[0] is not given
            or last[1] is not scratch
            or last[2] != scratch.replacements
        ):
            last = None  # frees what it keeps
            bound = bind(given, scratch)
            last = given, scratch, scratch.replacements, bound
        return last[3]()

    return run


def disjoint(output: Range, reads: Sequence[Range]) -> bool:
    """Return True if the byte range ``output`` overlaps none of the ranges ``reads``."""
    return all(end <= output[0] or output[1] <= first for first, end in reads)


def highest(*ranges: Range) -> int:
    """Return one past the highest byte of several byte ranges."""
    return max(end for _, end in ranges)
