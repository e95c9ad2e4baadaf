"""Byte ranges that a command reads and writes, as strided boxes, and tests for their overlap."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int64 = NDArray[np.int64]
Byte = TypeVar("Byte", np.uint8, np.bool_)
Space = Literal["sram", "dram"]
SPACE_NAMES: Mapping[Space, str] = {"sram": "scratchpad", "dram": "system memory"}
Range = tuple[int, int]
"""First byte and one past the last byte."""
MAXIMUM_TRANSFER = 1 << 32
"""Maximum bytes of one operand, including repeated rows."""
_DRAM_BASE = 1 << 60


class _Box(NamedTuple):
    space: Space
    address: int
    nbytes: int
    dims: tuple[tuple[int, int], ...]
    end: int
    total: int


class Access(_Box):
    """Strided byte range: ``nbytes`` contiguous bytes from ``address``, repeated over ``dims``.

    ``dims`` is ((count, stride in bytes), ...), outermost first. ``end`` is one past the last byte
    touched, so ``[address, end)`` is the box's hull. ``total`` is the number of bytes touched,
    repeated rows included. Both are computed on construction because all users need them.
    """

    __slots__ = ()

    def __new__(
        cls, space: Space, address: int, nbytes: int, dims: tuple[tuple[int, int], ...] = ()
    ) -> Self:
        """Create an access and compute its end address and total bytes."""
        end = address + nbytes
        total = nbytes
        for count, stride in dims:
            end += (count - 1) * stride
            total *= count
        return tuple.__new__(cls, (space, address, nbytes, dims, end, total))

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return the constructor's arguments, for copies and pickles."""
        return self[:4]

    def move_by(self, offset: int) -> Self:
        """Return the access ``offset`` bytes after this one."""
        space, address, nbytes, dims, end, total = self
        moved = space, address + offset, nbytes, dims, end + offset, total
        return tuple.__new__(type(self), moved)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the byte interval of each row of an access.

        Intervals are half-open, in address-generation order.
        """
        starts = row_starts(self)
        for start in starts.tolist():
            yield start, start + self.nbytes

    def view(self, memory: NDArray[Byte]) -> NDArray[Byte]:
        """Return a view of the touched bytes of a memory, with one axis for each of ``dims``.

        The last axis has the ``nbytes`` contiguous bytes.
        """
        if not self.dims:
            return memory[self.address : self.end]
        shape = (*(count for count, _ in self.dims), self.nbytes)
        strides = (*(stride for _, stride in self.dims), 1)
        return np.ndarray(shape, memory.dtype, memory, self.address, strides)


def strided(space: Space, address: int, nbytes: int, *dims: tuple[int, int]) -> Access:
    """Return an :class:`Access` in normal form.

    The form has no dimension of count 1, and dense inner dimensions are merged into rows. A
    dimension of count 0 makes it empty regardless of the other arguments.
    """
    kept: list[tuple[int, int]] = []
    for count, stride in reversed(dims):
        if count == 1:
            continue
        if count == 0:
            return Access(space, address, 0)
        if not kept and stride == nbytes:
            nbytes *= count
        elif kept and stride == kept[-1][0] * kept[-1][1]:
            kept[-1] = (kept[-1][0] * count, kept[-1][1])
        else:
            kept.append((count, stride))
    return Access(space, address, nbytes, tuple(kept[::-1]))


def row_starts(access: Access) -> NDArray[np.int64]:
    """Return the addresses of all rows in address-generation order.

    The outermost dimension changes slowest.
    """
    starts = np.array([access.address], dtype=np.int64)
    for count, stride in access.dims:
        starts = (starts[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    return starts


def sort_distinct(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct numbers of an array in ascending order.

    ``np.unique`` without counts imports ``numpy.ma``, which takes 1 % of a start.
    """
    return np.unique(numbers, return_counts=True)[0]


def byte_addresses(access: Access) -> NDArray[np.int64]:
    """Return the address of every byte of an access, row by row."""
    return (row_starts(access)[:, None] + np.arange(access.nbytes, dtype=np.int64)).reshape(-1)


