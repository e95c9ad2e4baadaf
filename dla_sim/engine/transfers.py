"""Slots and beats of a transfer on the bus (docs/machine.md, section 6), without a loop over rows or bursts."""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import Timing
from isa.access import Access


def transfer(access: Access, timing: Timing) -> tuple[int, int]:
    """(slots, beats) of the rows of ``access``, the system-memory side of a DMA command, dense dimensions merged."""
    if not access.total:
        return 0, 0
    residue = access.address % timing.burst_bytes
    dims = tuple((count, stride % timing.burst_bytes) for count, stride in access.dims)
    return _transfer(residue, access.nbytes, dims, timing.bus_bytes, timing.burst_bytes, timing.burst_gap)


@lru_cache(maxsize=65536)
def _transfer(
    residue: int, nbytes: int, dims: tuple[tuple[int, int], ...], bus: int, burst: int, gap: int
) -> tuple[int, int]:
    """The same from what alone matters of an address: where in its burst block a row starts."""
    if not dims:
        return _row(residue, nbytes, bus, burst, gap)
    rows = np.zeros(burst, dtype=np.int64)
    rows[residue] = 1
    for count, stride in dims:
        rows = _repeat(rows, count, stride)
    slots = beats = 0
    for start in np.flatnonzero(rows).tolist():
        row_slots, row_beats = _row(start, nbytes, bus, burst, gap)
        slots += int(rows[start]) * row_slots
        beats += int(rows[start]) * row_beats
    return slots, beats


def _repeat(rows: NDArray[np.int64], count: int, stride: int) -> NDArray[np.int64]:
    """How many rows start at each place of a block, after repeating ``rows`` ``count`` times ``stride`` bytes apart."""
    burst = len(rows)
    period = burst // gcd(stride, burst) if stride else 1
    whole, rest = divmod(count, period)
    repeated = np.zeros_like(rows)
    for step in range(min(count, period)):
        repeated += np.roll(rows, step * stride % burst) * (whole + (step < rest))
    return repeated


def _row(start: int, nbytes: int, bus: int, burst: int, gap: int) -> tuple[int, int]:
    """(slots, beats) of one row of ``nbytes`` > 0 that starts ``start`` bytes into a burst block."""
    last = start + nbytes - 1
    beats = last // bus - start // bus + 1
    bursts = last // burst + 1
    if bursts == 1:
        return max(beats, gap), beats
    whole = burst // bus
    head = whole - start // bus
    tail = last % burst // bus + 1
    return max(head, gap) + (bursts - 2) * max(whole, gap) + max(tail, gap), beats
