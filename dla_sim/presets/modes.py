"""Memory modes: where constants and activations lie, as named constants of Timing (docs/machine.md, section 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from isa.errors import InputError, meant

SRAM_LATENCY = 32
"""Cycles of an SRAM next to the accelerator, in Arm's reference system for Ethos-U55 (``Sram_read_latency``)."""


@dataclass(frozen=True)
class MemoryMode:
    """``timing`` are the keys of Timing that it sets; ``main``: what the main memory is made of."""

    name: str
    description: str
    main: Literal["DRAM", "SRAM"]
    timing: Mapping[str, int]


_FLASH = {"flash_bytes": 1, "flash_burst_bytes": 128, "flash_latency": 64, "flash_outstanding_bursts": 2}
MEMORY_MODES = (
    MemoryMode("dram", "everything in the DRAM of the preset", "DRAM", {"flash_bytes": 0}),
    MemoryMode(
        "flash",
        "constants and command words in a flash of 1 byte a cycle, all else in SRAM next to the accelerator",
        "SRAM",
        {"dram_latency": SRAM_LATENCY, **_FLASH},
    ),
    MemoryMode(
        "sram",
        "everything in SRAM next to the accelerator",
        "SRAM",
        {"dram_latency": SRAM_LATENCY, "flash_bytes": 0},
    ),
)
"""All that there are. The figures are those of Arm's reference system ``Ethos_U55_High_End_Embedded``."""


SRAM_MODES = tuple(mode.name for mode in MEMORY_MODES if mode.main == "SRAM")
"""Those in which the main memory is an SRAM next to the accelerator."""


def memory_mode(name: str) -> MemoryMode:
    """The mode of that name; raises InputError for any other."""
    names = [mode.name for mode in MEMORY_MODES]
    if name not in names:
        raise InputError(f"unknown memory mode '{name}'; {meant(name, names)}choose one of {', '.join(names)}")
    return MEMORY_MODES[names.index(name)]
