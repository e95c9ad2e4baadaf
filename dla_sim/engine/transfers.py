"""Slots and beats of transfers on the bus (docs/machine.md, section 6), without a loop over rows or bursts.

Of an address only the place in its burst block matters. So the rows of a transfer are counted by that place, once for a
size of burst; for a bus and its burst gap all groups of rows are then costed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import MemoryTiming
from isa.access import Access

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of ``count`` equal rows of transfer ``owner``: beats of the first burst, of the last, bursts in between.

    ``last`` is 0 where there is one burst. Arrays of int64.
    """

    owner: Int64
    count: Int64
    first: Int64
    last: Int64
    between: Int64

    def slots(self, memory: MemoryTiming) -> Int64:
        """Slots of each group: every burst takes its beats or the burst gap, whatever is longer."""
        gap = memory.burst_gap
        last = np.where(self.last > 0, np.maximum(self.last, gap), 0)
        return (np.maximum(self.first, gap) + self.between * max(memory.burst_beats, gap) + last) * self.count


class TransferTable:
    """The system-memory sides of some transfers, dense dimensions merged; their slots and beats in any memory."""

    def __init__(self, accesses: Sequence[Access]) -> None:
        self.accesses = tuple(accesses)
        self._groups: dict[tuple[int, int], _Groups] = {}

    def cost(self, memory: MemoryTiming) -> tuple[Int64, Int64]:
        """(slots, beats) of each transfer."""
        width, burst = memory.width, memory.burst_bytes
        if (width, burst) not in self._groups:
            self._groups[width, burst] = _grouped(self.accesses, width, burst)
        groups = self._groups[width, burst]
        beats = (groups.first + groups.between * memory.burst_beats + groups.last) * groups.count
        return self._summed(groups.owner, groups.slots(memory)), self._summed(groups.owner, beats)

    def _summed(self, owner: Int64, values: Int64) -> Int64:
        sums = np.zeros(len(self.accesses), dtype=np.int64)
        np.add.at(sums, owner, values)
        return sums


def transfer(access: Access, memory: MemoryTiming) -> tuple[int, int]:
    """(slots, beats) of the rows of ``access``."""
    slots, beats = TransferTable([access]).cost(memory)
    return int(slots[0]), int(beats[0])


def row_slots(starts: Int64, nbytes: Int64, memory: MemoryTiming) -> Int64:
    """Slots of single rows of ``nbytes`` > 0 bytes at addresses ``starts``."""
    burst, none = memory.burst_bytes, np.zeros_like(starts)
    return _in_beats(none, starts % burst, none + 1, nbytes, memory.width, burst).slots(memory)


def _grouped(accesses: Sequence[Access], bus: int, burst: int) -> _Groups:
    owners, starts, counts, sizes = [], [], [], []
    for owner, access in enumerate(accesses):
        if access.total:
            dims = tuple((count, stride % burst) for count, stride in access.dims)
            for start, count in _places(access.address % burst, dims, burst):
                owners.append(owner)
                starts.append(start)
                counts.append(count)
                sizes.append(access.nbytes)
    columns = np.array([owners, starts, counts, sizes], dtype=np.int64)
    return _in_beats(columns[0], columns[1], columns[2], columns[3], bus, burst)


def _in_beats(owner: Int64, start: Int64, count: Int64, nbytes: Int64, bus: int, burst: int) -> _Groups:
    """``count`` rows of ``nbytes`` > 0 that start ``start`` bytes into a burst block."""
    final = start + nbytes - 1
    bursts = final // burst + 1
    single = bursts == 1
    first = np.where(single, final // bus - start // bus + 1, burst // bus - start // bus)
    last = np.where(single, 0, final % burst // bus + 1)
    return _Groups(owner, count, first, last, np.maximum(bursts - 2, 0))


@lru_cache(maxsize=65536)
def _places(residue: int, dims: tuple[tuple[int, int], ...], burst: int) -> tuple[tuple[int, int], ...]:
    """(place in its burst block, how many rows start there), for a first row at ``residue``."""
    if not dims:
        return ((residue, 1),)
    rows = np.zeros(burst, dtype=np.int64)
    rows[residue] = 1
    for count, stride in dims:
        rows = _repeat(rows, count, stride)
    places = np.flatnonzero(rows)
    return tuple(zip(places.tolist(), rows[places].tolist(), strict=True))


def _repeat(rows: Int64, count: int, stride: int) -> Int64:
    """How many rows start at each place of a block, after repeating ``rows`` ``count`` times ``stride`` bytes apart."""
    burst = len(rows)
    period = burst // gcd(stride, burst) if stride else 1
    whole, rest = divmod(count, period)
    repeated = np.zeros_like(rows)
    for step in range(min(count, period)):
        repeated += np.roll(rows, step * stride % burst) * (whole + (step < rest))
    return repeated
