"""Objectives: what can be traded, by name, with its unit and whether more of it is better."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.explore.hypervolume import Pair
from isa.errors import InputError

ESTIMATED = "estimate"
"""What the unit of an estimate says beside it."""


@dataclass(frozen=True)
class Objective:
    """A column of a sweep's rows. ``scale`` turns it into ``unit``; ``more`` where more is better."""

    name: str
    column: str
    unit: str
    scale: float = 1.0
    more: bool = False

    @property
    def title(self) -> str:
        """Name and unit, as an axis or a column heading has them."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def value(self, row: Mapping[str, Any]) -> float:
        """The value in a row that ended ok, in ``unit``."""
        return float(row[self.column]) * self.scale

    def cost(self, row: Mapping[str, Any]) -> float:
        """The same with the sign that makes less better."""
        return -self.value(row) if self.more else self.value(row)


_ALL = (
    Objective("cycles", "cycles", ""),
    Objective("energy", "estimated_energy_pj", f"µJ, {ESTIMATED}", 1e-6),
    Objective("area", "estimated_area_um2", f"mm², {ESTIMATED}", 1e-6),
    Objective("pes", "pe.count", "PEs"),
    Objective("sram", "sram_bytes", "KiB", 1 / 1024),
    Objective("bandwidth", "bus_bytes", "bytes/cycle"),
    Objective("utilization", "utilization", "", more=True),
    Objective("dram-read", "dram_read_bytes", "bytes"),
    Objective("dram-write", "dram_write_bytes", "bytes"),
    Objective("sram-peak", "sram_peak_bytes", "bytes"),
    Objective("instructions", "instructions", ""),
    Objective("host-cycles", "host_estimated_cycles", f"cycles, {ESTIMATED}"),
)
OBJECTIVES: Mapping[str, Objective] = {objective.name: objective for objective in _ALL}

Objectives = tuple[Objective, Objective]


def parse_objectives(text: str) -> Objectives:
    """The two objectives of ``"cycles,area"``; raises InputError for unknown names and for other numbers of them."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in OBJECTIVES:
            close = difflib.get_close_matches(name, OBJECTIVES, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise InputError(f"--objectives: unknown '{name}'; {meant}choose two of {', '.join(OBJECTIVES)}")
    if len(names) != 2 or names[0] == names[1]:
        raise InputError(f"--objectives is '{text}'; name two different ones, such as cycles,area")
    return OBJECTIVES[names[0]], OBJECTIVES[names[1]]


def costs(objectives: Objectives, row: Mapping[str, Any]) -> Pair | None:
    """Both objectives of a row, less being better; None where the row did not end ok."""
    if row["status"] != "ok":
        return None
    return objectives[0].cost(row), objectives[1].cost(row)
