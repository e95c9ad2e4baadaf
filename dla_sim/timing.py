"""Timing: machine parameters that affect cycles but not results (docs/machine.md, section 2).

``isa.arch.Arch`` is the part that affects programs: a program runs with any Timing. The compiler
only uses the bus of a Timing to choose schedules (``byoc.estimate.bus``), so a sweep over other
parameters compiles once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from isa.arch import declare_key
from isa.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Sizes = TypeVar("_Sizes", int, "NDArray[np.int64]")
LEAST_RATE = Fraction(1, 1000)
"""Lowest rate of a memory in bytes per cycle, so that cycle counts stay far below 2 ** 63."""
_RATE = re.compile(r"\d{1,9}(\.\d{1,9}|/[1-9]\d{0,8})?")


def _parse_rate(given: Any) -> int | float | str | None:
    """Return a rate as a number, or as text ``p/q`` if it is no decimal of at most 9 places."""
    if given is None:
        return None
    text = f"{Decimal(repr(given)):f}" if isinstance(given, float) else str(given)
    if isinstance(given, bool) or not _RATE.fullmatch(text) or Fraction(text) < LEAST_RATE:
        raise ValueError(
            "write a decimal or a fraction of bytes per cycle, at least 0.001, such as 0.44 or "
            "11/25"
        )
    rate = Fraction(text)
    if rate.denominator == 1:
        return rate.numerator
    return float(rate) if 10**9 % rate.denominator == 0 else str(rate)


Rate = Annotated[int | float | str | None, BeforeValidator(_parse_rate)]
"""Bytes per cycle of a memory, exact as it is printed; None is the width of its bus beat."""


def _exact(rate: float | str) -> Fraction:
    """Return the exact value of a :data:`Rate`."""
    return Fraction(str(rate))


@dataclass(frozen=True, slots=True)
class MemoryTiming:
    """Timing of a memory behind the bus, with its beat width and burst size.

    At most ``outstanding`` bursts are in flight. ``latency`` is in cycles, from request to first
    data or from last data to acknowledgement. ``rate`` is in bytes per cycle; None means ``width``.
    """

    width: int
    burst_bytes: int
    latency: int
    outstanding: int
    rate: Fraction | None = None

    @property
    def burst_beats(self) -> int:
        """Number of bus beats of a whole burst."""
        return self.burst_bytes // self.width

    @property
    def burst_gap(self) -> int:
        """Cycles between the starts of two bursts with ``outstanding`` bursts in flight."""
        return -(-(self.latency + self.burst_cycles) // self.outstanding)

    @property
    def burst_cycles(self) -> int:
        """Cycles in which the memory serves a whole burst."""
        return self.data_cycles(self.burst_bytes)

    def data_cycles(self, nbytes: _Sizes) -> _Sizes:
        """Return the cycles in which the memory serves ``nbytes``, or each of them, at its rate."""
        if self.rate is None:
            return -(-nbytes // self.width)
        return -(-nbytes * self.rate.denominator // self.rate.numerator)

    @property
    def sustained_bytes(self) -> float:
        """Bytes per cycle that a memory delivers in consecutive whole bursts.

        This is ``width``, or less if ``rate`` or ``burst_gap`` is the limit.
        """
        return self.burst_bytes / max(self.burst_cycles, self.burst_gap)

    @property
    def bursts_to_fill(self) -> int:
        """Smallest ``outstanding`` with which whole bursts do not wait for ``burst_gap``."""
        return -(-(self.latency + self.burst_cycles) // self.burst_cycles)

    def least_slots(self, nbytes: int) -> int:
        """Return the fewest bus slots that can move ``nbytes``.

        A burst moves at most ``burst_bytes`` in at least ``burst_gap`` slots, and the memory
        serves no byte faster than its rate.
        """
        return max(-(-nbytes // self.burst_bytes) * self.burst_gap, self.data_cycles(nbytes))


_OPTIONS = {
    "flash_": "flash_bytes",
    "dram_row_": "dram_row_bytes",
    "dram_refresh_": "dram_refresh_interval",
}
"""Keys of an option, by their first letters, and the key that is 0 without the option."""


class Timing(BaseModel):
    """Timing parameters of a machine; frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bus_bytes: int = declare_key(
        8, "bytes/cycle", "bus width", "width of the shared bus, a power of two", 1, 4096
    )
    burst_bytes: int = declare_key(
        64,
        "bytes",
        "burst",
        "aligned block of system memory that one burst can cover, a power of two",
        1,
        65536,
    )
    dram_latency: int = declare_key(
        100,
        "cycles",
        "DRAM latency",
        "request to first data; last data to acknowledgement",
        0,
        1 << 20,
    )
    outstanding_bursts: int = declare_key(
        16, "bursts", "bursts in flight", "in flight, all requesters together", 1, 1 << 20
    )
    dram_rate: Rate = declare_key(
        None, "bytes/cycle", "rate of the main memory",
        "main memory: bytes served a cycle, such as 0.44 or 11/25; none: bus_bytes",
    )  # fmt: skip
    dram_row_bytes: int = declare_key(
        0, "bytes", "row of the main memory",
        "main memory: bytes of a row, a power of two; 0 is no rows", 0, 1 << 20,
    )  # fmt: skip
    dram_row_banks: int = declare_key(
        8, "banks", "banks of the main memory", "main memory: banks with an open row each", 1, 1024
    )
    dram_row_miss: int = declare_key(
        36, "cycles", "row miss", "main memory: to close a row and open another", 0, 1 << 20
    )
    dram_refresh_interval: int = declare_key(
        0, "cycles", "refresh interval", "main memory: between two refreshes; 0 is no refresh",
        0, 1 << 30,
    )  # fmt: skip
    dram_refresh_cycles: int = declare_key(
        280, "cycles", "refresh", "main memory: of a refresh, in which the bus is idle", 1, 1 << 20
    )
    flash_bytes: int = declare_key(
        0, "bytes/cycle", "width of the flash",
        "width of the flash, which holds constants and command words; 0 is none", 0, 4096,
    )  # fmt: skip
    flash_burst_bytes: int = declare_key(
        128, "bytes", "burst of the flash",
        "aligned block of the flash that one burst can cover, a power of two", 1, 65536,
    )  # fmt: skip
    flash_latency: int = declare_key(
        64, "cycles", "latency of the flash", "flash: request to first data", 0, 1 << 20
    )
    flash_outstanding_bursts: int = declare_key(
        2, "bursts", "bursts of the flash in flight", "flash: in flight", 1, 1 << 20
    )
    flash_rate: Rate = declare_key(
        None, "bytes/cycle", "rate of the flash",
        "flash: bytes served a cycle, such as 0.44 or 11/25; none: flash_bytes",
    )  # fmt: skip
    queue_depth: int = declare_key(
        2,
        "commands",
        "depth of queues",
        "entries of a unit's queue, the executing one included",
        1,
        1 << 16,
    )
    fetch_bytes: int = declare_key(
        512,
        "bytes",
        "chunk of command words",
        "one chunk of command words, a multiple of 8",
        8,
        1 << 20,
    )
    fetch_buffers: int = declare_key(
        4, "chunks", "chunks fetched ahead", "chunks of command words held or requested", 1, 1 << 16
    )
    dma_setup: int = declare_key(
        4, "cycles", "DMA setup", "LD, ST: before the first request", 0, 1 << 20
    )
    dma_drain: int = declare_key(
        4, "cycles", "DMA drain", "LD, ST: after the last data or acknowledgement", 0, 1 << 20
    )
    ex_fill: int = declare_key(
        8, "cycles", "pipeline fill", "EX: pipeline fill of one operation", 0, 1 << 20
    )
    ex_drain: int = declare_key(
        8, "cycles", "pipeline drain", "EX: pipeline drain of one operation", 0, 1 << 20
    )
    sync_cycles: int = declare_key(
        1, "cycles", "synchronisation", "duration of OP_SYNC", 1, 1 << 20
    )
    sram_read_bytes: int = declare_key(
        0,
        "bytes/cycle",
        "SRAM read width",
        "EX read ports; 0 is wide enough; not of v5",
        0,
        1 << 20,
    )
    sram_write_bytes: int = declare_key(
        0,
        "bytes/cycle",
        "SRAM write width",
        "EX write ports; 0 is wide enough; not of v5",
        0,
        1 << 20,
    )
    bank_ports: int = declare_key(
        4,
        "accesses/cycle",
        "ports of a bank",
        "operand streams of EX that one bank serves; not of v5",
        1,
        1024,
    )
    clock_hz: int = declare_key(
        1_000_000_000, "Hz", "clock", "only where a time is printed", 1, 10**15
    )

    @model_validator(mode="after")
    def _consistent(self) -> Timing:
        widths = [
            ("bus_bytes", "burst_bytes"),
            *([("flash_bytes", "flash_burst_bytes")] if self.flash_bytes else []),
        ]
        for pair in widths:
            for name in pair:
                value = getattr(self, name)
                if value & (value - 1):
                    raise ValueError(f"{name} is {value}; it must be a power of two")
        for width, burst in widths:
            if getattr(self, burst) < getattr(self, width):
                raise ValueError(
                    f"{burst} {getattr(self, burst)} must be at least {width} "
                    f"{getattr(self, width)}"
                )
        if self.flash_bytes > self.bus_bytes:
            raise ValueError(
                f"flash_bytes {self.flash_bytes} must be at most bus_bytes {self.bus_bytes}"
            )
        rates = {"dram_rate": "bus_bytes", "flash_rate": "flash_bytes"}
        for name, width in rates.items():
            rate, most = getattr(self, name), getattr(self, width)
            if rate is not None and most and _exact(rate) > most:
                raise ValueError(
                    f"{name} {rate} must be at most {width} {most}; leave {name} out for a memory "
                    "that keeps up"
                )
        self._check_dram()
        if self.fetch_bytes % 8:
            raise ValueError(
                f"fetch_bytes is {self.fetch_bytes}; it must be a multiple of the 8 bytes of a "
                "command word"
            )
        return self

    def _check_dram(self) -> None:
        """Raise ValueError if a row or a refresh of the main memory cannot exist."""
        row = self.dram_row_bytes
        if row and (row & (row - 1) or row < self.burst_bytes):
            raise ValueError(
                f"dram_row_bytes is {row}; it must be a power of two and at least burst_bytes "
                f"{self.burst_bytes}"
            )
        if 0 < self.dram_refresh_interval <= self.dram_refresh_cycles:
            raise ValueError(
                f"dram_refresh_cycles {self.dram_refresh_cycles} must be less than "
                f"dram_refresh_interval {self.dram_refresh_interval}"
            )

    @model_serializer(mode="wrap")
    def _omit_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit rates that are None, and defaults of the options that a machine does not have."""
        values: dict[str, Any] = dump(self)
        fields = type(self).model_fields
        return {
            name: value
            for name, value in values.items()
            if value != fields[name].default
            or (
                value is not None
                and all(
                    getattr(self, switch) or not name.startswith(group)
                    for group, switch in _OPTIONS.items()
                )
            )
        }

    def can_move_words(self, word_bytes: int) -> bool:
        """Return True if transfers leave cycles of a bank to EX; 0 bytes are ideal memory."""
        return not 0 < word_bytes < 2 * self.bus_bytes

    def word_cycles(self, word_bytes: int) -> int:
        """Return K, the cycles in which the bus moves a scratchpad word; 0 for ideal memory.

        docs/machine.md, section 12, defines K. Raises InputError if the bus is so wide that a
        transfer could take every cycle of a bank.
        """
        if not self.can_move_words(word_bytes):
            raise InputError(
                f"bus_bytes {self.bus_bytes} is more than half of word_bytes {word_bytes}: a "
                "transfer could take "
                f"every cycle of a bank; bus_bytes {word_bytes // 2} or word_bytes "
                f"{2 * self.bus_bytes} would do"
            )
        return word_bytes // self.bus_bytes

    @property
    def has_rows_or_refresh(self) -> bool:
        """True if the main memory has rows or a refresh."""
        return bool(self.dram_row_bytes or self.dram_refresh_interval)

    @property
    def main_rate(self) -> Fraction | None:
        """Exact ``dram_rate``, or None if the main memory serves whole beats of the bus."""
        if self.dram_rate is None:
            return None
        rate = _exact(self.dram_rate)
        return rate if rate < self.bus_bytes else None

    @property
    def main(self) -> MemoryTiming:
        """Timing of the main memory, which holds everything that is not in the flash."""
        return MemoryTiming(
            self.bus_bytes,
            self.burst_bytes,
            self.dram_latency,
            self.outstanding_bursts,
            self.main_rate,
        )

    @property
    def flash(self) -> MemoryTiming | None:
        """Timing of the separate memory of the constants, or None if there is none."""
        if not self.flash_bytes:
            return None
        return MemoryTiming(
            self.flash_bytes,
            self.flash_burst_bytes,
            self.flash_latency,
            self.flash_outstanding_bursts,
            _exact(self.flash_rate) if self.flash_rate is not None else None,
        )

    @property
    def constants(self) -> MemoryTiming:
        """Timing of the memory that holds constants and command words.

        This is the flash or, without one, the main memory.
        """
        return self.flash or self.main

    def lower_bound(self, macs: int, elements: int, nbytes: int, apart: tuple[int, int]) -> int:
        """Return a lower bound of the cycles of any program with given EX and bus work.

        It assumes that all processing elements are busy, or that the memories serve every byte at
        their rate.

        Args:
            macs: multiply-accumulates.
            elements: processing elements.
            nbytes: bytes that must move at least once.
            apart: bytes to and from the main memory, and bytes of constants; used instead of
                ``nbytes`` if there is a flash.
        """
        if self.flash is None:
            cycles = self.main.data_cycles(nbytes)
        else:
            cycles = self.main.data_cycles(apart[0]) + self.flash.data_cycles(apart[1])
        return max(-(-macs // elements), cycles)

    def least_cycles(self, compute: int, commands: int, apart: tuple[int, int]) -> int:
        """Return the minimum cycles of a program by the work of EX and of the bus (roofline).

        Args:
            compute: compute cycles of EX.
            commands: number of EX commands.
            apart: bytes to and from the main memory, and bytes of constants.
        """
        if self.flash is None:
            slots = self.main.least_slots(sum(apart))
        else:
            slots = self.main.least_slots(apart[0]) + self.flash.least_slots(apart[1])
        return max(compute + commands * (self.ex_fill + self.ex_drain), slots)
