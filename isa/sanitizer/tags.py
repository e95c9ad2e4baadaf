"""Tags that say for each byte of a memory or value what data it holds.

The check of layouts (:mod:`isa.sanitizer.layouts`) uses them.

Most operands are contiguous bytes of one value, so their tags are consecutive numbers. Such tags
are stored as runs, which cost no time per byte, until an access needs single tags.
"""

from bisect import bisect_left, bisect_right
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa.dataflow import Steps

Tags = int | NDArray[Any]
"""Tags in order; a number is the first of consecutive tags."""
_BEGIN, _END = itemgetter(0), itemgetter(1)


class TaggedBytes:
    """Tags of the bytes of a memory or value, one tag per unit of bytes.

    Consecutive tags from ``first`` on, or 0 without ``first``.

    Addresses, sizes and strides of accesses are in bytes and multiples of the unit.
    """

    def __init__(
        self, nbytes: int, unit: int, kind: np.dtype[Any], first: int | None = None
    ) -> None:
        self._nbytes = -(-nbytes // unit) * unit
        self._unit = unit
        self._kind = kind
        self._runs: list[tuple[int, int, int]] = [] if first is None else [(0, self._nbytes, first)]

    @cached_property
    def _tags(self) -> NDArray[Any]:
        """Single tags of units that no run of consecutive tags covers."""
        return np.zeros(self._nbytes // self._unit, self._kind)

    def read(self, begin: int, nbytes: int, dims: Steps = ()) -> Tags:
        """Return the tags of an access's bytes, in the order in which the access touches them."""
        low, high = _hull(begin, nbytes, dims)
        place = bisect_right(self._runs, low, key=_BEGIN) - 1
        if place < 0 or high > self._runs[place][1]:
            return self._view(begin, nbytes, dims)
        start, _, tag = self._runs[place]
        first = tag + (begin - start) // self._unit
        return self._spread(first, nbytes, dims) if dims else first

    def write(self, begin: int, nbytes: int, dims: Steps, tags: Tags) -> None:
        """Store the tags of the bytes of an access."""
        if not isinstance(tags, int):
            view = self._view(begin, nbytes, dims, replaced=True)
            view[...] = tags.reshape(view.shape)
        elif dims:
            view = self._view(begin, nbytes, dims)
            view[...] = all_tags(tags, view.size, self._kind).reshape(view.shape)
        else:
            self.put(begin, begin + nbytes, tags)

    def fill(self, begin: int, nbytes: int, dims: Steps, tag: int) -> None:
        """Store the same tag in all bytes of an access."""
        self._view(begin, nbytes, dims, replaced=True)[...] = tag

    def put(self, begin: int, end: int, first: int) -> None:
        """Store consecutive tags in the bytes from ``begin`` to ``end``.

        Extend the run before them if it goes on.
        """
        if begin >= end:
            return
        self._take(begin, end)
        place = bisect_right(self._runs, begin, key=_BEGIN) - 1
        if place >= 0:
            start, stop, tag = self._runs[place]
            if stop == begin and tag + (begin - start) // self._unit == first:
                self._runs[place] = start, end, tag
                return
        self._runs.insert(place + 1, (begin, end, first))

    def _take(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """Remove and return the parts of tag runs that are between two addresses."""
        runs = self._runs
        unit = self._unit
        first = bisect_right(runs, low, key=_END)
        last = bisect_left(runs, high, first, key=_BEGIN)
        if first == last:
            return []
        found = runs[first:last]
        before = [(begin, low, tag) for begin, _, tag in found[:1] if begin < low]
        after = [
            (high, end, tag + (high - begin) // unit)
            for begin, end, tag in found[-1:]
            if high < end
        ]
        runs[first:last] = before + after
        return [
            (max(begin, low), min(end, high), tag + max(low - begin, 0) // unit)
            for begin, end, tag in found
        ]

    def _view(
        self, begin: int, nbytes: int, dims: Steps, *, replaced: bool = False
    ) -> NDArray[Any]:
        """Return a writable view of the single tags of an access.

        The view needs no contents if all tags are ``replaced``.
        """
        unit = self._unit
        size = self._kind.itemsize
        for low, high, tag in self._take(*_hull(begin, nbytes, dims)):
            if dims or not replaced:
                self._tags[low // unit : high // unit] = np.arange(
                    tag, tag + (high - low) // unit, dtype=self._kind
                )
        if not dims:
            return self._tags[begin // unit : (begin + nbytes) // unit]
        shape = (*(count for count, _ in dims), nbytes // unit)
        steps = (*(stride // unit * size for _, stride in dims), size)
        return np.ndarray(shape, self._kind, self._tags, begin // unit * size, steps)

    def _spread(self, first: int, nbytes: int, dims: Steps) -> NDArray[Any]:
        """Return the tags that a strided access reads in a run of consecutive tags."""
        tags = np.arange(first, first + nbytes // self._unit, dtype=self._kind)
        for count, stride in reversed(dims):
            steps = np.arange(count, dtype=self._kind) * (stride // self._unit)
            tags = (steps[:, np.newaxis] + tags).reshape(-1)
        return tags


def _hull(begin: int, nbytes: int, dims: Steps) -> tuple[int, int]:
    """Return the first byte of a strided access and one past the last."""
    low = begin
    high = begin + nbytes
    for count, stride in dims:
        if stride < 0:
            low += (count - 1) * stride
        else:
            high += (count - 1) * stride
    return low, high


def all_tags(tags: Tags, count: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return tags as a one-dimensional array of ``count`` tags."""
    return np.arange(tags, tags + count, dtype=kind) if isinstance(tags, int) else tags.reshape(-1)
