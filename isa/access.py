"""Byte ranges that a command reads and writes, as strided boxes, and the tests whether two of them overlap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Space = Literal["sram", "dram"]
SPACE_NAMES: Mapping[Space, str] = {"sram": "scratchpad", "dram": "system memory"}
Range = tuple[int, int]
"""First byte and one past the last."""
MAXIMUM_TRANSFER = 1 << 32
"""Bytes that one operand may cover, rows counted as often as they are repeated."""
_DRAM_BASE = 1 << 60


class _Box(NamedTuple):
    space: Space
    address: int
    nbytes: int
    dims: tuple[tuple[int, int], ...]
    end: int
    total: int


class Access(_Box):
    """``nbytes`` contiguous bytes from ``address``, repeated over ``dims``.

    ``dims`` is ((count, stride in bytes), ...), outermost first. ``end`` is one past the last byte touched (the box's
    hull is ``[address, end)``), ``total`` the bytes touched, counted once a row: everybody asks for them, so they are
    there from the beginning.
    """

    __slots__ = ()

    def __new__(cls, space: Space, address: int, nbytes: int, dims: tuple[tuple[int, int], ...] = ()) -> Self:
        """The access with what follows from it."""
        end, total = address + nbytes, nbytes
        for count, stride in dims:
            end += (count - 1) * stride
            total *= count
        return tuple.__new__(cls, (space, address, nbytes, dims, end, total))

    def __getnewargs__(self) -> tuple[Any, ...]:
        """What copies and pickles are made from."""
        return self[:4]

    def runs(self) -> Iterator[tuple[int, int]]:
        """Half-open byte intervals of the rows, in address-generation order."""
        starts = row_starts(self)
        for start in starts.tolist():
            yield start, start + self.nbytes


def strided(space: Space, address: int, nbytes: int, *dims: tuple[int, int]) -> Access:
    """An :class:`Access` in normal form: dimensions of count 1 dropped, dense inner dimensions merged into the row.

    A dimension of count 0 makes it empty: no bytes, whatever the rest says.
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
    """Addresses of all rows, in address-generation order (outermost dimension slowest)."""
    starts = np.array([access.address], dtype=np.int64)
    for count, stride in access.dims:
        starts = (starts[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    return starts


def overlap(first: Access, second: Access) -> Range | None:
    """The lowest half-open byte interval that both touch, or None. Exact for strided boxes."""
    if first.space != second.space or first.end <= second.address or second.end <= first.address:
        return None
    if not first.nbytes or not second.nbytes:
        return None
    if not first.dims and not second.dims:
        return max(first.address, second.address), min(first.end, second.end)
    starts = np.unique(row_starts(first))
    others = np.unique(row_starts(second))
    # For each row of `second` the candidates are the last row of `first` starting at or before it and the next one.
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
    """Whether two accesses have a byte in common: :func:`overlap`, in plain integers where that is easy."""
    if first.address >= second.end or second.address >= first.end or first.space != second.space:
        return False
    if not first.dims and not second.dims:
        return True
    # Rows meet exactly when the way from one to the other lies in (low, high). It is a sum of steps, which of every
    # stride are all numbers in a range: both accesses go up to their counts, the second one backwards.
    low = second.address - first.address - first.nbytes
    high = second.address - first.address + second.nbytes
    ranges = {stride: (0, 0) for _, stride in (*first.dims, *second.dims)}
    for count, stride in first.dims:
        ranges[stride] = ranges[stride][0], ranges[stride][1] + count - 1
    for count, stride in second.dims:
        ranges[stride] = ranges[stride][0] - count + 1, ranges[stride][1]
    steps = [(stride, *ranges[stride]) for stride in sorted(ranges) if stride]
    tries, span = 1, high - low
    for stride, least, most in steps:
        tries *= min(most - least, span // stride) + 1
        span += (most - least) * stride
    return overlap(first, second) is not None if tries > _TRIES else _reach(steps, low, high)


_TRIES = 1 << 12
"""Sums of steps that are tried at most."""


def _reach(steps: Sequence[tuple[int, int, int]], low: int, high: int) -> bool:
    """Whether a sum of multiples, from the least to the most of every stride, lies between ``low`` and ``high``."""
    if not steps:
        return low < 0 < high
    *rest, (stride, least, most) = steps
    shortest = sum(step * fewest for step, fewest, _ in rest)
    longest = sum(step * many for step, _, many in rest)
    begin, end = max(least, (low - longest) // stride + 1), min(most, -(-(high - shortest) // stride) - 1)
    if not rest:
        return begin <= end
    return any(_reach(rest, low - count * stride, high - count * stride) for count in range(begin, end + 1))


class Hulls:
    """The hulls of what some commands read and write: over whole arrays, few pairs of commands are left to compare.

    ``reads`` and ``writes`` are the accesses of each command; empty ones meet nothing.
    """

    def __init__(self, reads: Sequence[Sequence[Access]], writes: Sequence[Sequence[Access]]) -> None:
        self._writes = _hulls(writes)
        self._all = np.concatenate([self._writes, _hulls(reads)], axis=2)

    def meet(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of the pairs of commands in which a hull written by one meets any hull of the other."""
        return np.flatnonzero(
            _meet(self._writes, self._all, left, right) | _meet(self._writes, self._all, right, left),
        )


def _hulls(accesses: Sequence[Sequence[Access]]) -> NDArray[np.int64]:
    """(2, commands, accesses): lowest byte and end of each hull; a high bit tells spaces apart, gaps are empty."""
    width = max((len(items) for items in accesses), default=0)
    found = [_hull(items[column]) if column < len(items) else (0, 0) for items in accesses for column in range(width)]
    return np.array(found, dtype=np.int64).reshape(len(accesses), width, 2).transpose(2, 0, 1)


def _hull(access: Access) -> tuple[int, int]:
    base = _DRAM_BASE if access.space == "dram" else 0
    return (base + access.address, base + access.end) if access.total else (0, 0)


def _meet(
    writes: NDArray[np.int64], accesses: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the hull of any write of ``left`` meets that of any access of ``right``, pair by pair."""
    found = np.zeros(len(left), dtype=np.bool_)
    for i in range(writes.shape[2]):
        low, high = writes[0, left, i], writes[1, left, i]
        for j in range(accesses.shape[2]):
            found |= (low < accesses[1, right, j]) & (accesses[0, right, j] < high)
    return found
