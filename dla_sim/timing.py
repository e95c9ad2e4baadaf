"""Timing: everything about a machine that changes its cycles and nothing else (docs/machine.md, section 2).

What changes the program as well is ``isa.arch.Arch``. The compiler never reads a Timing, so that a sweep over it
compiles once.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, model_validator

from isa.arch import about


class Timing(BaseModel):
    """The constants of the machine's timing. Frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bus_bytes: Annotated[int, about("bytes/cycle", "width of the shared bus, a power of two", 1, 4096)] = 8
    burst_bytes: Annotated[
        int, about("bytes", "aligned block of system memory that one burst can cover, a power of two", 1, 65536)
    ] = 64
    dram_latency: Annotated[int, about("cycles", "request to first data; last data to acknowledgement", 0, 1 << 20)] = (
        100
    )
    outstanding_bursts: Annotated[int, about("bursts", "in flight, all requesters together", 1, 1 << 20)] = 16
    queue_depth: Annotated[
        int, about("commands", "entries of a unit's queue, the executing one included", 1, 1 << 16)
    ] = 2
    fetch_bytes: Annotated[int, about("bytes", "one chunk of command words, a multiple of 8", 8, 1 << 20)] = 512
    fetch_buffers: Annotated[int, about("chunks", "chunks of command words held or requested", 1, 1 << 16)] = 4
    dma_setup: Annotated[int, about("cycles", "LD, ST: before the first request", 0, 1 << 20)] = 4
    dma_drain: Annotated[int, about("cycles", "LD, ST: after the last data or acknowledgement", 0, 1 << 20)] = 4
    ex_fill: Annotated[int, about("cycles", "EX: pipeline fill of one operation", 0, 1 << 20)] = 8
    ex_drain: Annotated[int, about("cycles", "EX: pipeline drain of one operation", 0, 1 << 20)] = 8
    sync_cycles: Annotated[int, about("cycles", "duration of OP_SYNC", 1, 1 << 20)] = 1
    sram_read_bytes: Annotated[int, about("bytes/cycle", "EX read ports; 0 is wide enough", 0, 1 << 20)] = 0
    sram_write_bytes: Annotated[int, about("bytes/cycle", "EX write ports; 0 is wide enough", 0, 1 << 20)] = 0
    bank_ports: Annotated[int, about("accesses/cycle", "operand streams of EX that one bank serves", 1, 1024)] = 4
    clock_hz: Annotated[int, about("Hz", "only where a time is printed", 1, 10**15)] = 1_000_000_000

    @model_validator(mode="after")
    def _consistent(self) -> Timing:
        for name in ("bus_bytes", "burst_bytes"):
            value = getattr(self, name)
            if value & (value - 1):
                raise ValueError(f"{name} is {value}; it must be a power of two")
        if self.burst_bytes < self.bus_bytes:
            raise ValueError(f"burst_bytes {self.burst_bytes} must be at least bus_bytes {self.bus_bytes}")
        if self.fetch_bytes % 8:
            raise ValueError(
                f"fetch_bytes is {self.fetch_bytes}; it must be a multiple of the 8 bytes of a command word"
            )
        return self

    @property
    def burst_beats(self) -> int:
        """Beats of a whole burst."""
        return self.burst_bytes // self.bus_bytes

    @property
    def burst_gap(self) -> int:
        """Cycles between the starts of two bursts that ``outstanding_bursts`` in flight can sustain."""
        return -(-(self.dram_latency + self.burst_beats) // self.outstanding_bursts)

    @property
    def sustained_bytes(self) -> float:
        """Bytes a cycle that whole bursts one after another move: ``bus_bytes``, or less where ``burst_gap`` binds."""
        return self.burst_bytes / max(self.burst_beats, self.burst_gap)

    @property
    def bursts_to_fill(self) -> int:
        """The fewest ``outstanding_bursts`` with which whole bursts one after another fill the bus."""
        return -(-(self.dram_latency + self.burst_beats) // self.burst_beats)

    def lower_bound(self, macs: int, elements: int, nbytes: int) -> int:
        """Cycles that no program takes fewer on ``elements`` processing elements: all of them busy, or whole beats.

        ``nbytes``: what must move at least once.
        """
        return max(-(-macs // elements), -(-nbytes // self.bus_bytes))

    def least_cycles(self, compute: int, commands: int, nbytes: int) -> int:
        """Cycles that no program takes fewer that has so many compute cycles in so many commands of EX and moves so
        many bytes: those of its only EX, and those of its only bus (the roofline).

        A burst moves ``burst_bytes`` at most, in ``burst_gap`` slots at least, and every beat ``bus_bytes`` at most.
        """
        bursts, beats = -(-nbytes // self.burst_bytes), -(-nbytes // self.bus_bytes)
        return max(compute + commands * (self.ex_fill + self.ex_drain), bursts * self.burst_gap, beats)
