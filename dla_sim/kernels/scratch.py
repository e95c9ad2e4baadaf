"""Scratch memory of the kernels: named buffers that grow and are used again, owned by one executing thread."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_GRANULE = 1 << 16
_LINE = 64


class Scratch:
    """Buffers by name. Not thread-safe: each device that runs beside another needs its own.

    An array from :meth:`array` holds whatever was left there, and is valid until the next call with the same name.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.uint8]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """A dense array of ``shape`` and ``dtype`` in the buffer ``name``, aligned to a cache line, not initialised."""
        kind = np.dtype(dtype)
        size = prod(shape) * kind.itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            raw = np.empty(-(-size // _GRANULE) * _GRANULE + _LINE, dtype=np.uint8)
            start = -raw.ctypes.data % _LINE
            buffer = self._buffers[name] = raw[start : raw.size - _LINE + start]
        return np.ndarray(shape, kind, buffer)

    @property
    def nbytes(self) -> int:
        """Bytes held by all buffers."""
        return sum(buffer.size for buffer in self._buffers.values())
