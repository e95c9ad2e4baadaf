"""The machines and timings that golden cases run on, by short names."""

from __future__ import annotations

from collections.abc import Mapping

from dla_sim.timing import Timing
from isa.arch import Arch, PeArray

BALANCED = Arch(isa="v2")
FIXED = Arch(isa="v2", numerics="fixed")
GROUPED = Arch(isa="v3")
TABLES = Arch(isa="v4")
ARRAYS: Mapping[str, Arch] = {
    "input-parallel": Arch(isa="v1", pe=PeArray(ic=64, oc=1, ow=1)),
    "output-parallel": Arch(isa="v1", pe=PeArray(ic=1, oc=64, ow=1)),
    "three-axes": Arch(isa="v3", pe=PeArray(ic=4, oc=2, ow=3)),
    "few-lanes": Arch(isa="v2", pe=PeArray(ic=8, oc=8), post_lanes=4),
    "one-element": Arch(isa="v2", pe=PeArray(ic=1, oc=1), sram_bytes=16384, sram_banks=2),
}
"""Shapes of the array and lanes of post-processing."""

TIMINGS: Mapping[str, Timing] = {
    "slow-bus": Timing(
        bus_bytes=2, burst_bytes=16, dram_latency=37, outstanding_bursts=2, queue_depth=1
    ),
    "wide-bus": Timing(
        bus_bytes=32, burst_bytes=256, dram_latency=9, queue_depth=4, dma_setup=0, dma_drain=0
    ),
    "little-fetch": Timing(fetch_bytes=16, fetch_buffers=1, dram_latency=50, sync_cycles=5),
    "narrow-ports": Timing(
        sram_read_bytes=8, sram_write_bytes=2, bank_ports=1, ex_fill=3, ex_drain=0
    ),
}
"""What only cycles depend on."""


def machine(isa: str, numerics: str, **more: int) -> Arch:
    """The default machine with another variant and numerics."""
    return Arch.model_validate({"isa": isa, "numerics": numerics, **more})
