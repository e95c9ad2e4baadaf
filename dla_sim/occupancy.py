"""How full the scratchpad is: bytes written and still to be read, over the cycles of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.times import CommandTimes
from isa.access import Access, row_starts
from isa.instruction import Operands

Int64 = NDArray[np.int64]


def live_bytes(operands: Sequence[Operands], order: Sequence[int], times: CommandTimes) -> tuple[Int64, Int64]:
    """(cycles, bytes): from each of ``cycles`` on, in ascending order, so many scratchpad bytes are live.

    A byte is live from the completion of the command that wrote it to the completion of the last command that reads it
    before it is written again; bytes that nobody reads are never live. ``order`` lists the commands by completion.
    Exact for strided accesses. The scratchpad is cut where accesses begin and end, so cost and memory follow the rows
    of the accesses, not the bytes.
    """
    pieces = _Pieces(operands)
    lengths = pieces.lengths
    born = np.full(len(lengths), -1, dtype=np.int64)
    last = np.full(len(lengths), -1, dtype=np.int64)
    changes: list[tuple[Int64, Int64]] = []

    def close(where: Int64) -> None:
        used = where[last[where] > born[where]]
        for change in ((born[used], lengths[used]), (last[used], -lengths[used])):
            changes.append(_summed([change]) if len(used) > MANY else change)

    for number in order:
        end = int(times.end[number])
        for access in operands[number].reads:
            where = pieces.of(access)
            last[where[born[where] >= 0]] = end
        for access in operands[number].writes:
            where = pieces.of(access)
            close(where)
            born[where] = end
            last[where] = -1
    close(np.arange(len(lengths), dtype=np.int64))
    cycles, deltas = _summed(changes)
    moved = np.flatnonzero(deltas)
    return cycles[moved], np.cumsum(deltas)[moved]


MANY = 64
"""Pieces of one access from which on their changes are summed at once: strides of a byte make a piece of each."""


def _summed(changes: list[tuple[Int64, Int64]]) -> tuple[Int64, Int64]:
    """Times, each once and ascending, and the sum of the changes at each."""
    cycles, position = np.unique(np.concatenate([time for time, _ in changes]), return_inverse=True)
    deltas = np.zeros(len(cycles), dtype=np.int64)
    np.add.at(deltas, position, np.concatenate([delta for _, delta in changes]))
    return cycles, deltas


class _Pieces:
    """The scratchpad cut at the begin and end of every row of every access: pieces are touched whole or not at all."""

    def __init__(self, operands: Sequence[Operands]) -> None:
        accesses = {access for item in operands for access in (*item.reads, *item.writes)}
        rows = [_rows(access) for access in accesses if access.space == "sram" and access.total]
        ends = [start for start, _ in rows] + [end for _, end in rows]
        self._cuts = np.unique(np.concatenate(ends)) if ends else np.zeros(1, dtype=np.int64)
        self._known: dict[Access, Int64] = {}

    @property
    def lengths(self) -> Int64:
        """Bytes of each piece."""
        return np.diff(self._cuts)

    def of(self, access: Access) -> Int64:
        """The numbers of the pieces that ``access`` touches, each once; none unless it is in the scratchpad."""
        if access not in self._known:
            self._known[access] = self._find(access)
        return self._known[access]

    def _find(self, access: Access) -> Int64:
        if access.space != "sram" or not access.total:
            return np.zeros(0, dtype=np.int64)
        starts, ends = _rows(access)
        touched = np.zeros(len(self._cuts), dtype=np.int64)
        np.add.at(touched, np.searchsorted(self._cuts, starts), 1)
        np.add.at(touched, np.searchsorted(self._cuts, ends), -1)
        return np.flatnonzero(np.cumsum(touched))


def _rows(access: Access) -> tuple[Int64, Int64]:
    starts = np.unique(row_starts(access))
    return starts, starts + access.nbytes
