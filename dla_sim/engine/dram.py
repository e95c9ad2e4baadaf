"""Rows and refresh of the main memory (docs/machine.md, section 6).

:class:`Dram` keeps the open rows and counts the slots of row misses when a data phase begins.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dla_sim.engine.banks import PassingWords
from dla_sim.engine.bus import Refresh
from dla_sim.engine.workload import Workload
from dla_sim.timing import Timing
from isa.access import Access, Int64, row_starts


class TouchedRows(NamedTuple):
    """Rows of the main memory that a transfer touches.

    ``inner`` counts the changes of row in each bank; ``ends`` are (bank, first row, last row).
    """

    inner: int
    ends: tuple[tuple[int, int, int], ...]


def list_touched_rows(access: Access, timing: Timing) -> TouchedRows:
    """Return the rows that a transfer touches, in the order of its bursts."""
    if not access.total or not timing.dram_row_bytes:
        return TouchedRows(0, ())
    starts = row_starts(access)
    first = starts // timing.dram_row_bytes
    counts = (starts + access.nbytes - 1) // timing.dram_row_bytes - first + 1
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.repeat(first, counts) + offsets
    banks = rows % timing.dram_row_banks
    order = np.argsort(banks, kind="stable")
    rows = rows[order]
    banks = banks[order]
    begins = np.flatnonzero(np.diff(banks, prepend=-1))
    ends = np.append(begins[1:], len(rows)) - 1
    inner = np.count_nonzero(np.diff(rows)) - (len(begins) - 1)  # banks differ in their rows
    triples = zip(banks[begins].tolist(), rows[begins].tolist(), rows[ends].tolist(), strict=True)
    return TouchedRows(int(inner), tuple(triples))


class Dram:
    """Open rows of the main memory, and the slots of row misses by data phase.

    ``touched`` are the rows by the key of a data phase; ``missed`` are its slots of row misses.
    """

    __slots__ = ("_miss", "_open", "_refreshes", "_touched", "missed", "refresh")

    def __init__(self, timing: Timing, touched: Mapping[int, TouchedRows]) -> None:
        self.refresh = Refresh(timing.dram_refresh_interval, timing.dram_refresh_cycles)
        self.missed: dict[int, int] = {}
        self._miss = timing.dram_row_miss
        self._touched = touched
        self._open: dict[int, int] = {}
        self._refreshes = 0

    def list_missed(self, commands: int) -> Int64:
        """Return the slots of row misses of each command."""
        return np.array([self.missed.get(number, 0) for number in range(commands)], dtype=np.int64)

    def begin(
        self, key: int, time: int, slots: int, passing: PassingWords | None = None
    ) -> tuple[int, PassingWords | None]:
        """Open the rows of a data phase that begins at ``time``.

        Returns its slots, row misses included, and its words spread over them.
        """
        refreshes = time // self.refresh.interval if self.refresh.interval else 0
        if refreshes != self._refreshes:
            self._open.clear()
            self._refreshes = refreshes
        touched = self._touched.get(key)
        if touched is None:
            return slots, passing
        misses = touched.inner
        for bank, first, last in touched.ends:
            misses += self._open.get(bank) != first
            self._open[bank] = last
        self.missed[key] = missed = misses * self._miss
        if passing is not None and missed:
            ahead = passing.ahead + missed * (passing.ahead > 0)  # a word has several slots
            passing = replace(passing, slots=slots + missed, ahead=ahead)
        return slots + missed, passing


def open_dram(workload: Workload, chunks: int) -> Dram | None:
    """Return a main memory without open rows; None if it has neither rows nor refresh.

    The key of a transfer's data phase is the number of its command. The keys of chunks of command
    words start at ``chunks``.
    """
    timing = workload.timing
    if not timing.has_rows_or_refresh:
        return None
    demands = workload.demands
    sides = dict(zip(demands.moving.tolist(), demands.transfers.accesses, strict=True))
    if timing.flash is None:
        first = demands.command_address
        end = first + 8 * workload.word_count
        size = timing.fetch_bytes
        for number, start in enumerate(range(first, end, size)):
            sides[chunks + number] = Access("dram", start, min(size, end - start))
    else:
        for number in demands.constant.tolist():
            del sides[number]
    return Dram(timing, {key: list_touched_rows(side, timing) for key, side in sides.items()})
