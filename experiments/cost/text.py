"""Estimates in words: every line says that it is one, and by which table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.cost.estimate import Estimate

MICROJOULE = 1e6
"""Picojoules."""
SQUARE_MILLIMETRE = 1e6
"""Square micrometres."""
_ENERGY = {"mac": "MACs", "sram": "SRAM", "dram": "DRAM", "register_write": "registers"}
_AREA = {"pe": "PEs", "sram": "SRAM"}


def cost_lines(found: Estimate) -> Iterator[tuple[str, str]]:
    """Name and text of what there is to say: energy, area, notes."""
    energy, area = found.energy_pj, found.area_um2
    parts = ", ".join(_share(name, getattr(energy, key), energy.total) for key, name in _ENERGY.items())
    yield "energy (estimate)", f"{energy.total / MICROJOULE:,.1f} µJ by {found.table}: {parts}"
    parts = ", ".join(_share(name, getattr(area, key), area.total) for key, name in _AREA.items())
    yield "area (estimate)", f"{area.total / SQUARE_MILLIMETRE:.3f} mm² by {found.table}: {parts}"
    for note in found.notes:
        yield "", note


def _share(name: str, value: float, total: float) -> str:
    return f"{name} {value / total:.1%}" if total else f"{name} 0"
