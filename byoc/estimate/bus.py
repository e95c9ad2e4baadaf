"""Estimated costs of the system memory bus: slots of rows and cycles of transfers.

The bus is described in docs/machine.md, section 6. The compiler takes these constants from a
machine's Timing and uses nothing else of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import gcd
from typing import Protocol

from byoc.estimate.constants import (
    BURST_BYTES,
    BURST_GAP,
    BURST_SLOTS,
    BUS_BYTES,
    DMA_DRAIN,
    DMA_SETUP,
    DRAM_LATENCY,
    FETCH_BYTES,
    REMEMBERED_ROWS,
    WORD_BYTES,
)
from isa.instruction import Unit, ceil_div
from isa.ops.dma import Side, side_registers

_LOADING, _STORING = side_registers(Unit.LD, "dram"), side_registers(Unit.ST, "dram")


class BusMemory(Protocol):
    """Constants of a memory behind the bus, named as in ``dla_sim.timing.MemoryTiming``."""

    @property
    def width(self) -> int:
        """Bytes of a beat."""

    @property
    def burst_bytes(self) -> int:
        """Bytes of the aligned block that one burst can cover."""

    @property
    def burst_cycles(self) -> int:
        """Cycles in which the memory serves a whole burst."""

    @property
    def burst_gap(self) -> int:
        """Cycles between the starts of two bursts with all bursts in flight."""

    @property
    def latency(self) -> int:
        """Cycles of a read from the request to its first data.

        A write takes as many cycles from its last data to the acknowledgement.
        """

    @property
    def rate(self) -> Fraction | None:
        """Bytes per cycle; None if the memory serves whole beats."""


class BusTiming(Protocol):
    """Memories of a machine, named as in ``dla_sim.timing.Timing``."""

    @property
    def main(self) -> BusMemory:
        """The memory of everything that is not in the flash."""

    @property
    def flash(self) -> BusMemory | None:
        """The memory of constants and command words; None if it is the main memory."""


@dataclass(frozen=True)
class MemoryBus:
    """System memory bus: width, burst size, and slots of a whole burst.

    Machines with equal buses get equal programs. Shorter bursts use the gap of the default machine.
    ``rate`` is the memory's rate in bytes per cycle; None means the bus width. ``latency`` is in
    cycles. ``flash`` describes a separate memory of constants and command words; None: there is
    none.
    """

    bus_bytes: int = BUS_BYTES
    burst_bytes: int = BURST_BYTES
    burst_slots: int = BURST_SLOTS
    rate: Fraction | None = None
    latency: int = DRAM_LATENCY
    flash: MemoryBus | None = None
    _rows: dict[tuple[int, int, int], int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def constants(self) -> MemoryBus:
        """The bus as transfers of constants and command words use it."""
        return self.flash or self

    @cached_property
    def burst_beats(self) -> int:
        """Beats of a whole burst (docs/machine.md, section 2)."""
        return self.burst_bytes // self.bus_bytes

    @cached_property
    def burst_gap(self) -> int:
        """Minimum number of slots of a burst (docs/machine.md, section 2)."""
        served = self.data_cycles(self.burst_bytes)
        return self.burst_slots if self.burst_slots > served else min(BURST_GAP, self.burst_beats)

    def data_cycles(self, nbytes: int) -> int:
        """Return the cycles in which the memory serves ``nbytes`` at its rate."""
        if self.rate is None:
            return ceil_div(nbytes, self.bus_bytes)
        return ceil_div(nbytes * self.rate.denominator, self.rate.numerator)

    @property
    def transfer_lead(self) -> int:
        """Cycles of a load before its bytes move (docs/machine.md, section 5).

        A store takes as many cycles between its last byte and ``DMA_DRAIN``.
        """
        return DMA_SETUP + self.latency

    def transfer_cycles(self, slots: int, transfers: int = 1) -> int:
        """Return the cycles of consecutive transfers of one unit that use ``slots`` slots together.

        LD and ST each run one transfer at a time, with set-up, latency and drain.
        """
        return slots + (self.transfer_lead + DMA_DRAIN) * transfers

    def first_chunk(self, words: int) -> int:
        """Return the cycles to fetch a program's first chunk (docs/machine.md, section 4).

        The program has ``words`` command words.
        """
        bus = self.constants
        return bus.latency + bus.dense_slots(min(words * WORD_BYTES, FETCH_BYTES))

    def rows_slots(self, count: int, nbytes: int, pitch: int) -> int:
        """Return the average slots of ``count`` rows of ``nbytes`` bytes.

        The average is over all row addresses that are multiples of ``pitch`` bytes.
        """
        key = count, nbytes, pitch
        found = self._rows.get(key)
        if found is None:
            if len(self._rows) == REMEMBERED_ROWS:
                self._rows.clear()
            starts = range(0, self.burst_bytes, gcd(pitch, self.burst_bytes))
            found = count * sum(self._row_slots(start, nbytes) for start in starts) // len(starts)
            self._rows[key] = found
        return found

    def _row_slots(self, start: int, nbytes: int) -> int:
        """Return how many bus slots a row takes that begins at byte ``start`` of a burst.

        A burst takes the most of three numbers: its beats, the cycles in which the memory serves
        its bytes, and ``burst_gap``.
        """
        if not nbytes:
            return 0
        bursts, rest = divmod(start + nbytes, self.burst_bytes)
        skipped = start // self.bus_bytes
        last = ceil_div(rest, self.bus_bytes)
        if not bursts:
            return max(last - skipped, self.data_cycles(nbytes), self.burst_gap)
        first = max(
            self.burst_beats - skipped,
            self.data_cycles(self.burst_bytes - start),
            self.burst_gap,
        )
        between = (bursts - 1) * self.burst_slots
        return first + between + (max(self.data_cycles(rest), self.burst_gap) if rest else 0)

    def dense_slots(self, nbytes: int) -> int:
        """Return how many bus slots ``nbytes`` contiguous bytes from a burst boundary take."""
        return self.rows_slots(1, nbytes, self.burst_bytes)

    def run_slots(self, nbytes: int) -> int:
        """Return how many bus slots one long row at any address takes.

        These are its beats, and one more for partly used bursts.
        """
        return self.cycles_of(nbytes) + 1

    def transfer_slots(self, registers: Mapping[str, int], unit: Unit) -> int:
        """Return how many bus slots a transfer by ``unit``, LD or ST, takes."""
        address, nbytes, loops = registers_of(unit)
        rows = 1
        pitch = registers[address]
        for count, stride in loops:
            if registers[count] > 1:
                rows *= registers[count]
                pitch = gcd(pitch, registers[stride])
        if rows > 1:
            return self.rows_slots(rows, registers[nbytes], pitch)
        return self.run_slots(registers[nbytes])

    def cycles_of(self, nbytes: int) -> int:
        """Return the minimum cycles to move ``nbytes`` bytes in whole bursts, rounded down."""
        return nbytes * self.burst_slots // self.burst_bytes

    def bytes_in(self, cycles: int) -> int:
        """Return the maximum number of bytes that whole bursts move in ``cycles`` cycles."""
        return cycles * self.burst_bytes // self.burst_slots


DEFAULT_BUS = MemoryBus()
"""The bus of the default machine."""


def bus_of(timing: BusTiming) -> MemoryBus:
    """Return the bus that a machine's timing describes.

    A latency of the main memory below the default counts as the default, so that machines with less
    latency share one bus and its programs.
    """
    main = _make_bus(timing.main)
    flash = None if timing.flash is None else _make_bus(timing.flash)
    return replace(main, latency=max(DRAM_LATENCY, main.latency), flash=flash)


def _make_bus(memory: BusMemory) -> MemoryBus:
    slots = max(memory.burst_cycles, memory.burst_gap)
    return MemoryBus(memory.width, memory.burst_bytes, slots, memory.rate, memory.latency)


def registers_of(unit: Unit) -> Side:
    """Return the registers that address system memory in a transfer by ``unit``, LD or ST."""
    return _LOADING if unit is Unit.LD else _STORING
