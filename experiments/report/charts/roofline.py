"""The roofline of a run: every layer's multiply-accumulates a cycle over those a byte of DRAM traffic.

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model" (2009): a machine of N
processing elements whose bus moves B bytes a cycle does at most min(N, B x) multiply-accumulates a cycle at x of them a
byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.report.charts.model import Mark, Roofline
from experiments.report.charts.style import KINDS, UNKNOWN

if TYPE_CHECKING:
    from experiments.report.schema import Layer, RunReport

NOTE = (
    "Both axes are logarithmic. Layers without DRAM traffic stand at the right edge, those without MACs in the lower "
    "left corner. A layer can lie above the slanted roof: what is fetched while an earlier layer computes costs the "
    "later one no cycles."
)
NO_TRAFFIC = "no DRAM traffic: at the right edge"
NO_MACS = "no MACs: in the lower left corner"


def roofline(report: RunReport) -> Roofline:
    """Every layer is on it: those without traffic at the right edge, those without MACs in the lower left corner."""
    pe, bus = report.arch["pe"], float(report.timing["bus_bytes"])
    elements = float(pe["ic"] * pe["oc"] * pe["ow"])
    intensities = [found for layer in report.layers if (found := intensity(layer))]
    rates = [layer.macs / layer.cycles for layer in report.layers if layer.macs and layer.cycles]
    ridge = elements / bus
    left = min([ridge / 4, *intensities]) / 2
    right = max([ridge * 4, *intensities]) * 4
    bottom = min([elements / 16, *rates]) / 2
    kinds = sorted({layer.kind for layer in report.layers}, key=lambda kind: (kind not in KINDS, kind))
    marks = tuple(
        (
            kind,
            KINDS.get(kind, UNKNOWN),
            tuple(
                _mark(number, layer, (left, bottom), right)
                for number, layer in enumerate(report.layers)
                if layer.kind == kind
            ),
        )
        for kind in kinds
    )
    return Roofline("roofline", "Roofline", marks, elements, bus, (left, bottom), right, NOTE)


def intensity(layer: Layer) -> float | None:
    """Multiply-accumulates a byte of DRAM traffic; None where that has no place on a logarithmic axis."""
    moved = layer.dram_read_bytes + layer.dram_write_bytes
    return layer.macs / moved if layer.macs and moved else None


def _mark(number: int, layer: Layer, corner: tuple[float, float], right: float) -> Mark:
    left, bottom = corner
    if not layer.macs or not layer.cycles:
        return Mark(number, layer.name, left, bottom, NO_MACS)
    rate, found = layer.macs / layer.cycles, intensity(layer)
    return Mark(number, layer.name, right, rate, NO_TRAFFIC) if found is None else Mark(number, layer.name, found, rate)