def overlap(first: Access, second: Access) -> Range | None:
    """Return the lowest half-open byte interval that both accesses touch, or None.

    Exact for strided boxes.
    """
    if first.space != second.space or first.end <= second.address or second.end <= first.address:
        return None
    if not first.nbytes or not second.nbytes:
        return None
    if not first.dims and not second.dims:
        return max(first.address, second.address), min(first.end, second.end)
    starts = sort_distinct(row_starts(first))
    others = sort_distinct(row_starts(second))
    # For each row of `second` the candidates are the last row of `first` starting at or before it,
    # and the next one.
    position = np.searchsorted(starts, others, side="right")
    best: Range | None = None
    for shift in (-1, 0):
        index = np.clip(position + shift, 0, len(starts) - 1)
        low = np.maximum(starts[index], others)
        high = np.minimum(starts[index] + first.nbytes, others + second.nbytes)
        hits = np.flatnonzero(low < high)
        if hits.size:
            found = int(low[hits[0]]), int(high[hits[0]])
            best = found if best is None else min(best, found)
    return best


def touch(first: Access, second: Access) -> bool:
    """Return True if two accesses share a byte, like :func:`overlap` but faster in simple cases."""
    if first.address >= second.end or second.address >= first.end or first.space != second.space:
        return False
    if not first.dims and not second.dims:
        return True
    # Two rows meet exactly if their distance is in (low, high). The distance is a sum of steps;
    # the number of steps of each stride covers a range, up to the counts of `first` and, backwards,
    # of `second`.
    low = second.address - first.address - first.nbytes
    high = second.address - first.address + second.nbytes
    ranges = {stride: (0, 0) for _, stride in (*first.dims, *second.dims)}
    for count, stride in first.dims:
        ranges[stride] = ranges[stride][0], ranges[stride][1] + count - 1
    for count, stride in second.dims:
        ranges[stride] = ranges[stride][0] - count + 1, ranges[stride][1]
    steps = [(stride, *ranges[stride]) for stride in sorted(ranges) if stride]
    tries = 1
    span = high - low
    for stride, least, most in steps:
        tries *= min(most - least, span // stride) + 1
        span += (most - least) * stride
    return overlap(first, second) is not None if tries > _TRIES else _reach(steps, low, high)


_TRIES = 1 << 12
"""Maximum number of step combinations to try."""


def _reach(steps: Sequence[tuple[int, int, int]], low: int, high: int) -> bool:
    """Return True if a sum of multiples of some strides is between ``low`` and ``high``.

    ``steps`` has (stride, smallest multiple, largest multiple); both bounds are exclusive.
    """
    if not steps:
        return low < 0 < high
    *rest, (stride, least, most) = steps
    shortest = sum(step * fewest for step, fewest, _ in rest)
    longest = sum(step * many for step, _, many in rest)
    begin = max(least, (low - longest) // stride + 1)
    end = min(most, -(-(high - shortest) // stride) - 1)
    if not rest:
        return begin <= end
    return any(
        _reach(rest, low - count * stride, high - count * stride) for count in range(begin, end + 1)
    )


class Hulls:
    """Address hulls of the accesses of commands, as arrays for fast comparison.

    Comparing hulls is fast and leaves few pairs of commands to compare exactly. ``reads`` and
    ``writes`` are the accesses of each command; empty ones never meet.
    """

    def __init__(
        self, reads: Sequence[Sequence[Access]], writes: Sequence[Sequence[Access]]
    ) -> None:
        self._writes = _hulls(writes)
        self._all = np.concatenate([self._writes, _hulls(reads)], axis=2)

    def meet(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of pairs of commands whose accesses may meet.

        They may meet if the hull of a write of one command overlaps a hull of the other.
        """
        return np.flatnonzero(
            _meet(self._writes, self._all, left, right)
            | _meet(self._writes, self._all, right, left),
        )


def _hulls(accesses: Sequence[Sequence[Access]]) -> NDArray[np.int64]:
    """Return the address hulls of the accesses of commands as one array.

    The shape is (2, commands, accesses): lowest byte and end of each hull.

    A high bit separates the two memories; missing accesses are empty.
    """
    width = max((len(items) for items in accesses), default=0)
    found = [
        _hull(items[column]) if column < len(items) else (0, 0)
        for items in accesses
        for column in range(width)
    ]
    return np.array(found, dtype=np.int64).reshape(len(accesses), width, 2).transpose(2, 0, 1)


def _hull(access: Access) -> tuple[int, int]:
    base = _DRAM_BASE if access.space == "dram" else 0
    return (base + access.address, base + access.end) if access.total else (0, 0)


def _meet(
    writes: NDArray[np.int64],
    accesses: NDArray[np.int64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Return for each pair of commands whether a write of one may meet an access of the other.

    They may meet if their hulls overlap.
    """
    found = np.zeros(len(left), dtype=np.bool_)
    for i in range(writes.shape[2]):
        low = writes[0, left, i]
        high = writes[1, left, i]
        for j in range(accesses.shape[2]):
            found |= (low < accesses[1, right, j]) & (accesses[0, right, j] < high)
    return found
