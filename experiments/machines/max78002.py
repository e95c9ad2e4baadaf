"""MAX78002 of Analog Devices: MAX78000 with more memory and a faster clock, not validated.

The vendor's latency estimate does not cover this device; its formula for MAX78000 is used instead.
Depthwise convolutions, planes with dilation and parallel reads are not described.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.machines import max78000
from experiments.machines.description import MachineMemory
from isa.arch import declare_key


class Max78002Parameters(max78000.Max78000Parameters):
    """Parameters of MAX78002."""

    clock_hz: int = declare_key(200_000_000, "Hz", "CNN clock", "clock of the accelerator", 1)
    start_cycles: int = declare_key(0, "cycles", "start-up", "unknown, not counted", 0)
    data_bytes: int = declare_key(81_920, "bytes", "data memory", "memory of 4 processors", 4)
    kernels: int = declare_key(4096, "kernels", "weight memory", "9-byte kernels a processor", 1)
    max_channels: int = declare_key(2048, "channels", "channels", "channels of a layer", 1)
    max_side: int = declare_key(2047, "pixels", "side", "rows or columns of a plane", 1)
    max_pool_passes: int = declare_key(32, "passes", "pool passes", "passes of a pool alone", 1)


MACHINE = replace(
    max78000.MACHINE,
    name="max78002",
    summary="Analog Devices MAX78002: formula of MAX78000, not validated",
    parameters=Max78002Parameters,
    memories=(
        MachineMemory("data", 16 * 81_920, 64, "processors"),
        MachineMemory("weights", (60 * 4096 + 4 * 5120) * 9, 576, "processors"),
    ),
    published=(),
    fitted=(),
    validated=False,
)
