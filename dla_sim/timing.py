"""Timing: everything about a machine that changes its cycles and nothing else (docs/machine.md, section 2).

What changes the program as well is ``isa.arch.Arch``. The compiler never reads a Timing, so that a sweep over it
compiles once.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Timing(BaseModel):
    """The constants of the machine's timing, in cycles unless said otherwise. Frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bus_bytes: int = Field(default=8, ge=1, le=4096, description="width of the shared bus, bytes a cycle")
    burst_bytes: int = Field(default=64, ge=1, le=65536, description="aligned block that one burst can cover, bytes")
    dram_latency: int = Field(
        default=100, ge=0, le=1 << 20, description="request to first data; last data to acknowledgement"
    )
    outstanding_bursts: int = Field(
        default=16, ge=1, le=1 << 20, description="bursts in flight, all requesters together"
    )
    queue_depth: int = Field(
        default=2, ge=1, le=1 << 16, description="entries of a unit's queue, the executing one included"
    )
    fetch_bytes: int = Field(default=512, ge=8, le=1 << 20, description="bytes of one chunk of command words")
    fetch_buffers: int = Field(default=4, ge=1, le=1 << 16, description="chunks that the fetch holds or has requested")
    dma_setup: int = Field(default=4, ge=0, le=1 << 20, description="LD, ST: cycles before the first request")
    dma_drain: int = Field(
        default=4, ge=0, le=1 << 20, description="LD, ST: cycles after the last data or acknowledgement"
    )
    ex_fill: int = Field(default=8, ge=0, le=1 << 20, description="EX: pipeline fill of one operation")
    ex_drain: int = Field(default=8, ge=0, le=1 << 20, description="EX: pipeline drain of one operation")
    sync_cycles: int = Field(default=1, ge=1, le=1 << 20, description="duration of OP_SYNC")
    sram_read_bytes: int = Field(
        default=0, ge=0, le=1 << 20, description="EX read ports, bytes a cycle; 0 is wide enough"
    )
    sram_write_bytes: int = Field(
        default=0, ge=0, le=1 << 20, description="EX write ports, bytes a cycle; 0 is wide enough"
    )
    bank_ports: int = Field(
        default=4, ge=1, le=1024, description="operand streams of EX that one bank serves in a cycle"
    )
    clock_hz: int = Field(default=1_000_000_000, ge=1, le=10**15, description="only where a time is printed")

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
