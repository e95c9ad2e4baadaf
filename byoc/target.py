"""What partitioning needs to know about the machine: which instructions it has and how far their fields reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """An ISA variant as the compiler sees it. ``instructions`` are mnemonics; limits are exclusive upper bounds."""

    instructions: frozenset[str]
    isa: str
    emulate_depthwise: bool = False
    channel_limit: int = 1 << 20
    spatial_limit: int = 1 << 16
    window_limit: int = 1 << 8
